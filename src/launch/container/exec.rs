//! One more process in a running container.

use super::birth;
use super::talk::Heard;
use super::{Cgroup, Console, Exec, Init, console, facts, notify};
use crate::error::{Error, Result};
use crate::plan::container as plan;
use crate::stage::container::wire::Answer;

/// Starts a process in the container; it has become the program when this returns, and is our child.
///
/// # Errors
/// [`crate::error::Code::NotFound`], [`crate::error::Code::NotExecutable`] for the program; what failed, and the
/// process is gone.
pub fn exec(request: &Exec<'_>, cgroup: &dyn Cgroup) -> Result<Init> {
    let Exec { container, process, options, .. } = *request;
    let facts = facts::gather(container, Vec::new());
    let plan = plan::build_exec(container, process, &facts, options, request.filter)?;
    plan.warnings.iter().for_each(|warning| log::warn!("{warning}"));
    birth::check_preserved(options.preserve_fds)?;
    let init = request.init.try_clone_to_owned().map_err(|e| Error::system("duplicate a pidfd", e))?;
    let joins = facts::foreign_namespaces(request.pid);
    let joins = if joins == 0 { Vec::new() } else { vec![(init, joins)] };
    let mut console = console::Receiver::connect(request.console)?;
    let listener = notify::Receiver::connect(request.filter)?;
    let (child, talk) = birth::bear(
        birth::Request {
            plan: &plan,
            image: Some(birth::image(&process.program)?),
            filter: request.filter,
            joins: &joins,
            door: None,
            streams: request.streams.map(birth::streams).transpose()?,
            die_with_runtime: options.die_with_runtime,
            process: Some(process),
        },
        cgroup,
    )?;
    talk.answer(Answer::Go)?;
    let mut terminal = None;
    loop {
        match talk.next()? {
            Heard::Terminal(_, master) if matches!(request.console, Console::Keep) => terminal = Some(master),
            Heard::Terminal(number, master) => console.send(number, master)?,
            Heard::Listener(fd) => listener.send(&fd, child.pid, request.state)?,
            Heard::End => break,
            Heard::Created => {}
            Heard::Needs(_) | Heard::Hooks(_) | Heard::NetDevices(_) => talk.answer(Answer::Go)?,
        }
    }
    let pid = child.pid;
    Ok(Init { pid, start_time: super::start_time(pid)?, pidfd: child.keep()?, terminal })
}
