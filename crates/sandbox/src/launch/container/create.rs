//! Creates a container, up to the execve of its program.

use super::channel::{ChildChannel, ChildEvent};
use super::hooks::{self, HookPoint};
use super::spawn::{self, PendingChild};
use super::{
    ConsoleTarget, ContainerCgroup, ContainerCreateRequest, ContainerRecorder, LaunchedProcess, console,
    facts, net_devices, start_socket, time_offsets, trees,
};
use crate::plan::container::{self as plan, ContainerPlan};
use crate::plan::path::c_path;
use crate::stage::container::wire::{ChildNeed, ChildRequest};
use crate::state::process;
use saggar_sys::error::Result;
use std::os::fd::{AsFd, OwnedFd};

/// Creates the container and applies all settings; its init then waits for [`super::start()`] to execute the program.
///
/// # Errors
/// The first failure; everything made so far is removed: processes, mounts, sockets.
pub fn create(
    request: &ContainerCreateRequest<'_>,
    cgroup: &dyn ContainerCgroup,
    record: &mut dyn ContainerRecorder,
) -> Result<LaunchedProcess> {
    let ContainerCreateRequest { container, options, .. } = *request;
    let facts = facts::gather(container, container.process.as_ref(), cgroup.hierarchies());
    let plan = plan::build(container, &facts, options, request.filter)?;
    plan.warnings.iter().for_each(|warning| log::warn!("{warning}"));
    spawn::check_preserved(options.preserve_fds)?;
    let joins = spawn::open_joins(&plan.joins)?;
    let image =
        container.process.as_ref().map(|process| spawn::program_args(&process.program)).transpose()?;
    let console = console::ConsoleSocket::connect(request.console)?;
    let door = start_socket::StartSocket::bind(request.state_dir)?;
    let (child, channel) = spawn::spawn(
        spawn::SpawnRequest {
            plan: &plan,
            program: image,
            filter: request.filter,
            joins: &joins,
            start_socket: Some(door.listener()?),
            streams: request.streams.map(spawn::duplicate_streams).transpose()?,
            die_with_runtime: options.die_with_runtime,
            process: container.process.as_ref(),
            cpus: None,
        },
        cgroup,
    )?;
    let mut making = ContainerCreation { request, plan: &plan, channel, child, console, terminal: None };
    making.record(&mut |init| record.init_spawned(init))?;
    making.channel.send(ChildRequest::Go)?;
    making.serve(record)?;
    making.record(&mut |init| record.init_created(init))?;
    making.channel.send(ChildRequest::Go)?;
    door.keep();
    let ContainerCreation { child, terminal, .. } = making;
    let pid = child.pid;
    Ok(LaunchedProcess { pid, start_time: process::start_time(pid)?, pidfd: child.into_pidfd()?, terminal })
}

/// A container that is being created.
struct ContainerCreation<'a> {
    request: &'a ContainerCreateRequest<'a>,
    plan: &'a ContainerPlan,
    channel: ChildChannel<'a>,
    child: PendingChild,
    console: console::ConsoleSocket,
    terminal: Option<OwnedFd>,
}

impl ContainerCreation<'_> {
    fn record(&self, write: &mut dyn FnMut(&LaunchedProcess) -> Result<()>) -> Result<()> {
        let pid = self.child.pid;
        let pidfd = self.child.pidfd()?.try_clone();
        let pidfd = pidfd.map_err(|e| saggar_sys::error::Error::system("duplicate a pidfd", e))?;
        write(&LaunchedProcess { pid, start_time: process::start_time(pid)?, pidfd, terminal: None })
    }

    /// Serves the child's requests, which need the runtime's rights, until all settings are applied.
    fn serve(&mut self, record: &dyn ContainerRecorder) -> Result<()> {
        let ContainerCreateRequest { container, .. } = *self.request;
        loop {
            match self.channel.next_event()? {
                ChildEvent::Needs(ChildNeed::TimeOffsets) => {
                    time_offsets::write_offsets(self.child.pid, &self.plan.time)?
                }
                ChildEvent::NetDevices(socket) => net_devices::move_devices(&container.net_devices, &socket)?,
                ChildEvent::Needs(ChildNeed::Trees) => {
                    let pidfd = self.child.pidfd()?.as_fd();
                    let place = c_path(self.request.state_dir)?;
                    trees::send_trees(
                        &self.plan.trees,
                        &place,
                        self.child.pid,
                        pidfd,
                        self.channel.socket(),
                    )?;
                    continue;
                }
                ChildEvent::Hooks(namespaces) => self.hooks(record, namespaces)?,
                ChildEvent::Terminal(number, master) => {
                    if let ConsoleTarget::Keep = self.request.console {
                        self.terminal = Some(master);
                    } else {
                        self.console.send(number, master)?;
                    }
                    continue;
                }
                ChildEvent::Created => return Ok(()),
                ChildEvent::Needs(ChildNeed::Hooks | ChildNeed::NetDevices) | ChildEvent::Listener(_) => {
                    continue;
                }
                ChildEvent::End => return Err(super::channel::child_killed()),
            }
            self.channel.send(ChildRequest::Go)?;
        }
    }

    fn hooks(&self, record: &dyn ContainerRecorder, namespaces: Vec<(OwnedFd, u64)>) -> Result<()> {
        let hooks = &self.request.container.hooks;
        if hooks.prestart.is_empty() && hooks.create_runtime.is_empty() && hooks.create_container.is_empty() {
            return Ok(());
        }
        let state = record.oci_state("creating", self.child.pid);
        let (runtime, bundle) = (HookPoint::runtime(self.request.bundle), self.request.bundle);
        hooks::run("prestart", &hooks.prestart, &state, runtime)?;
        hooks::run("createRuntime", &hooks.create_runtime, &state, runtime)?;
        hooks::run(
            "createContainer",
            &hooks.create_container,
            &state,
            HookPoint::before_pivot(&namespaces, bundle),
        )
    }
}
