//! Copies of sessions in a snapshot store, and sessions that continue on another machine.

use crate::support::s3::S3;
use crate::support::{Client, Frame, Server, deploy_body, has_exited, settings_file, wait_until};
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The key that encrypts variables, which all machines have.
const CREDENTIAL_KEY: (&str, &str) = ("ASH_CREDENTIAL_KEY", "key");

/// A server whose store is a directory.
pub(crate) struct Scene {
    pub(crate) server: Server,
    pub(crate) directory: TempDir,
}

impl Scene {
    pub(crate) fn start() -> Self {
        Scene::start_with(tempfile::tempdir().unwrap(), &[])
    }

    /// Starts the server with these further arguments, and the store in this directory.
    pub(crate) fn start_with(directory: TempDir, arguments: &[&str]) -> Self {
        let url = format!("file://{}", directory.path().join("store").display());
        let server = Server::start_with(&[&["--snapshot-url", &url], arguments].concat(), &[CREDENTIAL_KEY]);
        Scene { server, directory }
    }

    /// Kills the server, and starts one on another machine. The sandbox of the session runs on the first one; returns its
    /// supervisor.
    fn leave_running(&mut self, session: &str) -> Pid {
        let supervisor = self.server.supervisor(session);
        self.server.stop(Signal::KILL);
        self.server.move_to("second");
        supervisor
    }

    /// Starts the server on the first machine again, which has not noticed that the session of this supervisor is elsewhere.
    fn return_to(&mut self, supervisor: Pid) {
        assert!(self.server.stop(Signal::TERM).success());
        assert!(!has_exited(supervisor), "the first machine has not noticed");
        self.server.move_to("data");
    }

    /// The files in the store whose names contain this text.
    pub(crate) fn objects(&self, name: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        find_files(&self.directory.path().join("store"), &mut found);
        found.retain(|file| file.to_str().unwrap().contains(name));
        found.sort();
        found
    }
}

fn find_files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        match entry.path() {
            path if path.is_dir() => find_files(&path, found),
            path => found.push(path),
        }
    }
}

pub(crate) fn start_on(s3: &S3) -> Server {
    let variables = s3.variables();
    let mut variables: Vec<_> =
        variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    variables.push(CREDENTIAL_KEY);
    Server::start_with(&[], &variables)
}

pub(crate) fn change(client: &Client, session: &str, change: &str) -> Value {
    client.post(&format!("/api/sessions/{session}/{change}"), &json!({})).expect(200)
}

pub(crate) fn write(client: &Client, session: &str, path: &str, content: &str) {
    let file = json!({ "path": path, "content": crate::support::base64(content.as_bytes()) });
    client.post(&format!("/api/sessions/{session}/files"), &json!({ "files": [file] })).expect(200);
}

pub(crate) fn read(client: &Client, session: &str, file: &str) -> Value {
    client.get(&format!("/api/sessions/{session}/files/{file}?format=json")).expect(200)["content"].clone()
}

pub(crate) fn remembers(client: &Client, session: &str) -> bool {
    client.run_turn(session, "recall").iter().any(|frame| frame.data.contains("my name is Ann"))
}

/// The value of a metric, with its labels.
pub(crate) fn metric(client: &Client, name: &str) -> u64 {
    let (_, _, text) = client.download("/metrics");
    let text = String::from_utf8(text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} is not in {text}")).parse().unwrap()
}

pub(crate) fn wait_for_copies(client: &Client) {
    wait_until("all sessions are copied", || metric(client, "saggar_snapshot_uploads_pending") == 0);
}

fn stored_frames(client: &Client, session: &str, after: u64) -> Vec<Frame> {
    client.stream(session, after).filter(|frame| frame.event != "session_start").collect()
}

/// A session that has run turns, is stopped, and whose server has exited; and its frames.
pub(crate) fn stopped_session(server: &mut Server) -> (String, Vec<Frame>) {
    let client = server.client();
    client.post("/api/agents", &deploy_body("hello")).expect(201);
    let body = json!({ "agent": "hello", "systemPrompt": "Own prompt.", "extraEnv": { "TOKEN": "t1" } });
    let session = client.post("/api/sessions", &body).expect(201)["session"]["id"].clone();
    let session = session.as_str().unwrap().to_owned();
    client.run_turn(&session, "my name is Ann");
    client.run_turn(&session, "run: echo one > file");
    change(&client, &session, "stop");
    let frames = stored_frames(&client, &session, 0);
    assert!(server.stop(Signal::TERM).success());
    (session, frames)
}

/// Resumes the session of [`stopped_session`] on another machine, and checks that it is the same.
fn resumes_elsewhere(mut server: Server) {
    let (session, before) = stopped_session(&mut server);
    server.move_to("second");
    let client = server.client();
    let missing = client.get(&format!("/api/sessions/{session}/files")).expect(404);
    assert!(missing["error"].as_str().unwrap().contains("snapshot store"), "{missing}");

    assert_eq!(change(&client, &session, "resume")["session"]["status"], "active");
    assert_eq!(read(&client, &session, "file"), "one\n");
    assert_eq!(read(&client, &session, "CLAUDE.md"), "Own prompt.");
    assert!(remembers(&client, &session));
    let exec = json!({ "command": "echo $TOKEN" });
    assert_eq!(client.post(&format!("/api/sessions/{session}/exec"), &exec).expect(200)["stdout"], "t1\n");
    let events = client.get(&format!("/api/sessions/{session}/events?type=lifecycle")).expect(200);
    let resumed = events["events"].as_array().unwrap().last().unwrap()["data"].clone();
    assert!(resumed.as_str().unwrap().contains("\"source\":\"cloud\""), "{events}");
    assert_eq!(metric(&client, "ash_resume_cold_total{source=\"cloud\"}"), 1);

    // Each event once, with the id that it had.
    change(&client, &session, "stop");
    let after = stored_frames(&client, &session, 0);
    assert_eq!(after[..before.len()], before);
    assert!(after.len() > before.len() && after.iter().all(|frame| frame.event != "gap"), "{after:?}");
    assert!(after.windows(2).all(|pair| pair[0].id < pair[1].id), "{after:?}");
    let last = before.last().unwrap().id;
    assert_eq!(stored_frames(&client, &session, last), after[before.len()..]);
    let messages = client.get(&format!("/api/sessions/{session}/messages")).expect(200);
    let messages = messages["messages"].as_array().unwrap();
    let users = messages.iter().filter(|message| message["role"] == "user").count();
    assert_eq!(users, 3, "{messages:?}");
    assert!(messages.iter().zip(1..).all(|(message, number)| message["sequence"] == number), "{messages:?}");
}

#[test]
fn session_in_a_directory_continues_on_another_machine() {
    let Scene { server, directory: _directory } = Scene::start();
    resumes_elsewhere(server);
}

#[test]
fn session_in_a_bucket_continues_on_another_machine() {
    let s3 = S3::start();
    resumes_elsewhere(start_on(&s3));
    let keys = s3.session_keys();
    // The objects of former copies are deleted.
    assert_eq!(keys.len(), 3, "{keys:?}");
    assert!(keys.iter().all(|key| key.starts_with("some/prefix/sessions/default/")), "{keys:?}");
}

#[test]
fn repeated_message_is_not_run_again_on_another_machine() {
    let mut scene = Scene::start();
    let session = scene.server.create_session();
    let client = scene.server.client();
    let body = json!({ "content": "run: echo x >> file" });
    let sent: Vec<Frame> = client.send_once(&session, "k", &body).collect();
    change(&client, &session, "stop");
    assert!(scene.server.stop(Signal::TERM).success());
    scene.server.move_to("second");
    let client = scene.server.client();
    change(&client, &session, "resume");
    let repeated: Vec<Frame> = client.send_once(&session, "k", &body).collect();
    assert_eq!(repeated.last(), sent.last());
    assert_eq!(read(&client, &session, "file"), "x\n");
}

#[test]
fn former_machine_does_not_use_its_obsolete_files() {
    let mut scene = Scene::start();
    let session = scene.server.create_session();
    let client = scene.server.client();
    client.run_turn(&session, "my name is Ann");
    write(&client, &session, "file", "first");
    wait_for_copies(&client);
    let supervisor = scene.leave_running(&session);
    let client = scene.server.client();
    change(&client, &session, "resume");
    assert_eq!(read(&client, &session, "file"), "first");
    write(&client, &session, "file", "second");
    change(&client, &session, "stop");
    scene.return_to(supervisor);
    wait_until("the obsolete sandbox is ended", || has_exited(supervisor));
    let client = scene.server.client();
    for part in ["files/file", "quarantine"] {
        client.get(&format!("/api/sessions/{session}/{part}")).expect(404);
    }
    change(&client, &session, "resume");
    assert_eq!(read(&client, &session, "file"), "second");
    assert!(remembers(&client, &session));
}

#[test]
fn former_machine_ends_the_sandbox_of_a_session_that_ended_elsewhere() {
    let mut scene = Scene::start();
    let session = scene.server.create_session();
    let client = scene.server.client();
    client.run_turn(&session, "my name is Ann");
    wait_for_copies(&client);
    let supervisor = scene.leave_running(&session);
    let client = scene.server.client();
    change(&client, &session, "resume");
    client.delete(&format!("/api/sessions/{session}")).expect(200);
    scene.return_to(supervisor);
    wait_until("the sandbox of the ended session is ended", || has_exited(supervisor));
    let files = scene.server.data_dir().join("sessions").join(&session);
    wait_until("its variables are removed", || !files.exists());
}

#[test]
fn former_machine_stops_the_sandbox_of_a_deleted_session() {
    let mut scene = Scene::start();
    let session = scene.server.create_session();
    wait_for_copies(&scene.server.client());
    let supervisor = scene.leave_running(&session);
    scene.server.client().delete("/api/agents/hello").expect(200);
    scene.return_to(supervisor);
    wait_until("the sandbox of the deleted session is stopped", || has_exited(supervisor));
}

#[test]
fn allowed_hosts_of_a_session_are_allowed_on_another_machine() {
    let settings = settings_file("[sandbox]\noptions = [\"--allow-host\", \"192.0.2.1:80\"]\n");
    let config = settings.path().to_str().unwrap();
    let mut scene = Scene::start_with(tempfile::tempdir().unwrap(), &["--config", config]);
    let session = scene.server.create_session();
    let client = scene.server.client();
    let path = format!("/api/sessions/{session}/network");
    wait_for_copies(&client);
    client.post(&path, &json!({ "allow": ["192.0.2.1:81"] })).expect(200);
    change(&client, &session, "stop");
    assert!(scene.server.stop(Signal::TERM).success());

    scene.server.move_to("second");
    let client = scene.server.client();
    change(&client, &session, "resume");
    let allowed = client.get(&path).expect(200)["allow"].clone();
    assert_eq!(allowed, json!(["192.0.2.1:80", "192.0.2.1:81"]));
}

#[test]
fn server_that_is_killed_during_an_upload_leaves_the_former_copy() {
    let s3 = S3::start();
    let mut server = start_on(&s3);
    let session = server.create_session();
    let client = server.client();
    client.run_turn(&session, "my name is Ann");
    write(&client, &session, "file", "first");
    wait_for_copies(&client);
    s3.hold_uploads();
    write(&client, &session, "file", "second");
    // A turn does not wait for the upload.
    client.run_turn(&session, "lost");
    s3.wait_for_held_upload();
    server.stop(Signal::KILL);
    s3.release_uploads();

    server.move_to("second");
    let client = server.client();
    change(&client, &session, "resume");
    assert_eq!(read(&client, &session, "file"), "first");
    assert!(remembers(&client, &session));
    // The events of the lost turn are reported as lost, and no number is used twice.
    change(&client, &session, "stop");
    let frames = stored_frames(&client, &session, 0);
    assert!(frames.iter().any(|frame| frame.event == "gap"), "{frames:?}");
    assert!(frames.windows(2).all(|pair| pair[0].id < pair[1].id), "{frames:?}");
    wait_for_copies(&client);
    assert_eq!(s3.session_keys().len(), 3, "{:?}", s3.session_keys());
}

#[test]
fn unreachable_store_harms_no_request() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{closed}");
    let variables = [
        ("ASH_SNAPSHOT_URL", "s3://agents"),
        ("AWS_ENDPOINT_URL", url.as_str()),
        ("AWS_ACCESS_KEY_ID", "id"),
        ("AWS_SECRET_ACCESS_KEY", "the-secret"),
    ];
    let server = Server::start_with(&[], &variables);
    let session = server.create_session();
    let client = server.client();
    assert!(client.run_turn(&session, "my name is Ann").iter().any(|frame| frame.event == "done"));
    for name in ["pause", "resume", "stop", "resume"] {
        change(&client, &session, name);
    }
    assert!(remembers(&client, &session));
    wait_until("a failure is counted", || {
        metric(&client, "saggar_snapshot_uploads_total{result=\"error\"}") > 0
    });
    let health = client.get("/health").expect(200);
    assert!(!health.to_string().contains("the-secret"), "{health}");
    client.delete("/api/agents/hello").expect(200);
}

#[test]
fn keys_of_the_store_are_in_no_sandbox() {
    let s3 = S3::start();
    let server = start_on(&s3);
    let session = server.create_session();
    let client = server.client();
    let supervisor = server.supervisor(&session).as_raw_nonzero();
    // Only root can read it.
    let environment = fs::read(format!("/proc/{supervisor}/environ"));
    assert_eq!(environment.is_ok(), rustix::process::geteuid().is_root());
    let seen = client.run_turn(&session, "run: env; cat /proc/*/environ");
    for text in [String::from_utf8_lossy(&environment.unwrap_or_default()).into_owned(), format!("{seen:?}")]
    {
        assert!(!text.contains("the-secret") && !text.contains("the-key-id"), "{text}");
    }
}

#[test]
fn object_that_was_changed_is_refused() {
    let mut scene = Scene::start();
    let (session, _) = stopped_session(&mut scene.server);
    let snapshot = scene.objects("snapshot.tar.zst");
    let [file] = snapshot.as_slice() else { panic!("{snapshot:?}") };
    let content = fs::read(file).unwrap();
    let mut changed = content.clone();
    *changed.last_mut().unwrap() ^= 1;
    fs::write(file, changed).unwrap();
    scene.server.move_to("second");
    let client = scene.server.client();
    let path = format!("/api/sessions/{session}/resume");
    let refused = client.post(&path, &json!({})).expect(503);
    assert!(refused["error"].as_str().unwrap().contains("the snapshot store cannot be used"), "{refused}");
    assert!(!refused.to_string().contains("store/") && !refused.to_string().contains(&session), "{refused}");
    fs::write(file, content).unwrap();
    client.post(&path, &json!({})).expect(200);
    assert!(remembers(&client, &session));
}

#[test]
fn objects_are_private_and_deleted_with_their_session() {
    use std::os::unix::fs::PermissionsExt;
    let scene = Scene::start();
    let session = scene.server.create_session();
    let client = scene.server.client();
    write(&client, &session, "file", "x");
    wait_for_copies(&client);
    let store = fs::metadata(scene.directory.path().join("store")).unwrap();
    assert_eq!(store.permissions().mode() & 0o777, 0o700);
    assert_eq!(scene.objects(&session).len(), 3);
    // Without a change, nothing is stored.
    let stored = scene.objects(&session);
    for name in ["stop", "resume", "stop"] {
        change(&client, &session, name);
        wait_for_copies(&client);
    }
    assert_eq!(scene.objects(&session), stored);
    client.delete("/api/agents/hello").expect(200);
    let store = scene.directory.path().join("store");
    wait_until("the objects are deleted", || fs::read_dir(&store).unwrap().count() == 0);
}
