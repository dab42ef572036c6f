//! The end of a request's body (RFC 9112 sections 6 and 7), so that the next request of the connection is found. A body
//! that two servers could end at different places is rejected.

/// How a request gives the end of its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyLength {
    /// After this number of bytes; 0 without a body.
    Bytes(u64),
    /// After the last chunk and the trailers.
    Chunked,
}

/// Maximum number of characters of a chunk's size, enough for a u64.
const MAX_SIZE_DIGITS: u8 = 16;

/// Maximum size of a chunk's extensions, and of all trailers, in bytes.
const MAX_LINES: u32 = 64 << 10;

const MALFORMED_CHUNK: &str = "a chunk with an invalid size";
const MALFORMED_LINE: &str = "a chunk with a line that does not end as lines do";

/// A body, of which some bytes have passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestBody(BodyPart);

/// The part of a body that comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyPart {
    /// The last bytes of a body without chunks; 0 at its end.
    Rest(u64),
    /// The size of a chunk, with this number of digits so far.
    Size {
        size: u64,
        digits: u8,
    },
    /// The extensions after the size, with this number of bytes so far.
    Extensions {
        size: u64,
        length: u32,
    },
    /// The LF after the size and the extensions.
    SizeEnd {
        size: u64,
    },
    /// The rest of a chunk.
    Chunk(u64),
    /// The CR and the LF after a chunk.
    ChunkCr,
    ChunkLf,
    /// The start of a trailer or of the last line, with this number of bytes of trailers so far.
    TrailerStart {
        length: u32,
    },
    /// A trailer.
    Trailer {
        length: u32,
    },
    /// The LF after a trailer.
    TrailerEnd {
        length: u32,
    },
    /// The LF of the last line.
    LastLf,
}

impl RequestBody {
    /// A body of which nothing has passed.
    pub(crate) fn new(length: BodyLength) -> Self {
        RequestBody(match length {
            BodyLength::Bytes(count) => BodyPart::Rest(count),
            BodyLength::Chunked => BodyPart::Size { size: 0, digits: 0 },
        })
    }

    /// Whether the whole body has passed.
    pub(crate) fn is_complete(&self) -> bool {
        self.0 == BodyPart::Rest(0)
    }

    /// Passes over the bytes of the body at the start of `bytes`; returns their number. Bytes remain only if the body is
    /// complete.
    ///
    /// # Errors
    /// The reason why the body is malformed.
    pub(crate) fn pass(&mut self, bytes: &[u8]) -> Result<usize, &'static str> {
        let mut passed = 0;
        while let Some(rest) = bytes.get(passed..).filter(|rest| !rest.is_empty() && !self.is_complete()) {
            passed += match &mut self.0 {
                BodyPart::Rest(count) | BodyPart::Chunk(count) => {
                    let taken = usize::try_from(*count).unwrap_or(usize::MAX).min(rest.len());
                    *count -= taken as u64;
                    taken
                }
                _ => {
                    self.0 = rest.first().map_or(Ok(self.0), |byte| self.0.after(*byte))?;
                    1
                }
            };
            if self.0 == BodyPart::Chunk(0) {
                self.0 = BodyPart::ChunkCr;
            }
        }
        Ok(passed)
    }
}

impl BodyPart {
    /// The next part after one byte of the lines around chunks.
    fn after(self, byte: u8) -> Result<Self, &'static str> {
        let more =
            |length: u32| if length < MAX_LINES { Ok(length + 1) } else { Err("a chunk with long lines") };
        Ok(match (self, byte) {
            (BodyPart::Size { size, digits }, _) if byte.is_ascii_hexdigit() && digits < MAX_SIZE_DIGITS => {
                let digit = char::from(byte).to_digit(16).unwrap_or(0);
                BodyPart::Size { size: size << 4 | u64::from(digit), digits: digits + 1 }
            }
            (BodyPart::Size { digits: 0, .. }, _) => return Err(MALFORMED_CHUNK),
            (BodyPart::Size { size, .. } | BodyPart::Extensions { size, .. }, b'\r') => {
                BodyPart::SizeEnd { size }
            }
            (BodyPart::Size { size, .. }, b';' | b' ' | b'\t') => BodyPart::Extensions { size, length: 0 },
            (BodyPart::Size { .. }, _) => return Err(MALFORMED_CHUNK),
            (BodyPart::SizeEnd { size: 0 }, b'\n') => BodyPart::TrailerStart { length: 0 },
            (BodyPart::SizeEnd { size }, b'\n') => BodyPart::Chunk(size),
            (BodyPart::ChunkCr, b'\r') => BodyPart::ChunkLf,
            (BodyPart::ChunkLf, b'\n') => BodyPart::Size { size: 0, digits: 0 },
            (BodyPart::TrailerStart { .. }, b'\r') => BodyPart::LastLf,
            (BodyPart::LastLf, b'\n') => BodyPart::Rest(0),
            (BodyPart::Trailer { length }, b'\r') => BodyPart::TrailerEnd { length },
            (BodyPart::TrailerEnd { length }, b'\n') => BodyPart::TrailerStart { length },
            // Some servers end a line at a LF without a CR, or drop a NUL.
            (BodyPart::Extensions { size, length }, _) if !matches!(byte, b'\n' | 0) => {
                BodyPart::Extensions { size, length: more(length)? }
            }
            (BodyPart::TrailerStart { length } | BodyPart::Trailer { length }, _)
                if !matches!(byte, b'\n' | 0) =>
            {
                BodyPart::Trailer { length: more(length)? }
            }
            _ => return Err(MALFORMED_LINE),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The number of bytes of the body, if all of them are there.
    fn end_of(length: BodyLength, bytes: &[u8]) -> Result<Option<usize>, &'static str> {
        let mut body = RequestBody::new(length);
        let passed = body.pass(bytes)?;
        Ok(body.is_complete().then_some(passed))
    }

    #[test]
    fn a_body_ends_after_its_bytes() {
        for (length, bytes, end) in [(0, "GET", Some(0)), (3, "abcGET", Some(3)), (3, "ab", None)] {
            assert_eq!(end_of(BodyLength::Bytes(length), bytes.as_bytes()), Ok(end), "{bytes}");
        }
    }

    #[test]
    fn a_body_ends_after_its_last_chunk() {
        for (body, rest) in [
            ("0\r\n\r\n", "GET"),
            ("5\r\nabcde\r\n0\r\n\r\n", ""),
            ("A;a=\"b\"\r\n0123456789\r\n00 ;x\r\nX: y\r\nZ:\r\n\r\n", "0\r\n\r\n"),
            ("2\t\r\n\r\n\r\n0\r\n\r\n", "\r\n"),
        ] {
            let whole = format!("{body}{rest}");
            assert_eq!(end_of(BodyLength::Chunked, whole.as_bytes()), Ok(Some(body.len())), "{whole:?}");
            for end in 0..body.len() {
                assert_eq!(end_of(BodyLength::Chunked, &body.as_bytes()[..end]), Ok(None), "{body:?} {end}");
            }
        }
    }

    #[test]
    fn a_body_with_two_possible_ends_is_malformed() {
        let long = format!("0\r\nX: {}", "y".repeat(MAX_LINES as usize));
        for body in [
            "\r\n",
            "x\r\n",
            "+5\r\n",
            "0x5\r\n",
            "-1\r\n",
            "5\n",
            "5\r5",
            ";\r\n",
            " 5\r\n",
            "5;\n",
            "5;\0",
            "5\r\nabcdef",
            "5\r\nabcde\n",
            "5\r\nabcde\r\r",
            "00000000000000005\r\n",
            "0\r\n\n",
            "0\r\nX\n",
            "0\r\nX\r\r",
            "0\r\n\r\r",
            &long,
        ] {
            assert!(end_of(BodyLength::Chunked, body.as_bytes()).is_err(), "{body:?}");
        }
    }

    proptest! {
        #[test]
        fn chunks_end_in_the_same_place_however_they_arrive(
            chunks in prop::collection::vec((1_usize..40, "(;[a-z]{0,4})?"), 0..5),
            trailers in prop::collection::vec("[A-Z][a-z]{0,3}: [ -~]{0,9}", 0..3),
            rest in ".{0,9}", at in any::<prop::sample::Index>(),
        ) {
            let mut body = String::new();
            for (size, extension) in chunks {
                body += &format!("{size:X}{extension}\r\n{}\r\n", "\r".repeat(size));
            }
            body += "0\r\n";
            for trailer in trailers {
                body += &format!("{trailer}\r\n");
            }
            body += "\r\n";
            let whole = format!("{body}{rest}");
            let cut = at.index(body.len());
            let mut found = RequestBody::new(BodyLength::Chunked);
            prop_assert_eq!(found.pass(&whole.as_bytes()[..cut]), Ok(cut));
            prop_assert_eq!(found.pass(&whole.as_bytes()[cut..]), Ok(body.len() - cut));
            prop_assert!(found.is_complete());
        }

        #[test]
        fn any_bytes_are_passed_or_malformed(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(passed) = RequestBody::new(BodyLength::Chunked).pass(&bytes) {
                prop_assert!(passed <= bytes.len());
            }
        }
    }
}
