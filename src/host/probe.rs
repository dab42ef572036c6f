//! What this host gives to this user, found by doing it: each probe tries the thing in a child that is
//! thrown away ([`crate::sys::attempt`]), so that nothing is left, and says what cures a lack.
//!
//! | file | its one job |
//! |---|---|
//! | [`kernel`] | calls of the kernel: mounts by descriptors, openat2, pidfd, landlock, seccomp, keys |
//! | [`namespaces`] | namespaces and what can be mounted in them |
//! | [`cgroup`] | the layout of the cgroups, and what of it is delegated |
//! | [`surroundings`] | what explains a refusal: sysctls, security modules, a container around us |
//! | [`cure`] | errors in their surroundings to a cure: pure text |

pub mod cgroup;
pub mod cure;
pub mod kernel;
pub mod namespaces;
pub mod surroundings;

use serde::Serialize;
use std::borrow::Cow;
use std::path::PathBuf;

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// The host gives it.
    Ok,
    /// The default sandbox starts without it, or with less of it.
    Degraded,
    /// The default sandbox cannot start without it.
    Missing,
}

/// What one probe found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Its stable name.
    pub name: Cow<'static, str>,
    /// How it ended.
    pub status: Status,
    /// What was found.
    pub detail: String,
    /// The command to run, or the file to change; `None` when there is nothing to cure.
    pub cure: Option<String>,
}

impl Check {
    /// The host gives it.
    pub fn ok(name: impl Into<Cow<'static, str>>, detail: impl Into<String>) -> Self {
        Check { name: name.into(), status: Status::Ok, detail: detail.into(), cure: None }
    }

    /// The default sandbox starts without it.
    pub fn degraded(name: impl Into<Cow<'static, str>>, detail: impl Into<String>) -> Self {
        Check { status: Status::Degraded, ..Check::ok(name, detail) }
    }

    /// The default sandbox cannot start without it.
    pub fn missing(name: impl Into<Cow<'static, str>>, detail: impl Into<String>) -> Self {
        Check { status: Status::Missing, ..Check::ok(name, detail) }
    }

    /// The same check with its cure.
    #[must_use]
    pub fn cure(mut self, cure: impl Into<String>) -> Self {
        self.cure = Some(cure.into());
        self
    }
}

/// As whom a sandbox of this caller would run: what its id maps would be, and who is inside.
#[derive(Debug, Clone)]
pub struct Subject {
    /// Whether the caller is root of the host, so that trees are idmapped and ids come from a block.
    pub privileged: bool,
    /// Text for uid_map.
    pub uid_map: String,
    /// Text for gid_map.
    pub gid_map: String,
    /// Whether setgroups must be denied before gid_map is written.
    pub deny_setgroups: bool,
    /// User id inside.
    pub uid: u32,
    /// Group id inside.
    pub gid: u32,
    /// The directory where `wrap` would work; with it the other places where trees are idmapped.
    pub current: PathBuf,
}

/// Tries everything, in the order in which a start needs it. The caller has one thread.
pub fn all(subject: &Subject) -> Vec<Check> {
    let surroundings = surroundings::Surroundings::read();
    let mut checks = kernel::calls(&surroundings);
    checks.extend(namespaces::checks(subject, &surroundings));
    checks.extend(kernel::walls(&surroundings));
    checks.extend(cgroup::checks());
    checks.extend(surroundings.checks());
    checks
}
