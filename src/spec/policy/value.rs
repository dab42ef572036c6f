//! The glue that every value of a policy shares: one parser (`FromStr`), used for a file and for the
//! command line alike, so that the two cannot differ.

/// Why a text is not a value of its kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadValue(pub(super) String);

/// Makes a type that has `FromStr` readable from a string of a document, with the given JSON Schema.
macro_rules! text_value {
    ($type:ty, $schema:tt) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct Visitor;
                // Parsed within the visit, so that the reader adds the place of this very value to an error.
                impl serde::de::Visitor<'_> for Visitor {
                    type Value = $type;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("a string")
                    }
                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(E::custom)
                    }
                }
                from.deserialize_str(Visitor)
            }
        }
        $crate::spec::policy::value::value_schema!($type, $schema);
    };
}

/// Makes a type that has `FromStr` readable from a string or a plain number of a document.
macro_rules! number_value {
    ($type:ty, $expecting:literal, $schema:tt) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct Visitor;
                // A number goes through its decimal text: one grammar, and no conversion that rounds.
                impl serde::de::Visitor<'_> for Visitor {
                    type Value = $type;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str($expecting)
                    }
                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(E::custom)
                    }
                    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<$type, E> {
                        self.visit_str(&number.to_string())
                    }
                    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<$type, E> {
                        self.visit_str(&number.to_string())
                    }
                    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<$type, E> {
                        self.visit_str(&number.to_string())
                    }
                }
                from.deserialize_any(Visitor)
            }
        }
        $crate::spec::policy::value::value_schema!($type, $schema);
    };
}

/// The JSON Schema of a value, in place wherever it is used.
macro_rules! value_schema {
    ($type:ty, $schema:tt) => {
        impl schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!($schema)
            }
        }
    };
}

/// A closed set of words: the enum, its texts, and every way in and out.
macro_rules! keywords {
    ($(#[$meta:meta])* $what:literal $name:ident {
        $($(#[$variant_meta:meta])* $variant:ident = $text:literal,)+
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$variant_meta])* $variant,)+ }

        impl $name {
            /// Every one, in order.
            pub const ALL: &'static [$name] = &[$($name::$variant,)+];

            /// The word as it stands in a policy.
            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::spec::policy::value::BadValue;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::ALL.iter().copied().find(|known| known.name() == text).ok_or_else(|| {
                    $crate::spec::policy::value::unknown_word($what, text, &[$($text,)+])
                })
            }
        }

        $crate::spec::policy::value::text_value!($name, { "type": "string", "enum": [$($text,)+] });
    };
}

/// The error of a word that is not in its set: the nearest one, or all of them.
pub(super) fn unknown_word(what: &str, text: &str, known: &[&str]) -> BadValue {
    BadValue(match super::suggest::nearest(text, known.iter().copied()) {
        Some(near) => format!("unknown {what} {text:?}, did you mean {near:?}"),
        None => format!("unknown {what} {text:?}, it is one of: {}", known.join(", ")),
    })
}

pub(super) use {keywords, number_value, text_value, value_schema};
