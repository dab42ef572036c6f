//! Names of fields in a document, as JSON paths, and the errors that carry them.

use super::Warning;
use crate::error::{Code, Error};
use crate::text::summary;
use std::fmt;

/// The JSON path of a field. It borrows its way up, and becomes text only when there is something to say.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field<'a> {
    parent: Option<&'a Field<'a>>,
    part: Part<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Part<'a> {
    Key(&'a str),
    Index(usize),
}

impl<'a> Field<'a> {
    /// A field of the document itself.
    pub(super) fn root(key: &'a str) -> Field<'a> {
        Field { parent: None, part: Part::Key(key) }
    }

    /// A field of this object.
    pub(super) fn key<'b>(&'b self, key: &'b str) -> Field<'b> {
        Field { parent: Some(self), part: Part::Key(key) }
    }

    /// An element of this array.
    pub(super) fn at(&self, index: usize) -> Field<'_> {
        Field { parent: Some(self), part: Part::Index(index) }
    }

    /// The error that its value is not valid. `what` continues the name: `must be …`, `is …`.
    pub(super) fn invalid(&self, what: impl fmt::Display) -> Error {
        Error::new(Code::Invalid, format!("{} {}", summary(&self.to_string()), summary(&what.to_string())))
    }

    /// The error that it must be there.
    pub(super) fn missing(&self) -> Error {
        self.invalid("is missing")
    }

    /// The warning about it.
    pub(super) fn warning(&self, message: impl fmt::Display) -> Warning {
        Warning { field: summary(&self.to_string()), message: summary(&message.to_string()) }
    }
}

impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            write!(f, "{parent}")?;
        }
        match self.part {
            Part::Key(key) if self.parent.is_some() => write!(f, ".{key}"),
            Part::Key(key) => f.write_str(key),
            Part::Index(index) => write!(f, "[{index}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_named_as_a_json_path() {
        let (linux, devices) = (Field::root("linux"), "devices");
        let error = linux.key(devices).at(2).key("path").invalid("must be absolute, is dev/x");
        assert_eq!(error.to_string(), "linux.devices[2].path must be absolute, is dev/x");
        assert_eq!(linux.key("sysctl").warning("no").to_string(), "linux.sysctl no");
    }
}
