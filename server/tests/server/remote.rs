//! `saggar remote`: the command line for this server (saggar-remote(1)).

use crate::support::cutting_proxy::CuttingProxy;
use crate::support::{Server, hello_folder, saggar_program, send_signal, wait_until};
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// A user of `saggar remote`, with a directory of configuration of their own.
struct User {
    home: TempDir,
}

impl User {
    fn new() -> Self {
        User { home: tempfile::tempdir().unwrap() }
    }

    /// A user who has logged in to a server.
    fn of(server: &Server) -> Self {
        let user = User::new();
        let url = format!("http://{}", server.address());
        let output = user.run_with(&["login", &url], &server.key());
        assert!(output.status.success(), "{output:?}");
        user
    }

    fn login_file(&self) -> PathBuf {
        self.home.path().join("saggar/remote.json")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(saggar_program());
        command.arg("remote").args(arguments).env("XDG_CONFIG_HOME", self.home.path());
        for name in ["SAGGAR_REMOTE_URL", "SAGGAR_REMOTE_KEY"] {
            command.env_remove(name);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a command with this standard input.
    fn run_with(&self, arguments: &[&str], input: &str) -> Output {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    /// Standard output of a command that succeeds.
    fn run(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Standard error of a command that fails with this status.
    fn refused(&self, arguments: &[&str], status: i32) -> String {
        let output = self.command(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Deploys the demo agent, and creates a session of it.
    fn create_session(&self) -> String {
        self.run(&["deploy", hello_folder().to_str().unwrap()]);
        self.run(&["session", "create", "hello"]).trim().to_owned()
    }
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn key_is_saved_for_its_user_and_removed() {
    let server = Server::start();
    let url = format!("http://{}", server.address());
    let user = User::new();
    let wrong = user.run_with(&["login", &url], "ash_wrong\n");
    let error = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert_eq!(wrong.status.code(), Some(125), "{wrong:?}");
    assert!(error.contains("Invalid API key") && !error.contains("ash_wrong"), "{error}");
    assert!(!user.login_file().exists());
    assert!(user.refused(&["session", "list"], 2).contains("saggar remote login"));

    let user = User::of(&server);
    assert_eq!(fs::metadata(user.login_file()).unwrap().permissions().mode() & 0o777, 0o600);
    let status: Value = serde_json::from_str(&user.run(&["status", "--json"])).unwrap();
    assert_eq!(status["status"], "ok");
    assert!(user.run(&["status"]).contains(&url));
    fs::set_permissions(user.login_file(), fs::Permissions::from_mode(0o644)).unwrap();
    assert!(user.refused(&["status"], 125).contains("other users"));
    user.run(&["logout"]);
    assert!(!user.login_file().exists());

    let key_file = user.home.path().join("key");
    fs::write(&key_file, server.key() + "\n").unwrap();
    user.run(&["login", "--key-file", key_file.to_str().unwrap(), &url]);
    user.run(&["session", "list"]);
}

#[test]
fn key_is_sent_to_its_server_alone() {
    let server = Server::start();
    let user = User::of(&server);
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    other.set_nonblocking(true).unwrap();
    let url = format!("http://{}", other.local_addr().unwrap());
    let error = user.refused(&["--server", &url, "session", "list"], 2);
    assert!(error.contains("no API key is known"), "{error}");
    // TEST-NET-1: never reached, since the command is refused first.
    let mut command = user.command(&["--server", "http://192.0.2.1", "session", "list"]);
    let output = command.env("SAGGAR_REMOTE_KEY", "ash_key").output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("without encryption"), "{output:?}");
    assert!(other.accept().is_err(), "there was a connection");
}

#[test]
fn redirects_are_not_followed() {
    let target = TcpListener::bind("127.0.0.1:0").unwrap();
    target.set_nonblocking(true).unwrap();
    let redirecting = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", redirecting.local_addr().unwrap());
    let answer = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://{}/\r\ncontent-length: 0\r\n\r\n",
        target.local_addr().unwrap()
    );
    let thread = std::thread::spawn(move || {
        let (mut client, _) = redirecting.accept().unwrap();
        std::io::Read::read(&mut client, &mut [0; 4096]).unwrap();
        client.write_all(answer.as_bytes()).unwrap();
    });
    let user = User::new();
    let output =
        user.command(&["--server", &url, "session", "list"]).env("SAGGAR_REMOTE_KEY", "ash_key").output();
    thread.join().unwrap();
    assert_eq!(output.unwrap().status.code(), Some(125));
    assert!(target.accept().is_err(), "the redirect was followed");
}

#[test]
fn agent_is_deployed_and_used() {
    let server = Server::start();
    let user = User::of(&server);
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("CLAUDE.md"), "Prompt.").unwrap();
    fs::write(folder.path().join(".env"), "SECRET=1").unwrap();
    // More than a small request may have.
    fs::write(folder.path().join("large"), vec![7; 3 << 20]).unwrap();
    let path = folder.path().to_str().unwrap();
    let deployed = user.command(&["deploy", "--name", "mine", "--env", "COLOUR=red", path]).output().unwrap();
    assert!(deployed.status.success(), "{deployed:?}");
    assert!(String::from_utf8_lossy(&deployed.stderr).contains("not deployed: .env"), "{deployed:?}");
    let agents = json_lines(&user.run(&["agent", "list", "--json"]));
    assert_eq!((&agents[0]["name"], agents.len()), (&json!("mine"), 1));
    assert!(user.run(&["agent", "show", "mine"]).contains("\"version\":1"));

    let id = user.run(&["session", "create", "--env", "SIZE=3", "mine"]).trim().to_owned();
    assert!(user.run(&["session", "list"]).contains(&id));
    let reply = json_lines(&user.run(&["session", "send", &id, "run: echo $COLOUR $SIZE $(wc -c < large)"]));
    let result = reply.iter().find(|message| message["type"] == "result").unwrap();
    assert_eq!(result["is_error"], false, "{reply:?}");
    assert!(reply.iter().any(|message| message.to_string().contains("red 3 3145728")), "{reply:?}");

    let written = user.run_with(&["files", "write", &id, "d/ü b.txt"], "content\n");
    assert!(written.status.success(), "{written:?}");
    assert_eq!(user.run(&["files", "read", &id, "d/ü b.txt"]), "content\n");
    assert!(user.run(&["files", "list", &id]).contains("d/ü b.txt"));
    for name in ["..", "d/../x", "/x", ""] {
        assert!(user.refused(&["files", "remove", &id, name], 2).contains("path component"));
    }
    assert!(user.run(&["session", "diff", &id]).contains("A d/ü b.txt"));
    assert!(user.run(&["session", "diff", "--patch", &id]).contains("+content"));
    user.run(&["files", "remove", &id, "d/ü b.txt"]);
    assert!(user.refused(&["files", "read", &id, "d/ü b.txt"], 125).contains("not found"));

    let exec =
        user.command(&["exec", &id, "--", "sh", "-c", "echo 'a  b'; echo c >&2; exit 7"]).output().unwrap();
    assert_eq!((exec.status.code(), &*exec.stdout, &*exec.stderr), (Some(7), &b"a  b\n"[..], &b"c\n"[..]));

    for (command, status) in [("stop", "stopped"), ("resume", "active"), ("end", "ended")] {
        user.run(&["session", command, &id]);
        let session: Value = serde_json::from_str(&user.run(&["session", "show", &id])).unwrap();
        assert_eq!(session["status"], status);
    }
    let fork = user.run(&["session", "fork", &id]);
    assert!(user.run(&["session", "list", "--status", "paused"]).contains(fork.trim()));
    assert!(user.refused(&["session", "resume", &id], 125).contains("ended"));
    user.run(&["agent", "delete", "mine"]);
    assert!(user.refused(&["session", "show", &id], 125).contains("not found"));
}

#[test]
fn changes_are_discarded_and_applied() {
    let server = Server::start();
    let user = User::of(&server);
    let id = user.create_session();
    user.run(&["exec", &id, "--", "sh", "-c", "echo 1 > kept; echo 2 > dropped"]);
    user.run(&["session", "stop", &id]);
    user.run(&["session", "discard", &id, "dropped"]);
    assert_eq!(
        user.run(&["session", "diff", &id]).lines().filter(|line| line.contains("dropped")).count(),
        0
    );
    user.run(&["session", "apply", &id, "kept"]);
    assert!(!user.run(&["session", "diff", &id]).contains("kept"));
}

#[test]
fn lost_connections_lose_and_double_nothing() {
    let server = Server::start();
    let user = User::of(&server);
    let id = user.create_session();
    let proxy = CuttingProxy::start(server.address(), &[20, 300, 500, 700]);
    let (url, key) = (proxy.url(), server.key());
    let mut command = user.command(&["--server", &url, "session", "send", "--json", &id, "count: 40"]);
    let output = command.env("SAGGAR_REMOTE_KEY", &key).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(proxy.connections() >= 5, "{}", proxy.connections());
    let lines = String::from_utf8(output.stdout).unwrap();

    user.run(&["session", "stop", &id]);
    let events = user.run(&["session", "follow", &id]);
    let stored: Vec<Value> = json_lines(&events)
        .into_iter()
        .filter(|event| event["event"] == "message")
        .map(|mut event| event["data"].take())
        .collect();
    assert_eq!(json_lines(&lines), stored);

    // A session is followed from where the connection was lost.
    let proxy = CuttingProxy::start(server.address(), &[500, 500]);
    let mut command = user.command(&["--server", &proxy.url(), "session", "follow", &id]);
    let output = command.env("SAGGAR_REMOTE_KEY", &key).output().unwrap();
    assert!(proxy.connections() >= 3, "{}", proxy.connections());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), events);
}

#[test]
fn server_that_is_not_there_is_reported_at_once() {
    let user = User::new();
    let mut command = user.command(&["--server", "http://127.0.0.1:1", "session", "send", "x", "hi"]);
    let output = command.env("SAGGAR_REMOTE_KEY", "ash_key").output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(125), "{error}");
    assert!(error.contains("http://127.0.0.1:1") && error.contains("refused"), "{error}");
}

#[test]
fn interrupt_ends_the_turn_on_the_server() {
    let server = Server::start();
    let user = User::of(&server);
    let id = user.create_session();
    let child = user.command(&["session", "send", &id, "run: echo > begun; sleep 1000"]).spawn().unwrap();
    let begun = || user.command(&["files", "read", &id, "begun"]).output().unwrap().status.success();
    wait_until("the turn has begun", begun);
    send_signal(Pid::from_child(&child), Signal::INT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    // The session takes the next turn.
    user.run(&["session", "send", &id, "hi"]);
}

#[test]
fn permission_requests_are_answered_without_a_terminal() {
    let server = Server::start();
    let user = User::of(&server);
    let id = user.create_session();
    for (answer, ran) in [("deny", false), ("allow", true)] {
        let child = user.command(&["session", "send", &id, "ask: echo ran > ran"]).spawn().unwrap();
        let open = || json_lines(&user.run(&["permission", "list", &id]));
        wait_until("the agent asks", || !open().is_empty());
        let request = open()[0]["id"].as_str().unwrap().to_owned();
        user.run(&["permission", answer, &id, &request]);
        let output = child.wait_with_output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.contains(&format!("saggar remote permission allow {id} {request}")), "{told}");
        let read = user.command(&["files", "read", &id, "ran"]).output().unwrap();
        assert_eq!(read.status.success(), ran, "{answer}");
    }
}

#[test]
fn chat_sends_each_line() {
    let server = Server::start();
    let user = User::of(&server);
    user.run(&["deploy", hello_folder().to_str().unwrap()]);
    let output = user.run_with(&["chat", "--agent", "hello"], "my name is Ann\n\nrecall\n/exit\nnot sent\n");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("my name is Ann") && !text.contains("not sent"), "{text}");
    let sessions = json_lines(&user.run(&["session", "list", "--json"]));
    assert_eq!((sessions.len(), &sessions[0]["status"]), (1, &json!("active")));
    let id = sessions[0]["id"].as_str().unwrap();
    let output = user.run_with(&["chat", id], "recall");
    assert!(String::from_utf8(output.stdout).unwrap().contains("my name is Ann"));
}
