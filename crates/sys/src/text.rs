//! Escapes untrusted text before a person reads it. A terminal interprets control characters, a log has one line for
//! each entry, and a person judges by what is visible. So all text from other parties passes through this module on its
//! way to a terminal, a text log or an error.
//!
//! The rules for each character:
//! - printable characters and the space are unchanged;
//! - control characters (C0, C1, DEL; newline and tab among them) become `\n`, `\t`, `\r` or `\u{1b}`;
//! - characters that are invisible, that reorder a line, or that have no glyph become `\u{202e}` or similar: the
//!   categories Cf, Zl, Zp, Co, Cs and Cn, every space but U+0020, and the rest of Default_Ignorable_Code_Point;
//! - a combining mark is escaped if it has no base character, or if it follows [`MARKS`] other marks;
//! - a byte that is not valid UTF-8 becomes `\xNN`.
//!
//! | function | for | newline, tab | backslash |
//! |---|---|---|---|
//! | [`Escaped`] | a name, a path, a host, a command | escaped | doubled |
//! | [`one_line`] | a one-line message: errors, logs | escaped | unchanged |
//! | [`multi_line`] | a report of several lines | unchanged | unchanged |
//! | [`prose`] | an agent's text for the user | unchanged | unchanged; joiners and emoji pass |
//!
//! All but [`Escaped`] leave their own output unchanged. So a name can be escaped where a report is created, and the
//! report again where it is printed. JSON output is exact and is not escaped.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::{self, Display, Formatter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use unicode_general_category::{GeneralCategory as Category, get_general_category};
use unicode_width::UnicodeWidthChar;

/// Maximum number of combining marks on a character; more of them reach into the lines above and below.
const MARKS: usize = 4;

/// Columns of the widest character (U+2E3B takes three): no row is narrower.
const WIDEST: usize = 4;

/// Maximum length of a message that may quote a document, in characters.
const MAX_SUMMARY: usize = 400;

/// A text or name from another party, escaped by the rules above, with backslashes doubled: no two different names look
/// the same after escaping.
#[derive(Debug, Clone, Copy)]
pub struct Escaped<'a>(&'a [u8]);

/// A value that can be printed as [`Escaped`].
pub trait DisplayEscaped {
    /// The value with its escapes, for printing.
    fn escaped(&self) -> Escaped<'_>;
}

impl DisplayEscaped for str {
    fn escaped(&self) -> Escaped<'_> {
        Escaped(self.as_bytes())
    }
}

impl DisplayEscaped for OsStr {
    fn escaped(&self) -> Escaped<'_> {
        Escaped(self.as_bytes())
    }
}

impl DisplayEscaped for Path {
    fn escaped(&self) -> Escaped<'_> {
        self.as_os_str().escaped()
    }
}

impl DisplayEscaped for [u8] {
    fn escaped(&self) -> Escaped<'_> {
        Escaped(self)
    }
}

impl Display for Escaped<'_> {
    /// The width counts characters, as in the standard library.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut text = String::with_capacity(self.0.len());
        for chunk in self.0.utf8_chunks() {
            escape(chunk.valid(), &mut text, |c| match c {
                '\\' => EscapeAction::Double,
                c if is_plain(c) => EscapeAction::Pass,
                _ => EscapeAction::Escape,
            });
            for byte in chunk.invalid() {
                write!(text, "\\x{byte:02x}")?;
            }
        }
        f.pad(&text)
    }
}

/// Escapes a message to one line.
pub fn one_line(text: &str) -> Cow<'_, str> {
    filtered(text, is_plain)
}

/// Escapes a report; its lines and columns are unchanged.
pub fn multi_line(text: &str) -> Cow<'_, str> {
    filtered(text, |c| is_plain(c) || matches!(c, '\n' | '\t'))
}

/// Escapes an agent's text for the user, which may be in any script. Characters that control a terminal or reorder a
/// line are escaped; joiners and variation selectors, which emoji and several scripts need, pass.
pub fn prose(text: &str) -> Cow<'_, str> {
    let joins = |c| matches!(c, '\u{200c}' | '\u{200d}' | '\u{fe00}'..='\u{fe0f}' | '\u{a0}' | '\u{3000}');
    filtered(text, |c| is_plain(c) || matches!(c, '\n' | '\t') || joins(c))
}

/// Escapes a text to one line, in quotation marks.
pub fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    escape(text, &mut quoted, |c| match c {
        '\\' => EscapeAction::Double,
        '"' => EscapeAction::Guard,
        c if is_plain(c) => EscapeAction::Pass,
        _ => EscapeAction::Escape,
    });
    quoted.push('"');
    quoted
}

/// Shortens a parser's message that may quote its document: one line of limited length.
pub fn summary(message: &str) -> String {
    let short = message.char_indices().nth(MAX_SUMMARY);
    let (text, rest) = short.map_or((message, ""), |(end, _)| (&message[..end], "…"));
    one_line(&text.replace('\n', "; ")).into_owned() + rest
}

/// Wraps the text into rows of at most `columns`, for a terminal that must not wrap them itself. A row breaks after a
/// space if one is near its end.
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

/// The longest prefix of a text that fits in `columns`.
pub fn fit(text: &str, columns: usize) -> &str {
    let mut width = 0;
    let end = text.char_indices().find(|(_, c)| {
        width += c.width().unwrap_or(0);
        width > columns
    });
    end.map_or(text, |(end, _)| &text[..end])
}

/// The longest prefix of a text with at most `bytes` bytes.
pub fn prefix(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..end]
}

/// The longest suffix of a text with at most `bytes` bytes.
pub fn suffix(text: &str, bytes: usize) -> &str {
    let from = text.len().saturating_sub(bytes);
    let start = (from..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    &text[start..]
}

/// The byte offset at which to break a text that is wider than `columns`.
fn cut(text: &str, columns: usize) -> Option<usize> {
    let (mut width, mut space) = (0, None);
    for (at, c) in text.char_indices() {
        width += c.width().unwrap_or(0);
        if width > columns {
            // A space in the first half of the row is ignored: the word is broken instead.
            return Some(space.filter(|space| *space * 2 > at).unwrap_or(at));
        }
        if c == ' ' {
            space = Some(at + 1);
        }
    }
    None
}

/// Bytes in hexadecimal, two digits each.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The bytes of [`hex`]; `None` for any other text.
pub fn parse_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = text.as_bytes().chunks(2).map(|pair| match *pair {
        [high, low] => u8::try_from(digit(high)? << 4 | digit(low)?).ok(),
        _ => None,
    });
    pairs.collect()
}

/// Whether a terminal shows a character as itself in any context (CVE-2021-42574).
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

/// How a character is printed.
enum EscapeAction {
    Pass,
    Escape,
    /// Print the backslash twice.
    Double,
    /// Print a backslash before the character.
    Guard,
}

fn filtered(text: &str, passes: impl Fn(char) -> bool) -> Cow<'_, str> {
    if text.bytes().all(|byte| byte.is_ascii() && passes(char::from(byte))) {
        return Cow::Borrowed(text);
    }
    let mut result = String::with_capacity(text.len());
    escape(text, &mut result, |c| if passes(c) { EscapeAction::Pass } else { EscapeAction::Escape });
    Cow::Owned(result)
}

fn escape(text: &str, to: &mut String, act: impl Fn(char) -> EscapeAction) {
    // Number of combining marks that the previous character may still have.
    let mut room = 0;
    for c in text.chars() {
        match act(c) {
            EscapeAction::Pass if is_mark(c) && room == 0 => to.extend(c.escape_unicode()),
            EscapeAction::Pass => {
                to.push(c);
                room = match c {
                    '\n' | '\t' | ' ' => 0,
                    c if is_mark(c) => room - 1,
                    _ => MARKS,
                };
            }
            EscapeAction::Escape => {
                to.extend(c.escape_default());
                room = 0;
            }
            EscapeAction::Double => to.push_str("\\\\"),
            EscapeAction::Guard => to.extend(['\\', c]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_part_ends_at_a_character() {
        for (bytes, first, last) in
            [(0, "", ""), (1, "a", "b"), (2, "a", "b"), (3, "aä", "äb"), (4, "aäb", "aäb"), (9, "aäb", "aäb")]
        {
            assert_eq!((prefix("aäb", bytes), suffix("aäb", bytes)), (first, last), "{bytes}");
        }
    }

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
            assert_eq!(one_line(text), shown);
            assert_eq!(text.escaped().to_string(), shown);
        }
    }

    #[test]
    fn what_can_be_read_stays() {
        for text in ["", "src/main.rs", "Grüße 日本語 العربية e\u{301} 🙂", "a b"] {
            assert_eq!(one_line(text), text);
            assert_eq!(text.escaped().to_string(), text);
        }
        assert_eq!(one_line(&format!("a{}", "\u{301}".repeat(9))).matches("\\u{301}").count(), 5);
        assert_eq!(multi_line("a\n\tb\r\u{1b}"), "a\n\tb\\r\\u{1b}");
        assert_eq!(
            prose("❤\u{fe0f} 👩\u{200d}💻\n\u{202e}\u{1b}[2J"),
            "❤\u{fe0f} 👩\u{200d}💻\n\\u{202e}\\u{1b}[2J"
        );
    }

    #[test]
    fn names_that_differ_look_different() {
        assert_eq!(r"a\u{1b}".escaped().to_string(), r"a\\u{1b}");
        assert_eq!(OsStr::from_bytes(b"a\xff\\").escaped().to_string(), r"a\xff\\");
        assert_eq!(format!("{:<4}|{:>4}", "ab".escaped(), "c".escaped()), "ab  |   c");
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
            prop_assert!(one_line(&text).chars().all(is_plain));
            let (once, report) = (one_line(&text), multi_line(&text));
            prop_assert_eq!(&one_line(&once), &once);
            prop_assert_eq!(&multi_line(&report), &report);
            prop_assert!(prose(&text).chars().all(|c| !c.is_control() || matches!(c, '\n' | '\t')));
            let shown = one_line(&text);
            prop_assert_eq!(wrap(&shown, columns).concat(), shown.as_ref());
            for row in wrap(&shown, columns) {
                prop_assert!(row.chars().map(|c| c.width().unwrap_or(0)).sum::<usize>() <= columns.max(WIDEST));
            }
        }

        #[test]
        fn two_names_never_look_the_same(a in any::<Vec<u8>>(), b in any::<Vec<u8>>()) {
            prop_assert_eq!(a == b, a.escaped().to_string() == b.escaped().to_string());
        }
    }
}
