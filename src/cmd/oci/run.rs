//! `saggar run`: create and start, and in the foreground wait for the program and delete the container.

use super::make::{Made, Mode, make};
use super::{Context, foreground, start, undo};
use crate::cli::oci::RunArgs;
use crate::error::Result;
use std::os::fd::AsFd;

pub(super) fn run(context: &Context, args: &RunArgs) -> Result<u8> {
    if args.detach {
        let mut made = make(context, &args.make, Mode::Detached)?;
        return begin(&mut made).map(|()| 0);
    }
    // From here on no signal ends us without the container: they are passed on.
    let signals = foreground::hear_signals()?;
    let mut made = make(context, &args.make, Mode::Foreground)?;
    let subreaper = !args.no_subreaper;
    if subreaper {
        foreground::become_subreaper()?;
    }
    begin(&mut made)?;
    // Others may look at the container and stop it while it runs.
    made.held = None;
    let status = foreground::wait(&made.init, made.init.terminal.as_ref(), &signals, subreaper);
    if !args.keep {
        end(&made)?;
    }
    status
}

/// Starts the program. One that cannot be started leaves no container: nobody knows of it yet.
fn begin(made: &mut Made) -> Result<()> {
    let init = (made.init.pidfd.as_fd(), made.init.pid);
    start::start(&made.directory, &made.record, &made.container, init).inspect_err(|_| {
        if made.directory.path().exists()
            && let Err(error) = undo::destroy(&made.directory, &made.record, &made.container.hooks.poststop)
        {
            log::error!("{error}");
        }
    })
}

/// Deletes the container, unless another command has done so.
fn end(made: &Made) -> Result<()> {
    match made.directory.must_lock() {
        Ok(_held) => undo::destroy(&made.directory, &made.record, &made.container.hooks.poststop),
        Err(error) if error.code() == crate::error::Code::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}
