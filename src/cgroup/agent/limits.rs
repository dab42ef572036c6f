//! The limits of a sandbox: written and read back by the writer of [`crate::cgroup::limits`]; or foreseen.
//!
//! One that must hold and does not is refused, with the file, the value and the cure; any other is `degraded`,
//! with the file and the value.

use super::Cgroup;
use super::wanted::{CORE, Wanted, wanted};
use crate::cgroup::limits::{Failure, Setting, hold, hold_all, numbers};
use crate::cgroup::make::Refused;
use crate::cgroup::tree::{Dir, Dirs, Tree};
use crate::error::{Code, Error, Result};
use crate::host::cgroups::{Version, controllers_for_children, words};
use crate::host::delegation::lack;
use crate::plan::Degraded;
use crate::spec::Limits;
use nix::errno::Errno;
use std::path::Path;

/// Every controller that a limit may need.
const ALL: [&str; 6] = ["cpu", "cpuset", "hugetlb", "io", "memory", "pids"];

/// The controllers that these limits need, and no other.
pub(super) fn controllers(limits: &Limits) -> Vec<&'static str> {
    needed(wanted(limits, &|_| true).iter())
}

fn needed<'a>(limits: impl Iterator<Item = &'a Wanted<'a>>) -> Vec<&'static str> {
    let needed: Vec<_> = limits.map(|wanted| wanted.controller).collect();
    ALL.into_iter().filter(|name| needed.contains(name)).collect()
}

/// Sets all limits of a new cgroup below `own`; without one, `why` says so.
///
/// # Errors
/// [`Code::Unsupported`] when a limit cannot hold that must.
pub(super) fn set(
    (cgroup, why): (Option<&Cgroup>, &str),
    own: Option<&Path>,
    limits: &Limits,
    refused: Vec<Refused>,
) -> Result<Vec<Degraded>> {
    let mut degraded = Vec::new();
    let dirs = cgroup.map(|cgroup| open(&cgroup.path, refused)).transpose()?;
    let has = |file: &'static str| dirs.as_ref().is_some_and(|dirs| dirs.has("io", file));
    let all = wanted(limits, &has);
    for wanted in &all {
        let result = match &dirs {
            Some(dirs) => write(wanted, dirs),
            None => Err(Failure { what: why.to_owned(), hint: String::new(), is_lack: true }),
        };
        let Err(failure) = result else { continue };
        if wanted.required {
            return Err(refusal(wanted, failure, own, &needed(all.iter().filter(|one| one.required))));
        }
        degraded.push(Degraded { what: wanted.name.to_owned(), why: failure.what });
    }
    Ok(degraded)
}

/// Changes the limits of a sandbox that runs from `before` to `after`: all that differ are written and read back, or
/// all are as they were. The names of those that were written.
///
/// # Errors
/// [`Code::Unsupported`] for a limit that cannot hold, with the file, the value and the cure; [`Code::Refused`] for less
/// memory than programs hold on to.
pub fn change(cgroup: Option<&Path>, before: &Limits, after: &Limits) -> Result<Vec<&'static str>> {
    let dirs = cgroup.map(|path| open(path, Vec::new())).transpose()?;
    let has = |file: &'static str| dirs.as_ref().is_some_and(|dirs| dirs.has("io", file));
    let (before, after) = (wanted(before, &has), wanted(after, &has));
    let same = |one: &Wanted, other: &Wanted| {
        (one.name, &one.value, &one.settings) == (other.name, &other.value, &other.settings)
    };
    let differs = |one: &Wanted| !before.iter().any(|other| same(one, other));
    // A cgroup that is no longer idle has forgotten its weight.
    let woken = after.iter().any(|one| one.name == "cpu_idle" && differs(one));
    let changed: Vec<&Wanted> =
        after.iter().filter(|one| differs(one) || (woken && one.name == "cpu_weight")).collect();
    let Some(first) = changed.first() else { return Ok(Vec::new()) };
    let Some(dirs) = &dirs else {
        let message = format!("the limit {} cannot change: the sandbox has no cgroup", first.name);
        return Err(Error::new(Code::Unsupported, message)
            .hint("run saggar where its user may make cgroups (saggar doctor says how)"));
    };
    let settings = settings(&changed, dirs)?;
    if let Some(limit) = changed.iter().find(|one| one.name == "memory") {
        make_room(limit, dirs)?;
    }
    let list: Vec<Setting> = settings.iter().map(|(_, setting)| setting.clone()).collect();
    hold_all(&list, dirs).map_err(|(at, failure)| {
        let limit = settings.get(at).map_or(*first, |(limit, _)| *limit);
        refusal(limit, Failure { is_lack: false, ..failure }, None, &[])
    })?;
    Ok(changed.iter().map(|one| one.name).collect())
}

/// The writes of these limits, before any of them: each has its controller.
fn settings<'a>(changed: &[&'a Wanted<'a>], dirs: &Dirs) -> Result<Vec<(&'a Wanted<'a>, Setting)>> {
    let mut all = Vec::new();
    // No quota may be below the burst that was set for another one.
    let both = ["cpu", "cpu_burst"].map(|name| changed.iter().find(|one| one.name == name));
    if let [Some(quota), Some(burst)] = both
        && let Some(first) = burst.settings.as_ref().ok().and_then(|list| list.first())
    {
        all.push((*quota, Setting { value: "0".into(), tentative: true, ..first.clone() }));
    }
    for limit in changed {
        let Wanted { name, controller, settings, .. } = limit;
        if dirs.home(controller).is_none() {
            let what = format!("{} has no {controller} controller", dirs.path(CORE, "").display());
            let hint = "have the controller switched on at the start: name a limit of it there (saggar doctor says \
                        what this host gives)";
            let failure = Failure { what, hint: hint.to_owned(), is_lack: false };
            return Err(refusal(limit, failure, None, &[]));
        }
        match settings {
            Ok(list) => all.extend(list.iter().map(|setting| (*limit, setting.clone()))),
            Err(why) => {
                let hint = format!("give {name} a disk that lsblk lists");
                return Err(refusal(limit, Failure { what: why.clone(), hint, is_lack: false }, None, &[]));
            }
        }
    }
    Ok(all)
}

/// Has the kernel take back what it can before memory is limited to less than is in use: memory.max alone would have
/// it kill for the rest. What programs hold on to stays theirs, and the limit is refused.
fn make_room(limit: &Wanted, dirs: &Dirs) -> Result<()> {
    let file = |name: &str| dirs.read("memory", name);
    let in_use = || file("memory.current").ok().and_then(|text| text.trim().parse::<u64>().ok());
    let Ok(most) = limit.value.parse::<u64>() else { return Ok(()) };
    if in_use().is_none_or(|used| used <= most) {
        return Ok(());
    }
    let high = file("memory.high").unwrap_or_else(|_| "max".to_owned());
    // Above memory.high the kernel takes back at once, and never kills.
    let asked = dirs.write("memory", "memory.high", &limit.value);
    let used = in_use().unwrap_or(0);
    let _ = dirs.write("memory", "memory.high", &high);
    if asked.is_ok() && used <= most {
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

/// Opens it, and reads which controllers it has.
fn open(path: &Path, refused: Vec<Refused>) -> Result<Dirs> {
    let says = |errno: Errno| Error::system(format_args!("open {}", path.display()), errno.desc());
    let mut dir = Dir::open(path, Version::V2, &[]).map_err(says)?;
    let controllers = dir.read("cgroup.controllers").map_err(says)?;
    dir.controllers = controllers.split_whitespace().map(str::to_owned).collect();
    Ok(Dirs { list: vec![dir], refused })
}

fn write(wanted: &Wanted, dirs: &Dirs) -> Result<(), Failure> {
    let controller = wanted.controller;
    if dirs.home(controller).is_none() {
        let what = match dirs.refusal(controller) {
            Some((file, value, errno)) => format!("write {value:?} to {}: {}", file.display(), errno.desc()),
            None => format!("the {controller} controller is not to be had here"),
        };
        let first = wanted.settings.as_ref().ok().and_then(|list| list.first());
        let what = match first {
            Some(first) => format!("{:?} cannot be in {}: {what}", first.value, first.file),
            None => what,
        };
        return Err(Failure { what, hint: String::new(), is_lack: true });
    }
    let hint = || "lsblk lists the disks; or leave the limit out".to_owned();
    let settings = wanted.settings.as_ref();
    let settings = settings.map_err(|why| Failure { what: why.clone(), hint: hint(), is_lack: false })?;
    settings.iter().try_for_each(|setting| hold(setting, dirs))
}

/// The error of a limit that must hold; where it is the controller that is missing, the surroundings tell the cure,
/// for all that is `needed`: who follows it should not come to the next lack.
fn refusal(wanted: &Wanted, failure: Failure, own: Option<&Path>, needed: &[&str]) -> Error {
    let Wanted { name, value, origin, controller, .. } = wanted;
    let Failure { what, hint, is_lack } = failure;
    let (what, hint) = if is_lack && *controller == CORE {
        (what, lack(own, "cpu", needed).cure)
    } else if is_lack {
        let lack = lack(own, controller, needed);
        let what = if what == lack.why { what } else { format!("{what}: {}", lack.why) };
        (what, format!("{}; or leave the limit out", lack.cure))
    } else {
        (what, hint)
    };
    let message = format!("the limit {name} = {value}, from {origin}, cannot hold: {what}");
    Error::new(Code::Unsupported, message).hint(hint)
}

/// What a start would find missing of the limits; writes nothing. `refused` says why there would be no cgroup.
pub(super) fn foresee(own: Option<&Path>, refused: Option<&str>, limits: &Limits) -> Vec<Degraded> {
    let enabled = own.map(controllers_for_children).unwrap_or_default();
    let missing = |wanted: &Wanted| -> Option<String> {
        if let Some(why) = refused {
            return Some(why.to_owned());
        }
        if wanted.controller != CORE && !enabled.iter().any(|one| one == wanted.controller) {
            return Some(lack(own, wanted.controller, &[]).why);
        }
        match &wanted.settings {
            Err(why) => Some(why.clone()),
            Ok(_) => own.and_then(|own| outside(own, wanted)),
        }
    };
    let wanted = wanted(limits, &|_| true);
    let missing = wanted
        .iter()
        .filter_map(|wanted| Some(Degraded { what: wanted.name.to_owned(), why: missing(wanted)? }));
    missing.collect()
}

/// Why a set of CPUs or memory nodes cannot be had: our own cgroup has not all of them.
fn outside(own: &Path, wanted: &Wanted) -> Option<String> {
    let file = match wanted.name {
        "cpuset_cpus" => "cpuset.cpus.effective",
        "cpuset_mems" => "cpuset.mems.effective",
        _ => return None,
    };
    let text = words(own, file).join("");
    let (has, asked) = (numbers(&text)?, numbers(&wanted.value)?);
    let lacks = asked.iter().any(|number| !has.contains(number));
    lacks.then(|| format!("{} has {text}, not all of {}", own.join(file).display(), wanted.value))
}
