//! The OCI commands (runtime-spec, runtime.md, Operations), which orchestrators call in place of runc.
//!
//! ```text
//!          create            start             the program ends       delete
//! (none) ────────> created ────────> running ──────────────────> stopped ───> (none)
//!        creating             pause │ ↑ resume
//!                                   ↓ │
//!                                  paused
//! ```
//! Every command is a process of its own. State on disk is in [`crate::state::container`]; the status comes from
//! the kernel ([`container`]). A command that changes a container holds its lock; `state`, `list`, `ps` and `kill`
//! do not wait for it, because hooks call them while it is held.

mod bridge;
mod cgroup_owner;
mod cgroups;
mod cleanup;
mod console;
mod container;
mod create;
mod creation;
mod delete;
mod events;
mod exec;
mod features;
mod filter;
mod foreground;
mod kill;
mod list;
mod orphaned;
mod out_of_memory;
mod pause;
mod pid_file;
mod pidfd_socket;
mod ps;
mod run;
mod service_notification;
mod socket_activation;
mod spec;
mod start;
mod state;
mod update;

use crate::cgroup::CgroupDriver;
use crate::cli::oci::{CgroupManager, OciCommand, OciGlobalArgs, OciLogFormat, OciLogLevel, RootlessMode};
use crate::error::{Code, Error, Result};
use crate::id::SandboxId;
use crate::state::container::{self as on_disk, ContainerDirectory, ContainerRoot};
use crate::state::counters::{self, StartKind};
use log::LevelFilter;
use std::collections::BTreeMap;
use std::path::Path;

/// The supported version of the specification.
pub(super) const SPEC_VERSION: &str = "1.3.0";

/// The global options of all commands.
#[derive(Debug)]
struct OciContext {
    root: ContainerRoot,
    driver: CgroupDriver,
    /// Whether to continue without cgroups if the caller may not create any.
    rootless: bool,
}

impl OciContext {
    fn new(global: &OciGlobalArgs) -> Result<Self> {
        let driver = match (global.cgroup_manager, global.systemd_cgroup) {
            (Some(CgroupManager::Systemd), _) | (None, true) => CgroupDriver::Systemd,
            (Some(CgroupManager::Disabled), _) => CgroupDriver::Disabled,
            (Some(CgroupManager::Cgroupfs), _) | (None, false) => CgroupDriver::Cgroupfs,
        };
        let rootless = match global.rootless {
            Some(RootlessMode::True) => true,
            Some(RootlessMode::False) => false,
            _ => !nix::unistd::geteuid().is_root() || on_disk::in_user_namespace(),
        };
        Ok(OciContext { root: ContainerRoot::new(global.root.as_deref())?, driver, rootless })
    }

    /// Finds the directory of an existing container.
    fn find(&self, id: &str) -> Result<ContainerDirectory> {
        self.root.find_directory(&SandboxId::parse(id)?)
    }
}

pub(super) use bridge::supervisor::run_supervisor;

/// Counts the containers below a root by status; one with an unreadable record counts as stopped, as in `list`.
///
/// # Errors
/// As [`crate::state::container::ContainerRoot::new`] and [`crate::state::container::ContainerRoot::list`].
pub(super) fn count(root: Option<&Path>) -> Result<BTreeMap<&'static str, u64>> {
    let mut counts: BTreeMap<_, _> = container::ContainerStatus::ALL.map(|status| (status.name(), 0)).into();
    for directory in ContainerRoot::new(root)?.list()? {
        let bare = directory.has_no_record();
        let status = match container::LoadedContainer::load(directory) {
            Ok(found) => found.status(),
            Err(_) if bare => container::ContainerStatus::Creating,
            Err(_) => container::ContainerStatus::Stopped,
        };
        *counts.entry(status.name()).or_default() += 1;
    }
    Ok(counts)
}

/// Runs a command and returns the exit status.
pub(super) fn main(command: OciCommand) -> u8 {
    let global = global_args(&command).clone();
    let foreground = match &command {
        OciCommand::Run(verb) => !verb.args.detach,
        OciCommand::Exec(verb) => !verb.args.detach,
        _ => false,
    };
    let starts = matches!(&command, OciCommand::Create(_) | OciCommand::Start(_) | OciCommand::Run(_));
    let done = install_log(&global).and_then(|()| dispatch(command));
    match done {
        Ok(status) => status,
        Err(error) => {
            if starts {
                counters::count_start_failure(StartKind::Container, &error);
            }
            report_error(&error, &global);
            if foreground { error.code().exit_status() } else { crate::error::status::FAILED }
        }
    }
}

fn dispatch(command: OciCommand) -> Result<u8> {
    // The binary of a process that enters a container must not be reachable from inside.
    if let OciCommand::Create(_) | OciCommand::Run(_) | OciCommand::Exec(_) = &command {
        crate::launch::container::protect_self()?;
    }
    let context = OciContext::new(global_args(&command))?;
    match command {
        OciCommand::Create(verb) => create::run(&context, &verb.args),
        OciCommand::Start(verb) => start::run(&context, &verb.args),
        OciCommand::State(verb) => state::run(&context, &verb.args),
        OciCommand::Kill(verb) => kill::run(&context, &verb.args),
        OciCommand::Delete(verb) => delete::run(&context, &verb.args),
        OciCommand::Run(verb) => run::run(&context, &verb.args),
        OciCommand::Exec(verb) => exec::run(&context, &verb.args),
        OciCommand::List(verb) => list::run(&context, &verb.args),
        OciCommand::Ps(verb) => ps::run(&context, &verb.args),
        OciCommand::Pause(verb) => pause::pause(&context, &verb.args),
        OciCommand::Resume(verb) => pause::resume(&context, &verb.args),
        OciCommand::Update(verb) => update::run(&context, &verb.args),
        OciCommand::Events(verb) => events::run(&context, &verb.args),
        OciCommand::Features(_) => features::run(),
        OciCommand::Spec(verb) => spec::run(&verb.args, verb.global.rootless == Some(RootlessMode::True)),
    }
}

fn global_args(command: &OciCommand) -> &OciGlobalArgs {
    match command {
        OciCommand::Create(verb) => &verb.global,
        OciCommand::Start(verb) | OciCommand::State(verb) => &verb.global,
        OciCommand::Pause(verb) | OciCommand::Resume(verb) => &verb.global,
        OciCommand::Kill(verb) => &verb.global,
        OciCommand::Delete(verb) => &verb.global,
        OciCommand::Run(verb) => &verb.global,
        OciCommand::Exec(verb) => &verb.global,
        OciCommand::List(verb) => &verb.global,
        OciCommand::Ps(verb) => &verb.global,
        OciCommand::Update(verb) => &verb.global,
        OciCommand::Events(verb) => &verb.global,
        OciCommand::Features(verb) => &verb.global,
        OciCommand::Spec(verb) => &verb.global,
    }
}

fn install_log(global: &OciGlobalArgs) -> Result<()> {
    let json = global.log_format == Some(OciLogFormat::Json);
    let level = match (global.debug, global.log_level) {
        (true, _) | (_, Some(OciLogLevel::Debug)) => LevelFilter::Debug,
        (_, Some(OciLogLevel::Error)) => LevelFilter::Error,
        (_, Some(OciLogLevel::Warn)) => LevelFilter::Warn,
        (_, Some(OciLogLevel::Info)) => LevelFilter::Info,
        // Also on standard error, without a log: the specification requires warnings of unsupported values, failed
        // poststop hooks and the like to be logged.
        (false, None) => LevelFilter::Warn,
    };
    match &global.log {
        Some(path) if !path.as_os_str().is_empty() => crate::log::install_file(path, json, level),
        _ => {
            crate::log::install(json, LevelFilter::Warn);
            let wants_log = global.debug || global.log_level.is_some();
            if wants_log || std::env::var_os("SAGGAR_LOG").is_none() {
                log::set_max_level(level);
            }
            Ok(())
        }
    }
}

/// Reports an error: one line in the log, and as text on standard error.
fn report_error(error: &Error, global: &OciGlobalArgs) {
    let json = global.log_format == Some(OciLogFormat::Json);
    if crate::log::is_file() || json {
        log::error!("{error}");
    }
    if crate::log::is_file() || !json {
        crate::cmd::print_error_text(error);
    }
}

/// Creates the error for a container whose status does not allow the command.
fn wrong_status_error(what: &str, id: &SandboxId, status: container::ContainerStatus) -> Error {
    Error::new(Code::Refused, format!("{what} container {:?}: it is {status}", id.as_str()))
}
