//! Splits bytes into lines: linear time whatever the chunk size, and bounded memory.
//!
//! A line that is complete in the bytes just read is borrowed from them. Only a line that began in earlier bytes is
//! stored, and it is moved out, so that its memory is freed with it.

use std::borrow::Cow;
use std::io::BufRead;

/// Maximum length of a line in either direction, in bytes without its newline: 64 MiB (BP-19).
pub const LINE_LIMIT: usize = 64 << 20;

/// Result of [`LineSplitter::next`].
#[derive(Debug, PartialEq, Eq)]
pub enum SplitLine<'a> {
    /// One complete line, without its newline.
    Line(Cow<'a, [u8]>),
    /// The line exceeds the limit. The rest of it, up to its newline, is skipped. Returned once per line.
    TooLong,
}

/// Splits a stream of bytes into lines; stores the beginning of an unfinished line.
#[derive(Debug)]
pub struct LineSplitter {
    partial_line: Vec<u8>,
    limit: usize,
    is_skipping: bool,
}

impl LineSplitter {
    /// Creates a splitter with a maximum line length of `limit` bytes.
    pub fn new(limit: usize) -> Self {
        LineSplitter { partial_line: Vec::new(), limit, is_skipping: false }
    }

    /// Takes the next line from `input`. Without a newline, stores the rest of `input` and returns `None`.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Option<SplitLine<'a>> {
        while !input.is_empty() {
            let (piece, ended) = take_line(input);
            if self.is_skipping {
                self.is_skipping = !ended;
                continue;
            }
            if self.partial_line.len() + piece.len() > self.limit {
                self.partial_line = Vec::new();
                self.is_skipping = !ended;
                return Some(SplitLine::TooLong);
            }
            if ended && self.partial_line.is_empty() {
                return Some(SplitLine::Line(Cow::Borrowed(piece)));
            }
            self.partial_line.extend_from_slice(piece);
            if ended {
                return Some(SplitLine::Line(Cow::Owned(std::mem::take(&mut self.partial_line))));
            }
        }
        None
    }

    /// Number of bytes stored of the unfinished line.
    pub fn held_bytes(&self) -> usize {
        self.partial_line.len()
    }

    /// Discards the unfinished line and skips input up to its newline.
    pub fn skip_line(&mut self) {
        self.partial_line = Vec::new();
        self.is_skipping = true;
    }

    /// Takes the unfinished line at the end of the input, if there is one. The splitter can then be reused.
    pub fn finish(&mut self) -> Option<Vec<u8>> {
        self.is_skipping = false;
        let rest = std::mem::take(&mut self.partial_line);
        (!rest.is_empty()).then_some(rest)
    }
}

/// Splits `input` after its first newline. Returns the bytes before it, and whether there was a newline.
fn take_line<'a>(input: &mut &'a [u8]) -> (&'a [u8], bool) {
    let all = *input;
    // skip_until on a slice uses the standard library's memchr and cannot fail.
    let taken = input.skip_until(b'\n').unwrap_or(all.len());
    match all[..taken].split_last() {
        Some((b'\n', line)) => (line, true),
        _ => (&all[..taken], false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lines(splitter: &mut LineSplitter, pieces: &[&[u8]]) -> Vec<Option<Vec<u8>>> {
        let mut found = Vec::new();
        for piece in pieces {
            let mut input = *piece;
            while let Some(split) = splitter.next(&mut input) {
                found.push(match split {
                    SplitLine::Line(line) => Some(line.into_owned()),
                    SplitLine::TooLong => None,
                });
            }
        }
        found
    }

    #[test]
    fn bp_18_a_character_split_at_any_byte_is_intact() {
        let text = "€𝄞\n".as_bytes();
        for at in 0..=text.len() {
            let (a, b) = text.split_at(at);
            assert_eq!(lines(&mut LineSplitter::new(64), &[a, b]), [Some("€𝄞".as_bytes().to_vec())]);
        }
    }

    #[test]
    fn bp_19_a_line_over_the_limit_is_told_once_and_its_memory_given_back() {
        let mut splitter = LineSplitter::new(4);
        assert_eq!(
            lines(&mut splitter, &[b"1234\n12345\n12", b"345", b"678\nok\n"]),
            [Some(b"1234".to_vec()), None, None, Some(b"ok".to_vec())]
        );
        assert_eq!(splitter.partial_line.capacity(), 0);
    }

    #[test]
    fn an_abandoned_line_is_skipped_to_its_newline_and_the_last_line_is_finished() {
        let mut splitter = LineSplitter::new(64);
        assert!(lines(&mut splitter, &[b"abc"]).is_empty());
        splitter.skip_line();
        assert_eq!(lines(&mut splitter, &[b"def\nnext\nrest"]), [Some(b"next".to_vec())]);
        assert_eq!(splitter.finish(), Some(b"rest".to_vec()));
        assert_eq!(splitter.finish(), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn any_cutting_gives_the_lines_of_the_whole(
            text in proptest::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..200),
            size in 1usize..9,
        ) {
            let whole: Vec<Option<Vec<u8>>> = {
                let mut parts: Vec<&[u8]> = text.split(|b| *b == b'\n').collect();
                parts.pop();
                parts.into_iter().map(|p| Some(p.to_vec())).collect()
            };
            let pieces: Vec<&[u8]> = text.chunks(size).collect();
            prop_assert_eq!(lines(&mut LineSplitter::new(1000), &pieces), whole);
        }
    }
}
