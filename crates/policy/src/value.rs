//! Macros for the values of a policy: one parser (`FromStr`) for files and the command line, so that the
//! two cannot differ.

/// The reason why a text is not a valid value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadValue(pub(super) String);

/// Implements `Deserialize` from a string, and `JsonSchema` with the given schema, for a type that has
/// `FromStr`.
macro_rules! text_value {
    ($type:ty, $schema:tt) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct Visitor;
                // Parsed within the visit, so that the deserializer adds the position of this value to an
                // error.
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
        $crate::value::value_schema!($type, $schema);
    };
}

/// Implements `Deserialize` from a string or a plain number, for a type that has `FromStr`.
macro_rules! number_value {
    ($type:ty, $expecting:literal, $schema:tt) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct Visitor;
                // A number is parsed from its decimal text: one grammar, and no conversion that rounds.
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
        $crate::value::value_schema!($type, $schema);
    };
}

/// Implements `JsonSchema` with an inline schema.
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

/// Defines an enum of keywords: variants, their texts, and all conversions.
macro_rules! keywords {
    ($(#[$meta:meta])* $what:literal $name:ident {
        $($(#[$variant_meta:meta])* $variant:ident = $text:literal,)+
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$variant_meta])* $variant,)+ }

        impl $name {
            /// Every variant, in order.
            pub const ALL: &'static [$name] = &[$($name::$variant,)+];

            /// The keyword as written in a policy.
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
            type Err = $crate::value::BadValue;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::ALL.iter().copied().find(|known| known.name() == text).ok_or_else(|| {
                    $crate::value::unknown_word($what, text, &[$($text,)+])
                })
            }
        }

        $crate::value::text_value!($name, { "type": "string", "enum": [$($text,)+] });
    };
}

/// The error for an unknown keyword. It names the nearest known one, or all of them.
pub(super) fn unknown_word(what: &str, text: &str, known: &[&str]) -> BadValue {
    BadValue(match super::suggest::nearest(text, known.iter().copied()) {
        Some(near) => format!("unknown {what} {text:?}, did you mean {near:?}"),
        None => format!("unknown {what} {text:?}, it is one of: {}", known.join(", ")),
    })
}

pub(super) use {keywords, number_value, text_value, value_schema};
