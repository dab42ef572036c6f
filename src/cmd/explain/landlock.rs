//! Describes the Landlock domain of a sandbox.

use crate::plan::agent::AgentPlan;
use serde::Serialize;

/// The Landlock domain of a sandbox.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct LandlockSection {
    /// The ABI in use; 0 without a domain.
    pub(super) abi: u32,
    /// Rights that are denied unless a rule grants them.
    pub(super) handled: Vec<&'static str>,
    /// Granted rights.
    pub(super) rules: Vec<LandlockRow>,
    /// Ports to which TCP connections are allowed, if Landlock restricts TCP.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) ports: Vec<u16>,
    /// Kinds of access to outside processes that are denied.
    pub(super) scopes: Vec<&'static str>,
}

/// Rights beneath one path.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct LandlockRow {
    pub(super) path: String,
    /// A short description of the rights.
    pub(super) description: &'static str,
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

pub(super) fn of(plan: &AgentPlan) -> LandlockSection {
    let Some(domain) = &plan.landlock else {
        return LandlockSection {
            abi: 0,
            handled: Vec::new(),
            rules: Vec::new(),
            ports: Vec::new(),
            scopes: Vec::new(),
        };
    };
    let rule = |rule: &crate::plan::agent::landlock::LandlockRule| LandlockRow {
        path: rule.path.to_string_lossy().into_owned(),
        description: rule.description,
        rights: names(rule.access, &RIGHTS),
    };
    LandlockSection {
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

    /// The table and the landlock crate have the same number of rights.
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
