//! Timestamps in the API and in the database: ISO 8601 in UTC with milliseconds, such as `2026-11-27T16:14:22.820Z`.
//! Their lexical order is their chronological order.

use jiff::Timestamp;

/// Returns the current time as a timestamp.
pub fn now() -> String {
    format(Timestamp::now())
}

/// Formats a time in milliseconds since the Unix epoch as a timestamp; one outside of the calendar is the epoch.
pub fn at_millisecond(milliseconds: i64) -> String {
    format(Timestamp::from_millisecond(milliseconds).unwrap_or(Timestamp::UNIX_EPOCH))
}

/// Formats a time as a timestamp.
pub fn format(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

/// Parses an ISO 8601 time with any offset, or a date, which is its start in UTC, and returns it as a timestamp. The
/// milliseconds are rounded down.
pub fn parse(text: &str) -> Option<String> {
    let midnight = || format!("{text}T00:00:00Z").parse().ok().filter(|_| text.len() == 10);
    let time = text.parse::<Timestamp>().ok().or_else(midnight);
    time.map(format)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamp_has_milliseconds_and_utc_suffix() {
        assert_eq!(
            format(Timestamp::from_millisecond(1_700_000_000_007).unwrap()),
            "2023-11-14T22:13:20.007Z"
        );
        assert_eq!(at_millisecond(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(at_millisecond(i64::MAX), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn times_and_dates_are_parsed() {
        let cases = [
            ("2026-11-27T16:14:22.820Z", "2026-11-27T16:14:22.820Z"),
            ("2026-11-27T16:14:22+02:00", "2026-11-27T14:14:22.000Z"),
            ("2026-11-27T16:14:22.8209Z", "2026-11-27T16:14:22.820Z"),
            ("2026-11-27", "2026-11-27T00:00:00.000Z"),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text).as_deref(), Some(expected), "{text}");
        }
        for text in ["", "x", "2026-11-27T16:14:22", "2026-13-01", "1"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
