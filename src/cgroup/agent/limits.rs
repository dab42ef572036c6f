//! The limits of a sandbox: applied and read back by [`crate::cgroup::limits`], or checked in advance.
//!
//! A required limit that does not hold is an error with the file, the value and a hint. Any other limit that does not
//! hold is reported as `degraded`, with the file and the value.

use super::SandboxCgroup;
use super::place::{CgroupPlace, SandboxCgroups, UnifiedPlace};
use super::requests::{CORE, LimitRequest, PlannedFiles, limit_requests, needed_controllers};
use super::v1::V1Cgroup;
use crate::cgroup::control_files::{ControlFiles, OpenCgroup, OpenCgroups};
use crate::cgroup::directories::RefusedController;
use crate::cgroup::limits::{CgroupSetting, SettingFailure, apply_all, apply_setting, parse_number_list};
use crate::error::{Code, Error, Result};
use crate::host::cgroup_parent::CgroupParent;
use crate::host::cgroups::{CgroupVersion, read_words};
use crate::host::delegation::{UNIFIED_HIERARCHY_REMEDY, diagnose_controller};
use crate::plan::agent::DegradedProtection;
use crate::spec::LimitsSpec;
use nix::errno::Errno;
use std::path::Path;

/// Sets all limits of new cgroups below `own`; if there is none in the unified hierarchy, `why` is the reason.
///
/// # Errors
/// [`Code::Unsupported`] if a required limit cannot hold.
pub(super) fn set(
    (cgroup, why): (&SandboxCgroup, &str),
    own: Option<&Path>,
    limits: &LimitsSpec,
    refused: Vec<RefusedController>,
) -> Result<Vec<DegradedProtection>> {
    let mut degraded = Vec::new();
    let unified = cgroup.unified.as_ref().map(|(path, _)| path.as_path());
    let dirs = open_sandbox(unified, &cgroup.v1, refused)?;
    let all = limit_requests(limits, &dirs);
    for request in &all {
        let result = match dirs.directory_for(request.controller) {
            None if unified.is_none() => Err(SettingFailure {
                message: why.to_owned(),
                hint: String::new(),
                is_missing_controller: true,
            }),
            _ => apply_limit(request, &dirs),
        };
        let Err(failure) = result else { continue };
        if request.required {
            return Err(limit_error(
                request,
                failure,
                own,
                &needed_controllers(all.iter().filter(|one| one.required)),
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
    let (before, after) = (limit_requests(before, &dirs), limit_requests(after, &dirs));
    let same = |one: &LimitRequest, other: &LimitRequest| {
        (one.name, &one.value, &one.settings) == (other.name, &other.value, &other.settings)
    };
    let differs = |one: &LimitRequest| !before.iter().any(|other| same(one, other));
    // The kernel drops the weight of a cgroup when cpu.idle is cleared.
    let woken = after.iter().any(|one| one.name == "cpu_idle" && differs(one));
    let changed: Vec<&LimitRequest> =
        after.iter().filter(|one| differs(one) || (woken && one.name == "cpu_weight")).collect();
    let Some(first) = changed.first() else { return Ok(Vec::new()) };
    if dirs.list.is_empty() {
        let message = format!("the limit {} cannot change: the sandbox has no cgroup", first.name);
        return Err(Error::new(Code::Unsupported, message)
            .hint("run saggar where its user may create cgroups (saggar doctor shows how)"));
    }
    let settings = settings(&changed, &dirs)?;
    if let Some(limit) = changed.iter().find(|one| one.name == "memory") {
        reclaim_memory(limit, &dirs)?;
    }
    let list: Vec<CgroupSetting> = settings.iter().map(|(_, setting)| setting.clone()).collect();
    apply_all(&list, &dirs).map_err(|(at, failure)| {
        let limit = settings.get(at).map_or(*first, |(limit, _)| *limit);
        limit_error(limit, SettingFailure { is_missing_controller: false, ..failure }, None, &[])
    })?;
    Ok(changed.iter().map(|one| one.name).collect())
}

/// The writes for these limits. It fails before any write if a controller is missing.
fn settings<'a>(
    changed: &[&'a LimitRequest<'a>],
    dirs: &OpenCgroups,
) -> Result<Vec<(&'a LimitRequest<'a>, CgroupSetting)>> {
    let mut all = Vec::new();
    // A quota may not be lower than the current burst, which belongs to another quota.
    let both = ["cpu", "cpu_burst"].map(|name| changed.iter().find(|one| one.name == name));
    if let [Some(quota), Some(burst)] = both
        && let Some(first) = burst.settings.as_ref().ok().and_then(|list| list.first())
    {
        all.push((*quota, CgroupSetting { value: "0".into(), tentative: true, ..first.clone() }));
    }
    for limit in changed {
        let LimitRequest { name, controller, settings, .. } = limit;
        if dirs.directory_for(controller).is_none() {
            let what = format!("{} has no {controller} controller", dirs.path(CORE, "").display());
            let hint = "have the controller switched on at the start: name a limit of it there (saggar doctor \
                        shows what this host supports)";
            let failure =
                SettingFailure { message: what, hint: hint.to_owned(), is_missing_controller: false };
            return Err(limit_error(limit, failure, None, &[]));
        }
        match settings {
            Ok(list) => all.extend(list.iter().map(|setting| (*limit, setting.clone()))),
            Err(why) => {
                let hint = format!("give {name} a disk that lsblk lists");
                return Err(limit_error(
                    limit,
                    SettingFailure { message: why.clone(), hint, is_missing_controller: false },
                    None,
                    &[],
                ));
            }
        }
    }
    Ok(all)
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

fn apply_limit(request: &LimitRequest, dirs: &OpenCgroups) -> Result<(), SettingFailure> {
    let controller = request.controller;
    if dirs.directory_for(controller).is_none() {
        let what = match dirs.refusal(controller) {
            Some((file, value, errno)) => format!("write {value:?} to {}: {}", file.display(), errno.desc()),
            None => format!("the {controller} controller is not available here"),
        };
        let first = request.settings.as_ref().ok().and_then(|list| list.first());
        let what = match first {
            Some(first) => format!("{:?} cannot be in {}: {what}", first.value, first.file),
            None => what,
        };
        return Err(SettingFailure { message: what, hint: String::new(), is_missing_controller: true });
    }
    let hint = || match controller {
        "io" => "lsblk lists the disks; or leave the limit out".to_owned(),
        _ => format!("leave the limit out; or {UNIFIED_HIERARCHY_REMEDY}"),
    };
    let settings = request.settings.as_ref();
    let settings = settings.map_err(|why| SettingFailure {
        message: why.clone(),
        hint: hint(),
        is_missing_controller: false,
    })?;
    settings.iter().try_for_each(|setting| apply_setting(setting, dirs))
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
        if planned.version(request.controller) == Some(CgroupVersion::V1) {
            return request.settings.as_ref().err().cloned();
        }
        if let Some(why) = refused {
            return Some(why.to_owned());
        }
        if request.controller != CORE && !enabled.iter().any(|one| one == request.controller) {
            return Some(diagnose_controller(own, request.controller, &[]).reason);
        }
        match &request.settings {
            Err(why) => Some(why.clone()),
            Ok(_) => own.and_then(|own| unavailable_reason(own, request)),
        }
    };
    let requests = limit_requests(limits, &planned);
    let missing = requests.iter().filter_map(|request| {
        Some(DegradedProtection { name: request.name.to_owned(), reason: missing(request)? })
    });
    missing.collect()
}

/// The reason why a set of CPUs or memory nodes is not available: our own cgroup does not have all of them.
fn unavailable_reason(own: &Path, request: &LimitRequest) -> Option<String> {
    let file = match request.name {
        "cpuset_cpus" => "cpuset.cpus.effective",
        "cpuset_mems" => "cpuset.mems.effective",
        _ => return None,
    };
    let text = read_words(own, file).join("");
    let (has, requested) = (parse_number_list(&text)?, parse_number_list(&request.value)?);
    let lacks = requested.iter().any(|number| !has.contains(number));
    lacks.then(|| format!("{} has {text}, not all of {}", own.join(file).display(), request.value))
}
