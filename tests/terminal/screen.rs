//! A terminal that the test makes, and saggar on it: the test types, reads, and looks at its modes.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, ChildStdin, ChildStdout, ExitStatus, Stdio};

use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::sys::termios::{LocalFlags, OutputFlags, Termios, tcgetattr};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use crate::support::caller::Caller;
use crate::support::deadline::Deadline;
use crate::support::network;
use crate::support::place::Place;
use crate::support::process::Watch;

/// What one of saggar's standard streams is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    Terminal,
    Pipe,
}

use Stream::{Pipe, Terminal};

/// Every stream on the terminal.
pub(super) const ALL: [Stream; 3] = [Terminal, Terminal, Terminal];

/// A terminal with a process on it.
#[derive(Debug)]
pub(super) struct Screen {
    /// The test's side. `None` once the test has pulled the plug.
    master: Option<File>,
    /// The description that saggar's streams share.
    slave: Option<OwnedFd>,
    pub(super) child: Child,
    pub(super) watch: Watch,
    seen: Vec<u8>,
    before: Termios,
}

impl Screen {
    /// `saggar wrap -- COMMAND` on a terminal of 31 rows and 97 columns that the caller owns.
    pub(super) fn wrap(place: &Place, caller: Caller, command: &[&str]) -> Self {
        Screen::streams(place, Some(caller), ALL, &wrapped(place, command))
    }

    /// A shell script in saggar, with these streams.
    pub(super) fn script(place: &Place, caller: Caller, streams: [Stream; 3], script: &str) -> Self {
        Screen::streams(place, Some(caller), streams, &wrapped(place, &["sh", "-c", script]))
    }

    /// Any command line. Where input is the terminal, it is the controlling one. Without an owner the
    /// terminal stays the test's, as after su(1).
    pub(super) fn streams(
        place: &Place,
        owner: Option<Caller>,
        streams: [Stream; 3],
        line: &[impl AsRef<OsStr>],
    ) -> Self {
        Screen::sized(place, owner, streams, line, (31, 97))
    }

    /// The same on a terminal of so many rows and columns.
    pub(super) fn sized(
        place: &Place,
        owner: Option<Caller>,
        streams: [Stream; 3],
        line: &[impl AsRef<OsStr>],
        (rows, columns): (u16, u16),
    ) -> Self {
        let master = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname_r(&master).unwrap();
        let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let slave = nix::fcntl::open(name.as_str(), flags, Mode::empty()).unwrap();
        if let Some(owner) = owner {
            owner.own(name.as_ref());
        }
        let master = File::from(master.as_fd().try_clone_to_owned().unwrap());
        fcntl(&master, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).unwrap();
        set_size(&master, rows, columns);
        let before = tcgetattr(&slave).unwrap();
        let mut command = place.command("/usr/bin/setsid".as_ref());
        if streams[0] == Terminal {
            command.arg("--ctty");
        }
        command.args(line).env("TERM", "dumb");
        let stdio = |stream| match stream {
            Terminal => Stdio::from(slave.try_clone().unwrap()),
            Pipe => Stdio::piped(),
        };
        command.stdin(stdio(streams[0])).stdout(stdio(streams[1])).stderr(stdio(streams[2]));
        let child = network::spawn_without(command).unwrap();
        let watch = Watch::of(child.id()).unwrap();
        Screen { master: Some(master), slave: Some(slave), child, watch, seen: Vec::new(), before }
    }

    fn master(&self) -> &File {
        self.master.as_ref().expect("the plug is in")
    }

    /// Types, from a thread, since a terminal takes only so much at once.
    pub(super) fn type_slowly(&self, bytes: Vec<u8>) -> std::thread::JoinHandle<()> {
        let mut keys = self.master().try_clone().unwrap();
        std::thread::spawn(move || keys.write_all(&bytes).unwrap())
    }

    /// Types.
    pub(super) fn type_in(&self, text: &str) {
        self.master().write_all(text.as_bytes()).unwrap();
    }

    /// Reads until `text` has come since the last call, and forgets what came up to it.
    pub(super) fn expect(&mut self, text: &str) -> String {
        loop {
            if let Some(at) = self.seen.windows(text.len()).position(|part| part == text.as_bytes()) {
                let rest = self.seen.split_off(at + text.len());
                let seen = std::mem::replace(&mut self.seen, rest);
                return String::from_utf8_lossy(&seen).into_owned();
            }
            assert!(self.read(), "{text:?} does not come: {:?}", String::from_utf8_lossy(&self.seen));
        }
    }

    /// Reads once; false when nothing has the terminal open any more.
    fn read(&mut self) -> bool {
        let mut buffer = [0; 65536];
        let mut master = self.master();
        if let Err(error) = Deadline::usual().readable(master) {
            panic!("nothing comes: {error}: {:?}", String::from_utf8_lossy(&self.seen));
        }
        match master.read(&mut buffer) {
            Ok(0) | Err(_) => false,
            Ok(count) => {
                self.seen.extend_from_slice(&buffer[..count]);
                true
            }
        }
    }

    /// All output to the end, with its lines as the program wrote them, and the exit status. Where the host's
    /// terminal goes on to process output, a newline has two carriage returns, which look like one.
    pub(super) fn finish(&mut self) -> (String, ExitStatus) {
        self.slave = None;
        while self.read() {}
        let text = String::from_utf8_lossy(&std::mem::take(&mut self.seen))
            .replace("\r\r\n", "\n")
            .replace("\r\n", "\n");
        (text, self.wait())
    }

    /// Waits for the exit.
    pub(super) fn wait(&mut self) -> ExitStatus {
        self.watch.wait_gone("saggar on a terminal");
        self.child.wait().unwrap()
    }

    /// Changes the size, as a terminal emulator does: the kernel sends SIGWINCH.
    pub(super) fn resize(&self, rows: u16, columns: u16) {
        set_size(self.master(), rows, columns);
    }

    /// Pulls the plug: the terminal is hung up.
    pub(super) fn hang_up(&mut self) {
        self.slave = None;
        self.master = None;
    }

    /// Whether keys go through as they are.
    pub(super) fn is_raw(&self) -> bool {
        let now = tcgetattr(self.master()).unwrap();
        !now.local_flags.intersects(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG)
    }

    /// Whether a newline still becomes a carriage return and one.
    pub(super) fn processes_output(&self) -> bool {
        tcgetattr(self.master()).unwrap().output_flags.contains(OutputFlags::OPOST)
    }

    /// The modes are those that the terminal had before saggar.
    pub(super) fn assert_untouched(&self) {
        assert_eq!(tcgetattr(self.master()).unwrap(), self.before, "the terminal's modes were left changed");
    }

    /// Whether the description that saggar was given is non-blocking.
    pub(super) fn is_nonblocking(&self) -> bool {
        let flags = fcntl(self.slave.as_ref().unwrap(), FcntlArg::F_GETFL).unwrap();
        OFlag::from_bits_truncate(flags).contains(OFlag::O_NONBLOCK)
    }

    /// Sends saggar a signal.
    pub(super) fn signal(&self, signal: Signal) {
        self.watch.signal(signal);
    }

    /// Waits until saggar is stopped.
    pub(super) fn wait_stopped(&self) {
        let pid = Pid::from_raw(self.child.id().cast_signed());
        let stopped = waitid(Id::Pid(pid), WaitPidFlag::WSTOPPED).unwrap();
        assert!(matches!(stopped, WaitStatus::Stopped(..)), "{stopped:?}");
    }

    /// The leader of the terminal's foreground group.
    pub(super) fn foreground(&self) -> Pid {
        nix::unistd::tcgetpgrp(self.master()).unwrap()
    }

    pub(super) fn stdin(&mut self) -> ChildStdin {
        self.child.stdin.take().unwrap()
    }

    pub(super) fn stdout(&mut self) -> ChildStdout {
        self.child.stdout.take().unwrap()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The command line of saggar.
pub(super) fn wrapped(place: &Place, command: &[&str]) -> Vec<String> {
    let saggar = place.saggar().get_program().to_string_lossy().into_owned();
    let mut line = [saggar.as_str(), "wrap", "--quiet-degraded", "--"].map(str::to_owned).to_vec();
    line.extend(command.iter().map(|word| (*word).to_owned()));
    line
}

/// rustix is here for its safe ioctl; nix has none for sizes.
fn set_size(master: &impl AsFd, rows: u16, columns: u16) {
    let size = rustix::termios::Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(master, size).unwrap();
}

/// Reads a pipe to its end.
pub(super) fn read_all(mut pipe: impl Read) -> String {
    let mut text = String::new();
    pipe.read_to_string(&mut text).unwrap();
    text
}
