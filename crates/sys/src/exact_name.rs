//! Names of files in JSON records of saggar's own: a string where the name is UTF-8, and otherwise an object with its bytes in
//! hexadecimal, `{"bytes": "ff"}`. For `#[serde(with = "saggar_sys::exact_name")]`.

use crate::text;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// A name in a record.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum RecordedName {
    Text(String),
    Bytes { bytes: String },
}

impl From<&OsStr> for RecordedName {
    fn from(name: &OsStr) -> Self {
        let bytes = || RecordedName::Bytes { bytes: text::hex(name.as_bytes()) };
        name.to_str().map_or_else(bytes, |name| RecordedName::Text(name.to_owned()))
    }
}

impl RecordedName {
    /// `None` if the bytes are not hexadecimal.
    fn into_name(self) -> Option<OsString> {
        match self {
            RecordedName::Text(text) => Some(text.into()),
            RecordedName::Bytes { bytes } => text::parse_hex(&bytes).map(OsString::from_vec),
        }
    }
}

const NOT_HEX: &str = "the bytes of a name are not hexadecimal";

/// A path in a record, for places without an attribute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ExactPath(#[serde(with = "crate::exact_name")] pub PathBuf);

/// Writes a name.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<S: Serializer>(name: &impl AsRef<OsStr>, serializer: S) -> Result<S::Ok, S::Error> {
    RecordedName::from(name.as_ref()).serialize(serializer)
}

/// Reads a name.
///
/// # Errors
/// Those of the deserializer; bytes that are not hexadecimal.
pub fn deserialize<'de, D: Deserializer<'de>, T: From<OsString>>(deserializer: D) -> Result<T, D::Error> {
    let name = RecordedName::deserialize(deserializer)?.into_name();
    name.map(T::from).ok_or_else(|| D::Error::custom(NOT_HEX))
}

/// The same for a list of names.
pub mod list {
    use crate::exact_name::{NOT_HEX, RecordedName};
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};
    use std::ffi::{OsStr, OsString};

    /// Writes the names.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(names: &[impl AsRef<OsStr>], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(names.iter().map(|name| RecordedName::from(name.as_ref())))
    }

    /// Reads the names.
    ///
    /// # Errors
    /// Those of the deserializer; bytes that are not hexadecimal.
    pub fn deserialize<'de, D: Deserializer<'de>, T: From<OsString>>(
        deserializer: D,
    ) -> Result<Vec<T>, D::Error> {
        let names = Vec::<RecordedName>::deserialize(deserializer)?;
        let names = names.into_iter().map(|name| name.into_name().map(T::from)).collect::<Option<_>>();
        names.ok_or_else(|| D::Error::custom(NOT_HEX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Record {
        #[serde(with = "crate::exact_name")]
        path: PathBuf,
        #[serde(with = "crate::exact_name::list")]
        names: Vec<OsString>,
    }

    #[test]
    fn text_is_text_and_bytes_are_not_lost() {
        let names = vec!["a".into(), OsString::from_vec(b"\xff\0\"".to_vec())];
        let record = Record { path: "/a b".into(), names };
        let written = serde_json::to_string(&record).unwrap();
        assert_eq!(written, r#"{"path":"/a b","names":["a",{"bytes":"ff0022"}]}"#);
        for wrong in [r#"{"bytes":"f"}"#, r#"{"bytes":"+f"}"#, r#"{"bytes":"é"}"#, r#"{"hex":"ff"}"#, "1"] {
            let text = format!(r#"{{"path":{wrong},"names":[]}}"#);
            assert!(serde_json::from_str::<Record>(&text).is_err(), "{wrong}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn what_is_written_is_read(path in prop::collection::vec(any::<u8>(), 0..20), names in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..3)) {
            let names = names.into_iter().map(OsString::from_vec).collect();
            let record = Record { path: OsString::from_vec(path).into(), names };
            let written = serde_json::to_string(&record).unwrap();
            prop_assert_eq!(serde_json::from_str::<Record>(&written).unwrap(), record);
        }
    }
}
