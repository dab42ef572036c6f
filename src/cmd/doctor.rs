//! `saggar doctor`: what this host gives, what is missing, and what cures it.

use super::find;
use crate::cli::DoctorArgs;
use crate::error::{Error, Result};
use crate::host::probe::{self, Check, Status, Subject};
use crate::host::quota;
use crate::launch::ids::{self, Room};
use crate::spec::agent::INNER_ID;
use crate::spec::policy::{self, CommandLine, Home, IdRange, Places};
use crate::spec::{IdMap, Identity};
use crate::text::line;
use crate::{plan, state};
use std::path::{Path, PathBuf};

/// Exit status 0 when the default sandbox can start here, 1 when it cannot.
pub(super) fn run(args: &DoctorArgs) -> Result<u8> {
    if args.prove {
        return super::prove::doctor(args);
    }
    let current = std::env::current_dir().map_err(|e| Error::system("find the current directory", e))?;
    let range = id_range(current.clone());
    let room = ids::look(range.first..=range.last);
    let mut checks = probe::all(&subject(current, room.as_ref().map_or(range.first, |room| room.base)));
    checks.extend(id_block(range, room));
    checks.extend(directories());
    checks.extend(disk());
    checks.push(certificates());
    checks.push(agent());
    let ok = !checks.iter().any(|check| check.status == Status::Missing);
    let said = match args.json {
        true => format!("{}\n", serde_json::json!({ "version": 1, "ok": ok, "checks": checks })),
        false => text(&checks, ok),
    };
    super::say_as(args.json, &said)?;
    Ok(u8::from(!ok))
}

fn is_privileged() -> bool {
    nix::unistd::geteuid().is_root() && crate::sys::caps::has(crate::sys::caps::SYS_ADMIN)
}

/// As whom a sandbox of this caller runs: the same identity that a start takes.
fn subject(current: PathBuf, base: u32) -> Subject {
    let privileged = is_privileged();
    let (uid, gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    let inner = |own: u32| if privileged || uid == 0 { INNER_ID } else { own };
    let map = if privileged { IdMap::Block { base } } else { IdMap::Own { uid, gid } };
    let identity = Identity { uid: inner(uid), gid: inner(gid), map };
    let maps = plan::ids::sandbox(&identity);
    Subject {
        privileged,
        uid_map: maps.uid,
        gid_map: maps.gid,
        deny_setgroups: maps.deny_setgroups,
        uid: identity.uid,
        gid: identity.gid,
        current,
    }
}

/// The range of the configuration; one that cannot be read is for `wrap` to complain of.
fn id_range(current: PathBuf) -> IdRange {
    let loaded = policy::load(
        &Places::of_this_host(current, nix::unistd::geteuid().as_raw()),
        Home::Tmp,
        CommandLine::default(),
    );
    loaded.map_or(IdRange::DEFAULT, |policy| policy.effective.ids.range.value)
}

fn id_block(range: IdRange, room: Result<Room>) -> Option<Check> {
    const NAME: &str = "id-range";
    if !is_privileged() {
        return None;
    }
    Some(match room {
        Ok(room) => Check::ok(NAME, format!("{} of {} blocks of {range} are free", room.free, room.blocks)),
        Err(error) => with_hint(Check::missing(NAME, error.to_string()), &error),
    })
}

/// The directories that are there are ours alone; those that are not can be made.
fn directories() -> Vec<Check> {
    let places =
        [("runtime-directory", Ok(state::runtime_path())), ("session-directory", state::sessions_path())];
    let check = |(name, path): (&'static str, Result<PathBuf>)| match path.and_then(|path| usable(&path)) {
        Ok(detail) => Check::ok(name, detail),
        // wrap as an ordinary user needs neither, and root needs the locks of the runtime directory.
        Err(error) if name == "runtime-directory" && is_privileged() => {
            with_hint(Check::missing(name, error.to_string()), &error)
        }
        Err(error) => with_hint(Check::degraded(name, error.to_string()), &error),
    };
    places.into_iter().map(check).collect()
}

fn usable(path: &Path) -> Result<String> {
    let shown = path.display();
    if path.symlink_metadata().is_ok() {
        state::check_own(path)?;
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

/// What bounds what sandboxes write on disk, where sessions are (DECISIONS 29).
fn disk() -> Option<Check> {
    const NAME: &str = "disk-limits";
    let sessions = state::sessions_path().ok()?;
    let Some(no_quota) = quota::refused(&sessions) else {
        return Some(Check::ok(NAME, format!("project quotas at {}", sessions.display())));
    };
    let overlays = match quota::memory_takes_changes() {
        true => "--workspace-overlay is bounded in memory",
        false => "memory cannot take the changes of an overlay before Linux 6.6",
    };
    let prjquota = "keep sessions on an ext4 or xfs that is mounted with prjquota";
    Some(if !is_privileged() {
        Check::degraded(NAME, format!("{no_quota}; {overlays}; a copy on disk is not bounded"))
            .cure("saggar agent --workspace-overlay --home tmp, or wrap --workspace-overlay")
    } else if let Some(no_image) = quota::image_refused() {
        let detail =
            format!("{no_quota}, and no image: {no_image}; {overlays}; a copy on disk is not bounded");
        Check::degraded(NAME, detail).cure(prjquota)
    } else {
        let detail = format!("{no_quota}; a --disk that is named gets an image; {overlays}");
        Check::degraded(NAME, detail).cure(prjquota)
    })
}

fn with_hint(check: Check, error: &Error) -> Check {
    match error.hint_text() {
        Some(hint) => check.cure(hint),
        None => check,
    }
}

/// What an upstream of the model API over TLS is held to.
fn certificates() -> Check {
    const NAME: &str = "certificates";
    match crate::api::trusted() {
        Ok(count) => Check::ok(NAME, format!("{count} are trusted for api.upstream")),
        Err(error) => with_hint(Check::degraded(NAME, error.to_string()), &error),
    }
}

fn agent() -> Check {
    const NAME: &str = "claude";
    let path = std::env::var_os("PATH");
    match find::lookup("claude".as_ref(), path.as_deref()) {
        Some(file) => Check::ok(NAME, file.display().to_string()),
        None => Check::degraded(NAME, "not on PATH: saggar agent takes the built-in demo agent")
            .cure("npm install -g @anthropic-ai/claude-code, or name another with --agent-cmd"),
    }
}

/// One line a check, its cure below it.
fn text(checks: &[Check], ok: bool) -> String {
    let width = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for Check { name, status, detail, cure } in checks {
        let status = match status {
            Status::Ok => "ok",
            Status::Degraded => "degraded",
            Status::Missing => "missing",
        };
        text.push_str(&format!("{status:<8}  {name:<width$}  {}\n", line(detail)));
        if let Some(cure) = cure {
            text.push_str(&format!("{:<8}  {:<width$}  cure: {}\n", "", "", line(cure)));
        }
    }
    text.push_str(if ok {
        "\nsaggar can start its default sandbox here.\n"
    } else {
        "\nsaggar cannot start its default sandbox here: cure what is missing.\n"
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_check_is_a_line_and_each_cure_another() {
        let checks = [
            Check::ok("kernel", "Linux 6.18"),
            Check::degraded("cgroup-layout", "version 1 alone").cure("boot with cgroup_no_v1=all"),
            Check::missing("user-namespace", "cannot be made")
                .cure("sysctl -w user.max_user_namespaces=65536"),
        ];
        insta::assert_snapshot!(text(&checks, false));
    }

    #[test]
    fn the_json_of_a_check_is_stable() {
        let check = Check::missing("first-mount", "fails").cure("do this");
        let json = serde_json::to_string(&[check, Check::ok("kernel", "Linux")]).unwrap();
        assert_eq!(
            json,
            r#"[{"name":"first-mount","status":"missing","detail":"fails","cure":"do this"},{"name":"kernel","status":"ok","detail":"Linux","cure":null}]"#
        );
    }
}
