//! Patterns: `*` stands for any characters, none of them too; every other character for itself.

/// Whether the whole of `text` is what `pattern` says. `star` says which characters a star takes that is not
/// the last character of the pattern.
///
/// Never recurses, and needs at most `pattern * text` steps.
pub(super) fn matches(pattern: &str, text: &str, star: impl Fn(char) -> bool) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    let (mut at, mut seen) = (0, 0);
    // After the last star: where it stands, and how far into the text it has gone.
    let mut back: Option<(usize, usize)> = None;
    while seen < text.len() {
        if pattern.get(at) == Some(&'*') {
            back = Some((at, seen));
            at += 1;
        } else if pattern.get(at) == Some(&text[seen]) {
            at += 1;
            seen += 1;
        } else if let Some((stood, gone)) = back {
            if stood + 1 != pattern.len() && !star(text[gone]) {
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
