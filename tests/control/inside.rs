//! Which processes the sockets of a sandbox answer: those of its user and root outside, whatever else finds them.

use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use nix::sys::signal::Signal;
use serde_json::json;

use super::client::ControlClient;
use crate::bridge::served::{Served, Stage};

/// Prints whether each socket answers. With `-` first it connects to the next one, and a child that holds the
/// connection speaks once its input ends, when the process that connected has been reaped.
const CALLS: &str = r#"
import os, socket, sys
def call(path, late):
    said = b""
    try:
        s = socket.socket(socket.AF_UNIX)
        s.connect(path)
        if late and os.fork():
            os._exit(0)
        if late:
            sys.stdin.read()
        s.sendall(b'{"jsonrpc":"2.0","id":1,"method":"hello","params":{"version":1}}\n')
        said = s.recv(1)
    except (BrokenPipeError, ConnectionResetError, PermissionError):
        pass
    print("answered" if said else "refused", flush=True)
for path in sys.argv[1:]:
    if path != "-":
        call(path, sys.argv[1] == "-")
"#;

/// Runs a command in a user namespace in which every id is mapped to itself.
const MAPPED: &str = r#"
go=$(mktemp -u)
mkfifo "$go"
unshare --user /bin/sh -c 'read x <"$0"; exec "$@"' "$go" "$@" &
while [ "$(readlink /proc/$!/ns/user)" = "$(readlink /proc/self/ns/user)" ]; do :; done
echo 0 0 4294967295 >/proc/$!/uid_map
echo 0 0 4294967295 >/proc/$!/gid_map
echo >"$go"
wait $!
rm "$go"
"#;

/// A sandbox whose sockets are in directories that its programs reach, because the operator insists.
struct Reached {
    stage: Stage,
    served: Served,
    calls: PathBuf,
    bridge: PathBuf,
    control: PathBuf,
    started: Instant,
}

impl Reached {
    fn new(stage: Stage) -> Self {
        let calls = stage.place.make_file("work/calls.py", CALLS);
        let other = stage.place.make_dir("other", 0o755);
        let (bridge, control) = (stage.work().join("b.sock"), other.join("c.sock"));
        let mut command =
            stage.command(&["--adapter", "demo", "--ready-fd", "1", "--allow-reachable-sockets"]);
        command
            .arg("--rw")
            .arg(&other)
            .arg("--bridge-socket")
            .arg(&bridge)
            .arg("--control-socket")
            .arg(&control);
        let served = Served::start(&stage.place, command, &bridge);
        Reached { stage, served, calls, bridge, control, started: Instant::now() }
    }

    /// The program on both sockets.
    fn calls(&self) -> String {
        format!(
            "/usr/bin/python3 {} {} {}",
            self.calls.display(),
            self.bridge.display(),
            self.control.display()
        )
    }

    /// What it prints after `prelude` outside, as the caller or as whoever runs the tests.
    fn outside(&self, prelude: &str) -> String {
        let mut command = self.stage.place.command(Path::new("/bin/sh"));
        command.arg("-c").arg(format!("{prelude} {}", self.calls()));
        said(command)
    }

    fn end(self) {
        // Processes outside are still answered at both.
        drop(self.served.connect());
        ControlClient::connect(&self.control).get("shutdown");
        let (status, stderr) = self.served.end();
        assert!(status.success());
        let lines = stderr.lines().filter(|line| line.contains("refused a connection to")).count() as u64;
        // No bound in time: as many lines as the time that has passed allows, however long that was.
        let most = 2 * (1 + self.started.elapsed().as_secs() / 10);
        assert!((1..=most).contains(&lines), "one line in ten seconds for each socket: {stderr}");
        assert!(stderr.contains("another"), "with the reason: {stderr}");
    }
}

/// `saggar agent` on the folder itself, as a session of its own.
fn agent(stage: &Stage) -> Command {
    let mut command = stage.place.saggar();
    command.arg("agent").arg(stage.work()).arg("--workspace").arg(stage.work()).args(["--adapter", "demo"]);
    command
}

fn said(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

as_each_caller! {
    fn programs_inside_are_refused_at_sockets_that_they_reach(caller) {
        let reached = Reached::new(Stage::new(caller));
        let (program, own) = (reached.calls(), reached.control.display());
        let script = format!("{program}; (/usr/bin/python3 {} {own} &) | cat", reached.calls.display());
        let mut client = ControlClient::connect(&reached.control);
        let said = client.call("exec", &json!({ "command": script }));
        assert_eq!(said["stdout"], "refused\nrefused\nrefused\n", "{said}");
        drop(client);
        reached.end();
    }

    fn programs_of_another_sandbox_are_refused(caller) {
        let reached = Reached::new(Stage::new(caller));
        let mut wrap = reached.stage.place.saggar();
        wrap.args(["wrap", "--rw"]).arg(reached.control.parent().unwrap());
        wrap.args(["/bin/sh", "-c", &reached.calls()]);
        assert_eq!(said(wrap), "refused\nrefused\n");
        reached.end();
    }

    fn processes_in_namespaces_of_their_own_are_refused(caller) {
        let reached = Reached::new(Stage::new(caller));
        assert_eq!(reached.outside(""), "answered\nanswered\n");
        assert_eq!(reached.outside("unshare --user"), "refused\nrefused\n");
        assert_eq!(reached.outside("unshare --user --map-root-user --pid --fork"), "refused\nrefused\n");
        if caller.is_root() {
            assert_eq!(reached.outside("unshare --mount"), "answered\nanswered\n");
            // Root in a container without a user namespace.
            assert_eq!(reached.outside("unshare --pid --fork --mount-proc"), "refused\nrefused\n");
            // All ids are mapped to themselves.
            let mapped = reached.stage.place.make_file("mapped.sh", MAPPED);
            assert_eq!(reached.outside(&format!("sh {}", mapped.display())), "refused\nrefused\n");
        }
        reached.end();
    }

    /// Its number may be another process's by the time it is looked at.
    fn process_that_was_reaped_is_refused(caller) {
        let reached = Reached::new(Stage::new(caller));
        reached.served.process.signal(Signal::SIGSTOP);
        let mut command = reached.stage.place.command(Path::new("/usr/bin/python3"));
        command.arg(&reached.calls).arg("-").arg(&reached.control);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take();
        assert!(child.wait().unwrap().success());
        reached.served.process.signal(Signal::SIGCONT);
        drop(stdin);
        let mut said = String::new();
        child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(said, "refused\n");
        ControlClient::connect(&reached.control).get("shutdown");
        let (status, stderr) = reached.served.end();
        assert!(status.success() && stderr.contains("has ended"), "{stderr}");
    }

    /// By whatever name, and nothing is left there.
    fn sockets_that_programs_reach_are_refused_at_the_start(caller) {
        let stage = Stage::new(caller);
        let other = stage.place.make_dir("other", 0o755);
        fs::create_dir(stage.work().join("deep")).unwrap();
        stage.place.caller.own(&stage.work().join("deep"));
        symlink(stage.work().join("deep"), stage.place.join("run/link")).unwrap();
        let home = stage.place.make_dir("other-home", 0o700);
        for directory in [stage.work(), stage.work().join("deep"), stage.place.join("run/link"), other.clone(), home.clone()] {
            for (option, key) in [("--bridge-socket", "bridge.socket"), ("--control-socket", "bridge.control")] {
                let socket = directory.join("s");
                let mut command = agent(&stage);
                command.arg("--rw").arg(&other).arg("--home").arg(&home).arg(option).arg(&socket);
                stage.run(command).refused(125, &[key, "that programs of the sandbox reach", "--allow-reachable-sockets"]);
                let left: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
                let sockets = left.iter().filter(|name| *name == "s" || name.to_string_lossy().starts_with(".saggar-"));
                assert_eq!(sockets.count(), 0, "{left:?}");
            }
        }
        // The socket of an API too: programs would take its place.
        let api = stage.work().join("api");
        let _listener = std::os::unix::net::UnixListener::bind(&api).unwrap();
        let mut command = agent(&stage);
        command.arg("--api-socket").arg(&api);
        stage.run(command).refused(125, &["api.socket", "--allow-reachable-sockets"]);
        // A folder may not insist.
        stage.place.make_file("work/saggar.toml", "bridge.allow_reachable = true\n");
        stage.run(agent(&stage)).refused(125, &["saggar.toml", "bridge.allow_reachable"]);
    }
}
