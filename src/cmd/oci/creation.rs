//! Creates a container, for `create` and for `run`.

use super::cgroups::{CgroupWithResctrl, InitCgroup};
use super::console::adopt_host_size;
use super::container::{self, ContainerStatus};
use super::pidfd_socket::{self, PidfdSocket};
use super::socket_activation::PassedDescriptors;
use super::{OciContext, bridge, cgroup_owner, cleanup, filter, pid_file, service_notification};
use crate::cgroup::{CgroupHandle, CgroupLayout, CgroupLocation, CgroupRequest};
use crate::cli::oci::ContainerCreationArgs;
use crate::error::{Code, Error, Result};
use crate::id::SandboxId;
use crate::launch::container::{self as launch, ConsoleTarget, ContainerOptions, LaunchedProcess};
use crate::resctrl::{self, ResctrlGroups};
use crate::spec::container::ContainerSpec;
use crate::spec::oci;
use crate::state::container::{
    ContainerClaim, ContainerDirectory, ContainerLock, ContainerRecord, RECORD_VERSION,
};
use crate::state::process::{ProcessId, boot_id};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// How the container relates to this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CreationMode {
    /// It outlives this process.
    Detached,
    /// This process waits for it, and it is killed with this process.
    Foreground,
}

/// A created container.
#[derive(Debug)]
pub(super) struct CreatedContainer {
    pub(super) directory: ContainerDirectory,
    pub(super) record: ContainerRecord,
    pub(super) container: ContainerSpec,
    pub(super) init: LaunchedProcess,
    pub(super) lock: Option<ContainerLock>,
}

/// Creates the container completely, or leaves nothing behind.
///
/// # Errors
/// The reason why it cannot be created as its configuration states.
pub(super) fn create_container(
    context: &OciContext,
    args: &ContainerCreationArgs,
    mode: CreationMode,
) -> Result<CreatedContainer> {
    let id = SandboxId::parse(&args.id)?;
    let bundle = bundle_path(&args.bundle)?;
    let oci::BundleConfig { mut container, warnings, bytes } = match &args.config {
        Some(file) => oci::parse_config(oci::load::read_document(file)?, &bundle)?,
        None => oci::load::read_config(&bundle)?,
    };
    container::default_id_maps(&mut container);
    warnings.iter().for_each(oci::ConfigWarning::log);
    let bridge = bridge::BridgeRequest::from_annotations(&container)?;
    let terminal = container.process.as_ref().is_some_and(|process| process.terminal);
    let console = console(terminal, args.console_socket.as_deref(), mode)?;
    let pidfd_socket = PidfdSocket::connect(args.pidfd_socket.as_deref())?;
    let passed = PassedDescriptors::of_this_process();
    if let Some(process) = &mut container.process {
        adopt_host_size(process, &console);
        passed.announce(&mut process.program.env);
    }
    let filter = filter::compile(&container)?;
    let cgroup_location = choose_cgroups(context, &id, &container)?;
    let bridge =
        bridge.map(|request| bridge::PlannedBridge::new(context, request, &id, &container)).transpose()?;

    let claim = context.root.claim_directory(&id)?;
    let mut builder = ContainerBuilder::new(claim, &container, bundle, cgroup_location)?;
    let shares = builder.create_resctrl_groups(&container)?;
    service_notification::add_socket(&mut container, builder.claim.directory())?;
    let streams = bridge.map(|planned| builder.add_bridge(planned)).transpose()?;
    builder.claim.directory().write_file("config.json", &bytes)?;
    builder.claim.directory().write_record(&builder.record)?;
    let mut group = builder.create_cgroups(&container)?;
    for warning in group.warnings() {
        log::warn!("{warning}");
    }
    let (state_dir, made_in) = (builder.claim.directory().path().to_owned(), builder.record.bundle.clone());
    let request = launch::ContainerCreateRequest {
        container: &container,
        id: id.as_str(),
        bundle: &made_in,
        state_dir: &state_dir,
        filter: filter.as_ref(),
        console,
        streams: streams.as_ref().map(bridge::ContainerStreams::for_program),
        options: ContainerOptions {
            no_pivot: args.no_pivot,
            no_new_keyring: args.no_new_keyring,
            no_mount_fallback: args.no_mount_fallback,
            preserve_fds: passed.count.saturating_add(args.preserve_fds),
            die_with_runtime: mode == CreationMode::Foreground,
            ..ContainerOptions::default()
        },
    };
    let made = InitCgroup::new(&mut group).and_then(|cgroup| {
        let cgroup = CgroupWithResctrl { cgroup: &cgroup, shares: shares.as_ref() };
        launch::create(&request, &cgroup, &mut builder)
    });
    let made =
        made.and_then(|init| cgroup_owner::delegate_cgroup(&container, &group, init.pid).map(|()| init));
    let made =
        made.and_then(|init| pidfd_socket.send(pidfd_socket::OF_INIT, init.pidfd.as_fd()).map(|()| init));
    let made = made.and_then(|init| pid_file::write(args.pid_file.as_deref(), init.pid).map(|()| init));
    match made {
        Ok(init) => {
            let (directory, record, lock) = builder.finish();
            Ok(CreatedContainer { directory, record, container, init, lock })
        }
        Err(error) => {
            builder.undo(&container);
            Err(error)
        }
    }
}

/// Returns `--bundle` as an absolute path.
fn bundle_path(path: &Path) -> Result<PathBuf> {
    let fails = |e| Error::system(format_args!("find the bundle {}", path.display()), e);
    let path = std::path::absolute(path).map_err(fails)?;
    // Without a trailing slash or dot, because later commands print the path.
    let path: PathBuf = path.components().collect();
    if !path.metadata().map_err(fails)?.is_dir() {
        return Err(Error::new(Code::Invalid, format!("the bundle {} is not a directory", path.display())));
    }
    Ok(path)
}

/// Returns the target of the terminal.
///
/// # Errors
/// [`Code::Usage`] if no process would receive the terminal, or if there is a console socket but no terminal.
pub(super) fn console(
    terminal: bool,
    socket: Option<&Path>,
    mode: CreationMode,
) -> Result<ConsoleTarget<'_>> {
    match (terminal, socket, mode) {
        (true, Some(socket), _) => Ok(ConsoleTarget::Socket(socket)),
        (true, None, CreationMode::Foreground) => Ok(ConsoleTarget::Keep),
        (false, None, _) => Ok(ConsoleTarget::None),
        (true, None, CreationMode::Detached) => Err(Error::new(
            Code::Usage,
            "process.terminal is true, and no process would receive the terminal",
        )
        .hint("give --console-socket, or set process.terminal to false")),
        (false, Some(_), _) => Err(Error::new(Code::Usage, "--console-socket: process.terminal is not true")
            .hint("leave --console-socket out, or set process.terminal to true")),
    }
}

fn choose_cgroups(context: &OciContext, id: &SandboxId, container: &ContainerSpec) -> Result<CgroupLocation> {
    let request = CgroupRequest {
        id: id.as_str(),
        cgroups_path: container.cgroups_path.as_deref(),
        driver: context.driver,
        rootless: context.rootless,
        annotations: &container.annotations,
    };
    CgroupLocation::choose(&CgroupLayout::discover()?, &request)
}

/// A container that is being created. Dropping it removes the directory; `undo` also removes the cgroups.
struct ContainerBuilder {
    claim: ContainerClaim,
    cgroup_location: CgroupLocation,
    record: ContainerRecord,
    /// The bridge's ends of the program's streams, until its supervisor has them.
    bridge_streams: Option<bridge::BridgeStreams>,
}

impl ContainerBuilder {
    fn new(
        claim: ContainerClaim,
        container: &ContainerSpec,
        bundle: PathBuf,
        cgroup_location: CgroupLocation,
    ) -> Result<Self> {
        let creator = ProcessId::current()
            .ok_or_else(|| Error::new(Code::System, "find this process in /proc: is it mounted?"))?;
        let record = ContainerRecord {
            version: RECORD_VERSION,
            id: claim.directory().id().as_str().to_owned(),
            bundle,
            rootfs: container.root.path.clone(),
            created: jiff::Timestamp::now().to_string(),
            owner: nix::unistd::getuid().as_raw(),
            annotations: container.annotations.clone(),
            creator,
            cgroup: Some(cgroup_location.clone()),
            resctrl: Vec::new(),
            process: None,
            complete: false,
            bridge: None,
        };
        Ok(ContainerBuilder { claim, cgroup_location, record, bridge_streams: None })
    }

    fn add_bridge(&mut self, planned: bridge::PlannedBridge) -> Result<bridge::ContainerStreams> {
        self.record.bridge = Some(planned.into_record(self.claim.directory())?);
        let (streams, ends) = bridge::ContainerStreams::new()?;
        self.bridge_streams = Some(ends);
        Ok(streams)
    }

    /// Creates the cgroups, after their location is in the record.
    fn create_cgroups(&mut self, container: &ContainerSpec) -> Result<CgroupHandle> {
        let ContainerBuilder { claim, cgroup_location, record, .. } = self;
        CgroupHandle::create_with_writer(cgroup_location, container.resources.as_ref(), &mut |location| {
            record.cgroup = Some(location.clone());
            claim.directory().write_record(record)
        })
    }

    /// Creates the resctrl groups that `linux.intelRdt` requests.
    fn create_resctrl_groups(&mut self, container: &ContainerSpec) -> Result<Option<ResctrlGroups>> {
        let Some(rdt) = &container.intel_rdt else { return Ok(None) };
        let groups = ResctrlGroups::for_new(&resctrl::mount_point()?, &self.record.id, rdt)?;
        self.record.resctrl = groups.owned_directories(rdt);
        Ok(Some(groups))
    }

    fn write_process(&mut self, init: &LaunchedProcess) -> Result<()> {
        self.record.process =
            Some(ProcessId { pid: init.pid, start_time: init.start_time, boot_id: boot_id().to_owned() });
        self.claim.directory().write_record(&self.record)
    }

    fn finish(self) -> (ContainerDirectory, ContainerRecord, Option<ContainerLock>) {
        let (directory, lock) = self.claim.commit();
        (directory, self.record, lock)
    }

    /// Removes what was created before a failure, and runs the poststop hooks if other hooks may have run.
    fn undo(self, container: &ContainerSpec) {
        if let Err(error) = cleanup::kill_and_remove(&self.record) {
            // The directory stays, because it records what is left.
            log::error!("{error}");
            let _ = self.claim.commit();
            return;
        }
        let was_spawned = self.record.process.is_some();
        let record = self.record;
        drop(self.claim);
        if was_spawned {
            cleanup::run_poststop(&record, &container.hooks.poststop);
        }
    }
}

impl launch::ContainerRecorder for ContainerBuilder {
    fn init_spawned(&mut self, init: &LaunchedProcess) -> Result<()> {
        self.write_process(init)?;
        let (Some(streams), Some(sidecar)) = (self.bridge_streams.take(), &mut self.record.bridge) else {
            return Ok(());
        };
        bridge::start(self.claim.directory(), sidecar, streams, init)?;
        self.write_process(init)
    }

    fn init_created(&mut self, init: &LaunchedProcess) -> Result<()> {
        self.record.complete = true;
        self.write_process(init)
    }

    fn oci_state(&self, status: &str, pid: i32) -> String {
        let mut state = container::state(&self.record, ContainerStatus::Creating);
        state["status"] = status.into();
        state["pid"] = pid.into();
        state.to_string()
    }
}
