//! Processes that cannot reach any network: not by settings of theirs, but because there is none.

use std::io;
use std::process::{Child, Command};
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, OnceLock};
use std::thread;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::geteuid;

type Job = (Command, Sender<io::Result<Child>>);

/// Starts `command` in a network namespace whose only interface is a `lo` that is down.
///
/// Children are born in the namespaces of the *thread* that starts them, so one thread leaves the host's
/// network and starts them all. It lives as long as the test binary: a parent-death signal goes out when the
/// starting thread ends, not when the process does.
///
/// Making the namespace takes root; an ordinary user's processes stay in the host's network. So do those in a guest, which
/// has no other: before Linux 6.5 a client is only recognised in the supervisor's own network namespace.
pub(crate) fn spawn_without(mut command: Command) -> io::Result<Child> {
    if !geteuid().is_root() || std::env::var_os("SAGGAR_GUEST").is_some() {
        return command.spawn();
    }
    static STARTER: OnceLock<Mutex<Sender<Job>>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| Mutex::new(start()));
    let (answer, child) = mpsc::channel();
    starter.lock().expect("no start panicked").send((command, answer)).expect("the starter is alive");
    child.recv().expect("the starter answers")
}

fn start() -> Sender<Job> {
    let (sender, jobs) = mpsc::channel::<Job>();
    let serve = move || {
        unshare(CloneFlags::CLONE_NEWNET).expect("root can make a network namespace");
        for (mut command, answer) in jobs {
            // A caller that is gone has failed already.
            let _ = answer.send(command.spawn());
        }
    };
    thread::Builder::new().name("no-network".to_owned()).spawn(serve).expect("a thread can be started");
    sender
}
