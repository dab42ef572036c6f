//! Bytes of a file in JSON: as text if they are UTF-8, or as base64 (RFC 4648, section 4).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Encoding of bytes in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub enum Encoding {
    /// As text; the bytes must be UTF-8.
    #[default]
    #[serde(rename = "utf-8")]
    Utf8,
    /// Base64, for any bytes.
    #[serde(rename = "base64")]
    Base64,
}

/// Encodes bytes as base64 with padding.
pub fn to_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes base64; `None` unless it is the canonical encoding.
pub fn from_base64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
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
