//! The limits of a sandbox: applied and read back by [`crate::cgroup::limits`], or checked in advance.
//!
//! A required limit that does not hold is an error with the file, the value and a hint. Any other limit that does not
//! hold is reported as `degraded`, with the file and the value.

use super::place::{CgroupPlace, SandboxCgroups, UnifiedPlace};
use super::requests::{CORE, LimitRequest, LimitRequests, PlannedFiles, RequestIndex, needed_controllers};
use super::v1::V1Cgroup;
use super::{CreationFailures, SandboxCgroup};
use crate::cgroup::control_files::{ControlFiles, OpenCgroup, OpenCgroups};
use crate::cgroup::directories::RefusedController;
use crate::cgroup::limits::{CgroupSetting, SettingFailure, apply_all, apply_setting, parse_number_list};
use crate::host::cgroup_parent::CgroupParent;
use crate::host::cgroups::{CgroupVersion, read_words};
use crate::host::delegation::{UNIFIED_HIERARCHY_REMEDY, diagnose_controller};
use crate::plan::agent::DegradedProtection;
use crate::spec::LimitsSpec;
use nix::errno::Errno;
use saggar_sys::error::{Code, Error, Result};
use std::path::Path;

/// Sets all limits of new cgroups below `own`. `failures` has the reasons why cgroups are missing.
///
/// # Errors
/// [`Code::Unsupported`] if a required limit cannot hold.
pub(super) fn set(
    (cgroup, failures): (&SandboxCgroup, &CreationFailures),
    own: Option<&Path>,
    limits: &LimitsSpec,
    refused: Vec<RefusedController>,
) -> Result<Vec<DegradedProtection>> {
    let mut degraded = Vec::new();
    let unified = cgroup.unified.as_ref().map(|(path, _)| path.as_path());
    let dirs = open_sandbox(unified, &cgroup.v1, refused)?;
    let all = LimitRequests::new(limits, &dirs);
    for (at, request) in all.list.iter().enumerate() {
        let failure = failures.reason(request.controller);
        let result = match (dirs.directory_for(request.controller), failure) {
            (None, Some(why)) => Err(SettingFailure {
                message: why.to_owned(),
                hint: "leave the limit out, or remove what prevents it".to_owned(),
                is_missing_controller: unified.is_none(),
            }),
            _ => apply_limit(&all, at, &dirs),
        };
        let Err(failure) = result else { continue };
        if request.required {
            return Err(limit_error(
                request,
                failure,
                own,
                &needed_controllers(all.list.iter().filter(|one| one.required)),
            ));
        }
        degraded.push(DegradedProtection { name: request.name.to_owned(), reason: failure.message });
    }
    Ok(degraded)
}

/// Changes the limits of a running sandbox from `before` to `after`. Limits that differ are written and read back, all
/// of them or none. Returns the names of those that were written.
///
/// # Errors
/// [`Code::Unsupported`] for a limit that cannot hold, with the file, the value and a hint; [`Code::Refused`] for a
/// memory limit below what cannot be reclaimed.
pub fn update(
    cgroups: &SandboxCgroups,
    before: &LimitsSpec,
    after: &LimitsSpec,
) -> Result<Vec<&'static str>> {
    let dirs = open_sandbox(cgroups.unified.as_deref(), &cgroups.v1, Vec::new())?;
    let (before, after) = (LimitRequests::new(before, &dirs), LimitRequests::new(after, &dirs));
    let content = |all: &LimitRequests, at: RequestIndex| {
        let request = &all.list[at];
        (request.name, request.value.clone(), all.writes_for(at).cloned().collect::<Vec<_>>())
    };
    let differs = |at: RequestIndex| {
        let after = content(&after, at);
        (0..before.list.len()).all(|other| content(&before, other) != after)
    };
    let differing: Vec<bool> = (0..after.list.len()).map(differs).collect();
    let name = |at: RequestIndex| after.list[at].name;
    // The kernel drops the weight of a cgroup when cpu.idle is cleared.
    let woken = (0..after.list.len()).any(|at| name(at) == "cpu_idle" && differing[at]);
    let is_changed = |at: &RequestIndex| differing[*at] || (woken && name(*at) == "cpu_weight");
    let changed: Vec<RequestIndex> = (0..after.list.len()).filter(is_changed).collect();
    let Some(first) = changed.first() else { return Ok(Vec::new()) };
    if dirs.list.is_empty() {
        let message = format!("the limit {} cannot change: the sandbox has no cgroup", name(*first));
        return Err(Error::new(Code::Unsupported, message)
            .hint("run saggar where its user may create cgroups (saggar doctor shows how)"));
    }
    changed.iter().try_for_each(|at| check_changeable(&after.list[*at], &dirs))?;
    if let Some(limit) = changed.iter().find(|at| name(**at) == "memory") {
        reclaim_memory(&after.list[*limit], &dirs)?;
    }
    let writes = after.writes.iter().filter(|(at, _)| changed.contains(at));
    let (limits, settings): (Vec<RequestIndex>, Vec<CgroupSetting>) = writes.cloned().unzip();
    apply_all(&settings, &dirs).map_err(|(failed, failure)| {
        let limit = &after.list[limits.get(failed).copied().unwrap_or(*first)];
        limit_error(limit, SettingFailure { is_missing_controller: false, ..failure }, None, &[])
    })?;
    Ok(changed.iter().map(|at| name(*at)).collect())
}

/// Checks before any write that there are writes for this limit, and files for them.
fn check_changeable(limit: &LimitRequest, dirs: &OpenCgroups) -> Result<()> {
    let LimitRequest { controller, refused, .. } = limit;
    let (message, hint) = if dirs.directory_for(controller).is_none() {
        (
            format!("{} has no {controller} controller", dirs.path(CORE, "").display()),
            "have the controller switched on at the start: name a limit of it there (saggar doctor shows what this host \
             supports)"
                .to_owned(),
        )
    } else if let Some(why) = refused {
        (why.clone(), refusal_hint(controller))
    } else {
        return Ok(());
    };
    Err(limit_error(limit, SettingFailure { message, hint, is_missing_controller: false }, None, &[]))
}

/// Makes the kernel reclaim memory before the limit is lowered below the current usage: with memory.max alone it would
/// kill processes. If the rest cannot be reclaimed, the limit is refused.
fn reclaim_memory(limit: &LimitRequest, dirs: &OpenCgroups) -> Result<()> {
    let file = |name: &str| dirs.read("memory", name);
    let in_use = || file("memory.current").ok().and_then(|text| text.trim().parse::<u64>().ok());
    let Ok(most) = limit.value.parse::<u64>() else { return Ok(()) };
    if in_use().is_none_or(|used| used <= most) {
        return Ok(());
    }
    let high = file("memory.high").unwrap_or_else(|_| "max".to_owned());
    // Above memory.high the kernel reclaims immediately, and never kills.
    let written = dirs.write("memory", "memory.high", &limit.value);
    let used = in_use().unwrap_or(0);
    let _ = dirs.write("memory", "memory.high", &high);
    if written.is_ok() && used <= most {
        return Ok(());
    }
    let message = format!(
        "the limit memory = {most}, from {}, cannot hold: write {:?} to {}: {used} bytes are in use, and cannot be taken \
         back",
        limit.origin,
        limit.value,
        dirs.path("memory", "memory.max").display()
    );
    Err(Error::new(Code::Refused, message).hint("end some of its programs first, or leave it more"))
}

/// Opens the sandbox's cgroups, and reads the controllers of the one in the unified hierarchy.
fn open_sandbox(
    unified: Option<&Path>,
    v1: &[V1Cgroup],
    refused: Vec<RefusedController>,
) -> Result<OpenCgroups> {
    let open_error =
        |path: &Path, errno: Errno| Error::system(format_args!("open {}", path.display()), errno.desc());
    let mut list = Vec::new();
    if let Some(path) = unified {
        let mut dir =
            OpenCgroup::open(path, CgroupVersion::V2, &[]).map_err(|errno| open_error(path, errno))?;
        let controllers = dir.read("cgroup.controllers").map_err(|errno| open_error(path, errno))?;
        dir.controllers = controllers.split_whitespace().map(str::to_owned).collect();
        list.push(dir);
    }
    for V1Cgroup { path, controllers, .. } in v1 {
        let dir = OpenCgroup::open(path, CgroupVersion::V1, controllers);
        list.push(dir.map_err(|errno| open_error(path, errno))?);
    }
    Ok(OpenCgroups { list, refused_controllers: refused })
}

/// Sets one limit of new cgroups.
fn apply_limit(all: &LimitRequests, at: RequestIndex, dirs: &OpenCgroups) -> Result<(), SettingFailure> {
    let LimitRequest { controller, refused, .. } = &all.list[at];
    // Tentative writes matter only when a limit changes; the same value follows without one.
    let mut writes = all.writes_for(at).filter(|setting| !setting.tentative);
    if dirs.directory_for(controller).is_none() {
        let what = match dirs.refusal(controller) {
            Some((file, value, errno)) => format!("write {value:?} to {}: {}", file.display(), errno.desc()),
            None => format!("the {controller} controller is not available here"),
        };
        let what = match writes.next() {
            Some(first) => format!("{:?} cannot be in {}: {what}", first.value, first.file),
            None => what,
        };
        return Err(SettingFailure { message: what, hint: String::new(), is_missing_controller: true });
    }
    if let Some(why) = refused {
        let hint = refusal_hint(controller);
        return Err(SettingFailure { message: why.clone(), hint, is_missing_controller: false });
    }
    writes.try_for_each(|setting| apply_setting(setting, dirs))
}

/// The hint for a limit of this controller for which there are no writes.
fn refusal_hint(controller: &str) -> String {
    match controller {
        "io" => "lsblk lists the disks; or leave the limit out".to_owned(),
        _ => format!("leave the limit out; or {UNIFIED_HIERARCHY_REMEDY}"),
    }
}

/// The error for a required limit. If a controller is missing, the hint covers all `needed` controllers, so that the
/// user has to fix the host only once.
fn limit_error(
    request: &LimitRequest,
    failure: SettingFailure,
    own: Option<&Path>,
    needed: &[&str],
) -> Error {
    let LimitRequest { name, value, origin, controller, .. } = request;
    let SettingFailure { message: what, hint, is_missing_controller: is_lack } = failure;
    let (what, hint) = if is_lack && *controller == CORE {
        (what, diagnose_controller(own, "cpu", needed).remedy)
    } else if is_lack {
        let missing = diagnose_controller(own, controller, needed);
        let what = if what == missing.reason { what } else { format!("{what}: {}", missing.reason) };
        (what, format!("{}; or leave the limit out", missing.remedy))
    } else {
        (what, hint)
    };
    let message = format!("the limit {name} = {value}, from {origin}, cannot hold: {what}");
    Error::new(Code::Unsupported, message).hint(hint)
}

/// The limits that a start would not be able to set; writes nothing. `refused` is the reason if there would be no
/// cgroup.
pub(super) fn find_missing_limits(
    place: &CgroupPlace,
    refused: Option<&str>,
    limits: &LimitsSpec,
) -> Vec<DegradedProtection> {
    let parent = place.unified.as_ref().map(|UnifiedPlace { parent, .. }| parent);
    let own = parent.map(CgroupParent::source);
    let enabled = parent.map(CgroupParent::controllers).unwrap_or_default();
    let planned = PlannedFiles { v1: &place.v1 };
    let missing = |request: &LimitRequest| -> Option<String> {
        if let Some(v1) = place.v1.iter().find(|one| one.has(request.controller)) {
            let reason = || unavailable_reason(v1.path().parent()?, CgroupVersion::V1, request);
            return request.refused.clone().or_else(|| v1.objection()).or_else(reason);
        }
        if let Some(why) = refused {
            return Some(why.to_owned());
        }
        if request.controller != CORE && !enabled.iter().any(|one| one == request.controller) {
            return Some(diagnose_controller(own, request.controller, &[]).reason);
        }
        request.refused.clone().or_else(|| unavailable_reason(own?, CgroupVersion::V2, request))
    };
    let requests = LimitRequests::new(limits, &planned);
    let missing = requests.list.iter().filter_map(|request| {
        Some(DegradedProtection { name: request.name.to_owned(), reason: missing(request)? })
    });
    missing.collect()
}

/// The reason why a set of CPUs or memory nodes is not available: the cgroup above does not have all of them.
fn unavailable_reason(above: &Path, version: CgroupVersion, request: &LimitRequest) -> Option<String> {
    let file = match (request.name, version) {
        ("cpuset_cpus", CgroupVersion::V2) => "cpuset.cpus.effective",
        ("cpuset_mems", CgroupVersion::V2) => "cpuset.mems.effective",
        ("cpuset_cpus", CgroupVersion::V1) => "cpuset.effective_cpus",
        ("cpuset_mems", CgroupVersion::V1) => "cpuset.effective_mems",
        _ => return None,
    };
    // A cgroup of version 1 that is missing or has none yet gets those of the cgroup above.
    let (above, text) = above
        .ancestors()
        .map(|cgroup| (cgroup, read_words(cgroup, file).join("")))
        .find(|(_, text)| !text.is_empty())?;
    let (has, requested) = (parse_number_list(&text)?, parse_number_list(&request.value)?);
    let lacks = requested.iter().any(|number| !has.contains(number));
    lacks.then(|| format!("{} has {text}, not all of {}", above.join(file).display(), request.value))
}
