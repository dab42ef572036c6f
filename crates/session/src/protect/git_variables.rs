//! Parses the variables of a git configuration (git-config(1), "CONFIGURATION FILE"). The parser is
//! lenient: a value that git would not accept causes an unnecessary pin, and no other harm.

/// All variables, as `section.subsection.key` (section and key in lower case) and the value without quotes.
pub(crate) fn parse_variables(text: &[u8]) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)).into_owned();
    let (mut values, mut section) = (Vec::new(), String::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let mut rest = line.trim_start();
        while let Some((name, after)) = parse_heading(rest) {
            section = name;
            rest = after.trim_start();
        }
        let Some((key, value)) = rest.split_once('=') else { continue };
        if rest.starts_with(['#', ';']) {
            continue;
        }
        let mut raw = value.to_owned();
        while raw.ends_with('\\') && !raw.ends_with("\\\\") {
            raw.pop();
            let Some(next) = lines.next() else { break };
            raw.push_str(next);
        }
        values.push((format!("{section}.{}", key.trim().to_ascii_lowercase()), unquote(raw.trim())));
    }
    values
}

/// Parses `[name]`, `[name "sub"]` or `[name.sub]`. Returns the rest of the line too.
fn parse_heading(text: &str) -> Option<(String, &str)> {
    let inner = text.strip_prefix('[')?;
    let (mut name, mut quoted, mut escaped) = (String::new(), false, false);
    for (at, c) in inner.char_indices() {
        match c {
            _ if escaped => {
                name.push(c);
                escaped = false;
            }
            '\\' if quoted => escaped = true,
            '"' => {
                if !quoted {
                    name = format!("{}.", name.trim_end());
                }
                quoted = !quoted;
            }
            ']' if !quoted => return Some((name, &inner[at + 1..])),
            c if quoted => name.push(c),
            c => name.push(c.to_ascii_lowercase()),
        }
    }
    None
}

/// Removes quotes, escapes and the trailing comment of a value.
fn unquote(raw: &str) -> String {
    let (mut text, mut quoted) = (String::new(), false);
    let mut chars = raw.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => quoted = !quoted,
            '#' | ';' if !quoted => break,
            '\\' => text.push(match chars.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some(other) => other,
                None => break,
            }),
            c => text.push(c),
        }
    }
    text.trim_end().to_owned()
}

/// Whether the value of a variable never names a file that git runs, reads or obeys, so that paths in it
/// need no pin.
pub(super) fn is_harmless(name: &str) -> bool {
    const SECTIONS: [&str; 8] =
        ["branch.", "user.", "author.", "committer.", "extensions.", "color.", "advice.", "gc."];
    const REMOTE: [&str; 5] = [".url", ".pushurl", ".fetch", ".push", ".mirror"];
    const SUBMODULE: [&str; 5] = [".url", ".path", ".active", ".branch", ".ignore"];
    let ends = |ends: &[&str]| ends.iter().any(|end| name.ends_with(end));
    SECTIONS.iter().any(|section| name.starts_with(section))
        || name.starts_with("remote.") && ends(&REMOTE)
        || name.starts_with("submodule.") && ends(&SUBMODULE)
        || name == "core.worktree"
}

/// The words of a command that may name files.
pub(super) fn command_words(value: &str) -> impl Iterator<Item = &str> {
    let ends = |c: char| c.is_whitespace() || "\"'`;|&()<>=,$!".contains(c);
    value.split(ends).filter(|word| !word.is_empty() && !word.starts_with('-')).take(64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_that_git_reads() {
        let text = "\u{feff}[core]\n\thooksPath = .husky # x\n[Include] Path = \"a b\"\n[filter \"X.y\"]\r\n\
            clean = sh \\\n tools/c.sh \\\"q\\\" ; no\n# c = d\n[includeIf \"gitdir:/\\\"a]\"]path=x\n";
        let expected = [
            ("core.hookspath", ".husky"),
            ("include.path", "a b"),
            ("filter.X.y.clean", "sh  tools/c.sh \"q\""),
            ("includeif.gitdir:/\"a].path", "x"),
        ];
        let values = parse_variables(text.as_bytes());
        let read: Vec<_> = values.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(read, expected);
    }

    #[test]
    fn words_are_what_a_shell_would_take_for_files() {
        let words: Vec<_> = command_words("!sh -c 'tools/x.sh --a=b' ; ./y").collect();
        assert_eq!(words, ["sh", "tools/x.sh", "b", "./y"]);
    }
}
