//! `saggar doctor`: reports what this host supports, what is missing, and how to fix it.

use crate::app::agent::NO_AGENT_HINT;
use crate::app::{mailbox, program_lookup};
use crate::cgroup::agent::trial::{self, LimitTrial, TrialFailure};
use crate::cli::DoctorArgs;
use crate::error::{Error, Result};
use crate::host::probe::{self, CheckStatus, HostCheck, ProbeSubject};
use crate::host::{disk_bounds, group_only};
use crate::launch::ids::{self, IdPoolUsage};
use crate::session::policy_parser::WorkerPolicyParser;
use crate::spec::agent::{INNER_ID, root_cgroup, system_paths};
use crate::spec::policy::{self, EffectivePolicy, HomeSource, IdRange, PolicyOptions, PolicySources};
use crate::spec::{HostIdMapping, RootCgroupSpec, SandboxIdentity};
use crate::state::group_only_record;
use crate::sys::caps::is_privileged_root;
use crate::sys::file_worker::MIN_LANDLOCK_ABI;
use crate::sys::landlock;
use crate::text::one_line;
use crate::{plan, state};
use std::path::{Path, PathBuf};

/// Returns exit status 0 if the default sandbox can start here, 1 if it cannot.
pub(super) fn run(args: &DoctorArgs) -> Result<u8> {
    if args.prove {
        return super::prove::run(args);
    }
    let current = std::env::current_dir().map_err(|e| Error::system("find the current directory", e))?;
    let policy = operator_policy(current.clone());
    let range = policy.as_ref().map_or(IdRange::DEFAULT, |policy| policy.ids.range.value);
    let available = ids::usage(range.first..=range.last);
    let mut checks =
        probe::run_checks(&subject(current, available.as_ref().map_or(range.first, |room| room.base)));
    checks.extend(limits(policy.as_ref().map_or_else(|| Ok(RootCgroupSpec::default()), root_cgroup))?);
    checks.push(own_processes(&checks, range, available.as_ref().err()));
    checks.extend(id_block(range, available));
    checks.extend(directories());
    checks.extend(disk());
    checks.extend(group_only_paths(policy.as_ref()));
    checks.push(certificates());
    checks.push(agent());
    let ok = !checks.iter().any(|check| check.status == CheckStatus::Missing);
    let printed = match args.json {
        true => format!("{}\n", serde_json::json!({ "version": 1, "ok": ok, "checks": checks })),
        false => text(&checks, ok),
    };
    super::print_as(args.json, &printed)?;
    Ok(u8::from(!ok))
}

/// Returns the identity that a sandbox of this caller has, the same as at a start.
fn subject(current: PathBuf, base: u32) -> ProbeSubject {
    let privileged = is_privileged_root();
    let (uid, gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    let inner = |own: u32| if privileged || uid == 0 { INNER_ID } else { own };
    let map = if privileged { HostIdMapping::Block { base } } else { HostIdMapping::Caller { uid, gid } };
    let identity = SandboxIdentity { uid: inner(uid), gid: inner(gid), map };
    let maps = plan::agent::ids::for_sandbox(&identity);
    ProbeSubject {
        privileged,
        uid_map: maps.uid,
        gid_map: maps.gid,
        deny_setgroups: maps.deny_setgroups,
        uid: identity.uid,
        gid: identity.gid,
        current_directory: current,
    }
}

/// Reads the configuration; `None` if it is invalid, which `wrap` reports.
fn operator_policy(current: PathBuf) -> Option<EffectivePolicy> {
    let loaded = policy::load_policy(
        &PolicySources::of_this_host(current, nix::unistd::geteuid().as_raw(), &WorkerPolicyParser),
        HomeSource::Tmp,
        PolicyOptions::default(),
    );
    loaded.ok().map(|policy| policy.effective)
}

/// Checks whether saggar's own processes are fully confined (saggar-security(7), Processes).
fn own_processes(checks: &[HostCheck], range: IdRange, range_error: Option<&Error>) -> HostCheck {
    let filters = checks.iter().any(|check| check.name == "seccomp" && check.status == CheckStatus::Ok);
    let domains = checks.iter().find(|check| check.name == "landlock");
    let abi = domains.filter(|check| check.status == CheckStatus::Ok).map_or(0, |_| landlock::abi());
    let ids = is_privileged_root().then(|| match range_error {
        None => Ok(format!("supervisors with ids of {range}")),
        Some(error) => Err(error.hint_text().unwrap_or("widen sandbox.id_range").to_owned()),
    });
    confinement(filters, abi, domains.and_then(|check| check.remedy.as_deref()), ids)
}

/// Lists every missing control with its remedy. `ids` is `None` unless the caller is root.
fn confinement(
    filters: bool,
    abi: u32,
    no_domain: Option<&str>,
    ids: Option<std::result::Result<String, String>>,
) -> HostCheck {
    const NAME: &str = "own-processes";
    let mut has = Vec::new();
    let (mut missing, mut remedies) = (Vec::new(), Vec::new());
    let mut add_missing = |name: String, remedy: String| {
        missing.push(name);
        remedies.push(remedy);
    };
    match filters {
        true => has.push("filters of system calls".to_owned()),
        false => add_missing("no filters of system calls".into(), "see seccomp".into()),
    }
    match abi {
        0 => add_missing(
            "no landlock domains".into(),
            no_domain.unwrap_or("boot with landlock in lsm=").to_owned(),
        ),
        // MIN_LANDLOCK_ABI came with Linux 5.19.
        1..MIN_LANDLOCK_ABI => add_missing(
            format!("file workers without landlock domains: ABI {abi}, and they need {MIN_LANDLOCK_ABI}"),
            "boot Linux 5.19 or later".into(),
        ),
        _ => has.push(format!("landlock domains: ABI {abi}, and file workers need {MIN_LANDLOCK_ABI}")),
    }
    match ids {
        Some(Ok(ids)) => has.push(ids),
        Some(Err(remedy)) => add_missing("supervisors without ids of their own".into(), remedy),
        None => {}
    }
    if missing.is_empty() {
        return HostCheck::ok(NAME, format!("confined by {}", has.join("; ")));
    }
    HostCheck::degraded(NAME, format!("confined in part: {}", missing.join("; ")))
        .with_remedy(remedies.join("; "))
}

/// Tries the limits that every sandbox has.
fn limits(root: Result<RootCgroupSpec>) -> Result<Vec<HostCheck>> {
    let row = |LimitTrial { name, outcome }| {
        let name = format!("limit-{name}");
        match outcome {
            Ok(place) => HostCheck::ok(name, format!("holds, in {place}")),
            Err(TrialFailure { reason, remedy }) => HostCheck::degraded(name, reason).with_remedy(remedy),
        }
    };
    Ok(trial::try_limits(root)?.into_iter().map(row).collect())
}

fn id_block(range: IdRange, available: Result<IdPoolUsage>) -> Option<HostCheck> {
    const NAME: &str = "id-range";
    if !is_privileged_root() {
        return None;
    }
    Some(match available {
        Ok(available) => HostCheck::ok(
            NAME,
            format!("{} of {} blocks of {range} are free", available.free, available.blocks),
        ),
        Err(error) => with_hint(HostCheck::missing(NAME, error.to_string()), &error),
    })
}

/// Checks that existing directories are private to the caller, and that missing ones can be created.
fn directories() -> Vec<HostCheck> {
    let places = [
        ("runtime-directory", state::check_runtime_path(state::runtime_path())),
        ("session-directory", state::sessions_path()),
        ("mailbox-directory", mailbox::default_root("--mailbox-root DIR")),
    ];
    let check =
        |(name, path): (&'static str, Result<PathBuf>)| match path.and_then(|path| check_directory(&path)) {
            Ok(detail) => HostCheck::ok(name, detail),
            // An ordinary user runs wrap without either. Root needs the locks of the runtime directory.
            Err(error) if name == "runtime-directory" && is_privileged_root() => {
                with_hint(HostCheck::missing(name, error.to_string()), &error)
            }
            Err(error) => with_hint(HostCheck::degraded(name, error.to_string()), &error),
        };
    places.into_iter().map(check).collect()
}

fn check_directory(path: &Path) -> Result<String> {
    let shown = path.display();
    if path.symlink_metadata().is_ok() {
        state::check_private_directory(path)?;
        return Ok(format!("{shown} is ours alone"));
    }
    let there = path.ancestors().skip(1).find(|ancestor| ancestor.exists()).unwrap_or(Path::new("/"));
    nix::unistd::access(there, nix::unistd::AccessFlags::W_OK | nix::unistd::AccessFlags::X_OK).map_err(
        |errno| {
            Error::system(format_args!("make {shown} in {}", there.display()), errno.desc())
                .hint(format!("install -d -m 700 -o {} {shown}", nix::unistd::geteuid()))
        },
    )?;
    Ok(format!("{shown} is not there yet, and can be made"))
}

/// Checks how disk usage can be limited in the session directory (DECISIONS 29).
fn disk() -> Option<HostCheck> {
    const NAME: &str = "disk-limits";
    let sessions = state::sessions_path().ok()?;
    let Some(no_quota) = disk_bounds::project_quota_obstacle(&sessions) else {
        return Some(HostCheck::ok(NAME, format!("project quotas at {}", sessions.display())));
    };
    let overlays = match disk_bounds::tmpfs_supports_overlay() {
        true => "--workspace-overlay is bounded in memory",
        false => "memory cannot take the changes of an overlay before Linux 6.6",
    };
    let prjquota = "keep sessions on an ext4 or xfs that is mounted with prjquota";
    Some(if !is_privileged_root() {
        HostCheck::degraded(NAME, format!("{no_quota}; {overlays}; a copy on disk is not bounded"))
            .with_remedy("saggar agent --workspace-overlay --home tmp, or wrap --workspace-overlay")
    } else if let Some(no_image) = disk_bounds::disk_image_obstacle() {
        let detail =
            format!("{no_quota}, and no image: {no_image}; {overlays}; a copy on disk is not bounded");
        HostCheck::degraded(NAME, detail).with_remedy(prjquota)
    } else {
        let detail = format!("{no_quota}; a --disk that is named gets an image; {overlays}");
        HostCheck::degraded(NAME, detail).with_remedy(prjquota)
    })
}

fn with_hint(check: HostCheck, error: &Error) -> HostCheck {
    match error.hint_text() {
        Some(hint) => check.with_remedy(hint),
        None => check,
    }
}

/// Looks through all of the system for what an ordinary user's programs could read through a group, so that starts hide
/// it. Where that cannot be kept, what neither a start nor the policy hides is reported.
fn group_only_paths(policy: Option<&EffectivePolicy>) -> Option<HostCheck> {
    const NAME: &str = "group-only-files";
    if is_privileged_root() {
        return None;
    }
    const NOTHING: &str = "programs can read nothing of /usr and /etc through a group alone";
    let (mut readable, saved) = group_only_record::search_all();
    let Err(error) = saved else {
        let detail = match readable.len() {
            0 => NOTHING.to_owned(),
            _ => format!(
                "hidden, unless the policy names it, since a group alone gives it: {}",
                some_of(&readable)
            ),
        };
        return Some(HostCheck::ok(NAME, detail));
    };
    if group_only::has_shared_group(group_only::caller_groups().as_deref()) {
        let detail = format!("each start searches all of /usr, since what it finds cannot be kept: {error}");
        return Some(with_hint(HostCheck::degraded(NAME, detail), &error));
    }
    let binds = policy.into_iter().flat_map(|policy| &policy.files.binds);
    let mut covered = group_only::near(system_paths()).paths;
    covered.extend(binds.map(|bind| bind.value.destination.clone()));
    readable.retain(|path| !covered.iter().any(|at| path.starts_with(at)));
    if readable.is_empty() {
        return Some(HostCheck::ok(NAME, NOTHING));
    }
    let detail = format!("programs can read through your group: {} ({error})", some_of(&readable));
    let remedy = "mend the error, so that starts hide what is found; or bind an empty file or directory over each, \
                  files.ro = [\"EMPTY:PATH\"] in your configuration";
    Some(HostCheck::degraded(NAME, detail).with_remedy(remedy))
}

/// The first of them, for a row.
fn some_of(paths: &[PathBuf]) -> String {
    const MAX_SHOWN: usize = 20;
    let mut shown: Vec<String> =
        paths.iter().take(MAX_SHOWN).map(|path| path.display().to_string()).collect();
    if let more @ 1.. = paths.len().saturating_sub(MAX_SHOWN) {
        shown.push(format!("{more} more"));
    }
    shown.join(", ")
}

/// Checks the trusted certificates, which verify a TLS upstream of the model API.
fn certificates() -> HostCheck {
    const NAME: &str = "certificates";
    match crate::api::count_trusted_certificates() {
        Ok(count) => HostCheck::ok(NAME, format!("{count} are trusted for api.upstream")),
        Err(error) => with_hint(HostCheck::degraded(NAME, error.to_string()), &error),
    }
}

fn agent() -> HostCheck {
    const NAME: &str = "claude";
    let path = std::env::var_os("PATH");
    match program_lookup::lookup("claude".as_ref(), path.as_deref()) {
        Some(file) => HostCheck::ok(NAME, file.display().to_string()),
        None => HostCheck::degraded(NAME, "not on PATH: saggar agent needs the name of another agent")
            .with_remedy(NO_AGENT_HINT),
    }
}

/// Formats one line per check, and its remedy below it.
fn text(checks: &[HostCheck], ok: bool) -> String {
    let width = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for HostCheck { name, status, detail, remedy } in checks {
        let status = match status {
            CheckStatus::Ok => "ok",
            CheckStatus::Degraded => "degraded",
            CheckStatus::Missing => "missing",
        };
        text.push_str(&format!("{status:<8}  {name:<width$}  {}\n", one_line(detail)));
        if let Some(remedy) = remedy {
            text.push_str(&format!("{:<8}  {:<width$}  fix: {}\n", "", "", one_line(remedy)));
        }
    }
    text.push_str(if ok {
        "\nsaggar can start its default sandbox here.\n"
    } else {
        "\nsaggar cannot start its default sandbox here: fix what is missing.\n"
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_check_is_a_line_and_each_cure_another() {
        let checks = [
            HostCheck::ok("kernel", "Linux 6.18"),
            HostCheck::degraded("cgroup-layout", "version 1 alone").with_remedy("boot with cgroup_no_v1=all"),
            HostCheck::missing("user-namespace", "cannot be made")
                .with_remedy("sysctl -w user.max_user_namespaces=65536"),
        ];
        insta::assert_snapshot!(text(&checks, false));
    }

    #[test]
    fn each_lack_of_the_own_processes_has_its_cure() {
        let ids = || Some(Ok("supervisors with ids of A-B".to_owned()));
        let whole = confinement(true, 7, None, ids());
        assert_eq!((whole.status, &whole.remedy), (CheckStatus::Ok, &None), "{whole:?}");
        assert!(whole.detail.contains("ids of A-B"), "{whole:?}");
        // An ordinary user has no id range.
        assert_eq!(confinement(true, 2, None, None).status, CheckStatus::Ok);
        for (found, what, cure) in [
            (confinement(true, 1, None, None), "file workers", "Linux 5.19"),
            (confinement(true, 0, Some("lsm=landlock"), None), "no landlock", "lsm=landlock"),
            (confinement(false, 7, None, None), "no filters", "see seccomp"),
            (confinement(true, 7, None, Some(Err("widen it".into()))), "ids of their own", "widen it"),
        ] {
            assert_eq!(found.status, CheckStatus::Degraded);
            assert!(
                found.detail.contains(what) && found.remedy.as_deref().unwrap().contains(cure),
                "{found:?}"
            );
        }
        let none = confinement(false, 0, None, Some(Err("widen it".into())));
        assert_eq!(none.remedy.unwrap().split("; ").count(), 3);
    }

    #[test]
    fn the_json_of_a_check_is_stable() {
        let check = HostCheck::missing("first-mount", "fails").with_remedy("do this");
        let json = serde_json::to_string(&[check, HostCheck::ok("kernel", "Linux")]).unwrap();
        assert_eq!(
            json,
            r#"[{"name":"first-mount","status":"missing","detail":"fails","remedy":"do this"},{"name":"kernel","status":"ok","detail":"Linux","remedy":null}]"#
        );
    }
}
