//! The OCI verbs (runtime-spec, runtime.md, Operations): what orchestrators call where they call runc.
//!
//! ```text
//!          create            start             the program ends       delete
//! (none) ────────> created ────────> running ──────────────────> stopped ───> (none)
//!        creating             pause │ ↑ resume
//!                                   ↓ │
//!                                  paused
//! ```
//! Every verb is a process of its own: what one leaves for the next is in [`crate::state::container`], the status
//! is asked of the kernel ([`container`]). A verb that changes a container holds its lock; `state`, `list`,
//! `ps` and `kill` do not wait for it, since hooks call them while it is held.

mod bridge;
mod console;
mod container;
mod create;
mod delete;
mod events;
mod exec;
mod features;
mod filter;
mod foreground;
mod group;
mod kill;
mod list;
mod lost;
mod make;
mod owner;
mod pause;
mod pid_file;
mod ps;
mod run;
mod spec;
mod start;
mod state;
mod undo;
mod update;

use crate::cgroup::Driver;
use crate::cli::oci::{CgroupManager, Global, LogFormat, LogLevel, OciCommand, Rootless};
use crate::error::{Code, Error, Result};
use crate::id::SandboxId;
use crate::state::container::{self as on_disk, Directory, Root};
use crate::state::counters::{self, Kind};
use log::LevelFilter;
use std::collections::BTreeMap;
use std::path::Path;

/// The version of the specification that we keep to.
pub(super) const SPEC_VERSION: &str = "1.3.0";

/// What all verbs are told.
#[derive(Debug)]
struct Context {
    root: Root,
    driver: Driver,
    /// Whether the caller is content without cgroups where it may not make any.
    rootless: bool,
}

impl Context {
    fn new(global: &Global) -> Result<Self> {
        let driver = match (global.cgroup_manager, global.systemd_cgroup) {
            (Some(CgroupManager::Systemd), _) | (None, true) => Driver::Systemd,
            (Some(CgroupManager::Disabled), _) => Driver::Disabled,
            (Some(CgroupManager::Cgroupfs), _) | (None, false) => Driver::Cgroupfs,
        };
        let rootless = match global.rootless {
            Some(Rootless::True) => true,
            Some(Rootless::False) => false,
            _ => !nix::unistd::geteuid().is_root() || on_disk::in_user_namespace(),
        };
        Ok(Context { root: Root::new(global.root.as_deref())?, driver, rootless })
    }

    /// The directory of a container that exists.
    fn find(&self, id: &str) -> Result<Directory> {
        self.root.find(&SandboxId::parse(id)?)
    }
}

pub(super) use bridge::serve::beside;

/// How many containers below a root are in each status; one whose record cannot be read has stopped, as `list` says.
///
/// # Errors
/// As [`Root::new`] and [`Root::all`].
pub(super) fn count(root: Option<&Path>) -> Result<BTreeMap<&'static str, u64>> {
    let mut counts: BTreeMap<_, _> = container::Status::ALL.map(|status| (status.name(), 0)).into();
    for directory in Root::new(root)?.all()? {
        let bare = directory.is_bare();
        let status = match container::Found::new(directory) {
            Ok(found) => found.status(),
            Err(_) if bare => container::Status::Creating,
            Err(_) => container::Status::Stopped,
        };
        *counts.entry(status.name()).or_default() += 1;
    }
    Ok(counts)
}

/// Runs a verb; the exit status of saggar.
pub(super) fn main(command: OciCommand) -> u8 {
    let global = global(&command).clone();
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
                counters::refused(Kind::Container, &error);
            }
            report(&error, &global);
            if foreground { error.code().exit_status() } else { 1 }
        }
    }
}

fn dispatch(command: OciCommand) -> Result<u8> {
    // What puts a process into a container is not to be found there by its file.
    if let OciCommand::Create(_) | OciCommand::Run(_) | OciCommand::Exec(_) = &command {
        crate::launch::container::protect_self()?;
    }
    let context = Context::new(global(&command))?;
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
        OciCommand::Spec(verb) => spec::run(&verb.args, verb.global.rootless == Some(Rootless::True)),
    }
}

fn global(command: &OciCommand) -> &Global {
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

fn install_log(global: &Global) -> Result<()> {
    let json = global.log_format == Some(LogFormat::Json);
    let level = match (global.debug, global.log_level) {
        (true, _) | (_, Some(LogLevel::Debug)) => LevelFilter::Debug,
        (_, Some(LogLevel::Error)) => LevelFilter::Error,
        (_, Some(LogLevel::Warn)) => LevelFilter::Warn,
        (_, Some(LogLevel::Info)) => LevelFilter::Info,
        // Without a log stderr is the container's, as conmon and Buildah pass it on: only what ends the verb
        // may stand there unasked.
        (false, None) if global.log.as_ref().is_none_or(|path| path.as_os_str().is_empty()) => {
            LevelFilter::Error
        }
        (false, None) => LevelFilter::Warn,
    };
    match &global.log {
        Some(path) if !path.as_os_str().is_empty() => crate::log::install_file(path, json, level),
        _ => {
            crate::log::install(json);
            let said = global.debug || global.log_level.is_some();
            if said || std::env::var_os("SAGGAR_LOG").is_none() {
                log::set_max_level(level);
            }
            Ok(())
        }
    }
}

/// A failure: one line in the log, and one for people on standard error.
fn report(error: &Error, global: &Global) {
    let json = global.log_format == Some(LogFormat::Json);
    if crate::log::is_file() || json {
        log::error!("{error}");
    }
    if crate::log::is_file() || !json {
        crate::log::tell(&format!("saggar: error: {error}"));
        if let Some(hint) = error.hint_text() {
            crate::log::tell(&format!("hint: {hint}"));
        }
    }
}

/// An error of the kind that a caller finds when the container is not in the right status.
fn wrong_status(what: &str, id: &SandboxId, status: container::Status) -> Error {
    Error::new(Code::Refused, format!("{what} container {:?}: it is {status}", id.as_str()))
}
