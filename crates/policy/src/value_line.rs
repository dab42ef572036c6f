//! The line of a value in a policy file.

use super::parse_fault::line_at;
use super::policy_format::PolicyFormat;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;
use toml::de::{DeTable, DeValue};

/// A step to a value of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// A key of a table.
    Key(String),
    /// A place in a list.
    Index(usize),
}

/// The steps to a key such as `limits.memory`.
pub(super) fn steps_to_key(key: &str) -> Vec<Step> {
    key.split('.').map(|key| Step::Key(key.to_owned())).collect()
}

/// The line of a value; of the last table on the way to it that is in the file.
pub(super) fn line_of_value(format: PolicyFormat, text: &str, steps: &[Step]) -> Option<usize> {
    match format {
        PolicyFormat::Toml => line_in_toml(text, steps),
        PolicyFormat::Json => {
            let mut reader = serde_json::Deserializer::from_str(text);
            let sought = ValueSeeker(steps).deserialize(&mut reader);
            sought.err().map(|found| found.line())
        }
    }
}

/// The same of TOML.
pub(super) fn line_in_toml(text: &str, steps: &[Step]) -> Option<usize> {
    let table = DeTable::parse(text).ok()?;
    let line = |start: usize| line_at(text.as_bytes(), start);
    let mut value: Option<&DeValue<'_>> = None;
    let mut found = None;
    for step in steps {
        let next = match (step, value) {
            (Step::Key(key), _) => {
                let within = match value {
                    None => Some(table.get_ref()),
                    Some(value) => value.as_table(),
                };
                within.and_then(|within| {
                    let (name, value) = within.iter().find(|(name, _)| name.get_ref() == key)?;
                    Some((name.span().start, value.get_ref()))
                })
            }
            (Step::Index(index), Some(value)) => value
                .as_array()
                .and_then(|list| list.get(*index))
                .map(|value| (value.span().start, value.get_ref())),
            (Step::Index(_), None) => None,
        };
        let Some((start, inner)) = next else { break };
        found = Some(line(start));
        value = Some(inner);
    }
    found
}

/// Reads JSON up to a value, and ends with an error there, which has the line.
struct ValueSeeker<'a>(&'a [Step]);

impl<'de> DeserializeSeed<'de> for ValueSeeker<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeeker<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match self.0 {
                [Step::Key(sought), rest @ ..] if *sought == key => {
                    if rest.is_empty() {
                        return Err(serde::de::Error::custom("found"));
                    }
                    map.next_value_seed(ValueSeeker(rest))?;
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let mut at = 0;
        loop {
            let more = match self.0 {
                [Step::Index(index)] if *index == at => {
                    list.next_element::<IgnoredAny>()?;
                    return Err(serde::de::Error::custom("found"));
                }
                [Step::Index(index), rest @ ..] if *index == at => {
                    list.next_element_seed(ValueSeeker(rest))?.is_some()
                }
                _ => list.next_element::<IgnoredAny>()?.is_some(),
            };
            if !more {
                return Ok(());
            }
            at += 1;
        }
    }
}
