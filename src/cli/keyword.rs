//! Keywords of a policy as values of options: shells complete them.

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Command};
use std::error::Error;
use std::ffi::OsStr;
use std::str::FromStr;

/// Parses a keyword as a policy does, and lists all keywords of its kind for completion scripts.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeywordParser<T: 'static> {
    /// All keywords.
    pub(super) all: &'static [T],
    /// The keyword as written.
    pub(super) name: fn(T) -> &'static str,
}

impl<T> TypedValueParser for KeywordParser<T>
where
    T: FromStr<Err: Error + Send + Sync> + Copy + Send + Sync + 'static,
{
    type Value = T;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<T, clap::Error> {
        StringValueParser::new().try_map(|text| text.parse::<T>()).parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.all.iter().map(|keyword| PossibleValue::new((self.name)(*keyword)))))
    }
}

/// The parser of an enum that `keywords!` has defined.
macro_rules! keyword {
    ($type:ty) => {
        $crate::cli::keyword::KeywordParser { all: <$type>::ALL, name: <$type>::name }
    };
}

pub(super) use keyword;
