//! JSON paths of fields in a document, and errors that name them.

use super::ConfigWarning;
use saggar_sys::error::{Code, Error};
use saggar_sys::text::summary;
use std::fmt;

/// The JSON path of a field. It borrows its parents and is formatted only for an error or a warning.
#[derive(Debug, Clone, Copy)]
pub(super) struct FieldPath<'a> {
    parent: Option<&'a FieldPath<'a>>,
    part: FieldPathPart<'a>,
}

#[derive(Debug, Clone, Copy)]
enum FieldPathPart<'a> {
    Key(&'a str),
    Index(usize),
}

impl<'a> FieldPath<'a> {
    /// A field of the root object.
    pub(super) fn root(key: &'a str) -> FieldPath<'a> {
        FieldPath { parent: None, part: FieldPathPart::Key(key) }
    }

    /// A field of this object.
    pub(super) fn key<'b>(&'b self, key: &'b str) -> FieldPath<'b> {
        FieldPath { parent: Some(self), part: FieldPathPart::Key(key) }
    }

    /// An element of this array.
    pub(super) fn index(&self, index: usize) -> FieldPath<'_> {
        FieldPath { parent: Some(self), part: FieldPathPart::Index(index) }
    }

    /// The error for an invalid value. `what` continues the name of the field: `must be …`, `is …`.
    pub(super) fn invalid(&self, what: impl fmt::Display) -> Error {
        Error::new(Code::Invalid, format!("{} {}", summary(&self.to_string()), summary(&what.to_string())))
    }

    /// The error for a required field that is missing.
    pub(super) fn missing(&self) -> Error {
        self.invalid("is missing")
    }

    /// A warning about the field.
    pub(super) fn warning(&self, message: impl fmt::Display) -> ConfigWarning {
        let (field, message) = (summary(&self.to_string()), summary(&message.to_string()));
        ConfigWarning { field, message, is_usual: false }
    }
}

impl fmt::Display for FieldPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            write!(f, "{parent}")?;
        }
        match self.part {
            FieldPathPart::Key(key) if self.parent.is_some() => write!(f, ".{key}"),
            FieldPathPart::Key(key) => f.write_str(key),
            FieldPathPart::Index(index) => write!(f, "[{index}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_named_as_a_json_path() {
        let (linux, devices) = (FieldPath::root("linux"), "devices");
        let error = linux.key(devices).index(2).key("path").invalid("must be absolute, is dev/x");
        assert_eq!(error.to_string(), "linux.devices[2].path must be absolute, is dev/x");
        assert_eq!(linux.key("sysctl").warning("no").to_string(), "linux.sysctl no");
    }
}
