//! `saggar exec`: one more program in a container.

use super::container::{Found, Status};
use super::group::{ForExec, ForInit, WithShares};
use super::make::{Mode, console, kept_descriptors};
use super::{Context, filter, foreground, pid_file, wrong_status};
use crate::cgroup::{Driver, Group};
use crate::cli::oci::ExecArgs;
use crate::error::{Code, Error, Result};
use crate::launch::container::{self as launch, Cgroup, Init, Options};
use crate::resctrl::{self, Groups};
use crate::spec::container::{Container, Process};
use crate::spec::oci::{self, Overrides};
use std::os::fd::AsFd;
use std::path::{Component, Path, PathBuf};

pub(super) fn run(context: &Context, args: &ExecArgs) -> Result<u8> {
    let signals = if args.detach { None } else { Some(foreground::hear_signals()?) };
    let found = Found::new(context.find(&args.id)?)?;
    let status = found.status();
    match status {
        Status::Created | Status::Running => {}
        Status::Paused if args.ignore_paused => {}
        Status::Paused => {
            return Err(wrong_status("exec in", found.directory.id(), status)
                .hint("resume it first, or say --ignore-paused"));
        }
        Status::Creating | Status::Stopped => {
            return Err(Error::new(
                Code::Refused,
                format!("exec in container {:?}: container not running, it is {status}", found.record.id),
            ));
        }
    }
    let container = found.config()?.container;
    let process = process(args, &container)?;
    let init = begin(args, &found, &container, &process, status)?;
    if let Err(error) = pid_file::write(args.pid_file.as_deref(), init.pid) {
        let _ = crate::sys::pidfd::signal(init.pidfd.as_fd(), libc::SIGKILL);
        let _ = crate::sys::pidfd::reap(init.pidfd.as_fd());
        return Err(error);
    }
    match signals {
        None => Ok(0),
        Some(signals) => foreground::wait(&init, init.terminal.as_ref(), &signals, false),
    }
}

/// Puts the program into the container.
fn begin(
    args: &ExecArgs,
    found: &Found,
    container: &Container,
    process: &Process,
    status: Status,
) -> Result<Init> {
    let mode = if args.detach { Mode::Detached } else { Mode::Foreground };
    let filter = filter::again(container)?;
    let (init, pid) = found.init()?;
    let state = found.state(status).to_string();
    let request = launch::Exec {
        container,
        process,
        init: init.as_fd(),
        pid,
        filter: filter.as_ref(),
        console: console(process.terminal, args.console_socket.as_deref(), mode)?,
        streams: None,
        options: Options {
            preserve_fds: kept_descriptors(args.preserve_fds),
            die_with_runtime: mode == Mode::Foreground,
            ..Options::default()
        },
        state: &state,
    };
    let group = found.group()?;
    let shares = match &container.intel_rdt {
        Some(rdt) => Some(Groups::of_running(&resctrl::mount_point()?, &found.record.id, rdt)),
        None => None,
    };
    let start = |cgroup: &dyn Cgroup| launch::exec(&request, &WithShares { cgroup, shares: shares.as_ref() });
    match args.cgroup.as_slice() {
        [] => start(&ForExec::new(&group, pid)?),
        named => start(&ForInit::new(&mut below(&group, named)?)?),
    }
}

/// The program: of a file, or the container's own with what the options say.
fn process(args: &ExecArgs, container: &Container) -> Result<Process> {
    if let Some(file) = &args.process {
        let (process, warnings) = oci::load::read_process(file, container)?;
        for warning in warnings {
            log::warn!("{warning}");
        }
        return Ok(process);
    }
    if args.argv.is_empty() {
        return Err(Error::new(Code::Usage, "exec: no program is named")
            .hint("name one after the id, or give --process"));
    }
    let overrides = Overrides {
        args: args.argv.clone(),
        env: args.env.clone(),
        cwd: args.cwd.clone(),
        tty: args.tty.unwrap_or(false),
        user: args.user.clone(),
        additional_gids: args.additional_gids.clone(),
        capabilities: args.cap.clone(),
        no_new_privs: args.no_new_privs,
        apparmor: args.apparmor.clone(),
        selinux_label: args.process_label.clone(),
    };
    oci::with_overrides(container, &overrides)
}

/// The cgroups that `--cgroup [CONTROLLER:]PATH` names, below the container's own.
fn below(group: &Group, named: &[String]) -> Result<Group> {
    let mut place = group.place().clone();
    place.driver = Driver::Cgroupfs;
    place.unit = None;
    for one in named {
        let (controller, path) = match one.split_once(':') {
            Some((controller, path)) => (Some(controller), path),
            None => (None, one.as_str()),
        };
        let inside = inside(path)?;
        let (mut known, mut missing) = (0, Vec::new());
        for directory in &mut place.directories {
            if controller.is_none_or(|name| directory.controllers.iter().any(|known| known == name)) {
                known += 1;
                let below = directory.path.join(&inside);
                if !below.is_dir() {
                    missing.push(below);
                    continue;
                }
                directory.path = below;
                directory.cgroup = directory.cgroup.join(&inside);
                directory.made.clear();
            }
        }
        // Of several hierarchies the container may have made it in one; in the others the process is beside the init.
        match missing.first() {
            Some(path) if missing.len() == known => {
                let message = format!("--cgroup {one}: {} does not exist", path.display());
                return Err(Error::new(Code::Invalid, message).hint("make it in the container first"));
            }
            None if known == 0 => {
                let message = format!("--cgroup {one}: the container has no such controller");
                return Err(Error::new(Code::Invalid, message));
            }
            _ => {}
        }
    }
    Group::open(&place)
}

/// A path below the container's cgroup, relative.
fn inside(path: &str) -> Result<PathBuf> {
    let parts = Path::new(path).components();
    if parts.clone().any(|part| part == Component::ParentDir) {
        return Err(Error::new(
            Code::Invalid,
            format!("--cgroup {path}: it leads out of the container's cgroup"),
        ));
    }
    Ok(parts.filter(|part| matches!(part, Component::Normal(_))).collect())
}
