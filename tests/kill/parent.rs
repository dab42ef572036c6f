//! `--die-with-parent`: the sandbox ends with the process that started saggar.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::{PAYLOAD, alive_in, wait_for_nothing};
use crate::bridge::served::Stage;
use crate::isolation::wrapped::Wrap;
use crate::support::process::{Process, Watch};
use crate::support::wait;

/// Starts `command` as the child of a shell that does nothing else; the shell.
fn child_of_shell(place: &crate::support::place::Place, command: &Command) -> Process {
    let mut shell = place.command("/bin/sh".as_ref());
    shell
        .args(["-c", "\"$@\" & echo $! >child; wait", "sh"])
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            shell.env(name, value);
        }
    }
    shell.current_dir(place.work());
    Process::start(place, shell)
}

/// The child that [`child_of_shell`] has started.
fn child(work: &Path) -> Watch {
    let pid = fs::read_to_string(work.join("child")).unwrap().trim().parse().unwrap();
    Watch::of(pid).expect("it runs")
}

as_each_caller! {
    fn wrapped_command_dies_with_its_parent_even_if_it_ignores_signals(caller) {
        let wrap = Wrap::new(caller);
        let work = wrap.work();
        let payload = format!("trap '' TERM HUP INT; {PAYLOAD}");
        let options = ["--die-with-parent", "--workspace", work.to_str().unwrap()];
        let mut shell = child_of_shell(&wrap.place, &wrap.command(&options, &["/bin/sh", "-c", &payload]));
        wait::until_exists(&work.join("up"));
        shell.signal(Signal::SIGKILL);
        shell.wait();
        wait_for_nothing(&work, Duration::ZERO);
    }

    fn wrapped_command_outlives_its_parent_without_the_option(caller) {
        let wrap = Wrap::new(caller);
        let work = wrap.work();
        let options = ["--workspace", work.to_str().unwrap()];
        let mut shell = child_of_shell(&wrap.place, &wrap.command(&options, &["/bin/sh", "-c", PAYLOAD]));
        wait::until_exists(&work.join("up"));
        shell.signal(Signal::SIGKILL);
        shell.wait();
        let saggar = child(&work);
        assert!(!alive_in(&work).is_empty());
        saggar.signal(Signal::SIGKILL);
        wait_for_nothing(&work, Duration::ZERO);
    }

    fn agent_dies_with_its_parent_and_its_session_can_be_resumed(caller) {
        let stage = Stage::new(caller);
        let socket = stage.socket();
        let mut command = stage.command(&["--adapter", "demo", "--die-with-parent", "--bridge-socket"]);
        command.arg(&socket);
        let mut shell = child_of_shell(&stage.place, &command);
        wait::until_exists(&socket);
        let saggar = child(&stage.work());
        shell.signal(Signal::SIGKILL);
        shell.wait();
        saggar.wait_gone("saggar");
        wait_for_nothing(&stage.work(), Duration::ZERO);
        assert!(!socket.exists());
        let mut show = stage.place.saggar();
        show.args(["session", "show", &stage.name()]);
        let shown = stage.run(show).stdout;
        assert!(shown.contains("paused") && shown.contains("signal"), "{shown}");
    }
}
