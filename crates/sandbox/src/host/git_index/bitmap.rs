//! Compressed bitmaps of git (EWAH, `Documentation/technical/bitmap-format.adoc` of git).
//!
//! ```text
//! number of bits (4 bytes)  number of words (4 bytes)  words of 8 bytes  4 bytes
//! ```
//! A word that counts has, from its lowest bit: a bit, how many words of this bit alone come (32 bits), and how many words
//! follow it as they are (31 bits).

use super::error::{IndexError, IndexPart};
use std::collections::BTreeSet;

const WORD_BITS: u64 = 64;

/// The numbers of the bits that are set, each below `count`, and what follows the bitmap.
pub(super) fn read(bytes: &[u8], count: u32) -> Result<(BTreeSet<u32>, &[u8]), IndexError> {
    const ENDS: IndexError = IndexError::Ends(IndexPart::Extension);
    let (_, rest) = bytes.split_first_chunk::<4>().ok_or(ENDS)?;
    let (words, rest) = rest.split_first_chunk::<4>().ok_or(ENDS)?;
    let length = usize::try_from(u32::from_be_bytes(*words)).ok().and_then(|words| words.checked_mul(8));
    let (words, rest) = length.and_then(|length| rest.split_at_checked(length)).ok_or(ENDS)?;
    let (_, rest) = rest.split_first_chunk::<4>().ok_or(ENDS)?;

    let word = |chunk: &[u8]| u64::from_be_bytes(chunk.first_chunk().copied().unwrap_or_default());
    let mut words = words.chunks_exact(8).map(word);
    let mut set = BTreeSet::new();
    let mut bit = 0_u64;
    while let Some(counts) = words.next() {
        let (run, literals) = ((counts >> 1) & u64::from(u32::MAX), counts >> 33);
        let after = bit.saturating_add(run.saturating_mul(WORD_BITS));
        if counts & 1 != 0 {
            set.extend(in_range(bit, count)?..in_range(after, count)?);
        }
        bit = after;
        for _ in 0..literals {
            let word = words.next().ok_or(ENDS)?;
            for offset in (0..WORD_BITS).filter(|offset| word >> offset & 1 != 0) {
                let number = in_range(bit.saturating_add(offset), count)?;
                if number == count {
                    return Err(IndexError::Shared);
                }
                set.insert(number);
            }
            bit = bit.saturating_add(WORD_BITS);
        }
    }
    Ok((set, rest))
}

fn in_range(bit: u64, count: u32) -> Result<u32, IndexError> {
    u32::try_from(bit).ok().filter(|bit| *bit <= count).ok_or(IndexError::Shared)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bitmap(words: &[u64]) -> Vec<u8> {
        let mut bytes = [[0, 0, 0, 99], u32::try_from(words.len()).unwrap().to_be_bytes()].concat();
        bytes.extend(words.iter().flat_map(|word| word.to_be_bytes()));
        bytes.extend([0; 4]);
        bytes.extend(b"rest");
        bytes
    }

    fn counts(bit: u64, run: u64, literals: u64) -> u64 {
        bit | run << 1 | literals << 33
    }

    fn set(words: &[u64], count: u32) -> Result<Vec<u32>, IndexError> {
        let bytes = bitmap(words);
        let (set, rest) = read(&bytes, count)?;
        assert_eq!(rest, b"rest");
        Ok(set.into_iter().collect())
    }

    #[test]
    fn bits_are_single_ones_and_runs() {
        assert_eq!(set(&[], 0), Ok(vec![]));
        assert_eq!(set(&[counts(0, 0, 1), 0b101], 3), Ok(vec![0, 2]));
        assert_eq!(set(&[counts(0, 2, 1), 1 << 63], 192), Ok(vec![191]));
        let run: Vec<u32> = (64..128).chain([129]).collect();
        assert_eq!(set(&[counts(0, 1, 0), counts(1, 1, 1), 0b10], 130), Ok(run));
    }

    #[test]
    fn bits_of_no_entry_are_an_error() {
        for words in [
            &[counts(0, 0, 1), 0b1000][..],
            &[counts(1, 1, 0)],
            &[counts(1, u64::from(u32::MAX), 0)],
            &[counts(0, u64::from(u32::MAX), 1), 1],
        ] {
            assert_eq!(set(words, 3), Err(IndexError::Shared), "{words:x?}");
        }
        // Runs of nothing cost nothing.
        assert_eq!(set(&[counts(0, u64::from(u32::MAX), 0); 1000], 3), Ok(vec![]));
    }

    #[test]
    fn a_bitmap_that_ends_early_is_an_error() {
        let bytes = bitmap(&[counts(0, 0, 1), 1]);
        for length in 0..bytes.len() - b"rest".len() {
            assert!(read(&bytes[..length], 99).is_err(), "{length}");
        }
        assert!(set(&[counts(0, 0, 2), 1], 99).is_err());
    }
}
