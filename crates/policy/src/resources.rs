//! Names of resources: sets of processors, disks, sizes of huge pages.
//!
//! As in `units`, each has one grammar and one canonical text, and `parse(text(x)) == x`.

use super::units::ByteSize;
use super::value::{BadValue, text_value};
use schemars::JsonSchema;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Component, Path};
use std::str::FromStr;

/// A set of processors or memory nodes, as `0-3,7` (cpuset(7), "List format"). Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpusetList(BTreeSet<u16>);

impl CpusetList {
    /// The highest number of a processor (NR_CPUS is at most 8192).
    const MAX_NUMBER: u16 = 8191;

    /// Whether `other` contains every number of this set.
    pub(crate) fn is_subset_of(&self, other: &CpusetList) -> bool {
        self.0.is_subset(&other.0)
    }
}

impl FromStr for CpusetList {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = |why: &str| BadValue(format!("set of numbers {text:?} {why}; write 0-3,7"));
        let number = |digits: &str| {
            let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            let number = plain.then(|| digits.parse::<u16>().ok()).flatten();
            number.filter(|number| *number <= Self::MAX_NUMBER)
        };
        let mut set = BTreeSet::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (Some(first), Some(last)) = (number(first), number(last)) else {
                return Err(bad("is not a list of numbers from 0 to 8191"));
            };
            if first > last {
                return Err(bad("has a range that ends before it begins"));
            }
            set.extend(first..=last);
        }
        Ok(CpusetList(set))
    }
}

impl fmt::Display for CpusetList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut numbers = self.0.iter().copied().peekable();
        let mut comma = "";
        while let Some(first) = numbers.next() {
            let mut last = first;
            while let Some(next) = numbers.next_if(|next| *next == last + 1) {
                last = next;
            }
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
            comma = ",";
        }
        Ok(())
    }
}

text_value!(CpusetList, {
    "type": "string",
    "description": "numbers and ranges of them: 0-3,7",
    "pattern": "^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$"
});

/// A disk: `/dev/vda`, its device number `254:0`, or any other absolute path, which selects the disk that
/// holds it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiskName(String);

impl DiskName {
    /// The disk as written in the policy.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for DiskName {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = |why: &str| {
            BadValue(format!("disk {text:?} {why}; write a path such as /dev/sda, or MAJOR:MINOR as in 8:0"))
        };
        let is_number = |part: &str| {
            let plain = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            plain && part.parse::<u32>().is_ok()
        };
        if text.split_once(':').is_some_and(|(major, minor)| is_number(major) && is_number(minor)) {
            return Ok(DiskName(text.to_owned()));
        }
        let path = Path::new(text);
        if path.is_relative() {
            return Err(bad("is no absolute path"));
        }
        if text.contains('\0') || path.components().any(|part| part == Component::ParentDir) {
            return Err(bad("has a `..` or a NUL"));
        }
        Ok(DiskName(text.to_owned()))
    }
}

impl fmt::Display for DiskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

text_value!(DiskName, {
    "type": "string",
    "description": "a disk, as /dev/sda or 8:0, or a path on it",
    "pattern": "^(/.*|[0-9]+:[0-9]+)$"
});

/// Read and write rates of one disk, per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DiskRates {
    /// Bytes read per second.
    pub read_bps: Option<ByteSize>,
    /// Bytes written per second.
    pub write_bps: Option<ByteSize>,
    /// Read operations per second.
    #[schemars(range(min = 1))]
    pub read_iops: Option<u32>,
    /// Write operations per second.
    #[schemars(range(min = 1))]
    pub write_iops: Option<u32>,
}

/// The size of a huge page, by the kernel's name: `64KB`, `2MB`, `1GB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HugePageSize {
    shift: u8,
    number: u16,
}

impl HugePageSize {
    /// The size in bytes.
    pub fn bytes(self) -> u64 {
        u64::from(self.number) << self.shift
    }
}

impl FromStr for HugePageSize {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad =
            || BadValue(format!("invalid huge page size {text:?}; use a size such as 64KB, 2MB or 1GB"));
        let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
        let shift = match unit {
            "KB" => 10,
            "MB" => 20,
            "GB" => 30,
            _ => return Err(bad()),
        };
        let number = number.parse::<u16>().ok().filter(|number| number.is_power_of_two() && *number < 1024);
        Ok(HugePageSize { shift, number: number.ok_or_else(bad)? })
    }
}

impl fmt::Display for HugePageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.shift {
            10 => "KB",
            20 => "MB",
            _ => "GB",
        };
        write!(f, "{}{unit}", self.number)
    }
}

text_value!(HugePageSize, {
    "type": "string",
    "description": "the size of a huge page, as the kernel names it: 64KB, 2MB, 1GB",
    "pattern": "^[0-9]+[KMG]B$"
});

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn refused<T: FromStr>(texts: &[&str]) {
        for text in texts {
            assert!(text.parse::<T>().is_err(), "{text:?} is taken");
        }
    }

    #[test]
    fn sets_of_numbers_have_one_shortest_text() {
        let text = |text: &str| text.parse::<CpusetList>().unwrap().to_string();
        assert_eq!(text("3,0,1,2,7"), "0-3,7");
        assert_eq!(text("0-1,1-4"), "0-4");
        assert_eq!(text("8191"), "8191");
        refused::<CpusetList>(&[
            "", ",", "0,", "3-1", "a", "0-", "-1", "+1", "8192", "70000", "0 ,1", "0-1-2",
        ]);
        let set = |text: &str| text.parse::<CpusetList>().unwrap();
        assert!(set("1,2").is_subset_of(&set("0-3")) && !set("1,4").is_subset_of(&set("0-3")));
    }

    #[test]
    fn disks_are_paths_or_numbers() {
        for text in ["/dev/vda", "8:0", "/srv/data", "/"] {
            assert_eq!(text.parse::<DiskName>().unwrap().to_string(), text);
        }
        refused::<DiskName>(&[
            "",
            "sda",
            "dev/sda",
            "8",
            "8:",
            ":0",
            "8:0:1",
            "a:b",
            "/dev/../x",
            "4294967296:0",
        ]);
    }

    #[test]
    fn huge_pages_are_named_as_the_kernel_names_them() {
        for (text, bytes) in [("64KB", 64 << 10), ("2MB", 2 << 20), ("512MB", 512 << 20), ("16GB", 16 << 30)]
        {
            let size: HugePageSize = text.parse().unwrap();
            assert_eq!((size.bytes(), size.to_string().as_str()), (bytes, text));
        }
        refused::<HugePageSize>(&[
            "", "2M", "2", "MB", "0MB", "3MB", "1024KB", "2mb", "2MiB", "-2MB", "99999GB",
        ]);
    }

    proptest! {
        #[test]
        fn a_set_survives_its_text(numbers in proptest::collection::btree_set(0u16..200, 1..50)) {
            let set = CpusetList(numbers);
            prop_assert_eq!(set.to_string().parse::<CpusetList>().unwrap(), set);
        }
    }
}
