//! Sizes, numbers of cores and spans of time, as people write them.
//!
//! Each has one grammar, one canonical text, and `parse(text(x)) == x`.

use super::value::{BadValue, number_value};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A number of bytes, at most `i64::MAX` (what the kernel takes for a limit).
///
/// `512M` and `512Mi` (also `MiB`) are binary, `512MB` is decimal, as for K, G, T and P; digits alone are bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(u64);

impl Size {
    /// The largest size.
    pub const MAX: Size = Size(i64::MAX as u64);

    /// This many mebibytes.
    pub const fn mebibytes(count: u32) -> Size {
        Size((count as u64) << 20)
    }

    /// The number of bytes.
    pub fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for Size {
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
            .map(Size)
            .filter(|size| *size <= Size::MAX)
            .ok_or_else(|| bad("is too large"))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
        match units.iter().find(|(shift, _)| self.0 != 0 && self.0.trailing_zeros() >= *shift) {
            Some((shift, unit)) => write!(f, "{}{unit}", self.0 >> shift),
            None => write!(f, "{}", self.0),
        }
    }
}

number_value!(Size, "a size such as 512M", {
    "description": "bytes, or a number with a unit: K M G T (also Ki, KiB, …) are binary, kB MB GB TB decimal",
    "anyOf": [
        { "type": "integer", "minimum": 0 },
        { "type": "string", "pattern": "^[0-9]+([kKmMgGtTP]|[KMGTP]i|[KMGTP]iB|[kKMGTP]B|B)?$" },
    ]
});

/// A number of cores in thousandths, from 0.01 (the least that cpu.max takes) to 100 000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cpus(u32);

impl Cpus {
    /// One core: 100 percent.
    pub const ONE: Cpus = Cpus(1000);
    const LEAST: u32 = 10;
    const MOST: u32 = 100_000_000;

    /// Thousandths of a core: 1000 is all of one.
    pub fn thousandths(self) -> u32 {
        self.0
    }
}

impl FromStr for Cpus {
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
        // Digits beyond the third are cut, which rounds down: never more than what was asked for.
        let thousandths =
            fraction.bytes().chain(*b"000").take(3).fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'));
        let cores = whole
            .parse::<u32>()
            .ok()
            .and_then(|whole| whole.checked_mul(1000)?.checked_add(thousandths))
            .filter(|cores| *cores <= Self::MOST)
            .ok_or_else(|| bad("is too large"))?;
        if cores < Self::LEAST { Err(bad("is less than 0.01")) } else { Ok(Cpus(cores)) }
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, fraction) = (self.0 / 1000, format!("{:03}", self.0 % 1000));
        match fraction.trim_end_matches('0') {
            "" => write!(f, "{whole}"),
            fraction => write!(f, "{whole}.{fraction}"),
        }
    }
}

number_value!(Cpus, "a number of cores such as 1.5", {
    "description": "a number of cores; 1.0 is 100 percent of one",
    "anyOf": [{ "type": "number", "minimum": 0.01 }, { "type": "string", "pattern": "^[0-9]+(\\.[0-9]+)?$" }]
});

/// A span of time in milliseconds: `90s`, `10m`, `1h30m`, `500ms`; digits alone are seconds. Never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeSpan(u64);

impl TimeSpan {
    /// A bit more than 136 years: any timer of the kernel holds it.
    const MOST: u64 = u32::MAX as u64 * 1000;

    /// The span as the standard library has it.
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
                .filter(|total| *total <= Self::MOST)
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

/// The leading ASCII digits of `text`, and what follows them.
fn split_number(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}
