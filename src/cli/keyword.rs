//! Keywords of a policy as values of options: shells complete them.

use crate::spec::policy::Keyword;
use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Command};
use std::ffi::OsStr;
use std::marker::PhantomData;

/// Parses a keyword as a policy does, and lists all keywords of its kind for completion scripts.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeywordParser<T>(PhantomData<T>);

impl<T> KeywordParser<T> {
    /// Creates the parser.
    pub(super) const fn new() -> Self {
        KeywordParser(PhantomData)
    }
}

impl<T: Keyword + Send + Sync> TypedValueParser for KeywordParser<T> {
    type Value = T;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<T, clap::Error> {
        StringValueParser::new().try_map(|text| text.parse::<T>()).parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(T::all().iter().map(|keyword| PossibleValue::new(keyword.keyword()))))
    }
}
