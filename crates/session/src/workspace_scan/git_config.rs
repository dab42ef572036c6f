//! Parses a git configuration byte by byte, like git's own config.c, and writes it again without the
//! variables that are not allowed (git-config(1), "CONFIGURATION FILE").
//!
//! A parser that accepts less than git would miss a variable. A file that git refuses, or whose meaning
//! this parser is not sure of, is therefore an [`UnparsableConfig`].

use std::fmt::Write;

/// The error for a file that git would refuse or might parse differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UnparsableConfig;

/// One variable.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ConfigEntry {
    /// Section and subsection, joined by a dot: the section in lower case, the subsection as written.
    pub(super) section: Vec<u8>,
    /// The key in lower case.
    pub(super) key: String,
    /// The value without quotes and escapes; `None` for a key without a value, which means true.
    pub(super) value: Option<Vec<u8>>,
}

impl ConfigEntry {
    /// Splits [`ConfigEntry::section`] at its first dot.
    pub(super) fn parts(&self) -> (&[u8], Option<&[u8]>) {
        match self.section.iter().position(|byte| *byte == b'.') {
            Some(at) => (&self.section[..at], Some(&self.section[at + 1..])),
            None => (&self.section, None),
        }
    }

    /// The full name `section.subsection.key`, for people.
    pub(super) fn name(&self) -> String {
        format!("{}.{}", String::from_utf8_lossy(&self.section), self.key)
    }
}

/// Parses all variables of a configuration, in order.
///
/// # Errors
/// [`UnparsableConfig`].
pub(super) fn parse(text: &[u8]) -> Result<Vec<ConfigEntry>, UnparsableConfig> {
    // Git stores names and values as C strings. Neither git nor a person writes a NUL or other control
    // characters.
    let odd = |byte: &u8| *byte < b' ' && !matches!(byte, b'\t' | b'\n' | b'\r') || *byte == 0x7f;
    if text.iter().any(odd) {
        return Err(UnparsableConfig);
    }
    let mut reader = ConfigReader { text, at: if text.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 } };
    let (mut entries, mut section) = (Vec::new(), Vec::new());
    while let Some(byte) = reader.peek() {
        match byte {
            b'#' | b';' => reader.skip_line(),
            b'[' => section = reader.section().ok_or(UnparsableConfig)?,
            byte if is_space(byte) => reader.at += 1,
            byte if byte.is_ascii_alphabetic() => {
                let (key, value) = reader.entry().ok_or(UnparsableConfig)?;
                entries.push(ConfigEntry { section: section.clone(), key, value });
            }
            _ => return Err(UnparsableConfig),
        }
    }
    Ok(entries)
}

/// Formats a configuration with these variables, every value in quotes.
pub(super) fn render(entries: &[ConfigEntry]) -> Vec<u8> {
    let (mut text, mut section) = (Vec::new(), None);
    for entry in entries {
        if section != Some(&entry.section) {
            section = Some(&entry.section);
            let (name, sub) = entry.parts();
            text.push(b'[');
            text.extend_from_slice(name);
            if let Some(sub) = sub {
                text.extend_from_slice(b" \"");
                escape(sub, &mut text);
                text.push(b'"');
            }
            text.extend_from_slice(b"]\n");
        }
        text.extend_from_slice(format!("\t{}", entry.key).as_bytes());
        if let Some(value) = &entry.value {
            text.extend_from_slice(b" = \"");
            escape(value, &mut text);
            text.push(b'"');
        }
        text.push(b'\n');
    }
    text
}

fn escape(bytes: &[u8], text: &mut Vec<u8>) {
    for byte in bytes {
        match byte {
            b'"' | b'\\' => text.extend_from_slice(&[b'\\', *byte]),
            b'\n' => text.extend_from_slice(b"\\n"),
            b'\t' => text.extend_from_slice(b"\\t"),
            byte => text.push(*byte),
        }
    }
}

/// The names of variables without duplicates, for a message: a few of them, and the number of others.
pub(super) fn summarize_names(entries: &[ConfigEntry]) -> String {
    const SHOWN: usize = 8;
    let mut names: Vec<String> = entries.iter().map(ConfigEntry::name).collect();
    names.sort_unstable();
    names.dedup();
    let more = names.len().saturating_sub(SHOWN);
    names.truncate(SHOWN);
    let mut text = names.join(", ");
    if more > 0 {
        let _ = write!(text, " and {more} more");
    }
    text
}

/// As git's isspace: form feed and vertical tab are not spaces.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

struct ConfigReader<'a> {
    text: &'a [u8],
    at: usize,
}

impl ConfigReader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// The next byte. The end of the file ends a line, and so does CR LF.
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

    /// Parses `[name]` or `[name "sub"]` to `name` or `name.sub`.
    fn section(&mut self) -> Option<Vec<u8>> {
        self.at += 1;
        let mut name = Vec::new();
        let mut byte = loop {
            let byte = self.byte()?;
            match byte {
                b']' => return (!name.is_empty()).then_some(name),
                byte if is_space(byte) => break byte,
                byte if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.') => {
                    name.push(byte.to_ascii_lowercase());
                }
                _ => return None,
            }
        };
        while is_space(byte) {
            if byte == b'\n' {
                return None;
            }
            byte = self.byte()?;
        }
        if byte != b'"' {
            return None;
        }
        name.push(b'.');
        loop {
            match self.byte().filter(|byte| *byte != b'\n')? {
                b'"' => break,
                b'\\' => name.push(self.byte().filter(|byte| *byte != b'\n')?),
                byte => name.push(byte),
            }
        }
        (self.byte()? == b']').then_some(name)
    }

    /// The next byte, which must exist.
    fn byte(&mut self) -> Option<u8> {
        self.peek()?;
        Some(self.next())
    }

    /// Parses `name` or `name = value`, including the end of the line.
    fn entry(&mut self) -> Option<(String, Option<Vec<u8>>)> {
        let mut name = String::new();
        while let Some(byte) = self.peek().filter(|byte| byte.is_ascii_alphanumeric() || *byte == b'-') {
            name.push(char::from(byte.to_ascii_lowercase()));
            self.at += 1;
        }
        let mut byte = self.next();
        while matches!(byte, b' ' | b'\t') {
            byte = self.next();
        }
        match byte {
            b'\n' => Some((name, None)),
            b'=' => Some((name, Some(self.value()?))),
            _ => None,
        }
    }

    fn value(&mut self) -> Option<Vec<u8>> {
        let (mut quoted, mut comment) = (false, false);
        // Trailing spaces are dropped, unless they are quoted.
        let (mut value, mut kept) = (Vec::new(), 0);
        loop {
            match self.next() {
                b'\n' if quoted => return None,
                b'\n' => break,
                _ if comment => continue,
                byte if is_space(byte) && !quoted => {
                    if !value.is_empty() {
                        value.push(byte);
                    }
                    continue;
                }
                b'#' | b';' if !quoted => {
                    comment = true;
                    continue;
                }
                b'\\' => match self.next() {
                    // The value continues in the next line.
                    b'\n' => {}
                    b't' => value.push(b'\t'),
                    b'b' => value.push(8),
                    b'n' => value.push(b'\n'),
                    byte @ (b'\\' | b'"') => value.push(byte),
                    _ => return None,
                },
                b'"' => quoted = !quoted,
                byte => value.push(byte),
            }
            kept = value.len();
        }
        value.truncate(kept);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Names with their values.
    type Listed = Vec<(Vec<u8>, Option<Vec<u8>>)>;

    /// The variables as git itself lists them, each as `name\nvalue`; `None` if it refuses the file.
    fn of_git(text: &[u8]) -> Option<Listed> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config");
        std::fs::write(&file, text).unwrap();
        let mut git = std::process::Command::new("git");
        git.args(["config", "--no-includes", "--list", "-z", "--file"])
            .arg(&file)
            .env("GIT_CONFIG_NOSYSTEM", "1");
        let output = git.env("HOME", directory.path()).current_dir(directory.path()).output().ok()?;
        let entry = |entry: &[u8]| match entry.iter().position(|byte| *byte == b'\n') {
            Some(at) => (entry[..at].to_vec(), Some(entry[at + 1..].to_vec())),
            None => (entry.to_vec(), None),
        };
        let entries = output.stdout.split(|byte| *byte == 0).filter(|entry| !entry.is_empty());
        output.status.success().then(|| entries.map(entry).collect())
    }

    fn ours(text: &[u8]) -> Option<Listed> {
        let name = |entry: &ConfigEntry| {
            let dot: &[u8] = if entry.section.is_empty() { b"" } else { b"." };
            [&entry.section, dot, entry.key.as_bytes()].concat()
        };
        let entries = parse(text).ok()?;
        Some(entries.into_iter().map(|entry| (name(&entry), entry.value)).collect())
    }

    fn has_git() -> bool {
        std::process::Command::new("git").arg("--version").output().is_ok()
    }

    const CASES: &[&str] = &[
        "",
        "[core]\n\thooksPath = x\n\tbare = false\n",
        "[CORE]HOOKSPATH=x",
        "[core] fsmonitor\n",
        "\u{feff}[core]\r\nfsmonitor = a\r\n[x]\r\n",
        "[core]\nfsmonitor = \"a ; b\" ; c\\\nx = 1\n",
        "[core]\nfsmonitor = a\\\n b = c\nx = 1\n",
        "[a]\nb = c\\\n[core]\n[core]\nfsmonitor = x",
        "[includeIf \"gitdir:/\\\"a\"]\npath = x\n",
        "[a.B \"c.D\"]\nx=1",
        "[a]\nx = one  two \t # three",
        "[a]\nx = \" one \" ",
        "[a]\nx = \\t\\n\\\"\\\\",
        "[a]\nx=\n y",
        "[]\nx = y\n",
        "[ \"x\"]\ny = z\n",
        "[.]\nx = y\n",
        "[core",
        "[co re]",
        "[core]\n=x",
        "[core]\nx = \"y\n",
        "[core]\nx = \\q\n",
        "[a \"b\n\"]",
        "[core]\na b",
        "[a \"b\"] c = d",
        "[a\t\"b\"]\r\nc\r\n",
        "[a]\nx = y\rz\n",
    ];

    #[test]
    fn every_spelling_is_read_as_git_reads_it() {
        if !has_git() {
            return;
        }
        for text in CASES {
            assert_eq!(ours(text.as_bytes()), of_git(text.as_bytes()), "{text:?}");
        }
    }

    #[test]
    fn bytes_that_end_a_string_of_c_are_refused() {
        assert_eq!(parse(b"[a]\nx = y\0z\n"), Err(UnparsableConfig));
        assert_eq!(parse(b"\xef\xbb[a]\n"), Err(UnparsableConfig));
    }

    proptest! {
        /// A written configuration is parsed to the same variables, and writing it again changes nothing.
        #[test]
        fn rendered_entries_are_read_back(text in PIECES) {
            if let Ok(entries) = parse(text.as_bytes()) {
                let whole = entries.iter().all(|entry| !entry.section.is_empty());
                let odd = |entry: &ConfigEntry| entry.value.iter().flatten().any(|byte| *byte == 8);
                if whole && !entries.iter().any(odd) {
                    prop_assert_eq!(parse(&render(&entries)), Ok(entries));
                }
            }
        }
    }

    const PIECES: &str = "(\\[core\\]|\\[include\\]|hooksPath|path|fsmonitor|=|x|\"|\\\\|\n|\r\n|\r|#|;| |\t|\\[a \"b\"\\]|\\[a\\.b \"c\\\\\"\"\\]|\\]|\\[|-|é){0,30}";

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn any_text_is_read_as_git_reads_it(text in PIECES) {
            if has_git() {
                prop_assert_eq!(ours(text.as_bytes()), of_git(text.as_bytes()));
            }
        }
    }
}
