//! Making a container, up to the point where only its program is missing.

use super::birth::{self, Child};
use super::hooks::{self, Place};
use super::talk::{Heard, Talk};
use super::{Cgroup, Console, Create, Init, Record, console, door, facts, net_devices, time, trees};
use crate::error::Result;
use crate::plan::container::{self as plan, Plan};
use crate::stage::container::wire::{Answer, Need};
use std::os::fd::{AsFd, OwnedFd};

/// Makes the container and applies everything but its program, which waits for [`super::start`].
///
/// # Errors
/// Whatever failed, and nothing of it is left: no process, no mount, no socket.
pub fn create(request: &Create<'_>, cgroup: &dyn Cgroup, record: &mut dyn Record) -> Result<Init> {
    let Create { container, options, .. } = *request;
    let facts = facts::gather(container, container.process.as_ref(), cgroup.hierarchies());
    let plan = plan::build(container, &facts, options, request.filter)?;
    plan.warnings.iter().for_each(|warning| log::warn!("{warning}"));
    birth::check_preserved(options.preserve_fds)?;
    let joins = birth::open_joins(&plan.joins)?;
    let image = container.process.as_ref().map(|process| birth::image(&process.program)).transpose()?;
    let console = console::Receiver::connect(request.console)?;
    let door = door::Door::make(request.state_dir)?;
    let (child, talk) = birth::bear(
        birth::Request {
            plan: &plan,
            image,
            filter: request.filter,
            joins: &joins,
            door: Some(door.listen()?),
            streams: request.streams.map(birth::streams).transpose()?,
            die_with_runtime: options.die_with_runtime,
            process: container.process.as_ref(),
            cpus: None,
        },
        cgroup,
    )?;
    let mut making = Making { request, plan: &plan, talk, child, console, terminal: None };
    making.record(&mut |init| record.born(init))?;
    making.talk.answer(Answer::Go)?;
    making.serve(record)?;
    making.record(&mut |init| record.created(init))?;
    making.talk.answer(Answer::Go)?;
    door.leave();
    let Making { child, terminal, .. } = making;
    let pid = child.pid;
    Ok(Init { pid, start_time: super::start_time(pid)?, pidfd: child.keep()?, terminal })
}

/// A container that is being made.
struct Making<'a> {
    request: &'a Create<'a>,
    plan: &'a Plan,
    talk: Talk<'a>,
    child: Child,
    console: console::Receiver,
    terminal: Option<OwnedFd>,
}

impl Making<'_> {
    fn record(&self, write: &mut dyn FnMut(&Init) -> Result<()>) -> Result<()> {
        let pid = self.child.pid;
        let pidfd = self.child.pidfd()?.try_clone();
        let pidfd = pidfd.map_err(|e| crate::error::Error::system("duplicate a pidfd", e))?;
        write(&Init { pid, start_time: super::start_time(pid)?, pidfd, terminal: None })
    }

    /// Does for the child what only we can do, until everything is applied.
    fn serve(&mut self, record: &dyn Record) -> Result<()> {
        let Create { container, .. } = *self.request;
        loop {
            match self.talk.next()? {
                Heard::Needs(Need::TimeOffsets) => time::write_offsets(self.child.pid, &self.plan.time)?,
                Heard::NetDevices(socket) => net_devices::hand_over(&container.net_devices, &socket)?,
                Heard::Needs(Need::Trees) => {
                    let pidfd = self.child.pidfd()?.as_fd();
                    trees::hand_over(&self.plan.trees, self.child.pid, pidfd, self.talk.socket())?;
                    continue;
                }
                Heard::Hooks(namespaces) => self.hooks(record, namespaces)?,
                Heard::Terminal(number, master) => {
                    if let Console::Keep = self.request.console {
                        self.terminal = Some(master);
                    } else {
                        self.console.send(number, master)?;
                    }
                    continue;
                }
                Heard::Created => return Ok(()),
                Heard::Needs(Need::Hooks | Need::NetDevices) | Heard::Listener(_) => continue,
                Heard::End => return Err(super::talk::gone()),
            }
            self.talk.answer(Answer::Go)?;
        }
    }

    fn hooks(&self, record: &dyn Record, namespaces: Vec<(OwnedFd, u64)>) -> Result<()> {
        let hooks = &self.request.container.hooks;
        if hooks.prestart.is_empty() && hooks.create_runtime.is_empty() && hooks.create_container.is_empty() {
            return Ok(());
        }
        let state = record.state("creating", self.child.pid);
        let (runtime, bundle) = (Place::runtime(self.request.bundle), self.request.bundle);
        hooks::run("prestart", &hooks.prestart, &state, runtime)?;
        hooks::run("createRuntime", &hooks.create_runtime, &state, runtime)?;
        hooks::run(
            "createContainer",
            &hooks.create_container,
            &state,
            Place::before_root(&namespaces, bundle),
        )
    }
}
