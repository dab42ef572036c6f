//! Whether the limits of a sandbox hold for this caller, from where it is: by making the cgroups of one and setting them. For
//! `saggar doctor`.

use super::{CgroupPlace, create};
use crate::host::delegation::diagnose_controller;
use crate::plan::path::c_path;
use crate::spec::{LimitSpec, LimitsSpec, Origin, RootCgroupSpec};
use crate::stage::watcher::CleanupItem;
use saggar_sys::error::{Error, Result};
use saggar_sys::id::SandboxId;
use std::path::Path;

/// The limits of the trial: small, since no process is in its cgroups.
const MEMORY: u64 = 64 << 20;
const CPU_MILLI: u64 = 1000;
const PIDS: u64 = 64;

/// The limits, each with the name of its controller.
const NAMES: [&str; 3] = ["memory", "cpu", "pids"];

/// What came of the trial of one limit.
#[derive(Debug)]
pub struct LimitTrial {
    /// The limit, and the controller that it needs.
    pub name: &'static str,
    /// The directory of the cgroup that has it; or why none has it, and what to do.
    pub outcome: std::result::Result<String, TrialFailure>,
}

/// A limit that does not hold.
#[derive(Debug)]
pub struct TrialFailure {
    /// The reason.
    pub reason: String,
    /// A command to run.
    pub remedy: String,
}

/// Tries memory, CPU time and the number of processes. All cgroups are removed again; an ordinary user's process may be in a
/// scope of its systemd afterwards.
///
/// # Errors
/// A cgroup that was made cannot be opened.
pub fn try_limits(root: Result<RootCgroupSpec>) -> Result<Vec<LimitTrial>> {
    let limit = |value| Some(LimitSpec { value, required: false, origin: Origin::COMMAND_LINE });
    let limits = LimitsSpec {
        memory: limit(MEMORY),
        cpu_milli: limit(CPU_MILLI),
        pids: limit(PIDS),
        ..LimitsSpec::default()
    };
    let id = SandboxId::random()?;
    let place =
        root.and_then(|root| CgroupPlace::choose(&id, &limits, &root).enter_scope(&id, &limits, &root));
    let place = match place {
        Ok(place) => place,
        Err(error) => return Ok(all_failed(&error)),
    };
    let cgroups = place.cgroups();
    let made = create(&place, &limits, false);
    if let Some(path) = &cgroups.unified {
        CleanupItem::Cgroup(&c_path(path)?).remove();
    }
    for cgroup in &cgroups.v1 {
        CleanupItem::V1Cgroup(&c_path(cgroup.path())?).remove();
    }
    let degraded = made?.degraded;
    let source = place.unified.as_ref().map(|place| place.parent.source());
    let trial = |name: &'static str| {
        let outcome = match degraded.iter().find(|entry| entry.name == name) {
            None => {
                let parent = cgroups.path_with(name).and_then(Path::parent);
                Ok(parent.map_or_else(String::new, |path| path.display().to_string()))
            }
            Some(entry) => Err(TrialFailure {
                reason: entry.reason.clone(),
                remedy: diagnose_controller(source, name, &NAMES).remedy,
            }),
        };
        LimitTrial { name, outcome }
    };
    Ok(NAMES.map(trial).into())
}

/// No sandbox starts at all.
fn all_failed(error: &Error) -> Vec<LimitTrial> {
    let failure = || TrialFailure {
        reason: error.to_string(),
        remedy: error.hint_text().unwrap_or_default().to_owned(),
    };
    NAMES.map(|name| LimitTrial { name, outcome: Err(failure()) }).into()
}
