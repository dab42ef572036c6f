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
        helper("newgidmap", pid, &ids.gid)?;
    }
    write_maps(pid, &maps)?;
    if uid == Way::Helper {
        helper("newuidmap", pid, &ids.uid)?;
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

fn helper(program: &str, pid: i32, map: &[IdExtent]) -> Result<()> {
    let numbers = map.iter().flat_map(|extent| [extent.inside, extent.outside, extent.count]);
    let output = Command::new(program)
        .arg(pid.to_string())
        .args(numbers.map(|number| number.to_string()))
        .stdin(Stdio::null())
        .output()
        .map_err(|error| match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENOENT) => Error::new(Code::NotFound, format!("run {program}: it is not installed"))
                .hint("an ordinary user maps more than its own id through it: install the package uidmap"),
            _ => Error::system(format_args!("run {program}"), error),
        })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Error::new(Code::Unsupported, format!("{program}: {}", said.trim()))
        .hint("the ids are not in the user's ranges of /etc/subuid and /etc/subgid"))
}
