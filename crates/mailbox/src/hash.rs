//! SHA-256 as hexadecimal text, and as fixed-size keys of the index.

use sha2::{Digest, Sha256};

/// The lowercase hexadecimal SHA-256 of the concatenated `parts`.
pub(crate) fn hex_digest(parts: &[&[u8]]) -> String {
    hex(&digest(parts))
}

/// The first `N` bytes of the SHA-256 of the concatenated `parts`; `N` is at most 32.
pub(crate) fn short_digest<const N: usize>(parts: &[&[u8]]) -> [u8; N] {
    let full = digest(parts);
    std::array::from_fn(|at| full.get(at).copied().unwrap_or(0))
}

/// Lowercase hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let digit = |value: u8| DIGITS.get(usize::from(value)).copied();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).flatten().collect()
}

/// The bytes of hexadecimal digits; `None` if the text is something else.
pub(crate) fn parse_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    digits?
        .chunks(2)
        .map(|pair| match pair {
            [high, low] => Some(high << 4 | low),
            _ => None,
        })
        .collect()
}

fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize().into()
}
