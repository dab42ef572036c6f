//! What a program finds: a terminal of the sandbox's own, never the host's.

use super::screen::Stream::{Pipe, Terminal};
use super::screen::{ALL, Screen, Stream, read_all, wrapped};
use crate::support::caller::Caller;
use crate::support::place::Place;

/// Says of each stream which terminal it is, and whether the controlling one is the sandbox's.
const PROBE: &str = r#"
import os, sys
names = [os.ttyname(fd) if os.isatty(fd) else "none" for fd in (0, 1, 2)]
links = [os.readlink(f"/proc/self/fd/{fd}") for fd in (0, 1, 2) if os.isatty(fd)]
tty = os.open("/dev/tty", os.O_RDWR)
number = int(open("/proc/self/stat").read().rsplit(")")[1].split()[4])
own = os.stat("/dev/pts/0").st_rdev
os.write(tty, f"{names} {set(links)} {number == own} {os.tcgetpgrp(tty) == os.getpgrp()}\r\n".encode())
os.write(tty, b"end of probe\r\n")
"#;

fn python(place: &Place, caller: Caller, streams: [Stream; 3]) -> Screen {
    let line = wrapped(place, &["/usr/bin/python3", "-c", PROBE]);
    Screen::streams(place, Some(caller), streams, &line)
}

as_each_caller! {
    /// Every stream is /dev/pts/0 of the sandbox; ttyname, tty and isatty agree.
    fn the_streams_are_a_terminal_of_the_sandbox(caller) {
        let place = Place::new(caller);
        let script = "tty; readlink /proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2; ls /dev/pts";
        let (text, status) = Screen::script(&place, caller, ALL, script).finish();
        assert_eq!(text, "/dev/pts/0\n/dev/pts/0\n/dev/pts/0\n/dev/pts/0\n0  ptmx\n");
        assert!(status.success());
    }

    /// It is the controlling one whichever stream it came by, and the program's group is in its foreground.
    fn any_stream_makes_it_the_controlling_one(caller) {
        for (streams, names) in [
            (ALL, "['/dev/pts/0', '/dev/pts/0', '/dev/pts/0']"),
            ([Pipe, Terminal, Terminal], "['none', '/dev/pts/0', '/dev/pts/0']"),
            ([Terminal, Pipe, Terminal], "['/dev/pts/0', 'none', '/dev/pts/0']"),
            ([Pipe, Pipe, Terminal], "['none', 'none', '/dev/pts/0']"),
            ([Terminal, Pipe, Pipe], "['/dev/pts/0', 'none', 'none']"),
        ] {
            let place = Place::new(caller);
            let mut screen = python(&place, caller, streams);
            let said = screen.expect("end of probe");
            let expected = format!("{names} {{'/dev/pts/0'}} True True");
            assert!(said.contains(&expected), "{streams:?}: {said}");
            assert!(screen.wait().success());
            screen.assert_untouched();
        }
    }

    /// CVE-2017-5226: no byte of input is forged on either terminal.
    fn program_cannot_inject_terminal_input(caller) {
        let place = Place::new(caller);
        let forge = "import fcntl, termios\ntry:\n fcntl.ioctl(0, termios.TIOCSTI, b'x')\n\
                     except OSError as e: print(e.errno)";
        let (text, _) = Screen::wrap(&place, caller, &["/usr/bin/python3", "-c", forge]).finish();
        assert_eq!(text, "1\n");
    }

    /// Streams that are no terminals are the caller's own, and carry what they would bare.
    fn a_pipe_beside_a_terminal_stays_a_pipe(caller) {
        let place = Place::new(caller);
        let script = "cat; echo on the screen >&2";
        let mut screen = Screen::script(&place, caller, [Pipe, Pipe, Terminal], script);
        drop(std::io::Write::write_all(&mut screen.stdin(), b"through a pipe"));
        assert_eq!(read_all(screen.stdout()), "through a pipe");
        let (text, status) = screen.finish();
        assert_eq!(text, "on the screen\n");
        assert!(status.success());

        let mut screen = Screen::script(&place, caller, [Pipe, Terminal, Terminal], "cat; tty; tty <&1");
        drop(std::io::Write::write_all(&mut screen.stdin(), b"in by a pipe\n"));
        assert_eq!(screen.finish().0, "in by a pipe\nnot a tty\n/dev/pts/0\n");
    }

    /// Terminals that programs make for themselves.
    fn a_program_can_make_terminals_of_its_own(caller) {
        let place = Place::new(caller);
        let spawn = "import pty, os; s = pty.spawn(['sh', '-c', 'tty; exit 5']); print(os.waitstatus_to_exitcode(s))";
        let (text, status) = Screen::wrap(&place, caller, &["/usr/bin/python3", "-c", spawn]).finish();
        assert_eq!(text, "/dev/pts/1\n5\n");
        assert!(status.success());
    }

    /// A start that fails has not touched the terminal, and says why on it.
    fn a_failed_start_leaves_the_terminal_alone(caller) {
        let place = Place::new(caller);
        let mut screen = Screen::wrap(&place, caller, &["no-such-program"]);
        let said = screen.expect("hint: ");
        assert!(said.contains("saggar: error: run \"no-such-program\": not found"), "{said}");
        assert_eq!(screen.wait().code(), Some(127));
        screen.assert_untouched();
    }

    /// DECISIONS 34, on a terminal: a rename on the host takes a pin away, and the sandbox ends.
    fn a_pin_that_is_undone_ends_the_sandbox(caller) {
        let place = Place::new(caller);
        let git = |words: &[&str]| {
            let mut command = place.command("/usr/bin/git".as_ref());
            assert!(command.args(words).status().unwrap().success());
        };
        git(&["init", "-q", "-b", "main", "."]);
        let mut screen = Screen::script(&place, caller, ALL, "echo up; exec sleep 1000");
        screen.expect("up");
        git(&["config", "x.y", "z"]);
        let (text, status) = screen.finish();
        assert!(text.contains(".git/config"), "{text}");
        assert_eq!(status.code(), Some(125));
    }
}
