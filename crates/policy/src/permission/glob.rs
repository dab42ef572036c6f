//! Patterns: `*` matches any number of characters, including none; every other character matches itself.

/// Whether the whole of `text` matches `pattern`. `star_matches` returns whether a star that is not the
/// last character of the pattern matches a character.
///
/// Never recurses, and needs at most `pattern * text` steps.
pub(super) fn matches(pattern: &str, text: &str, star_matches: impl Fn(char) -> bool) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    let (mut at, mut seen) = (0, 0);
    // After the last star: its position in the pattern, and how much of the text it has matched.
    let mut back: Option<(usize, usize)> = None;
    while seen < text.len() {
        if pattern.get(at) == Some(&'*') {
            back = Some((at, seen));
            at += 1;
        } else if pattern.get(at) == Some(&text[seen]) {
            at += 1;
            seen += 1;
        } else if let Some((stood, gone)) = back {
            if stood + 1 != pattern.len() && !star_matches(text[gone]) {
                return false;
            }
            back = Some((stood, gone + 1));
            (at, seen) = (stood + 1, gone + 1);
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|c| *c == '*')
}
