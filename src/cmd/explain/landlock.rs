//! The landlock domain in words.

use crate::plan::Plan;
use serde::Serialize;

/// The domain of a sandbox.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Landlock {
    /// The ABI that is used; 0 for no domain at all.
    pub(super) abi: u32,
    /// What is refused unless granted below.
    pub(super) handled: Vec<&'static str>,
    /// What is granted.
    pub(super) rules: Vec<Rule>,
    /// Ports that may be called over TCP, where landlock looks at TCP.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) ports: Vec<u16>,
    /// What of processes outside is out of reach.
    pub(super) scopes: Vec<&'static str>,
}

/// Rights beneath one path.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Rule {
    pub(super) path: String,
    /// The rights in a few words.
    pub(super) words: &'static str,
    /// Each right.
    pub(super) rights: Vec<&'static str>,
}

/// Bits of LANDLOCK_ACCESS_FS_* from the lowest up (linux/landlock.h).
const RIGHTS: [&str; 16] = [
    "execute",
    "write-file",
    "read-file",
    "read-dir",
    "remove-dir",
    "remove-file",
    "make-char",
    "make-dir",
    "make-file",
    "make-socket",
    "make-fifo",
    "make-block",
    "make-link",
    "refer",
    "truncate",
    "ioctl-dev",
];

/// Bits of LANDLOCK_SCOPE_* from the lowest up.
const SCOPES: [&str; 2] = ["abstract-sockets", "signals"];

pub(super) fn of(plan: &Plan) -> Landlock {
    let Some(domain) = &plan.landlock else {
        return Landlock {
            abi: 0,
            handled: Vec::new(),
            rules: Vec::new(),
            ports: Vec::new(),
            scopes: Vec::new(),
        };
    };
    let rule = |rule: &crate::plan::landlock::Rule| Rule {
        path: rule.path.to_string_lossy().into_owned(),
        words: rule.words,
        rights: names(rule.access, &RIGHTS),
    };
    Landlock {
        abi: domain.abi,
        handled: names(domain.attr.access_fs, &RIGHTS),
        rules: domain.rules.iter().map(rule).collect(),
        ports: domain.ports.clone(),
        scopes: names(domain.attr.scoped, &SCOPES),
    }
}

fn names(bits: u64, table: &[&'static str]) -> Vec<&'static str> {
    table.iter().enumerate().filter(|(bit, _)| bits & (1 << bit) != 0).map(|(_, name)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::landlock::{ABI, Access, AccessFs};

    /// The table and the landlock crate count alike.
    #[test]
    fn every_right_has_its_name() {
        assert_eq!(names(AccessFs::from_all(ABI::V6).bits(), &RIGHTS), RIGHTS);
        for (right, name) in [
            (AccessFs::Execute, "execute"),
            (AccessFs::ReadDir, "read-dir"),
            (AccessFs::MakeSym, "make-link"),
            (AccessFs::IoctlDev, "ioctl-dev"),
        ] {
            assert_eq!(names(right as u64, &RIGHTS), [name]);
        }
    }
}
