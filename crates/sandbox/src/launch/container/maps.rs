//! Writes the id maps of a container's user namespace (user_namespaces(7)): directly where permitted, else with
//! newuidmap(1) and newgidmap(1), which are set-user-ID for that.

use crate::launch::write_maps;
use crate::plan::ids::UserNamespaceMaps;
use crate::spec::container::{IdExtent, IdMaps};
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::{Errno, caps};
use std::fmt::Write;
use std::process::{Command, Stdio};

/// Capability numbers (linux/capability.h).
const SETGID: u32 = 6;
const SETUID: u32 = 7;

/// How a map is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MapMethod {
    /// There is no map.
    None,
    /// Directly, with the capability.
    Privileged,
    /// Directly, for a map of the user's own id only, which every user may write.
    Own,
    /// With the helper program.
    Helper,
}

fn map_method(map: &[IdExtent], capability: u32, own: u32) -> MapMethod {
    match map {
        [] => MapMethod::None,
        _ if caps::has(capability) => MapMethod::Privileged,
        [only] if only.count == 1 && only.outside == own => MapMethod::Own,
        _ => MapMethod::Helper,
    }
}

fn map_methods(ids: &IdMaps) -> (MapMethod, MapMethod) {
    let (uid, gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    (map_method(&ids.uid, SETUID, uid), map_method(&ids.gid, SETGID, gid))
}

/// Returns the maps for a user namespace that the bundle requests without maps, as crun does: the runtime's own ids one
/// to one, or for an ordinary user its own id as root.
pub fn own_id_maps() -> IdMaps {
    let own = |id| vec![IdExtent { inside: 0, outside: id, count: 1 }];
    let (uid, gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    IdMaps {
        uid: if caps::has(SETUID) { one_to_one("/proc/self/uid_map") } else { own(uid) },
        gid: if caps::has(SETGID) { one_to_one("/proc/self/gid_map") } else { own(gid) },
    }
}

fn one_to_one(file: &str) -> Vec<IdExtent> {
    let same = |extent: IdExtent| IdExtent { outside: extent.inside, ..extent };
    read_id_map(file).into_iter().map(same).collect()
}

/// Reads a map in the kernel's format, `/proc/PID/uid_map` or `gid_map`; empty if there is none.
pub fn read_id_map(file: &str) -> Vec<IdExtent> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = |line: &str| {
        let mut numbers = line.split_whitespace().map(str::parse);
        let mut next = || numbers.next()?.ok();
        Some(IdExtent { inside: next()?, outside: next()?, count: next()? })
    };
    text.lines().filter_map(line).collect()
}

/// Whether processes of the namespace may change their groups: the kernel accepts a map of an ordinary user's own group
/// only if they may not.
pub(super) fn allows_setgroups(ids: &IdMaps) -> bool {
    map_methods(ids).1 != MapMethod::Own
}

/// Writes the id maps of `pid`, an unreaped child of this process.
///
/// # Errors
/// [`Code::Unsupported`] for a map that saggar may not write; [`Code::NotFound`] without the helper.
pub(super) fn write_maps_of(pid: i32, ids: &IdMaps) -> Result<()> {
    let (uid, gid) = map_methods(ids);
    let direct = |way: MapMethod, map: &[IdExtent]| match way {
        MapMethod::Privileged | MapMethod::Own => map_text(map),
        MapMethod::None | MapMethod::Helper => String::new(),
    };
    let maps = UserNamespaceMaps {
        uid: direct(uid, &ids.uid),
        gid: direct(gid, &ids.gid),
        deny_setgroups: gid == MapMethod::Own,
    };
    if gid == MapMethod::Helper {
        NEWGIDMAP.write(pid, &ids.gid)?;
    }
    write_maps(pid, &maps)?;
    if uid == MapMethod::Helper {
        NEWUIDMAP.write(pid, &ids.uid)?;
    }
    Ok(())
}

/// Formats a map for the kernel.
pub(super) fn map_text(map: &[IdExtent]) -> String {
    map.iter().fold(String::new(), |mut text, IdExtent { inside, outside, count }| {
        let _ = writeln!(text, "{inside} {outside} {count}");
        text
    })
}

/// A set-user-ID helper, and the file of the ranges that it permits (subuid(5), subgid(5)).
struct IdMapHelper {
    program: &'static str,
    ranges: &'static str,
}

const NEWUIDMAP: IdMapHelper = IdMapHelper { program: "newuidmap", ranges: "/etc/subuid" };
const NEWGIDMAP: IdMapHelper = IdMapHelper { program: "newgidmap", ranges: "/etc/subgid" };

impl IdMapHelper {
    fn write(&self, pid: i32, map: &[IdExtent]) -> Result<()> {
        let program = self.program;
        let numbers = map.iter().flat_map(|extent| [extent.inside, extent.outside, extent.count]);
        let output = Command::new(program)
            .arg(pid.to_string())
            .args(numbers.map(|number| number.to_string()))
            .stdin(Stdio::null())
            .output()
            .map_err(|error| match error.raw_os_error().map(Errno::from_raw) {
                Some(Errno::ENOENT) => {
                    Error::new(Code::NotFound, format!("run {program}: it is not installed")).hint(
                        "an ordinary user maps more than its own id through it: install the package uidmap",
                    )
                }
                _ => Error::system(format_args!("run {program}"), error),
            })?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim();
        // The message begins with the helper's own name.
        let said = said.strip_prefix(program).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(said);
        Err(Error::new(Code::Unsupported, format!("{program}: {said}")).hint(self.remedy()))
    }

    /// Returns a hint for a denied map: the helper reports what it denies, but not what it would permit.
    fn remedy(&self) -> String {
        let (uid, file) = (nix::unistd::getuid(), self.ranges);
        let Ok(Some(user)) = nix::unistd::User::from_uid(uid) else {
            return format!("user {uid} has no account, and {file} gives ranges to accounts alone");
        };
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let own = ranges(&text, &user.name, uid.as_raw());
        if own.is_empty() {
            let name = user.name;
            return format!(
                "user {name} has no range in {file}; root gives it one: \
                 usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {name}"
            );
        }
        format!("{file} gives user {} {}, and its own id", user.name, own.join(" and "))
    }
}

/// Returns the ranges of a user, `first:count` a line, as `first-last`.
fn ranges(text: &str, name: &str, uid: u32) -> Vec<String> {
    let range = |line: &str| {
        let (owner, range) = line.split_once(':')?;
        let (first, count) = range.split_once(':')?;
        let (first, count): (u64, u64) = (first.parse().ok()?, count.trim().parse().ok()?);
        let last = first.checked_add(count)?.checked_sub(1)?;
        (owner == name || owner.parse() == Ok(uid)).then(|| format!("{first}-{last}"))
    };
    text.lines().filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ranges_of_a_user_stand_under_its_name_or_number() {
        let text = "a:100:10\nb:200:5\n7:300:1\na:x:1\na:5\na:18446744073709551615:9\n\n";
        assert_eq!(ranges(text, "a", 7), ["100-109", "300-300"]);
        assert_eq!(ranges(text, "c", 8), [] as [&str; 0]);
    }
}
