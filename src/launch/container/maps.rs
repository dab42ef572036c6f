//! The id maps of a container's user namespace (user_namespaces(7)): written by us where we may, else by
//! newuidmap(1) and newgidmap(1), which are set-id for that.

use crate::error::{Code, Error, Result};
use crate::launch::write_maps;
use crate::plan::ids::Maps;
use crate::spec::container::{IdExtent, IdMaps};
use crate::sys::{Errno, caps};
use std::fmt::Write;
use std::process::{Command, Stdio};

/// Numbers of capabilities (linux/capability.h).
const SETGID: u32 = 6;
const SETUID: u32 = 7;

/// How a map gets into the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// There is none.
    None,
    /// We have the capability.
    Privileged,
    /// Our own id alone: everybody may do that.
    Own,
    /// By the helper.
    Helper,
}

fn way(map: &[IdExtent], capability: u32, own: u32) -> Way {
    match map {
        [] => Way::None,
        _ if caps::has(capability) => Way::Privileged,
        [only] if only.count == 1 && only.outside == own => Way::Own,
        _ => Way::Helper,
    }
}

fn ways(ids: &IdMaps) -> (Way, Way) {
    let (uid, gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    (way(&ids.uid, SETUID, uid), way(&ids.gid, SETGID, gid))
}

/// The maps of a user namespace that was asked for without any, as crun has them: our own ids one to one, or of an
/// ordinary user its own id as root.
pub fn of_ours() -> IdMaps {
    let own = |id| vec![IdExtent { inside: 0, outside: id, count: 1 }];
    let (uid, gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    IdMaps {
        uid: if caps::has(SETUID) { one_to_one("/proc/self/uid_map") } else { own(uid) },
        gid: if caps::has(SETGID) { one_to_one("/proc/self/gid_map") } else { own(gid) },
    }
}

fn one_to_one(file: &str) -> Vec<IdExtent> {
    let same = |extent: IdExtent| IdExtent { outside: extent.inside, ..extent };
    read(file).into_iter().map(same).collect()
}

/// A map as the kernel shows it, `/proc/PID/uid_map` or `gid_map`; empty where there is none.
pub fn read(file: &str) -> Vec<IdExtent> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = |line: &str| {
        let mut numbers = line.split_whitespace().map(str::parse);
        let mut next = || numbers.next()?.ok();
        Some(IdExtent { inside: next()?, outside: next()?, count: next()? })
    };
    text.lines().filter_map(line).collect()
}

/// Whether processes of the namespace may change their groups: the kernel takes the map of an ordinary user's own
/// group only when they may not.
pub(super) fn leave_setgroups(ids: &IdMaps) -> bool {
    ways(ids).1 != Way::Own
}

/// Writes the maps of the user namespace of `pid`, our unreaped child.
///
/// # Errors
/// [`Code::Unsupported`] for a map that we may not write; [`Code::NotFound`] without the helper.
pub(super) fn write(pid: i32, ids: &IdMaps) -> Result<()> {
    let (uid, gid) = ways(ids);
    let direct = |way: Way, map: &[IdExtent]| match way {
        Way::Privileged | Way::Own => text(map),
        Way::None | Way::Helper => String::new(),
    };
    let maps =
        Maps { uid: direct(uid, &ids.uid), gid: direct(gid, &ids.gid), deny_setgroups: gid == Way::Own };
    if gid == Way::Helper {
        NEWGIDMAP.write(pid, &ids.gid)?;
    }
    write_maps(pid, &maps)?;
    if uid == Way::Helper {
        NEWUIDMAP.write(pid, &ids.uid)?;
    }
    Ok(())
}

/// As the kernel takes it.
pub(super) fn text(map: &[IdExtent]) -> String {
    map.iter().fold(String::new(), |mut text, IdExtent { inside, outside, count }| {
        let _ = writeln!(text, "{inside} {outside} {count}");
        text
    })
}

/// A set-id program with the file of the ranges that it gives out (subuid(5), subgid(5)).
struct Helper {
    program: &'static str,
    ranges: &'static str,
}

const NEWUIDMAP: Helper = Helper { program: "newuidmap", ranges: "/etc/subuid" };
const NEWGIDMAP: Helper = Helper { program: "newgidmap", ranges: "/etc/subgid" };

impl Helper {
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
        // It begins with its own name.
        let said = said.strip_prefix(program).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(said);
        Err(Error::new(Code::Unsupported, format!("{program}: {said}")).hint(self.cure()))
    }

    /// What to do about a refusal: the helper says what it does not allow, and not what it would.
    fn cure(&self) -> String {
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

/// The ranges of a user, `first:count` a line, as `first-last`.
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
