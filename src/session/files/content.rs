//! Bytes of a file in JSON: as text where they are UTF-8, or as base64 (RFC 4648, section 4).

/// How bytes stand in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub enum Encoding {
    /// As they are.
    #[default]
    #[serde(rename = "utf-8")]
    Utf8,
    /// Anything.
    #[serde(rename = "base64")]
    Base64,
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Bytes as base64, with its padding.
pub fn to_base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let value =
            group.iter().fold(0u32, |value, byte| value << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for at in 0..4 {
            let digit = (value >> (18 - 6 * at)) as usize & 63;
            text.push(if at <= group.len() { char::from(ALPHABET[digit]) } else { '=' });
        }
    }
    text
}

/// The bytes that this is the one and only base64 of.
pub fn from_base64(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| ALPHABET.iter().position(|known| *known == byte);
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let groups = text.as_bytes().chunks(4);
    let last = groups.len().checked_sub(1);
    for (number, group) in groups.enumerate() {
        let padding = group.iter().rev().take_while(|byte| **byte == b'=').count();
        if group.len() != 4 || padding > 2 || padding > 0 && Some(number) != last {
            return None;
        }
        let mut value = 0;
        for byte in &group[..4 - padding] {
            value = value << 6 | u32::try_from(digit(*byte)?).ok()?;
        }
        value <<= 6 * padding;
        let whole = value.to_be_bytes();
        let (kept, rest) = whole[1..].split_at(3 - padding);
        if rest.iter().any(|byte| *byte != 0) {
            return None;
        }
        bytes.extend_from_slice(kept);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn as_the_rfc_has_it() {
        let known = ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"];
        for (len, text) in known.into_iter().enumerate() {
            assert_eq!(to_base64(&b"foobar"[..len]), text);
            assert_eq!(from_base64(text).unwrap(), &b"foobar"[..len]);
        }
        for text in ["Z", "Zg=", "Zg", "Zh==", "Zm9=", "Z===", "====", "Zg==Zg==", "Zm 9v", "Zm9v\n", "Zm9-"]
        {
            assert_eq!(from_base64(text), None, "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn any_bytes_come_back(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in "[A-Za-z0-9+/=]{0,12}") {
            prop_assert_eq!(from_base64(&to_base64(&bytes)), Some(bytes));
            if let Some(bytes) = from_base64(&text) {
                prop_assert_eq!(to_base64(&bytes), text);
            }
        }
    }
}
