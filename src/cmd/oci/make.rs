//! Making a container, for `create` and for `run`.

use super::container::{self, Status};
use super::group::{ForInit, WithShares};
use super::{Context, bridge, filter, owner, pid_file, undo};
use crate::cgroup::{Group, Layout, Place, Wanted};
use crate::cli::oci::MakeArgs;
use crate::error::{Code, Error, Result};
use crate::id::SandboxId;
use crate::launch::container::{self as launch, Console, Init, Options};
use crate::resctrl::{self, Groups};
use crate::spec::container::Container;
use crate::spec::oci;
use crate::state::container::{Claim, Directory, Held, RECORD_VERSION, Record};
use crate::state::process::{ProcessId, boot_id};
use std::path::{Path, PathBuf};

/// How the container is made, beside its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// It outlives us.
    Detached,
    /// We wait for it, and it dies with us.
    Foreground,
}

/// A container that stands, created.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) directory: Directory,
    pub(super) record: Record,
    pub(super) container: Container,
    pub(super) init: Init,
    pub(super) held: Option<Held>,
}

/// Makes the container whole, or leaves nothing.
///
/// # Errors
/// Whatever keeps it from being made as its configuration says.
pub(super) fn make(context: &Context, args: &MakeArgs, mode: Mode) -> Result<Made> {
    let id = SandboxId::parse(&args.id)?;
    let bundle = bundle(&args.bundle)?;
    let oci::Config { mut container, warnings, bytes } = match &args.config {
        Some(file) => oci::parse(oci::load::document(file)?, &bundle)?,
        None => oci::load::read(&bundle)?,
    };
    container::fill_ids(&mut container);
    for warning in &warnings {
        log::warn!("{warning}");
    }
    let bridge = bridge::Asked::by(&container)?;
    let terminal = container.process.as_ref().is_some_and(|process| process.terminal);
    let console = console(terminal, args.console_socket.as_deref(), mode)?;
    let filter = filter::of(&container)?;
    let place = choose_place(context, &id, &container)?;
    let bridge = bridge.map(|asked| bridge::Wanted::new(context, asked, &id, &container)).transpose()?;

    let claim = context.root.claim(&id)?;
    let mut making = Making::new(claim, &container, bundle, place)?;
    let shares = making.shares(&container)?;
    let streams = bridge.map(|wanted| making.add_bridge(wanted)).transpose()?;
    making.claim.directory().write_file("config.json", &bytes)?;
    making.claim.directory().write(&making.record)?;
    let mut group = Group::create(&making.place, container.resources.as_ref())?;
    for warning in group.warnings() {
        log::warn!("{warning}");
    }
    let (state_dir, made_in) = (making.claim.directory().path().to_owned(), making.record.bundle.clone());
    let request = launch::Create {
        container: &container,
        id: id.as_str(),
        bundle: &made_in,
        state_dir: &state_dir,
        filter: filter.as_ref(),
        console,
        streams: streams.as_ref().map(bridge::Streams::of_program),
        options: Options {
            no_pivot: args.no_pivot,
            no_new_keyring: args.no_new_keyring,
            preserve_fds: kept_descriptors(args.preserve_fds),
            die_with_runtime: mode == Mode::Foreground,
            ..Options::default()
        },
    };
    let made = ForInit::new(&mut group).and_then(|cgroup| {
        let cgroup = WithShares { cgroup: &cgroup, shares: shares.as_ref() };
        launch::create(&request, &cgroup, &mut making)
    });
    let made = made.and_then(|init| owner::settle(&container, &group, init.pid).map(|()| init));
    let made = made.and_then(|init| pid_file::write(args.pid_file.as_deref(), init.pid).map(|()| init));
    match made {
        Ok(init) => {
            let (directory, record, held) = making.keep();
            Ok(Made { directory, record, container, init, held })
        }
        Err(error) => {
            making.undo(&container);
            Err(error)
        }
    }
}

/// `--bundle` as an absolute path.
fn bundle(path: &Path) -> Result<PathBuf> {
    let fails = |e| Error::system(format_args!("find the bundle {}", path.display()), e);
    let path = std::path::absolute(path).map_err(fails)?;
    // Without a trailing slash or dot, as every later verb is to print it.
    let path: PathBuf = path.components().collect();
    if !path.metadata().map_err(fails)?.is_dir() {
        return Err(Error::new(Code::Invalid, format!("the bundle {} is not a directory", path.display())));
    }
    Ok(path)
}

/// Where the terminal goes.
///
/// # Errors
/// [`Code::Usage`] when nobody would get it, and when a socket waits for one that is not made.
pub(super) fn console(terminal: bool, socket: Option<&Path>, mode: Mode) -> Result<Console<'_>> {
    match (terminal, socket, mode) {
        (true, Some(socket), _) => Ok(Console::Socket(socket)),
        (true, None, Mode::Foreground) => Ok(Console::Keep),
        (false, None, _) => Ok(Console::None),
        (true, None, Mode::Detached) => {
            Err(Error::new(Code::Usage, "process.terminal is true, and nobody would get the terminal")
                .hint("give --console-socket, or set process.terminal to false"))
        }
        (false, Some(_), _) => Err(Error::new(Code::Usage, "--console-socket: process.terminal is not true")
            .hint("leave --console-socket out, or set process.terminal to true")),
    }
}

/// Descriptors from 3 on that the program gets: those of socket activation (sd_listen_fds(3)), and `more`.
pub(super) fn kept_descriptors(more: u32) -> u32 {
    let listen = std::env::var("LISTEN_FDS").ok().and_then(|text| text.parse::<u32>().ok()).unwrap_or(0);
    listen.saturating_add(more)
}

fn choose_place(context: &Context, id: &SandboxId, container: &Container) -> Result<Place> {
    let wanted = Wanted {
        id: id.as_str(),
        cgroups_path: container.cgroups_path.as_deref(),
        driver: context.driver,
        rootless: context.rootless,
        annotations: &container.annotations,
    };
    Place::choose(&Layout::discover()?, &wanted)
}

/// A container on its way, and what of it must be undone when it does not arrive. Dropping it removes the
/// cgroups and the directory.
struct Making {
    claim: Claim,
    place: Place,
    record: Record,
    /// The bridge's ends of the program's streams, until its supervisor has them.
    bridge: Option<bridge::Ends>,
}

impl Making {
    fn new(claim: Claim, container: &Container, bundle: PathBuf, place: Place) -> Result<Self> {
        let creator = ProcessId::own()
            .ok_or_else(|| Error::new(Code::System, "find this process in /proc: is it mounted?"))?;
        let record = Record {
            version: RECORD_VERSION,
            id: claim.directory().id().as_str().to_owned(),
            bundle,
            rootfs: container.root.path.clone(),
            created: jiff::Timestamp::now().to_string(),
            owner: nix::unistd::getuid().as_raw(),
            annotations: container.annotations.clone(),
            creator,
            cgroup: Some(place.clone()),
            resctrl: Vec::new(),
            process: None,
            complete: false,
            bridge: None,
        };
        Ok(Making { claim, place, record, bridge: None })
    }

    fn add_bridge(&mut self, wanted: bridge::Wanted) -> Result<bridge::Streams> {
        self.record.bridge = Some(wanted.record(self.claim.directory())?);
        let (streams, ends) = bridge::Streams::new()?;
        self.bridge = Some(ends);
        Ok(streams)
    }

    /// The groups of resctrl that `linux.intelRdt` asks for.
    fn shares(&mut self, container: &Container) -> Result<Option<Groups>> {
        let Some(rdt) = &container.intel_rdt else { return Ok(None) };
        let groups = Groups::of(&resctrl::mount_point()?, &self.record.id, rdt)?;
        self.record.resctrl = groups.own(rdt);
        Ok(Some(groups))
    }

    fn note(&mut self, init: &Init) -> Result<()> {
        self.record.process =
            Some(ProcessId { pid: init.pid, start_time: init.start_time, boot_id: boot_id().to_owned() });
        self.claim.directory().write(&self.record)
    }

    fn keep(self) -> (Directory, Record, Option<Held>) {
        let (directory, held) = self.claim.keep();
        (directory, self.record, held)
    }

    /// After a failure: what was made goes, and where hooks may have run, the poststop hooks run too.
    fn undo(self, container: &Container) {
        if let Err(error) = undo::processes(&self.record) {
            // The directory stays: without it nobody would find what is left.
            log::error!("{error}");
            let _ = self.claim.keep();
            return;
        }
        let born = self.record.process.is_some();
        let record = self.record;
        drop(self.claim);
        if born {
            undo::poststop(&record, &container.hooks.poststop);
        }
    }
}

impl launch::Record for Making {
    fn born(&mut self, init: &Init) -> Result<()> {
        self.note(init)?;
        let (Some(ends), Some(beside)) = (self.bridge.take(), &mut self.record.bridge) else { return Ok(()) };
        bridge::start(self.claim.directory(), beside, ends, init)?;
        self.note(init)
    }

    fn created(&mut self, init: &Init) -> Result<()> {
        self.record.complete = true;
        self.note(init)
    }

    fn state(&self, status: &str, pid: i32) -> String {
        let mut state = container::state(&self.record, Status::Creating);
        state["status"] = status.into();
        state["pid"] = pid.into();
        state.to_string()
    }
}
