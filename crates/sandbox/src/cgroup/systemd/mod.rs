//! Requests a cgroup from systemd: a transient scope, over D-Bus (org.freedesktop.systemd1(5)).
//!
//! systemd creates the scope with the container's first process in it, delegates the cgroup to us (`Delegate`), and
//! removes it at the end. Limits are nevertheless written to the files and read back. systemd gets them as properties
//! too, so that it does not undo them ([`properties`]).
//!
//! | module | purpose |
//! |---|---|
//! | [`name`] | names of units, and the paths of their cgroups |
//! | [`properties`] | resources and annotations as properties |
//! | [`scope`] | a scope for saggar itself, in which an agent's sandbox has its cgroup |
//! | [`text`] | values in GVariant's text form |
//! | [`bus`] | the connection: calls and signals, every wait with a timeout |
//! | [`wire`] | encodes and decodes messages |

pub(crate) mod bus;
pub mod name;
mod properties;
pub mod scope;
#[cfg(test)]
mod tests;
mod text;
pub(crate) mod wire;

use super::location::{CgroupLocation, SystemdUnit};
use crate::host::bus_address;
use crate::host::cgroups::CgroupLayout;
use bus::{BusCallError, SystemdBus};
use oci_spec::runtime::LinuxResources;
use properties::SystemdProperty;
use saggar_sys::error::{Code, Error, Result};
use std::path::{Path, PathBuf};
use wire::DbusValue;

const MANAGER: &str = "org.freedesktop.systemd1.Manager";

/// Rejects a unit whose properties cannot be parsed.
pub(super) fn check(unit: &SystemdUnit) -> Result<()> {
    properties::annotation_properties(unit).map(|_| ())
}

/// Whether the unit is a slice; systemd moves no process into a slice.
pub(super) fn is_slice(location: &CgroupLocation) -> bool {
    location.unit.as_ref().is_some_and(properties::is_slice)
}

fn connect(user: bool) -> Result<SystemdBus> {
    let whose = if user { "the user's systemd" } else { "systemd" };
    let hint = if user {
        "log in with a session (loginctl enable-linger USER), and have XDG_RUNTIME_DIR set; or use the cgroupfs driver \
         (--cgroup-manager cgroupfs)"
    } else {
        "start dbus.service, or use the cgroupfs driver (--cgroup-manager cgroupfs)"
    };
    let mut error = Error::new(Code::Unsupported, format!("{whose} cannot be reached: it has no socket"));
    for address in bus_address::addresses(user) {
        match SystemdBus::connect(&address) {
            Ok(bus) => return Ok(bus),
            Err(failed) => error = failed.context(format_args!("{whose} cannot be reached")),
        }
    }
    Err(error.hint(hint))
}

/// Reads a property of the manager.
fn property(bus: &mut SystemdBus, name: &str) -> Result<String> {
    let body = vec![DbusValue::text(MANAGER), DbusValue::text(name)];
    let answer = bus.call("org.freedesktop.DBus.Properties", "Get", body)?;
    Ok(answer.first().and_then(DbusValue::as_text).unwrap_or_default().to_owned())
}

/// The version number in `252.22-1~deb12u1` or `v247`; 0 if there is none.
fn version(bus: &mut SystemdBus) -> u32 {
    let text = property(bus, "Version").unwrap_or_default();
    let digits: String = text.trim_start_matches('v').chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(0)
}

/// The cgroup of the user's systemd, relative to the mount point of the hierarchy.
pub(super) fn user_manager(layout: &CgroupLayout) -> Result<PathBuf> {
    let service = format!("user@{}.service", nix::unistd::geteuid());
    let own =
        layout.v2_hierarchy().and_then(|unified| unified.own_cgroup.strip_prefix(&unified.mount_point).ok());
    let above = own.and_then(|own| own.ancestors().find(|path| path.ends_with(&service)));
    if let Some(manager) = above {
        return Ok(manager.to_owned());
    }
    let group = property(&mut connect(true)?, "ControlGroup")?;
    Ok(PathBuf::from(group.trim_start_matches('/')))
}

fn property_list(properties: Vec<SystemdProperty>) -> DbusValue {
    let one = |(name, value): SystemdProperty| {
        DbusValue::Struct(vec![DbusValue::Text(name), DbusValue::Variant(Box::new(value))])
    };
    DbusValue::Array("(sv)".to_owned(), properties.into_iter().map(one).collect())
}

/// Starts the unit with this process in it, and waits until the job has finished.
pub(super) fn start(location: &CgroupLocation, resources: &LinuxResources, pid: i32) -> Result<()> {
    let Some(unit) = &location.unit else { return Ok(()) };
    start_on(&mut connect(unit.user)?, location, unit, resources, pid)
}

fn start_on(
    bus: &mut SystemdBus,
    location: &CgroupLocation,
    unit: &SystemdUnit,
    resources: &LinuxResources,
    pid: i32,
) -> Result<()> {
    let version = version(bus);
    let mut properties = properties::unit_properties(location, unit, &unit.name, pid)?;
    properties.extend(properties::resource_properties(location, resources, version));
    start_unit(bus, &unit.name, unit.user, &properties)
}

/// Starts a transient unit, and waits until the job has finished.
fn start_unit(
    bus: &mut SystemdBus,
    name: &str,
    is_users: bool,
    properties: &[SystemdProperty],
) -> Result<()> {
    subscribe(bus)?;
    let body = || {
        vec![
            DbusValue::text(name),
            DbusValue::text("replace"),
            property_list(properties.to_vec()),
            DbusValue::Array("(sa(sv))".to_owned(), Vec::new()),
        ]
    };
    let mut started = bus.call(MANAGER, "StartTransientUnit", body());
    if matches!(&started, Err(BusCallError::Refused(name, _)) if name == "org.freedesktop.systemd1.UnitExists")
    {
        // A failed unit that was not collected keeps its name.
        let _ = bus.call(MANAGER, "ResetFailedUnit", vec![DbusValue::text(name)]);
        started = bus.call(MANAGER, "StartTransientUnit", body());
    }
    let explained = started.map_err(|failure| {
        Error::from(failure).context(format_args!("start unit {name}")).hint(format!(
            "systemctl{} status {name} tells of a unit of that name; a property that it refuses comes from linux.resources \
             or from an annotation org.systemd.property.…",
            if is_users { " --user" } else { "" },
        ))
    })?;
    let result = wait_job(bus, &explained)?;
    if result == "done" {
        return Ok(());
    }
    let message = format!("start unit {name}: systemd reports {result}");
    Err(Error::new(Code::System, message).hint("journalctl -b -u init.scope tells why"))
}

/// Subscribes to the signals that report finished jobs.
fn subscribe(bus: &mut SystemdBus) -> Result<()> {
    let rule =
        format!("type='signal',interface='{MANAGER}',member='JobRemoved',path='/org/freedesktop/systemd1'");
    bus.call_bus("AddMatch", vec![DbusValue::text(rule)])?;
    bus.call(MANAGER, "Subscribe", Vec::new())?;
    Ok(())
}

/// Waits for the result of a job, `done` on success. The signal has the job's number, object, unit and result.
fn wait_job(bus: &mut SystemdBus, job: &[DbusValue]) -> Result<String> {
    let job = job.first().and_then(DbusValue::as_text).unwrap_or_default().to_owned();
    let body =
        bus.wait_signal("JobRemoved", |body| body.get(1).and_then(DbusValue::as_text) == Some(&job))?;
    Ok(body.get(3).and_then(DbusValue::as_text).unwrap_or_default().to_owned())
}

/// Sends changed limits to systemd, so that it does not undo them.
pub(super) fn update(location: &CgroupLocation, resources: &LinuxResources) -> Result<()> {
    let Some(unit) = &location.unit else { return Ok(()) };
    update_on(&mut connect(unit.user)?, location, unit, resources)
}

fn update_on(
    bus: &mut SystemdBus,
    location: &CgroupLocation,
    unit: &SystemdUnit,
    resources: &LinuxResources,
) -> Result<()> {
    let version = version(bus);
    let properties = properties::resource_properties(location, resources, version);
    if properties.is_empty() {
        return Ok(());
    }
    let body = vec![DbusValue::text(unit.name.as_str()), DbusValue::Bool(true), property_list(properties)];
    let answer = bus.call(MANAGER, "SetUnitProperties", body);
    answer
        .map_err(|failure| Error::from(failure).context(format_args!("set limits of unit {}", unit.name)))?;
    Ok(())
}

/// Moves a process of the caller into the unit, or into a cgroup below it.
pub(super) fn attach(location: &CgroupLocation, to: &Path, pid: i32) -> Result<()> {
    let Some((unit, directory)) = location.unit.as_ref().zip(location.unified()) else { return Ok(()) };
    let below = Path::new("/").join(to.strip_prefix(&directory.path).unwrap_or(Path::new("")));
    attach_on(&mut connect(unit.user)?, unit, &below, pid)
}

fn attach_on(bus: &mut SystemdBus, unit: &SystemdUnit, below: &Path, pid: i32) -> Result<()> {
    let pids = DbusValue::Array("u".to_owned(), vec![DbusValue::U32(u32::try_from(pid).unwrap_or(0))]);
    let body = vec![DbusValue::text(unit.name.as_str()), DbusValue::text(below.to_string_lossy()), pids];
    let answer = bus.call(MANAGER, "AttachProcessesToUnit", body);
    answer.map_err(|failure| {
        Error::from(failure).context(format_args!("move process {pid} to unit {}", unit.name)).hint(
            "systemd moves processes of the unit's owner alone; or start saggar in a unit of your own \
             (systemd-run --user --scope)",
        )
    })?;
    Ok(())
}

/// Stops the unit and waits until it is gone. It is not an error if the unit does not exist.
pub(super) fn stop(location: &CgroupLocation) -> Result<()> {
    let Some(unit) = &location.unit else { return Ok(()) };
    // systemd removes the unit with its last process.
    if !location.directories.iter().any(|one| one.path.exists()) {
        return Ok(());
    }
    stop_on(&mut connect(unit.user)?, unit)
}

fn stop_on(bus: &mut SystemdBus, unit: &SystemdUnit) -> Result<()> {
    subscribe(bus)?;
    let stopped = match bus.call(
        MANAGER,
        "StopUnit",
        vec![DbusValue::text(unit.name.as_str()), DbusValue::text("replace")],
    ) {
        Ok(job) => wait_job(bus, &job).map(|_| ()),
        Err(BusCallError::Refused(name, _)) if name == "org.freedesktop.systemd1.NoSuchUnit" => Ok(()),
        Err(failure) => Err(Error::from(failure).context(format_args!("stop unit {}", unit.name))),
    };
    // Usually there is no failed state to reset.
    let _ = bus.call(MANAGER, "ResetFailedUnit", vec![DbusValue::text(unit.name.as_str())]);
    stopped
}
