//! How text from elsewhere is shown to a person. A terminal obeys what it is shown, a log has one line an entry, and
//! a person judges by what is seen; so every text goes through this one place on its way to a terminal, a text log or
//! an error.
//!
//! The rule, for each character:
//! - printable characters and the space are shown as they are;
//! - control characters (C0, C1, DEL; newline and tab among them) are shown as `\n`, `\t`, `\r` or `\u{1b}`;
//! - characters that are invisible, that reorder a line, or that a font cannot have are shown as `\u{202e}`: the
//!   categories Cf, Zl, Zp, Co, Cs and Cn, every space but U+0020, and the rest of Default_Ignorable_Code_Point;
//! - a combining mark is shown as an escape where it has nothing to combine with, or where [`MARKS`] stand before it;
//! - a byte that is not UTF-8 is shown as `\xNN`.
//!
//! | function | for | newline, tab | backslash |
//! |---|---|---|---|
//! | [`Shown`] | a name, a path, a host, a command | escaped | doubled |
//! | [`line`] | a message that is one line: errors, logs | escaped | as it is |
//! | [`block`] | a report of several lines | as they are | as it is |
//! | [`prose`] | what an agent says to the person | as they are | as it is; joiners and emoji pass |
//!
//! Each of them changes nothing of its own output but [`Shown`], so a name can be escaped where a report is made, and
//! the report again where it is printed. JSON is exact and comes nowhere near.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::{self, Display, Formatter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use unicode_general_category::{GeneralCategory as Category, get_general_category};
use unicode_width::UnicodeWidthChar;

/// How many combining marks a character may have; more of them reach into the lines above and below.
const MARKS: usize = 4;

/// The columns of the widest character there is (U+2E3B takes three): no row is narrower.
const WIDEST: usize = 4;

/// The longest message that may quote a document.
const MAX_SUMMARY: usize = 400;

/// A text or name of the other side, shown as the rule says, with backslashes doubled: no two names look the same by
/// their escapes.
#[derive(Debug, Clone, Copy)]
pub struct Shown<'a>(&'a [u8]);

/// What can be [`Shown`].
pub trait Show {
    /// The way to print it.
    fn shown(&self) -> Shown<'_>;
}

impl Show for str {
    fn shown(&self) -> Shown<'_> {
        Shown(self.as_bytes())
    }
}

impl Show for OsStr {
    fn shown(&self) -> Shown<'_> {
        Shown(self.as_bytes())
    }
}

impl Show for Path {
    fn shown(&self) -> Shown<'_> {
        self.as_os_str().shown()
    }
}

impl Show for [u8] {
    fn shown(&self) -> Shown<'_> {
        Shown(self)
    }
}

impl Display for Shown<'_> {
    /// A width counts characters, as everywhere.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut text = String::with_capacity(self.0.len());
        for chunk in self.0.utf8_chunks() {
            escape(chunk.valid(), &mut text, |c| match c {
                '\\' => Act::Double,
                c if is_plain(c) => Act::Pass,
                _ => Act::Escape,
            });
            for byte in chunk.invalid() {
                write!(text, "\\x{byte:02x}")?;
            }
        }
        f.pad(&text)
    }
}

/// A message as one line.
pub fn line(text: &str) -> Cow<'_, str> {
    filtered(text, is_plain)
}

/// A report: its lines and columns stay.
pub fn block(text: &str) -> Cow<'_, str> {
    filtered(text, |c| is_plain(c) || matches!(c, '\n' | '\t'))
}

/// What an agent writes for the person: whole texts in any script. What drives a terminal or reorders a line is
/// escaped; joiners and variation selectors, of which emoji and several scripts are made, pass.
pub fn prose(text: &str) -> Cow<'_, str> {
    let joins = |c| matches!(c, '\u{200c}' | '\u{200d}' | '\u{fe00}'..='\u{fe0f}' | '\u{a0}' | '\u{3000}');
    filtered(text, |c| is_plain(c) || matches!(c, '\n' | '\t') || joins(c))
}

/// A text in quotation marks, on one line.
pub fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    escape(text, &mut quoted, |c| match c {
        '\\' => Act::Double,
        '"' => Act::Guard,
        c if is_plain(c) => Act::Pass,
        _ => Act::Escape,
    });
    quoted.push('"');
    quoted
}

/// A message of a parser that may quote its document: its lines as one, and of bounded length.
pub fn summary(message: &str) -> String {
    let short = message.char_indices().nth(MAX_SUMMARY);
    let (text, rest) = short.map_or((message, ""), |(end, _)| (&message[..end], "…"));
    line(&text.replace('\n', "; ")).into_owned() + rest
}

/// The text in rows of at most so many columns, for a terminal that must not break them itself. Rows break after a
/// space where one is near.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(WIDEST);
    let mut rows = Vec::new();
    for part in text.split('\n') {
        let mut rest = part;
        while let Some(cut) = cut(rest, columns) {
            rows.push(rest[..cut].to_owned());
            rest = &rest[cut..];
        }
        rows.push(rest.to_owned());
    }
    rows
}

/// As much of the start of a text as so many columns hold.
pub fn fit(text: &str, columns: usize) -> &str {
    let mut width = 0;
    let end = text.char_indices().find(|(_, c)| {
        width += c.width().unwrap_or(0);
        width > columns
    });
    end.map_or(text, |(end, _)| &text[..end])
}

/// Where a row ends that is longer than a number of columns.
fn cut(text: &str, columns: usize) -> Option<usize> {
    let (mut width, mut space) = (0, None);
    for (at, c) in text.char_indices() {
        width += c.width().unwrap_or(0);
        if width > columns {
            // Half a row is not given up for a word.
            return Some(space.filter(|space| *space * 2 > at).unwrap_or(at));
        }
        if c == ' ' {
            space = Some(at + 1);
        }
    }
    None
}

/// Whether a terminal shows a character as what it is, wherever it stands (CVE-2021-42574).
pub fn is_plain(c: char) -> bool {
    if c.is_ascii() {
        return !c.is_ascii_control();
    }
    !is_ignorable(c)
        && !matches!(
            get_general_category(c),
            Category::Control
                | Category::Format
                | Category::LineSeparator
                | Category::ParagraphSeparator
                | Category::SpaceSeparator
                | Category::PrivateUse
                | Category::Surrogate
                | Category::Unassigned
        )
}

/// Default_Ignorable_Code_Point (DerivedCoreProperties of Unicode) beyond the categories above, and the blank of
/// braille.
fn is_ignorable(c: char) -> bool {
    matches!(c, '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}'
        | '\u{e0000}'..='\u{e0fff}')
}

fn is_mark(c: char) -> bool {
    !c.is_ascii()
        && matches!(
            get_general_category(c),
            Category::NonspacingMark | Category::EnclosingMark | Category::SpacingMark
        )
}

/// What becomes of a character.
enum Act {
    Pass,
    Escape,
    /// A backslash stands for itself.
    Double,
    /// A backslash stands before it.
    Guard,
}

fn filtered(text: &str, passes: impl Fn(char) -> bool) -> Cow<'_, str> {
    if text.bytes().all(|byte| byte.is_ascii() && passes(char::from(byte))) {
        return Cow::Borrowed(text);
    }
    let mut result = String::with_capacity(text.len());
    escape(text, &mut result, |c| if passes(c) { Act::Pass } else { Act::Escape });
    Cow::Owned(result)
}

fn escape(text: &str, to: &mut String, act: impl Fn(char) -> Act) {
    // How many marks the character before may still take.
    let mut room = 0;
    for c in text.chars() {
        match act(c) {
            Act::Pass if is_mark(c) && room == 0 => to.extend(c.escape_unicode()),
            Act::Pass => {
                to.push(c);
                room = match c {
                    '\n' | '\t' | ' ' => 0,
                    c if is_mark(c) => room - 1,
                    _ => MARKS,
                };
            }
            Act::Escape => {
                to.extend(c.escape_default());
                room = 0;
            }
            Act::Double => to.push_str("\\\\"),
            Act::Guard => to.extend(['\\', c]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_kind_of_hostile_character_is_an_escape() {
        let cases = [
            ("a\u{1b}]0;x\u{7}", r"a\u{1b}]0;x\u{7}"),
            ("a\nb\tc\rd", r"a\nb\tc\rd"),
            ("\u{7f}\u{9b}", r"\u{7f}\u{9b}"),
            ("evil\u{202e}moc", r"evil\u{202e}moc"),
            ("\u{2066}\u{2069}\u{200e}\u{200f}\u{61c}", r"\u{2066}\u{2069}\u{200e}\u{200f}\u{61c}"),
            ("a\u{200b}b\u{feff}\u{2060}\u{ad}", r"a\u{200b}b\u{feff}\u{2060}\u{ad}"),
            ("\u{3164}\u{115f}\u{ffa0}\u{34f}\u{2800}", r"\u{3164}\u{115f}\u{ffa0}\u{34f}\u{2800}"),
            ("\u{e000}\u{10ffff}\u{378}", r"\u{e000}\u{10ffff}\u{378}"),
            ("a\u{a0}b\u{2028}c\u{3000}", r"a\u{a0}b\u{2028}c\u{3000}"),
            ("\u{e0041}\u{fe0f}", r"\u{e0041}\u{fe0f}"),
            ("\u{301}x \u{301}", r"\u{301}x \u{301}"),
        ];
        for (text, shown) in cases {
            assert_eq!(line(text), shown);
            assert_eq!(text.shown().to_string(), shown);
        }
    }

    #[test]
    fn what_can_be_read_stays() {
        for text in ["", "src/main.rs", "Grüße 日本語 العربية e\u{301} 🙂", "a b"] {
            assert_eq!(line(text), text);
            assert_eq!(text.shown().to_string(), text);
        }
        assert_eq!(line(&format!("a{}", "\u{301}".repeat(9))).matches("\\u{301}").count(), 5);
        assert_eq!(block("a\n\tb\r\u{1b}"), "a\n\tb\\r\\u{1b}");
        assert_eq!(
            prose("❤\u{fe0f} 👩\u{200d}💻\n\u{202e}\u{1b}[2J"),
            "❤\u{fe0f} 👩\u{200d}💻\n\\u{202e}\\u{1b}[2J"
        );
    }

    #[test]
    fn names_that_differ_look_different() {
        assert_eq!(r"a\u{1b}".shown().to_string(), r"a\\u{1b}");
        assert_eq!(OsStr::from_bytes(b"a\xff\\").shown().to_string(), r"a\xff\\");
        assert_eq!(format!("{:<4}|{:>4}", "ab".shown(), "c".shown()), "ab  |   c");
        assert_eq!(quoted("a\"b\\\n"), r#""a\"b\\\n""#);
    }

    #[test]
    fn a_summary_is_one_short_line() {
        assert_eq!(summary("a\nb"), "a; b");
        assert_eq!(summary(&"x".repeat(500)).chars().count(), MAX_SUMMARY + 1);
    }

    #[test]
    fn rows_fit_and_lose_nothing() {
        assert_eq!(wrap("one two three", 8), ["one two ", "three"]);
        assert_eq!(wrap("abcdefghij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(wrap("日本語", 4), ["日本", "語"]);
        assert_eq!(wrap("a\n\nb", 4), ["a", "", "b"]);
    }

    proptest! {
        #[test]
        fn nothing_but_plain_characters_comes_out(text in any::<String>(), columns in 1usize..100) {
            prop_assert!(line(&text).chars().all(is_plain));
            let (once, report) = (line(&text), block(&text));
            prop_assert_eq!(&line(&once), &once);
            prop_assert_eq!(&block(&report), &report);
            prop_assert!(prose(&text).chars().all(|c| !c.is_control() || matches!(c, '\n' | '\t')));
            let shown = line(&text);
            prop_assert_eq!(wrap(&shown, columns).concat(), shown.as_ref());
            for row in wrap(&shown, columns) {
                prop_assert!(row.chars().map(|c| c.width().unwrap_or(0)).sum::<usize>() <= columns.max(WIDEST));
            }
        }

        #[test]
        fn two_names_never_look_the_same(a in any::<Vec<u8>>(), b in any::<Vec<u8>>()) {
            prop_assert_eq!(a == b, a.shown().to_string() == b.shown().to_string());
        }
    }
}
