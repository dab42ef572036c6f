//! The name of the cgroup in which root's sandboxes have theirs.

use super::value::{BadValue, text_value};
use std::fmt;
use std::str::FromStr;

/// A cgroup at the root of a hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupName(String);

/// The first parts of names that control files have (cgroups(7)).
const CONTROL_FILES: [&str; 12] =
    ["blkio", "cgroup", "cpu", "cpuacct", "cpuset", "hugetlb", "io", "irq", "memory", "misc", "pids", "rdma"];

impl CgroupName {
    /// The built-in name.
    pub const DEFAULT: &str = "saggar.slice";

    /// The name as a string.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is the name of a slice (systemd.slice(5)), which systemd places by its dashes.
    pub fn is_slice(&self) -> bool {
        let parts = self.0.strip_suffix(".slice").map(|name| name.split('-'));
        parts.is_some_and(|mut parts| parts.all(|part| !part.is_empty()))
    }
}

impl Default for CgroupName {
    fn default() -> Self {
        CgroupName(Self::DEFAULT.to_owned())
    }
}

impl FromStr for CgroupName {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = |why: &str| Err(BadValue(format!("name of a cgroup {text:?} {why}")));
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b":_.-".contains(&byte);
        if text.is_empty() || text.len() > 200 {
            return bad("is empty or longer than 200 bytes");
        }
        if text.starts_with('.') || !text.bytes().all(is_plain) {
            return bad("is not a plain name; a cgroup below another cannot be named");
        }
        match text.split_once('.') {
            Some((first, _)) if CONTROL_FILES.contains(&first) => bad("could be that of a control file"),
            _ => Ok(CgroupName(text.to_owned())),
        }
    }
}

impl fmt::Display for CgroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

text_value!(CgroupName, { "type": "string", "description": "a name", "pattern": "^[A-Za-z0-9:_-][A-Za-z0-9:_.-]*$" });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_directory_and_no_control_file() {
        for name in ["saggar.slice", "agents", "a-b.slice", "cpus.slice", "x:y_z"] {
            assert_eq!(name.parse::<CgroupName>().unwrap().to_string(), name);
        }
        for name in ["", ".", "..", ".a", "a/b", "/a", "a b", "a\n", "cgroup.procs", "memory.max", "é"] {
            assert!(name.parse::<CgroupName>().is_err(), "{name:?}");
        }
        assert!("x".repeat(201).parse::<CgroupName>().is_err());
    }

    #[test]
    fn a_slice_has_parts_between_dashes() {
        let is_slice = |name: &str| name.parse::<CgroupName>().unwrap().is_slice();
        assert!(is_slice("saggar.slice") && is_slice("a-b.slice"));
        assert!(!is_slice("agents") && !is_slice("a--b.slice") && !is_slice("-.slice"));
    }
}
