//! Containers as services of the type `notify` (sd_notify(3)): what the service manager hears, and when a command returns.

use super::bundle::{Bench, end_of};
use crate::support::caller::Caller;
use crate::support::deadline::Deadline;
use serde_json::{Value, json};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Sends each argument as a message, or waits for a file of that name.
const PROGRAM: &str = "import os, socket, sys, time
manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
manager.connect(os.environ['NOTIFY_SOCKET'])
for word in sys.argv[1:]:
    if word.startswith('/'):
        while not os.path.exists(word):
            time.sleep(0.01)
    else:
        manager.send(word.encode())
";

struct ServiceManager {
    bench: Bench,
    path: PathBuf,
    socket: UnixDatagram,
}

impl ServiceManager {
    /// A service manager, and a bundle whose program sends `messages`.
    fn new(caller: Caller, messages: &[&str]) -> Self {
        let bench = Bench::new(caller);
        let path = bench.place.join("manager.sock");
        let socket = UnixDatagram::bind(&path).unwrap();
        bench.give(&path);
        socket.set_read_timeout(Some(Deadline::usual().remaining())).unwrap();
        let manager = ServiceManager { bench, path, socket };
        manager.program(messages, |_| {});
        manager
    }

    fn program(&self, messages: &[&str], change: impl FnOnce(&mut Value)) {
        self.bench.configure(|config| {
            let args = ["/usr/bin/python3", "-c", PROGRAM].iter().chain(messages);
            config["process"]["args"] = args.copied().collect();
            let mounts = config["mounts"].as_array_mut().unwrap();
            for (source, destination) in [("/usr", "/usr"), ("/usr/lib", "/lib"), ("/usr/lib64", "/lib64")] {
                mounts.push(
                    json!({ "destination": destination, "source": source, "options": ["rbind", "ro"] }),
                );
            }
            change(config);
        });
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.bench.command(args);
        command.env("NOTIFY_SOCKET", &self.path);
        command
    }

    #[track_caller]
    fn hears(&self, expected: &[&str]) {
        let mut buffer = [0; 4096];
        let length = self.socket.recv(&mut buffer).expect("a notification");
        let text = String::from_utf8_lossy(&buffer[..length]);
        assert_eq!(
            text.lines().filter(|line| !line.starts_with("MONOTONIC_USEC=")).collect::<Vec<_>>(),
            expected
        );
    }

    #[track_caller]
    fn hears_nothing_more(&self) {
        self.socket.set_nonblocking(true).unwrap();
        let mut buffer = [0; 4096];
        let more = self.socket.recv(&mut buffer).map(|length| buffer[..length].to_vec());
        assert!(more.is_err(), "{more:?}");
    }
}

as_each_caller! {
    /// In the foreground, saggar is the main process of the service. Nothing else that a program says reaches the manager.
    fn notifications_of_a_program_in_the_foreground_are_passed_on(caller) {
        let messages =
            ["STATUS=starting", "READY=1\nMAINPID=1\nSTATUS=up", "WATCHDOG=1", "RELOADING=1", "XREADY=1", "STOPPING=1"];
        let manager = ServiceManager::new(caller, &messages);
        let (bundle, id) = (manager.bench.bundle(), manager.bench.id());
        let said = manager.bench.finish(manager.command(&["run", "--bundle", bundle.to_str().unwrap(), &id]));
        said.ok();
        for message in ["READY=1", "WATCHDOG=1", "RELOADING=1", "STOPPING=1"] {
            manager.hears(&[message]);
        }
        manager.hears_nothing_more();
        manager.bench.is_clean(&id);
    }

    /// `start` and `run --detach` return when the program is ready, and name it as the main process.
    fn commands_that_do_not_wait_for_the_program_wait_until_it_is_ready(caller) {
        let manager = ServiceManager::new(caller, &["/tmp/go", "READY=1", "/never"]);
        let (bundle, bench) = (manager.bench.bundle(), &manager.bench);
        let bundle = bundle.to_str().unwrap();
        let go = bench.bundle().join("rootfs/tmp/go");
        for detached in [false, true] {
            let id = bench.id();
            let mut command = if detached {
                manager.command(&["run", "--detach", "--bundle", bundle, &id])
            } else {
                bench.finish(manager.command(&["create", "--bundle", bundle, &id])).ok();
                manager.command(&["start", &id])
            };
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            // Other commands are not held up.
            while bench.say(&["state", &id]).stdout.split("\"running\"").count() == 1 {}
            assert!(child.try_wait().unwrap().is_none(), "the program is not ready");
            let pid = bench.pid(&id);
            std::fs::write(&go, "").unwrap();
            assert!(end_of(child, "start").success());
            manager.hears(&["READY=1", &format!("MAINPID={pid}")]);
            bench.say(&["kill", &id, "KILL"]).ok();
            bench.wait_stopped(&id);
            bench.say(&["delete", &id]).ok();
            std::fs::remove_file(&go).unwrap();
        }
        manager.hears_nothing_more();
    }

    fn a_program_that_ends_without_a_notification_keeps_no_command_waiting(caller) {
        let manager = ServiceManager::new(caller, &["STATUS=never ready"]);
        let (bundle, id) = (manager.bench.bundle(), manager.bench.id());
        let command = manager.command(&["run", "--detach", "--bundle", bundle.to_str().unwrap(), &id]);
        let said = manager.bench.finish(command).ok();
        assert!(said.stderr.contains("ended before it notified the service manager"), "{said:?}");
        manager.bench.status_is(&id, "stopped");
        manager.hears_nothing_more();
    }

    /// The host's directory cannot be written from inside, and a socket that nothing reads holds up no signal.
    fn a_program_that_says_too_much_holds_up_nothing(caller) {
        let manager = ServiceManager::new(caller, &[]);
        let program = "import os, socket, signal
manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
manager.connect(os.environ['NOTIFY_SOCKET'])
try:
    open('/run/notify/file', 'w')
except OSError as error:
    print(error.strerror, flush=True)
signal.signal(signal.SIGTERM, lambda *_: os._exit(9))
open('/tmp/up', 'w')
while True:
    manager.send(b'READY=1\\nWATCHDOG=1')
";
        manager.program(&[], |config| config["process"]["args"] = json!(["/usr/bin/python3", "-c", program]));
        let (bundle, id) = (manager.bench.bundle(), manager.bench.id());
        let mut command = manager.command(&["run", "--bundle", bundle.to_str().unwrap(), &id]);
        let out = manager.bench.place.join("out");
        let child = command.stdout(std::fs::File::create(&out).unwrap()).stderr(Stdio::null()).spawn().unwrap();
        crate::support::wait::until_exists(&bundle.join("rootfs/tmp/up"));
        // Until the socket of the service manager, which reads nothing, is full.
        let full = UnixDatagram::unbound().unwrap();
        full.connect(&manager.path).unwrap();
        full.set_nonblocking(true).unwrap();
        while full.send(b"").is_ok() {}
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id().cast_signed()), nix::sys::signal::Signal::SIGTERM).unwrap();
        assert_eq!(end_of(child, "run").code(), Some(9));
        assert_eq!(std::fs::read_to_string(&out).unwrap(), "Read-only file system\n");
        manager.bench.is_clean(&id);
    }

    /// A socket that the configuration names is the program's, as one of conmon is.
    fn a_configured_socket_is_left_as_it_is(caller) {
        let manager = ServiceManager::new(caller, &[]);
        let (bundle, id) = (manager.bench.bundle(), manager.bench.id());
        let environment = |config: &mut Value| {
            config["process"]["args"] = json!(["/bin/sh", "-c", "echo $NOTIFY_SOCKET; ls /run"]);
            config["process"]["env"] = json!(["PATH=/bin", "NOTIFY_SOCKET=/its/own"]);
        };
        manager.program(&[], environment);
        let said = manager.bench.finish(manager.command(&["run", "--bundle", bundle.to_str().unwrap(), &id]));
        assert_eq!(said.stdout, "/its/own\n", "{said:?}");
        assert!(!Path::new(&bundle).join("rootfs/run").exists());
    }
}
