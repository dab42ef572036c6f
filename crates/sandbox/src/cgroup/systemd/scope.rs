//! A scope of systemd for saggar itself: a delegated cgroup in which it is alone. The user's manager gives it or, for
//! root, the system's.
//!
//! The scope ends with the last process in it; systemd then removes its cgroup with what is left below.

use super::properties::{SystemdProperty, push_property};
use super::wire::DbusValue;
use super::{connect, start_unit};
use crate::host::cgroup_parent::{CgroupParent, SCOPE_PREFIX};
use nix::unistd::geteuid;
use saggar_sys::error::{Code, Error, Result};

/// Asks systemd for a scope for the sandbox `id` in this slice, with this process in it.
///
/// # Errors
/// [`Code::Unsupported`] if the manager cannot be reached, [`Code::System`] if it refuses, or takes the scope for done
/// and the process is not in it.
pub fn enter(id: &str, slice: &str) -> Result<()> {
    let name = format!("{SCOPE_PREFIX}{}.scope", super::name::escape(id));
    let is_users = !geteuid().is_root();
    start_unit(&mut connect(is_users)?, &name, is_users, &properties(id, slice))?;
    match CgroupParent::own() {
        Some(CgroupParent::Own(own)) if own.ends_with(&name) => Ok(()),
        own => {
            let message = format!("systemd reports {name} as started, and this process is in {own:?}");
            Err(Error::new(Code::System, message))
        }
    }
}

fn properties(id: &str, slice: &str) -> Vec<SystemdProperty> {
    let pid = DbusValue::U32(std::process::id());
    let mut list = Vec::new();
    push_property(&mut list, "Description", DbusValue::text(format!("saggar sandbox {id}")));
    push_property(&mut list, "Slice", DbusValue::text(slice));
    push_property(&mut list, "Delegate", DbusValue::Bool(true));
    push_property(&mut list, "PIDs", DbusValue::Array("u".to_owned(), vec![pid]));
    push_property(&mut list, "CollectMode", DbusValue::text("inactive-or-failed"));
    list
}
