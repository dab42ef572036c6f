//! Asking systemd for a cgroup: a transient scope, over D-Bus (org.freedesktop.systemd1(5)).
//!
//! systemd makes the scope with the container's first process in it, gives the cgroup over to us (`Delegate`),
//! and removes it at the end. Limits are written to the files all the same, and read back there; systemd is told
//! so that it does not undo them ([`properties`]).
//!
//! | file | its one job |
//! |---|---|
//! | [`name`] | names of units, and where their cgroups are |
//! | [`properties`] | resources and annotations as properties |
//! | [`text`] | values in GVariant's text form |
//! | [`bus`] | the connection: calls and signals, every wait bounded |
//! | [`wire`] | the bytes of messages |

pub(crate) mod bus;
pub mod name;
mod properties;
#[cfg(test)]
mod tests;
mod text;
pub(crate) mod wire;

use super::place::{Place, Unit};
use crate::error::{Code, Error, Result};
use crate::host::cgroups::Layout;
use bus::{Bus, Failure};
use oci_spec::runtime::LinuxResources;
use properties::Property;
use std::path::{Path, PathBuf};
use wire::Value;

const MANAGER: &str = "org.freedesktop.systemd1.Manager";

/// Refuses a unit whose properties cannot be understood.
pub(super) fn check(unit: &Unit) -> Result<()> {
    properties::annotated(unit).map(|_| ())
}

/// Whether the unit is a slice, into which systemd puts no process.
pub(super) fn is_slice(place: &Place) -> bool {
    place.unit.as_ref().is_some_and(properties::is_slice)
}

fn connect(user: bool) -> Result<Bus> {
    let whose = if user { "the user's systemd" } else { "systemd" };
    let hint = if user {
        "log in with a session (loginctl enable-linger USER), and have XDG_RUNTIME_DIR set; or use the cgroupfs driver \
         (--cgroup-manager cgroupfs)"
    } else {
        "start dbus.service, or use the cgroupfs driver (--cgroup-manager cgroupfs)"
    };
    let mut error = Error::new(Code::Unsupported, format!("{whose} cannot be reached: it has no socket"));
    for address in bus::addresses(user) {
        match Bus::connect(&address) {
            Ok(bus) => return Ok(bus),
            Err(failed) => error = failed.context(format_args!("{whose} cannot be reached")),
        }
    }
    Err(error.hint(hint))
}

/// A property of the manager.
fn property(bus: &mut Bus, name: &str) -> Result<String> {
    let body = vec![Value::text(MANAGER), Value::text(name)];
    let answer = bus.call("org.freedesktop.DBus.Properties", "Get", body)?;
    Ok(answer.first().and_then(Value::as_text).unwrap_or_default().to_owned())
}

/// The number in `252.22-1~deb12u1` or `v247`; 0 for what has none.
fn version(bus: &mut Bus) -> u32 {
    let text = property(bus, "Version").unwrap_or_default();
    let digits: String = text.trim_start_matches('v').chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(0)
}

/// The cgroup of the user's systemd, relative to the mount point of the hierarchy.
pub(super) fn user_manager(layout: &Layout) -> Result<PathBuf> {
    let service = format!("user@{}.service", nix::unistd::geteuid());
    let own = layout.unified().and_then(|unified| unified.own.strip_prefix(&unified.mount).ok());
    let above = own.and_then(|own| own.ancestors().find(|path| path.ends_with(&service)));
    if let Some(manager) = above {
        return Ok(manager.to_owned());
    }
    let group = property(&mut connect(true)?, "ControlGroup")?;
    Ok(PathBuf::from(group.trim_start_matches('/')))
}

fn list(properties: Vec<Property>) -> Value {
    let one =
        |(name, value): Property| Value::Struct(vec![Value::Text(name), Value::Variant(Box::new(value))]);
    Value::Array("(sv)".to_owned(), properties.into_iter().map(one).collect())
}

/// Starts the unit with this process in it, and waits until it is started.
pub(super) fn start(place: &Place, resources: &LinuxResources, pid: i32) -> Result<()> {
    let Some(unit) = &place.unit else { return Ok(()) };
    start_on(&mut connect(unit.user)?, place, unit, resources, pid)
}

fn start_on(bus: &mut Bus, place: &Place, unit: &Unit, resources: &LinuxResources, pid: i32) -> Result<()> {
    let version = version(bus);
    let mut properties = properties::of_unit(place, unit, &unit.name, pid)?;
    properties.extend(properties::of_resources(place, resources, version));
    listen(bus)?;
    let body = || {
        vec![
            Value::text(unit.name.as_str()),
            Value::text("replace"),
            list(properties.clone()),
            Value::Array("(sa(sv))".to_owned(), Vec::new()),
        ]
    };
    let mut started = bus.call(MANAGER, "StartTransientUnit", body());
    if matches!(&started, Err(Failure::Refused(name, _)) if name == "org.freedesktop.systemd1.UnitExists") {
        // One that failed, and that nobody collected, keeps its name.
        let _ = bus.call(MANAGER, "ResetFailedUnit", vec![Value::text(unit.name.as_str())]);
        started = bus.call(MANAGER, "StartTransientUnit", body());
    }
    let explained = started.map_err(|failure| {
        Error::from(failure).context(format_args!("start unit {}", unit.name)).hint(format!(
            "systemctl{} status {} tells of a unit of that name; a property that it refuses comes from linux.resources or \
             from an annotation org.systemd.property.…",
            if unit.user { " --user" } else { "" },
            unit.name
        ))
    })?;
    let result = wait_job(bus, &explained)?;
    if result == "done" {
        return Ok(());
    }
    let message = format!("start unit {}: systemd says {result}", unit.name);
    Err(Error::new(Code::System, message).hint("journalctl -b -u init.scope tells why"))
}

/// Asks for the signals that tell of the end of jobs.
fn listen(bus: &mut Bus) -> Result<()> {
    let rule =
        format!("type='signal',interface='{MANAGER}',member='JobRemoved',path='/org/freedesktop/systemd1'");
    bus.call_bus("AddMatch", vec![Value::text(rule)])?;
    bus.call(MANAGER, "Subscribe", Vec::new())?;
    Ok(())
}

/// The result of a job, `done` when all is well. The signal has its number, object, unit and result.
fn wait_job(bus: &mut Bus, job: &[Value]) -> Result<String> {
    let job = job.first().and_then(Value::as_text).unwrap_or_default().to_owned();
    let body = bus.wait_signal("JobRemoved", |body| body.get(1).and_then(Value::as_text) == Some(&job))?;
    Ok(body.get(3).and_then(Value::as_text).unwrap_or_default().to_owned())
}

/// Tells systemd of changed limits, so that it does not undo them.
pub(super) fn update(place: &Place, resources: &LinuxResources) -> Result<()> {
    let Some(unit) = &place.unit else { return Ok(()) };
    update_on(&mut connect(unit.user)?, place, unit, resources)
}

fn update_on(bus: &mut Bus, place: &Place, unit: &Unit, resources: &LinuxResources) -> Result<()> {
    let version = version(bus);
    let properties = properties::of_resources(place, resources, version);
    if properties.is_empty() {
        return Ok(());
    }
    let body = vec![Value::text(unit.name.as_str()), Value::Bool(true), list(properties)];
    let answer = bus.call(MANAGER, "SetUnitProperties", body);
    answer
        .map_err(|failure| Error::from(failure).context(format_args!("set limits of unit {}", unit.name)))?;
    Ok(())
}

/// Moves a process of the caller to the unit, or to a cgroup below it.
pub(super) fn attach(place: &Place, to: &Path, pid: i32) -> Result<()> {
    let Some((unit, directory)) = place.unit.as_ref().zip(place.unified()) else { return Ok(()) };
    let below = Path::new("/").join(to.strip_prefix(&directory.path).unwrap_or(Path::new("")));
    attach_on(&mut connect(unit.user)?, unit, &below, pid)
}

fn attach_on(bus: &mut Bus, unit: &Unit, below: &Path, pid: i32) -> Result<()> {
    let pids = Value::Array("u".to_owned(), vec![Value::U32(u32::try_from(pid).unwrap_or(0))]);
    let body = vec![Value::text(unit.name.as_str()), Value::text(below.to_string_lossy()), pids];
    let answer = bus.call(MANAGER, "AttachProcessesToUnit", body);
    answer.map_err(|failure| {
        Error::from(failure).context(format_args!("move process {pid} to unit {}", unit.name)).hint(
            "systemd moves processes of the unit's owner alone; or start saggar in a unit of your own \
             (systemd-run --user --scope)",
        )
    })?;
    Ok(())
}

/// Stops the unit and waits until it is gone; one that is not there is no error.
pub(super) fn stop(place: &Place) -> Result<()> {
    let Some(unit) = &place.unit else { return Ok(()) };
    // It goes by itself with its last process.
    if !place.directories.iter().any(|one| one.path.exists()) {
        return Ok(());
    }
    stop_on(&mut connect(unit.user)?, unit)
}

fn stop_on(bus: &mut Bus, unit: &Unit) -> Result<()> {
    listen(bus)?;
    let stopped =
        match bus.call(MANAGER, "StopUnit", vec![Value::text(unit.name.as_str()), Value::text("replace")]) {
            Ok(job) => wait_job(bus, &job).map(|_| ()),
            Err(Failure::Refused(name, _)) if name == "org.freedesktop.systemd1.NoSuchUnit" => Ok(()),
            Err(failure) => Err(Error::from(failure).context(format_args!("stop unit {}", unit.name))),
        };
    // Most often there is nothing to reset.
    let _ = bus.call(MANAGER, "ResetFailedUnit", vec![Value::text(unit.name.as_str())]);
    stopped
}
