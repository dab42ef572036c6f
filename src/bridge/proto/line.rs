//! Bytes to lines: linear in the input whatever the size of the pieces, bounded in memory.
//!
//! A line that lies whole in the bytes just read is borrowed from them; only a line that began in earlier
//! bytes is held, and leaves by move, so that the memory of a large line goes with it.

use std::borrow::Cow;
use std::io::BufRead;

/// The longest line either side may send, in bytes without its newline: 64 MiB (BP-19).
pub const LINE_LIMIT: usize = 64 << 20;

/// What [`LineSplitter::next`] found.
#[derive(Debug, PartialEq, Eq)]
pub enum Split<'a> {
    /// One whole line, without its newline.
    Line(Cow<'a, [u8]>),
    /// The line passed the limit; what remains of it, up to its newline, is skipped. Told once per line.
    TooLong,
}

/// The beginning of a line, waiting for its newline.
#[derive(Debug)]
pub struct LineSplitter {
    held: Vec<u8>,
    limit: usize,
    skipping: bool,
}

impl LineSplitter {
    /// A splitter whose lines have at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        LineSplitter { held: Vec::new(), limit, skipping: false }
    }

    /// Takes the next line off `input`, or holds what is left of it and answers `None`.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Option<Split<'a>> {
        while !input.is_empty() {
            let (piece, ended) = cut(input);
            if self.skipping {
                self.skipping = !ended;
                continue;
            }
            if self.held.len() + piece.len() > self.limit {
                self.held = Vec::new();
                self.skipping = !ended;
                return Some(Split::TooLong);
            }
            if ended && self.held.is_empty() {
                return Some(Split::Line(Cow::Borrowed(piece)));
            }
            self.held.extend_from_slice(piece);
            if ended {
                return Some(Split::Line(Cow::Owned(std::mem::take(&mut self.held))));
            }
        }
        None
    }

    /// How many bytes of an unfinished line are held.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Gives up the unfinished line: what follows up to its newline is skipped.
    pub fn abandon(&mut self) {
        self.held = Vec::new();
        self.skipping = true;
    }

    /// The unfinished line at the end of the input, if there is one; the splitter is as new afterwards.
    pub fn finish(&mut self) -> Option<Vec<u8>> {
        self.skipping = false;
        let rest = std::mem::take(&mut self.held);
        (!rest.is_empty()).then_some(rest)
    }
}

/// Splits `input` after its first newline: the bytes before it, and whether there was one.
fn cut<'a>(input: &mut &'a [u8]) -> (&'a [u8], bool) {
    let all = *input;
    // skip_until on a slice is the standard library's own memchr, and cannot fail.
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
                    Split::Line(line) => Some(line.into_owned()),
                    Split::TooLong => None,
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
        assert_eq!(splitter.held.capacity(), 0);
    }

    #[test]
    fn an_abandoned_line_is_skipped_to_its_newline_and_the_last_line_is_finished() {
        let mut splitter = LineSplitter::new(64);
        assert!(lines(&mut splitter, &[b"abc"]).is_empty());
        splitter.abandon();
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
