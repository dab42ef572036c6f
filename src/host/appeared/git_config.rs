//! The keys of a git configuration by which whoever wrote it has the host's next git command run something,
//! and the same text without them (git-config(1), "CONFIGURATION FILE").
//!
//! Read byte by byte as git's own config.c does, since a key that only git sees would be missed here. What git
//! refuses to read is [`Verdict::Unreadable`].

/// What a configuration says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// None of the keys.
    Harmless,
    /// These keys; and the text without them.
    Says {
        /// In lower case, as `core.hookspath`, each once.
        keys: Vec<String>,
        /// What is left.
        rest: Vec<u8>,
    },
    /// Git would refuse it, and so would every command of the host.
    Unreadable,
}

/// Looks for the keys: where hooks are, a program that is asked at every `git status`, and other files to
/// read, which can say both.
pub fn judge(text: &[u8]) -> Verdict {
    let mut reader = Reader { text, at: if text.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 } };
    let (mut keys, mut rest, mut copied) = (Vec::new(), Vec::new(), 0);
    let mut section = String::new();
    while let Some(byte) = reader.peek() {
        let start = reader.at;
        match byte {
            b'#' | b';' => reader.skip_line(),
            b'[' => match reader.section() {
                Some(name) => section = name,
                None => return Verdict::Unreadable,
            },
            byte if is_space(byte) => reader.at += 1,
            byte if byte.is_ascii_alphabetic() => {
                let Some(name) = reader.entry() else { return Verdict::Unreadable };
                let key = format!("{section}.{name}");
                if is_telling(&key) {
                    rest.extend_from_slice(&text[copied..start]);
                    copied = reader.at;
                    if !keys.contains(&key) {
                        keys.push(key);
                    }
                }
            }
            _ => return Verdict::Unreadable,
        }
    }
    rest.extend_from_slice(&text[copied..]);
    if keys.is_empty() { Verdict::Harmless } else { Verdict::Says { keys, rest } }
}

fn is_telling(key: &str) -> bool {
    let conditional = key.starts_with("includeif.") && key.ends_with(".path");
    matches!(key, "core.hookspath" | "core.fsmonitor" | "include.path") || conditional
}

/// isspace of git: no form feed, no vertical tab.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// The next byte. The end of the file ends a line too, and so does CR LF.
    fn next(&mut self) -> u8 {
        if self.text[self.at.min(self.text.len())..].starts_with(b"\r\n") {
            self.at += 1;
        }
        let byte = self.peek().unwrap_or(b'\n');
        self.at = (self.at + 1).min(self.text.len());
        byte
    }

    fn skip_line(&mut self) {
        while self.peek().is_some() && self.next() != b'\n' {}
    }

    /// `[name]` or `[name "sub"]`, as `name` or `name.sub`.
    fn section(&mut self) -> Option<String> {
        self.at += 1;
        let mut name = String::new();
        loop {
            let byte = self.byte()?;
            match byte {
                b']' => return Some(name),
                byte if is_space(byte) => break,
                byte if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.') => {
                    name.push(char::from(byte.to_ascii_lowercase()));
                }
                _ => return None,
            }
        }
        let mut byte = b' ';
        while is_space(byte) {
            byte = self.byte().filter(|byte| *byte != b'\n')?;
        }
        if byte != b'"' {
            return None;
        }
        name.push('.');
        loop {
            match self.byte().filter(|byte| *byte != b'\n')? {
                b'"' => break,
                b'\\' => name.push(char::from(self.byte().filter(|byte| *byte != b'\n')?)),
                byte => name.push(char::from(byte)),
            }
        }
        (self.byte()? == b']').then_some(name)
    }

    /// A byte that must be there.
    fn byte(&mut self) -> Option<u8> {
        self.peek()?;
        Some(self.next())
    }

    /// `name`, or `name = value`; stands before the end of the line afterwards.
    fn entry(&mut self) -> Option<String> {
        let mut name = String::new();
        while let Some(byte) = self.peek().filter(|byte| byte.is_ascii_alphanumeric() || *byte == b'-') {
            name.push(char::from(byte.to_ascii_lowercase()));
            self.at += 1;
        }
        while matches!(self.peek(), Some(b' ' | b'\t')) {
            self.at += 1;
        }
        if self.at_end_of_line() {
            return Some(name);
        }
        if self.next() != b'=' {
            return None;
        }
        let (mut quoted, mut comment) = (false, false);
        while !self.at_end_of_line() {
            match self.next() {
                _ if comment => {}
                b'#' | b';' if !quoted => comment = true,
                b'"' => quoted = !quoted,
                // The end of the line after it goes on with the value.
                b'\\' if !matches!(self.next(), b'\n' | b't' | b'b' | b'n' | b'\\' | b'"') => return None,
                _ => {}
            }
        }
        (!quoted).then_some(name)
    }

    fn at_end_of_line(&self) -> bool {
        let rest = &self.text[self.at..];
        rest.is_empty() || rest.starts_with(b"\n") || rest.starts_with(b"\r\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn says(text: &str) -> (Vec<String>, String) {
        match judge(text.as_bytes()) {
            Verdict::Says { keys, rest } => (keys, String::from_utf8(rest).unwrap()),
            other => panic!("{text:?}: {other:?}"),
        }
    }

    #[test]
    fn every_spelling_that_git_reads_is_found_and_taken_out() {
        let cases = [
            ("[core]\n\thooksPath = x\n\tbare = false\n", "core.hookspath", "[core]\n\t\n\tbare = false\n"),
            ("[CORE]HOOKSPATH=x", "core.hookspath", "[CORE]"),
            ("[core] fsmonitor\n", "core.fsmonitor", "[core] \n"),
            ("\u{feff}[core]\r\nfsmonitor = a\r\n[x]\r\n", "core.fsmonitor", "\u{feff}[core]\r\n\r\n[x]\r\n"),
            ("[core]\nfsmonitor = \"a ; b\" ; c\\\nx = 1\n", "core.fsmonitor", "[core]\n\nx = 1\n"),
            ("[core]\nfsmonitor = a\\\n b = c\nx = 1\n", "core.fsmonitor", "[core]\n\nx = 1\n"),
            (
                "[a]\nb = c\\\n[core]\n[core]\nfsmonitor = x",
                "core.fsmonitor",
                "[a]\nb = c\\\n[core]\n[core]\n",
            ),
            ("[include]\npath = x\n", "include.path", "[include]\n\n"),
            (
                "[includeIf \"gitdir:/\\\"a\"]\npath = x\n",
                "includeif.gitdir:/\"a.path",
                "[includeIf \"gitdir:/\\\"a\"]\n\n",
            ),
        ];
        for (text, key, rest) in cases {
            assert_eq!(says(text), (vec![key.to_owned()], rest.to_owned()), "{text:?}");
        }
    }

    #[test]
    fn what_git_does_not_read_as_these_keys_stays() {
        for text in [
            "",
            "[core]\n\trepositoryformatversion = 0\n\tbare = false\n",
            "# [core]\n; hooksPath = x\n",
            "[a]\nx = \"\\\"\\n\" # y\\\n[core \"s\"]\nhooksPath = x\n",
            "[a]\nb = c\\\n[core]\nhooksPath = x\n",
            "[remote \"include\"]\npath = x\n",
        ] {
            assert_eq!(judge(text.as_bytes()), Verdict::Harmless, "{text:?}");
        }
    }

    #[test]
    fn what_git_refuses_is_told_apart() {
        for text in [
            "[core",
            "[co re]",
            "[core]\n=x",
            "[core]\nx = \"y\n",
            "[core]\nx = \\q\n",
            "[a \"b\n\"]",
            "[core]\na b",
        ] {
            assert_eq!(judge(text.as_bytes()), Verdict::Unreadable, "{text:?}");
        }
    }

    proptest! {
        /// Whatever the bytes: no panic, and what is left has none of the keys.
        #[test]
        fn what_is_left_is_harmless(text in "(\\[core\\]|\\[include\\]|hooksPath|path|fsmonitor|=|x|\"|\\\\|\n|\r\n|#|;| |\\[a \"b\"\\]){0,40}") {
            if let Verdict::Says { rest, .. } = judge(text.as_bytes()) {
                prop_assert_eq!(judge(&rest), Verdict::Harmless, "{:?}", String::from_utf8_lossy(&rest));
            }
        }
    }
}
