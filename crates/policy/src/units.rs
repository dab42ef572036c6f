//! Sizes, numbers of cores and time spans, as people write them.
//!
//! Each has one grammar and one canonical text, and `parse(text(x)) == x`.

use super::value::{BadValue, number_value};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A number of bytes, at most `i64::MAX` (the highest limit that the kernel accepts).
///
/// `512M` and `512Mi` (also `MiB`) are binary, `512MB` is decimal; likewise for K, G, T and P. Digits alone
/// are bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(u64);

impl ByteSize {
    /// The largest size.
    pub const MAX: ByteSize = ByteSize(i64::MAX as u64);

    /// A size of `count` mebibytes.
    pub const fn from_mebibytes(count: u32) -> ByteSize {
        ByteSize((count as u64) << 20)
    }

    /// A size of `bytes` bytes, at most [`Self::MAX`].
    pub fn from_bytes(bytes: u64) -> ByteSize {
        ByteSize(bytes).min(ByteSize::MAX)
    }

    /// The number of bytes.
    pub fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for ByteSize {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = |why: &str| {
            BadValue(format!(
                "size {text:?} {why}; write 512M (binary), 512MB (decimal) or a number of bytes"
            ))
        };
        let (digits, unit) = split_number(text);
        if digits.is_empty() {
            return Err(bad("does not start with a digit"));
        }
        let (base, power): (u64, u32) = match unit {
            "" | "B" => (1, 0),
            "k" | "K" | "Ki" | "KiB" => (1024, 1),
            "m" | "M" | "Mi" | "MiB" => (1024, 2),
            "g" | "G" | "Gi" | "GiB" => (1024, 3),
            "t" | "T" | "Ti" | "TiB" => (1024, 4),
            "P" | "Pi" | "PiB" => (1024, 5),
            "kB" | "KB" => (1000, 1),
            "MB" => (1000, 2),
            "GB" => (1000, 3),
            "TB" => (1000, 4),
            "PB" => (1000, 5),
            fraction if fraction.starts_with('.') => return Err(bad("has a fraction")),
            _ => return Err(bad("has an unknown unit")),
        };
        digits
            .parse::<u64>()
            .ok()
            .and_then(|count| count.checked_mul(base.pow(power)))
            .map(ByteSize)
            .filter(|size| *size <= ByteSize::MAX)
            .ok_or_else(|| bad("is too large"))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
        match units.iter().find(|(shift, _)| self.0 != 0 && self.0.trailing_zeros() >= *shift) {
            Some((shift, unit)) => write!(f, "{}{unit}", self.0 >> shift),
            None => write!(f, "{}", self.0),
        }
    }
}

number_value!(ByteSize, "a size such as 512M", {
    "description": "bytes, or a number with a unit: K M G T (also Ki, KiB, …) are binary, kB MB GB TB decimal",
    "anyOf": [
        { "type": "integer", "minimum": 0 },
        { "type": "string", "pattern": "^[0-9]+([kKmMgGtTP]|[KMGTP]i|[KMGTP]iB|[kKMGTP]B|B)?$" },
    ]
});

/// A number of cores in thousandths, from 0.01 (the minimum of cpu.max) to 100 000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuCount(u32);

impl CpuCount {
    /// One core: 100 percent.
    pub const ONE: CpuCount = CpuCount(1000);
    const MIN_THOUSANDTHS: u32 = 10;
    const MAX_THOUSANDTHS: u32 = 100_000_000;

    /// Thousandths of a core: 1000 is one core.
    pub fn thousandths(self) -> u32 {
        self.0
    }
}

impl FromStr for CpuCount {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = |why: &str| BadValue(format!("number of cores {text:?} {why}; write 2 or 0.5"));
        let (whole, rest) = split_number(text);
        let (fraction, rest) = match rest.strip_prefix('.') {
            Some(rest) => split_number(rest),
            None => ("0", rest),
        };
        if whole.is_empty() || fraction.is_empty() || !rest.is_empty() {
            return Err(bad("is not a plain number"));
        }
        // Digits after the third are dropped, which rounds down: never more than requested.
        let thousandths =
            fraction.bytes().chain(*b"000").take(3).fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'));
        let cores = whole
            .parse::<u32>()
            .ok()
            .and_then(|whole| whole.checked_mul(1000)?.checked_add(thousandths))
            .filter(|cores| *cores <= Self::MAX_THOUSANDTHS)
            .ok_or_else(|| bad("is too large"))?;
        if cores < Self::MIN_THOUSANDTHS { Err(bad("is less than 0.01")) } else { Ok(CpuCount(cores)) }
    }
}

impl fmt::Display for CpuCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, fraction) = (self.0 / 1000, format!("{:03}", self.0 % 1000));
        match fraction.trim_end_matches('0') {
            "" => write!(f, "{whole}"),
            fraction => write!(f, "{whole}.{fraction}"),
        }
    }
}

number_value!(CpuCount, "a number of cores such as 1.5", {
    "description": "a number of cores; 1.0 is 100 percent of one",
    "anyOf": [{ "type": "number", "minimum": 0.01 }, { "type": "string", "pattern": "^[0-9]+(\\.[0-9]+)?$" }]
});

/// A time span in milliseconds: `90s`, `10m`, `1h30m`, `500ms`; digits alone are seconds. Never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeSpan(u64);

impl TimeSpan {
    /// A little more than 136 years, which every kernel timer can represent.
    const MAX_MILLISECONDS: u64 = u32::MAX as u64 * 1000;

    /// A span of `count` minutes.
    pub(super) const fn from_minutes(count: u32) -> Self {
        TimeSpan(count as u64 * 60_000)
    }

    /// The span in milliseconds.
    pub fn milliseconds(self) -> u64 {
        self.0
    }

    /// The span as a standard library duration.
    pub fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl FromStr for TimeSpan {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = |why: &str| BadValue(format!("duration {text:?} {why}; write 90s, 10m, 1h30m or 500ms"));
        let mut total: u64 = 0;
        let mut previous = u64::MAX;
        let mut rest = text;
        loop {
            let (digits, tail) = split_number(rest);
            if digits.is_empty() {
                return Err(bad("is not a number with a unit"));
            }
            let unit_end = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(unit_end);
            let scale: u64 = match unit {
                "h" => 3_600_000,
                "m" => 60_000,
                "s" => 1000,
                "ms" => 1,
                "" if previous == u64::MAX && tail.is_empty() => 1000,
                "" => return Err(bad("lacks a unit")),
                _ => return Err(bad("has an unknown unit")),
            };
            if scale >= previous {
                return Err(bad("has its units out of order"));
            }
            previous = scale;
            total = digits
                .parse::<u64>()
                .ok()
                .and_then(|count| count.checked_mul(scale)?.checked_add(total))
                .filter(|total| *total <= Self::MAX_MILLISECONDS)
                .ok_or_else(|| bad("is too long"))?;
            if tail.is_empty() {
                break;
            }
            rest = tail;
        }
        if total == 0 { Err(bad("is zero")) } else { Ok(TimeSpan(total)) }
    }
}

impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        for (scale, unit) in [(3_600_000, "h"), (60_000, "m"), (1000, "s"), (1, "ms")] {
            if rest >= scale {
                write!(f, "{}{unit}", rest / scale)?;
                rest %= scale;
            }
        }
        Ok(())
    }
}

number_value!(TimeSpan, "a duration such as 90s", {
    "description": "seconds, or hours, minutes, seconds and milliseconds in this order: 1h30m, 90s, 500ms",
    "anyOf": [
        { "type": "integer", "minimum": 1 },
        { "type": "string", "pattern": "^([0-9]+|([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?)$" },
    ]
});

/// Splits `text` after its leading ASCII digits.
fn split_number(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(text: &str) -> Option<u64> {
        text.parse::<ByteSize>().ok().map(ByteSize::bytes)
    }

    fn millis(text: &str) -> Option<u128> {
        text.parse::<TimeSpan>().ok().map(|span| span.duration().as_millis())
    }

    fn cores(text: &str) -> Option<u32> {
        text.parse::<CpuCount>().ok().map(CpuCount::thousandths)
    }

    #[test]
    fn sizes_are_binary_without_a_b_and_decimal_with_it() {
        for (text, expected) in [
            ("0", 0),
            ("512", 512),
            ("512B", 512),
            ("1k", 1 << 10),
            ("1K", 1 << 10),
            ("512M", 512 << 20),
            ("512m", 512 << 20),
            ("512Mi", 512 << 20),
            ("512MiB", 512 << 20),
            ("1G", 1 << 30),
            ("3T", 3 << 40),
            ("1P", 1 << 50),
            ("1kB", 1000),
            ("512MB", 512_000_000),
            ("2GB", 2_000_000_000),
            ("9223372036854775807", i64::MAX as u64),
        ] {
            assert_eq!(bytes(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn junk_is_no_size() {
        for text in [
            "",
            " ",
            "M",
            "-1",
            "+1",
            "-512M",
            "1.5G",
            "1e3",
            "nan",
            "inf",
            "NaN",
            "0x10",
            "1_000",
            " 1G",
            "1G ",
            "1 G",
            "1GG",
            "1Gib",
            "1mb",
            "1gb",
            "1E",
            "1\0",
            "１G",
            "٣",
            "9223372036854775808",
            "8192P",
            "18446744073709551616",
            "99999999999999999999999T",
        ] {
            assert_eq!(bytes(text), None, "{text:?}");
        }
    }

    #[test]
    fn cores_have_three_digits_and_a_floor() {
        for (text, expected) in
            [("1", 1000), ("1.0", 1000), ("0.5", 500), ("1.2345", 1234), ("0.01", 10), ("00.010", 10)]
        {
            assert_eq!(cores(text), Some(expected), "{text}");
        }
        for text in [
            "",
            ".",
            ".5",
            "1.",
            "0",
            "0.0",
            "0.009",
            "-1",
            "+1",
            "1e3",
            "nan",
            "NaN",
            "inf",
            "1,5",
            " 1",
            "1 ",
            "1.5.5",
            "100001",
            "4294968",
            "99999999999999999999",
        ] {
            assert_eq!(cores(text), None, "{text:?}");
        }
    }

    #[test]
    fn spans_have_units_from_the_largest() {
        for (text, expected) in [
            ("90", 90_000),
            ("90s", 90_000),
            ("10m", 600_000),
            ("1h30m", 5_400_000),
            ("500ms", 500),
            ("1h2m3s4ms", 3_723_004),
            ("1h5ms", 3_600_005),
            ("0h1s", 1000),
        ] {
            assert_eq!(millis(text), Some(expected), "{text}");
        }
        for text in [
            "",
            "0",
            "0s",
            "0h0m",
            "s",
            "-1s",
            "+1s",
            "1.5s",
            "1d",
            "1m1h",
            "1s1s",
            "1h30",
            "30 s",
            " 30s",
            "30s ",
            "1 h",
            "1S",
            "1h-1m",
            "nan",
            "4294967296",
            "99999999999999999999h",
            "2000000h",
        ] {
            assert_eq!(millis(text), None, "{text:?}");
        }
    }

    #[test]
    fn canonical_texts() {
        let size = |text: &str| text.parse::<ByteSize>().unwrap().to_string();
        assert_eq!(
            ["2048M", "1536M", "1GB", "0", "1", "1024"].map(size),
            ["2G", "1536M", "1000000000", "0", "1", "1K"]
        );
        let span = |text: &str| text.parse::<TimeSpan>().unwrap().to_string();
        assert_eq!(["90", "3600", "1500ms", "1h30m"].map(span), ["1m30s", "1h", "1s500ms", "1h30m"]);
        let cores = |text: &str| text.parse::<CpuCount>().unwrap().to_string();
        assert_eq!(["1.0", "0.50", "2.125", "0.01"].map(cores), ["1", "0.5", "2.125", "0.01"]);
    }

    proptest! {
        #[test]
        fn a_size_survives_its_text(bytes in 0..=i64::MAX as u64, shift in 0..63u32) {
            let size = ByteSize(bytes >> shift << (shift / 2));
            prop_assume!(size <= ByteSize::MAX);
            prop_assert_eq!(size.to_string().parse::<ByteSize>(), Ok(size));
        }

        #[test]
        fn cores_survive_their_text(thousandths in CpuCount::MIN_THOUSANDTHS..=CpuCount::MAX_THOUSANDTHS) {
            let cpus = CpuCount(thousandths);
            prop_assert_eq!(cpus.to_string().parse::<CpuCount>(), Ok(cpus));
        }

        #[test]
        fn a_span_survives_its_text(millis in 1..=TimeSpan::MAX_MILLISECONDS) {
            let span = TimeSpan(millis);
            prop_assert_eq!(span.to_string().parse::<TimeSpan>(), Ok(span));
        }

        #[test]
        fn a_size_is_exact_or_refused(count in any::<u64>(), unit in 0..11usize) {
            let units = [("", 1u128), ("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30), ("T", 1 << 40), ("P", 1 << 50),
                ("kB", 1000), ("MB", 1_000_000), ("GB", 1_000_000_000), ("TB", 1_000_000_000_000), ("Gi", 1 << 30)];
            let (unit, scale) = units[unit];
            let exact = u128::from(count) * scale;
            let expected = (exact <= i64::MAX as u128).then_some(exact);
            prop_assert_eq!(bytes(&format!("{count}{unit}")).map(u128::from), expected);
        }

        #[test]
        fn any_text_gives_a_value_or_an_error(text in "\\PC{0,12}|[0-9.hmsMGiBkKx +-]{0,12}") {
            for number in [bytes(&text).map(u128::from), millis(&text), cores(&text).map(u128::from)].into_iter().flatten() {
                prop_assert!(text.starts_with(|c: char| c.is_ascii_digit()), "{number} from {text:?}");
            }
        }

        #[test]
        fn a_number_that_no_limit_is_is_refused(number in prop_oneof![Just(f64::NAN), Just(f64::INFINITY),
            Just(f64::NEG_INFINITY), Just(-0.0), -1e300..0.0f64, 1e9..1e300f64]) {
            prop_assert!(number.to_string().parse::<CpuCount>().is_err());
        }
    }
}
