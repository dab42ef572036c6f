//! Checks of the variables of OpenTelemetry. The library ignores values that it cannot read, and what it does instead
//! can be the opposite of what was meant, such as to export every trace.

use crate::error::{Error, Result};
use axum::http::{HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;

/// What a variable can be.
#[derive(Debug, Clone, Copy)]
enum Values {
    OneOf(&'static [&'static str]),
    /// An integer, and its minimum.
    Integer(u32),
    /// A number from 0 to 1.
    Ratio,
    /// Pairs of a name and a value, which can be a key and is never part of an error.
    Headers,
    /// It would change how traces are sent, and this server has no such setting.
    Unsupported,
}

const CHECKS: [(&str, Values); 22] = [
    ("OTEL_TRACES_EXPORTER", Values::OneOf(&["otlp", "none"])),
    ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", Values::OneOf(&["http/protobuf"])),
    ("OTEL_EXPORTER_OTLP_PROTOCOL", Values::OneOf(&["http/protobuf"])),
    ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", Values::OneOf(&["none"])),
    ("OTEL_EXPORTER_OTLP_COMPRESSION", Values::OneOf(&["none"])),
    (
        "OTEL_TRACES_SAMPLER",
        Values::OneOf(&[
            "always_on",
            "always_off",
            "traceidratio",
            "parentbased_always_on",
            "parentbased_always_off",
            "parentbased_traceidratio",
        ]),
    ),
    ("OTEL_TRACES_SAMPLER_ARG", Values::Ratio),
    ("OTEL_BSP_SCHEDULE_DELAY", Values::Integer(1)),
    ("OTEL_BSP_EXPORT_TIMEOUT", Values::Integer(0)),
    ("OTEL_BSP_MAX_QUEUE_SIZE", Values::Integer(1)),
    ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", Values::Integer(1)),
    ("OTEL_BSP_MAX_CONCURRENT_EXPORTS", Values::Integer(1)),
    ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", Values::Integer(0)),
    ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", Values::Headers),
    ("OTEL_EXPORTER_OTLP_HEADERS", Values::Headers),
    ("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", Values::Unsupported),
    ("OTEL_EXPORTER_OTLP_CERTIFICATE", Values::Unsupported),
    ("OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE", Values::Unsupported),
    ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", Values::Unsupported),
    ("OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY", Values::Unsupported),
    ("OTEL_EXPORTER_OTLP_CLIENT_KEY", Values::Unsupported),
    ("OTEL_CONFIG_FILE", Values::Unsupported),
];

/// Checks all variables that select how traces are sent. Empty ones are not set.
///
/// # Errors
/// Fails at the first variable that is invalid or not supported, and names it.
pub(super) fn check_variables(variable: &impl Fn(&str) -> Option<String>) -> Result<()> {
    for (name, values) in CHECKS {
        if let Some(value) = variable(name).filter(|value| !value.is_empty()) {
            check(name, values, &value).map_err(Error::new)?;
        }
    }
    Ok(())
}

fn check(name: &str, values: Values, value: &str) -> std::result::Result<(), String> {
    let expected = match values {
        Values::OneOf(known) if known.contains(&value) => return Ok(()),
        Values::OneOf([only]) => format!("{only} only"),
        Values::OneOf(known) => format!("one of {}", known.join(", ")),
        Values::Integer(minimum) => match value.parse::<u32>() {
            Ok(number) if number >= minimum => return Ok(()),
            _ => format!("an integer, at least {minimum}"),
        },
        Values::Ratio => match value.parse::<f64>() {
            Ok(ratio) if (0.0..=1.0).contains(&ratio) => return Ok(()),
            _ => "a number from 0 to 1".to_owned(),
        },
        Values::Headers => {
            return match value.split_terminator(',').all(is_header) {
                true => Ok(()),
                false => Err(format!(
                    "invalid {name}: use NAME=VALUE with commas between them, and %XX for special characters"
                )),
            };
        }
        Values::Unsupported => return Err(format!("{name} is not supported by this server; unset it")),
    };
    Err(format!("{name}={value} is not supported: it can be {expected}; change or unset it"))
}

/// Whether a pair is a name and a value, as the library reads them.
fn is_header(pair: &str) -> bool {
    let Some((name, value)) = pair.split_once('=') else { return false };
    let value: Vec<u8> = percent_decode_str(value.trim()).collect();
    // What is no digit after a percent sign would be sent as it is.
    let is_decoded = percent_signs_are_valid(pair);
    is_decoded && name.trim().parse::<HeaderName>().is_ok() && HeaderValue::from_bytes(&value).is_ok()
}

fn percent_signs_are_valid(text: &str) -> bool {
    text.split('%')
        .skip(1)
        .all(|rest| rest.as_bytes().get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(name: &str, value: &str) -> Option<String> {
        let variable = |asked: &str| Some(value.to_owned()).filter(|_| asked == name);
        check_variables(&variable).err().map(|error| error.to_string())
    }

    #[test]
    fn valid_and_empty_variables_are_accepted() {
        for (name, value) in [
            ("OTEL_TRACES_EXPORTER", "otlp"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "none"),
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER", ""),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
            ("OTEL_TRACES_SAMPLER_ARG", "1"),
            ("OTEL_BSP_SCHEDULE_DELAY", "20"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20KEY, x-a=b=c,"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", ""),
            ("OTEL_SERVICE_NAME", "any"),
        ] {
            assert_eq!(error_of(name, value), None, "{name}={value}");
        }
    }

    #[test]
    fn invalid_variables_are_named() {
        for (name, value, text) in [
            ("OTEL_TRACES_EXPORTER", "console", "one of otlp, none"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/protobuf only"),
            ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "gzip", "none only"),
            ("OTEL_TRACES_SAMPLER", "nonsense", "parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER", "Always_On", "always_on"),
            ("OTEL_TRACES_SAMPLER_ARG", "10%", "from 0 to 1"),
            ("OTEL_TRACES_SAMPLER_ARG", "1.5", "from 0 to 1"),
            ("OTEL_TRACES_SAMPLER_ARG", "NaN", "from 0 to 1"),
            ("OTEL_BSP_SCHEDULE_DELAY", "5s", "an integer"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "0", "at least 1"),
            ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "-1", "an integer"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca.pem", "not supported"),
            ("OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY", "/key.pem", "not supported"),
        ] {
            let error = error_of(name, value).unwrap();
            assert!(error.contains(name) && error.contains(text), "{error}");
        }
    }

    #[test]
    fn invalid_headers_are_named_without_their_text() {
        for value in
            ["secret", "a=b,secret", "=secret", "a b=secret", "a=secret%0", "a=secret%0A", "a=b,,c=secret"]
        {
            for name in ["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"] {
                let error = error_of(name, value).unwrap_or_else(|| panic!("{value} is accepted"));
                assert!(error.contains(&format!("invalid {name}:")) && !error.contains("secret"), "{error}");
            }
        }
    }
}
