//! Times on the wire and in the database: ISO 8601 in UTC with milliseconds, such as `2026-11-27T16:14:22.820Z`. As text
//! they sort by time.

use jiff::Timestamp;

/// The time, as text.
pub fn now() -> String {
    text(Timestamp::now())
}

/// A time, as text.
pub fn text(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_three_digits_and_a_z() {
        assert_eq!(text(Timestamp::from_millisecond(1_700_000_000_007).unwrap()), "2023-11-14T22:13:20.007Z");
        assert_eq!(text(Timestamp::from_second(0).unwrap()), "1970-01-01T00:00:00.000Z");
    }
}
