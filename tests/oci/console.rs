//! `--console-socket`: the terminal of a program goes to whoever listens there (SCM_RIGHTS), with its name, its
//! size, and as the controlling terminal of the program's session.

use super::bundle::{Bench, end_of};
use crate::support::deadline::Deadline;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::termios::tcgetwinsize;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::Stdio;

/// Says where it is, waits for a word and repeats it.
const SCRIPT: &str =
    "tty; busybox stty size; echo to-the-controlling-one >/dev/tty; read word; echo got-$word";

/// Who listens.
struct Listener {
    socket: UnixListener,
    path: PathBuf,
}

impl Listener {
    fn new(bench: &Bench) -> Self {
        let path = bench.place.join("work/console.sock");
        let socket = UnixListener::bind(&path).unwrap();
        bench.give(&path);
        Listener { socket, path }
    }

    fn path(&self) -> &str {
        self.path.to_str().unwrap()
    }

    /// The master, and the name that came with it.
    fn terminal(&self) -> (File, String) {
        Deadline::usual().readable(&self.socket).expect("nobody brings a terminal");
        let (stream, _) = self.socket.accept().unwrap();
        let mut bytes = [0; 256];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let received =
            recvmsg(&stream, &mut [IoSliceMut::new(&mut bytes)], &mut beside, RecvFlags::CMSG_CLOEXEC)
                .unwrap();
        let mut fds: Vec<_> = beside
            .drain()
            .flat_map(|message| match message {
                RecvAncillaryMessage::ScmRights(fds) => fds.collect(),
                _ => Vec::new(),
            })
            .collect();
        assert_eq!(fds.len(), 1, "one terminal and nothing more");
        let name = String::from_utf8(bytes[..received.bytes].to_vec()).unwrap();
        (File::from(fds.remove(0)), name)
    }
}

/// Reads until `last` has come.
fn read_until(terminal: &mut File, last: &str) -> String {
    let deadline = Deadline::usual();
    let mut text = String::new();
    while !text.contains(last) {
        let mut bytes = [0; 512];
        deadline.readable(&*terminal).unwrap_or_else(|error| panic!("{error} after {text:?}"));
        let count = terminal.read(&mut bytes).unwrap_or_else(|error| panic!("{error} after {text:?}"));
        text.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
    text
}

/// Talks to [`SCRIPT`] by its terminal.
fn converse(terminal: &mut File, size: &str) {
    let said = read_until(terminal, "to-the-controlling-one");
    assert!(said.starts_with("/dev/"), "its standard input is no terminal: {said:?}");
    assert!(said.contains(&format!("\r\n{size}\r\n")), "{said:?}");
    terminal.write_all(b"hello\n").unwrap();
    read_until(terminal, "got-hello");
}

/// A container whose program has a terminal of 33 lines with 77 columns.
fn with_terminal(bench: &Bench) {
    bench.configure(|config| {
        config["process"]["args"] = json!(["/bin/sh", "-c", SCRIPT]);
        config["process"]["terminal"] = json!(true);
        config["process"]["consoleSize"] = json!({ "height": 33, "width": 77 });
        mount_devices(config);
    });
}

fn mount_devices(config: &mut Value) {
    config["mounts"].as_array_mut().unwrap().extend([
        json!({ "destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"] }),
        json!({ "destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": ["newinstance", "ptmxmode=0666"] }),
    ]);
}

as_each_caller! {
    /// `--pidfd-socket`, as runc's: a pidfd of the program.
    fn a_pidfd_of_the_program_is_sent(caller) {
        let bench = Bench::new(caller);
        let (listener, id, bundle) = (Listener::new(&bench), bench.id(), bench.bundle());
        let pid_of = |pidfd: &File| {
            let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).unwrap();
            let pid = info.lines().find_map(|line| line.strip_prefix("Pid:")).expect("it is a pidfd");
            pid.trim().parse::<u32>().unwrap()
        };
        bench.say(&["create", "--pidfd-socket", listener.path(), "--bundle", bundle.to_str().unwrap(), &id]).ok();
        let (pidfd, word) = listener.terminal();
        assert_eq!((pid_of(&pidfd), word.as_str()), (bench.pid(&id), "standard"));
        bench.say(&["start", &id]).ok();
        let pid_file = bench.place.join("work/exec.pid");
        let file = pid_file.to_str().unwrap();
        let exec = ["exec", "--detach", "--pidfd-socket", listener.path(), "--pid-file", file, &id, "/bin/sleep", "1000"];
        bench.say(&exec).ok();
        let (pidfd, word) = listener.terminal();
        let pid = fs::read_to_string(&pid_file).unwrap().parse::<u32>().unwrap();
        assert_eq!((pid_of(&pidfd), word.as_str()), (pid, "setns"));
        let other = bench.id();
        let nobody = ["create", "--pidfd-socket", "/nowhere", "--bundle", bundle.to_str().unwrap(), &other];
        bench.say(&nobody).fails("connect to --pidfd-socket /nowhere");
        bench.is_clean(&other);
    }

    fn create_sends_the_terminal_of_the_program(caller) {
        let bench = Bench::new(caller);
        with_terminal(&bench);
        let (listener, id, bundle) = (Listener::new(&bench), bench.id(), bench.bundle());
        bench.say(&["create", "--console-socket", listener.path(), "--bundle", bundle.to_str().unwrap(), &id]).ok();
        let (mut terminal, name) = listener.terminal();
        let size = tcgetwinsize(&terminal).expect("it is a terminal");
        assert_eq!((size.ws_row, size.ws_col), (33, 77));
        assert!(name.starts_with("/dev/p"), "{name:?}");
        // Its session's controlling terminal: field 7 of proc_pid_stat(5).
        let stat = fs::read_to_string(format!("/proc/{}/stat", bench.pid(&id))).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        assert_ne!(fields[4], "0", "{stat}");
        bench.say(&["start", &id]).ok();
        converse(&mut terminal, "33 77");
    }

    fn run_sends_the_terminal_of_the_program(caller) {
        let bench = Bench::new(caller);
        with_terminal(&bench);
        let (listener, bundle) = (Listener::new(&bench), bench.bundle());
        for detach in [false, true] {
            let id = bench.id();
            let mut args = vec!["run", "--console-socket", listener.path(), "--bundle", bundle.to_str().unwrap(), &id];
            if detach {
                args.push("--detach");
            }
            let mut command = bench.command(&args);
            let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let (mut terminal, _) = listener.terminal();
            converse(&mut terminal, "33 77");
            assert!(end_of(child, "run").success());
        }
    }

    fn exec_sends_the_terminal_of_its_program(caller) {
        let bench = Bench::new(caller);
        bench.configure(mount_devices);
        let (listener, id) = (Listener::new(&bench), bench.start());
        let process = bench.place.make_file("process.json", &json!({
            "terminal": true, "consoleSize": { "height": 12, "width": 34 }, "user": { "uid": 0, "gid": 0 },
            "cwd": "/", "env": ["PATH=/bin"], "args": ["sh", "-c", SCRIPT],
        }).to_string());
        bench.say(&["exec", "--detach", "--console-socket", listener.path(), "--process", process.to_str().unwrap(), &id]).ok();
        let (mut terminal, _) = listener.terminal();
        converse(&mut terminal, "12 34");
        bench.say(&["exec", "-d", "-t", "--console-socket", listener.path(), &id, "/bin/sh", "-c", SCRIPT]).ok();
        // Without a size of its own; busybox's stty takes that for an error.
        converse(&mut listener.terminal().0, "stty: standard input");
    }

    fn terminal_without_a_receiver_is_an_error_and_leaves_nothing(caller) {
        let bench = Bench::new(caller);
        let (bundle, nobody) = (bench.bundle(), bench.place.join("work/nobody.sock"));
        let (bundle, nobody) = (bundle.to_str().unwrap(), nobody.to_str().unwrap());
        let id = bench.id();
        bench.say(&["create", "--console-socket", nobody, "--bundle", bundle, &id]).fails("terminal is not true");
        with_terminal(&bench);
        bench.say(&["create", "--bundle", bundle, &id]).fails("--console-socket");
        bench.say(&["create", "--console-socket", nobody, "--bundle", bundle, &id]).fails("nobody.sock");
        bench.is_clean(&id);
    }

    /// In the foreground it is that of the caller's terminal, before the program can look.
    fn a_relayed_terminal_has_the_callers_size_at_the_first_look(caller) {
        let bench = Bench::new(caller);
        bench.configure(|config| {
            config["process"]["args"] = json!(["/bin/busybox", "stty", "size"]);
            config["process"]["terminal"] = json!(true);
            mount_devices(config);
        });
        let (id, bundle) = (bench.id(), bench.bundle());
        let told = on_a_terminal(&bench, &["run", "--bundle", bundle.to_str().unwrap(), &id]);
        assert!(told.contains("41 123"), "{told:?}");
        bench.configure(|config| {
            config["process"]["args"] = json!(["/bin/sleep", "1000"]);
            mount_devices(config);
        });
        let id = bench.start();
        let told = on_a_terminal(&bench, &["exec", "--tty", &id, "/bin/busybox", "stty", "size"]);
        assert!(told.contains("41 123"), "{told:?}");
    }
}

/// Runs saggar on a terminal with 41 lines of 123 columns, and gives what came out.
fn on_a_terminal(bench: &Bench, words: &[&str]) -> String {
    let size = nix::pty::Winsize { ws_row: 41, ws_col: 123, ws_xpixel: 0, ws_ypixel: 0 };
    let pty = nix::pty::openpty(&size, None).unwrap();
    let end = || Stdio::from(pty.slave.try_clone().unwrap());
    let mut command = bench.command(words);
    let mut child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
    drop(command);
    let status = child.wait().unwrap();
    drop(pty.slave);
    let mut text = Vec::new();
    // The end of a terminal without a slave is EIO.
    let _ = File::from(pty.master).read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(status.success(), "{status}: {text}");
    text
}
