//! `saggar exec`: runs another program in a container.

use super::cgroups::{CgroupWithResctrl, InitCgroup, JoinedCgroup};
use super::console::adopt_host_size;
use super::container::{ContainerStatus, LoadedContainer};
use super::creation::{CreationMode, console};
use super::out_of_memory::OomReporter;
use super::pidfd_socket::{self, PidfdSocket};
use super::socket_activation::PassedDescriptors;
use super::{OciContext, filter, foreground, pid_file, wrong_status_error};
use crate::cgroup::{CgroupDriver, CgroupHandle};
use crate::cli::oci::ExecArgs;
use crate::error::status::of_signal as status_of_signal;
use crate::error::{Code, Error, Result};
use crate::launch::container::{
    self as launch, ConsoleTarget, ContainerCgroup, ContainerOptions, LaunchedProcess,
};
use crate::resctrl::{self, ResctrlGroups};
use crate::spec::container::{ContainerSpec, ProcessSpec};
use crate::spec::oci::{self, ExecOptions};
use std::os::fd::AsFd;
use std::path::{Component, Path, PathBuf};

pub(super) fn run(context: &OciContext, args: &ExecArgs) -> Result<u8> {
    let signals = if args.detach { None } else { Some(foreground::open_signals()?) };
    let target = LoadedContainer::load(context.find(&args.id)?)?;
    let status = target.status();
    match status {
        ContainerStatus::Created | ContainerStatus::Running => {}
        ContainerStatus::Paused if args.ignore_paused => {}
        ContainerStatus::Paused => {
            return Err(wrong_status_error("exec in", target.directory.id(), status)
                .hint("resume it first, or use --ignore-paused"));
        }
        ContainerStatus::Creating | ContainerStatus::Stopped => {
            return Err(Error::new(
                Code::Refused,
                format!("exec in container {:?}: container not running, it is {status}", target.record.id),
            ));
        }
    }
    let container = target.config()?.container;
    let mut process = requested_process(args, &container)?;
    let console = console(process.terminal, args.console_socket.as_deref(), mode(args))?;
    adopt_host_size(&mut process, &console);
    let pidfd_socket = PidfdSocket::connect(args.pidfd_socket.as_deref())?;
    let group = target.group()?;
    let oom = signals.as_ref().map(|_| OomReporter::from_now(&group));
    let init = start_process(args, (&target, &group), &container, &process, console)?;
    let told = pidfd_socket.send(pidfd_socket::OF_EXEC, init.pidfd.as_fd());
    if let Err(error) = told.and_then(|()| pid_file::write(args.pid_file.as_deref(), init.pid)) {
        let _ = crate::sys::pidfd::signal(init.pidfd.as_fd(), libc::SIGKILL);
        let _ = crate::sys::pidfd::reap(init.pidfd.as_fd());
        return Err(error);
    }
    match signals {
        None => Ok(0),
        Some(signals) => {
            let ended = foreground::wait(&init, &signals, false, None)?;
            if let Some(oom) = oom.filter(|_| ended == status_of_signal(libc::SIGKILL)) {
                oom.report(&target.record.id);
            }
            Ok(ended)
        }
    }
}

fn mode(args: &ExecArgs) -> CreationMode {
    if args.detach { CreationMode::Detached } else { CreationMode::Foreground }
}

/// Starts the program in the container.
fn start_process(
    args: &ExecArgs,
    (found, group): (&LoadedContainer, &CgroupHandle),
    container: &ContainerSpec,
    process: &ProcessSpec,
    console: ConsoleTarget<'_>,
) -> Result<LaunchedProcess> {
    let filter = filter::recompile(container)?;
    let (init, pid) = found.init()?;
    let state = found.oci_state(found.status()).to_string();
    let request = launch::ContainerExecRequest {
        container,
        process,
        init: init.as_fd(),
        pid,
        filter: filter.as_ref(),
        console,
        streams: None,
        options: ContainerOptions {
            preserve_fds: PassedDescriptors::of_this_process().count.saturating_add(args.preserve_fds),
            die_with_runtime: mode(args) == CreationMode::Foreground,
            ..ContainerOptions::default()
        },
        state: &state,
    };
    let shares = match &container.intel_rdt {
        Some(rdt) => Some(ResctrlGroups::for_running(&resctrl::mount_point()?, &found.record.id, rdt)),
        None => None,
    };
    let start = |cgroup: &dyn ContainerCgroup| {
        launch::exec(&request, &CgroupWithResctrl { cgroup, shares: shares.as_ref() })
    };
    match args.cgroup.as_slice() {
        [] => start(&JoinedCgroup::new(group, pid)?),
        named => start(&InitCgroup::new(&mut open_subcgroup(group, named)?)?),
    }
}

/// Returns the requested process: from a file, or the container's own with the options applied.
fn requested_process(args: &ExecArgs, container: &ContainerSpec) -> Result<ProcessSpec> {
    if let Some(file) = &args.process {
        let (process, warnings) = oci::load::read_process(file, container)?;
        warnings.iter().for_each(oci::ConfigWarning::log);
        return Ok(process);
    }
    if args.argv.is_empty() {
        return Err(Error::new(Code::Usage, "exec: no program is named")
            .hint("name one after the id, or give --process"));
    }
    let overrides = ExecOptions {
        args: args.argv.clone(),
        env: args.env.clone(),
        cwd: args.cwd.clone(),
        tty: args.tty.unwrap_or(false),
        user: args.user.clone(),
        additional_gids: args.additional_gids.clone(),
        capabilities: args.cap.clone(),
        no_new_privs: args.no_new_privs,
        apparmor_profile: args.apparmor.clone(),
        selinux_label: args.process_label.clone(),
    };
    oci::process_with_options(container, &overrides)
}

/// Opens the cgroups of `--cgroup [CONTROLLER:]PATH`, below the container's own.
fn open_subcgroup(group: &CgroupHandle, named: &[String]) -> Result<CgroupHandle> {
    let mut location = group.location().clone();
    location.driver = CgroupDriver::Cgroupfs;
    location.unit = None;
    for one in named {
        let (controller, path) = match one.split_once(':') {
            Some((controller, path)) => (Some(controller), path),
            None => (None, one.as_str()),
        };
        let inside = relative_path(path)?;
        let (mut known, mut missing) = (0, Vec::new());
        for directory in &mut location.directories {
            if controller.is_none_or(|name| directory.controllers.iter().any(|known| known == name)) {
                known += 1;
                let below = directory.path.join(&inside);
                if !below.is_dir() {
                    missing.push(below);
                    continue;
                }
                directory.path = below;
                directory.cgroup = directory.cgroup.join(&inside);
                directory.created.clear();
            }
        }
        // The container may have created it in only one of several hierarchies. In the others the process joins the
        // cgroup of the init.
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
    CgroupHandle::open(&location)
}

/// Returns a path relative to the container's cgroup.
fn relative_path(path: &str) -> Result<PathBuf> {
    let parts = Path::new(path).components();
    if parts.clone().any(|part| part == Component::ParentDir) {
        return Err(Error::new(
            Code::Invalid,
            format!("--cgroup {path}: it leads out of the container's cgroup"),
        ));
    }
    Ok(parts.filter(|part| matches!(part, Component::Normal(_))).collect())
}
