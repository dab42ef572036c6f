//! Tests the features that this host offers to this user. Each probe tries the feature in a child process
//! ([`saggar_sys::attempt`]), which leaves nothing behind, and gives a remedy if it fails.
//!
//! | file | its one job |
//! |---|---|
//! | [`kernel`] | system calls: mounts by descriptors, openat2, pidfd, landlock, seccomp, keys |
//! | [`namespaces`] | namespaces and the mounts that are possible in them |
//! | [`cgroup`] | the cgroup layout, and which controllers are delegated |
//! | [`environment`] | causes of a failure: sysctls, security modules, an outer container |
//! | [`remedy`] | errors and the environment to a remedy: pure text |

pub mod cgroup;
pub mod environment;
pub mod kernel;
pub mod namespaces;
pub mod remedy;

use serde::Serialize;
use std::borrow::Cow;
use std::path::PathBuf;

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckStatus {
    /// The feature is available.
    Ok,
    /// The default sandbox starts without the feature, or with a part of it.
    Degraded,
    /// The default sandbox cannot start without the feature.
    Missing,
}

/// The result of one probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostCheck {
    /// The stable name of the check.
    pub name: Cow<'static, str>,
    /// The result.
    pub status: CheckStatus,
    /// Details, for people.
    pub detail: String,
    /// The command to run, or the file to change; `None` if nothing needs to be fixed.
    pub remedy: Option<String>,
}

impl HostCheck {
    /// A check that succeeded.
    pub fn ok(name: impl Into<Cow<'static, str>>, detail: impl Into<String>) -> Self {
        HostCheck { name: name.into(), status: CheckStatus::Ok, detail: detail.into(), remedy: None }
    }

    /// A check of a feature that the default sandbox can start without.
    pub fn degraded(name: impl Into<Cow<'static, str>>, detail: impl Into<String>) -> Self {
        HostCheck { status: CheckStatus::Degraded, ..HostCheck::ok(name, detail) }
    }

    /// A check of a feature that the default sandbox cannot start without.
    pub fn missing(name: impl Into<Cow<'static, str>>, detail: impl Into<String>) -> Self {
        HostCheck { status: CheckStatus::Missing, ..HostCheck::ok(name, detail) }
    }

    /// Adds a remedy to the check.
    #[must_use]
    pub fn with_remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

/// The identity with which a sandbox of this caller would run: its id maps, and the ids in the sandbox.
#[derive(Debug, Clone)]
pub struct ProbeSubject {
    /// Whether the caller is root of the host, so that trees are idmapped and ids are allocated from a
    /// block.
    pub privileged: bool,
    /// Text for uid_map.
    pub uid_map: String,
    /// Text for gid_map.
    pub gid_map: String,
    /// Whether setgroups must be denied before gid_map is written.
    pub deny_setgroups: bool,
    /// User id in the sandbox.
    pub uid: u32,
    /// Group id in the sandbox.
    pub gid: u32,
    /// The directory in which `wrap` would run; idmapped mounts are tested here too.
    pub current_directory: PathBuf,
}

/// Runs all probes, in the order in which a start needs the features. The caller must be single-threaded.
pub fn run_checks(subject: &ProbeSubject) -> Vec<HostCheck> {
    let environment = environment::ProbeEnvironment::detect();
    let mut checks = kernel::system_call_checks(&environment);
    checks.extend(namespaces::namespace_checks(subject, &environment));
    checks.extend(kernel::isolation_checks(&environment));
    checks.extend(cgroup::cgroup_checks());
    checks.extend(environment.checks());
    checks
}
