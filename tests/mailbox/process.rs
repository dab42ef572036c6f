//! The process that serves the mailbox of a sandbox: its rights, and what becomes of it.

use std::fs;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::inside::lines;
use super::mcp_client::{McpClient, SERVER, run_directory, sandboxed, script};
use crate::isolation::wrapped::Wrap;
use crate::processes::account::{self, Account};
use crate::support::deadline::Deadline;
use crate::support::place::Place;
use crate::support::process::{Process, Watch};

const NAME: &str = "saggar:mailbox";

/// A sandbox that waits for a line after each of its shell's commands.
fn sandbox(place: &Place, shell: &str) -> Process {
    Process::start(place, sandboxed(place, "claude", &[], &["/bin/sh", "-c", shell]))
}

/// The process, which is the supervisor's child at first, and its launcher's after a restart.
fn mailbox_process(supervisor: u32) -> Account {
    let deadline = Deadline::usual();
    loop {
        let launcher = account::family(supervisor, "saggar:launch").pid;
        let parents = [supervisor, launcher];
        let found =
            parents.iter().flat_map(|parent| Account::children(*parent)).find(|child| child.name == NAME);
        if let Some(process) = found.filter(|process| process.seccomp == 2) {
            return process;
        }
        assert!(!deadline.remaining().is_zero(), "no {NAME}");
        deadline.pause();
    }
}

as_each_caller! {
    /// It opens nothing but the files of its run, even where its user could.
    fn it_has_no_rights_but_those_to_its_run(caller) {
        let place = Place::new(caller);
        let mut process = sandbox(&place, "printf R; read -r line; exit 0");
        process.take_ready_stdout();
        let account = mailbox_process(process.pid());
        account.assert_powerless();
        assert_eq!(account.uids[0], caller.uid().as_raw());
        // It is not dumpable: only root sees its descriptors.
        if nix::unistd::geteuid().is_root() {
            let run = run_directory(&place);
            for link in fs::read_dir(format!("/proc/{}/fd", account.pid)).unwrap() {
                let target = fs::read_link(link.unwrap().path()).unwrap_or_default();
                let is_file = target.is_absolute() && target.exists() && !target.starts_with("/dev");
                assert!(!is_file || target.starts_with(&run), "{}", target.display());
            }
        }
        let limits = fs::read_to_string(format!("/proc/{}/limits", account.pid)).unwrap();
        assert!(limits.lines().any(|line| line.starts_with("Max data size") && line.contains("536870912")), "{limits}");
        drop(process.take_stdin());
        assert!(process.wait().success());
    }

    fn it_ends_with_its_supervisor(caller) {
        let place = Place::new(caller);
        let mut process = sandbox(&place, "printf R; read -r line; exit 0");
        process.take_ready_stdout();
        let watch = Watch::of(mailbox_process(process.pid()).pid).unwrap();
        process.signal(Signal::SIGKILL);
        process.wait();
        watch.wait_gone("the mailbox process");
    }

    /// What was acknowledged is there; the next conversation is served; not for ever.
    fn am_10_it_is_restarted_a_limited_number_of_times(caller) {
        let place = Place::new(caller);
        let round = |number: u32| {
            let arguments = json!({ "to": "", "message_type": "chat", "content": format!("round {number}") });
            format!("{} | grep -c 'Message sent'; read -r line", script("send_to_agent", &arguments))
        };
        let rounds: Vec<String> = (1..=4).map(round).collect();
        let shell = format!("{}; {} </dev/null", rounds.join("; "), SERVER.join(" "));
        let mut command = sandboxed(&place, "claude", &["--status-fd", "1"], &["/bin/sh", "-c", &shell]);
        command.stderr(std::process::Stdio::piped());
        let mut process = Process::start(&place, command);
        let mut stdin = process.take_stdin();
        let mut lines_of_stdout = crate::support::lines::Lines::new(process.take_stdout());
        let mut events = Vec::new();
        for number in 1..=4 {
            let seen = lines_of_stdout.until(Deadline::usual(), |line| *line == json!(1));
            events.extend(seen);
            let watch = Watch::of(mailbox_process(process.pid()).pid).unwrap();
            watch.signal(Signal::SIGKILL);
            watch.wait_gone("the mailbox process");
            let is_told = |line: &Value| line["event"] == "mailbox";
            events.extend(lines_of_stdout.until(Deadline::usual(), is_told));
            assert_eq!(lines(&place).len(), number);
            std::io::Write::write_all(&mut stdin, b"\n").unwrap();
        }
        assert!(!process.wait().success());
        let told: Vec<&str> = events.iter().filter(|event| event["event"] == "mailbox").filter_map(|event| event["why"].as_str()).collect();
        assert_eq!(told.len(), 4, "{events:?}");
        assert!(told[0].starts_with("serve the mailbox of run 1: ") && told[0].ends_with("is started again"), "{told:?}");
        assert!(told[3].ends_with("too often; it is no longer served"), "{told:?}");
    }

    /// A server whose process dies ends, and says what holds.
    fn a_conversation_that_is_cut_says_so(caller) {
        let wrap = Wrap::new(caller);
        let place = &wrap.place;
        let mut client = McpClient::start_inside(place, "claude", &[]);
        client.send("", "chat", "x", "");
        Watch::of(mailbox_process(client.pid()).pid).unwrap().signal(Signal::SIGKILL);
        let (status, stderr) = client.outcome();
        assert_eq!(status.code(), Some(125), "{stderr}");
        assert!(stderr.contains("/run/mailbox.sock has closed the conversation"), "{stderr}");
    }

    /// Garbage, and more than any message has: a client loses its own conversation at most.
    fn hostile_bytes_harm_no_other_conversation(caller) {
        let place = Place::new(caller);
        let mut client = McpClient::start_inside(&place, "claude", &[]);
        let python = "
import socket
def connect():
    link = socket.socket(socket.AF_UNIX)
    link.connect('/run/mailbox.sock')
    return link
def push(link, data):
    try:
        link.sendall(data)
    except OSError:
        pass
push(connect(), b'\\xff\\x00garbage\\n' * 1000)
push(connect(), b'[' * (1 << 20) + b'\\n')
push(connect(), b'{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\"}\\n')
push(connect(), b'x' * (200 << 20) + b'\\n')
idle = [connect() for _ in range(8)]
print('done')
";
        let mut process = Process::start(&place, sandboxed(&place, "mallory", &[], &["/usr/bin/python3", "-c", python]));
        drop(process.take_stdin());
        assert_eq!(crate::isolation::wrapped::finish(process).success(), "done\n");
        client.send("", "chat", "still served", "");
        assert_eq!(lines(&place).len(), 1);
    }
}
