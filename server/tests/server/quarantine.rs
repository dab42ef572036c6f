//! The quarantine of a session: files that its agent left where programs of the host would run them.

use crate::support::{Client, Server, wait_until};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;

/// The files that the agent of [`Quarantined`] has left.
const LEFT: [&str; 3] = [".bashrc", "a/.git/config", "sub/.envrc"];

/// A session of the demo agent, whose agent has left files under protected names.
struct Quarantined {
    server: Server,
    session: String,
}

impl Quarantined {
    fn start() -> Self {
        let server = Server::start();
        let session = server.create_session();
        let client = server.client();
        let left = "run: echo evil > .bashrc; mkdir sub; echo evil > sub/.envrc; git init -q a; git -C a config core.pager evil";
        client.run_turn(&session, left);
        // The top of the workspace is searched before the next turn.
        client.run_turn(&session, "hi");
        Quarantined { server, session }
    }

    fn path(&self, part: &str) -> String {
        format!("/api/sessions/{}/{part}", self.session)
    }

    fn list(&self) -> Vec<Value> {
        let listed = self.server.client().get(&self.path("quarantine")).expect(200);
        assert!(!listed.to_string().contains(self.server.data_dir().to_str().unwrap()), "{listed}");
        listed["files"].as_array().unwrap().clone()
    }

    fn paths(&self) -> Vec<String> {
        let mut paths: Vec<String> =
            self.list().iter().map(|file| file["path"].as_str().unwrap().to_owned()).collect();
        paths.sort();
        paths
    }

    /// A file of the workspace, on the host.
    fn file(&self, path: &str) -> PathBuf {
        let record = self.server.session_record(&self.session);
        PathBuf::from(record["workspace"].as_str().unwrap()).join(path)
    }

    #[track_caller]
    fn release(&self, body: &Value, status: u16) -> Value {
        self.server.client().post(&self.path("quarantine"), body).expect(status)
    }

    /// The events of the session about its quarantine, the oldest first.
    fn releases(&self) -> Vec<Value> {
        let mut releases = self.server.client().lifecycle_events(&self.session);
        releases.retain(|data| data["action"].as_str().unwrap().starts_with("quarantine_"));
        releases
    }

    /// Stops the session. The whole workspace is searched when its sandbox ends.
    fn stop(&self) {
        self.server.client().post(&self.path("stop"), &json!({})).expect(200);
        wait_until("the workspace was searched", || self.list().len() == LEFT.len());
    }
}

/// A client with a new key of this scope.
fn client_of_scope(server: &Server, scope: &str) -> Client {
    let key = server.client().post("/api/api-keys", &json!({ "scope": scope })).expect(201);
    server.client_with(Some(key["key"].as_str().unwrap()))
}

#[test]
fn quarantined_files_are_listed_restored_and_removed() {
    let quarantined = Quarantined::start();
    assert_eq!(quarantined.paths(), [".bashrc"]);
    // saggar would quarantine it again.
    let running = quarantined.release(&json!({ "action": "restore", "names": [".bashrc"] }), 409);
    assert!(running["error"].as_str().unwrap().contains("stop the session"), "{running}");
    quarantined.stop();
    let files = quarantined.list();
    assert_eq!(quarantined.paths(), LEFT);
    let first = files.iter().find(|file| file["path"] == ".bashrc").unwrap();
    let number = first["number"].as_u64().unwrap();
    assert_eq!(first["name"], format!("{number}-.bashrc"));
    assert_eq!(first["replaced"], false);
    assert!(first["why"].as_str().unwrap().contains("protected name"), "{first}");
    let config = files.iter().find(|file| file["path"] == "a/.git/config").unwrap();
    assert_eq!(config["replaced"], true);
    assert!(config["why"].as_str().unwrap().contains("core.pager"), "{config}");

    let removed = quarantined.release(&json!({ "action": "remove", "names": ["sub/.envrc"] }), 200);
    assert_eq!(removed, json!({ "ok": true }));
    quarantined.release(&json!({ "action": "restore", "names": [number.to_string()] }), 200);
    assert_eq!(fs::read_to_string(quarantined.file(".bashrc")).unwrap(), "evil\n");
    assert_eq!(quarantined.paths(), ["a/.git/config"]);
    quarantined.release(&json!({ "action": "restore" }), 200);
    assert!(fs::read_to_string(quarantined.file("a/.git/config")).unwrap().contains("evil"));
    assert!(!quarantined.file("sub/.envrc").exists());
    assert!(quarantined.list().is_empty());
    // Without files, there is nothing to do.
    quarantined.release(&json!({ "action": "restore" }), 200);

    // What was there at the start stays.
    let client = quarantined.server.client();
    client.post(&quarantined.path("resume"), &json!({})).expect(200);
    client.run_turn(&quarantined.session, "hi");
    client.run_turn(&quarantined.session, "hi");
    assert!(quarantined.list().is_empty());
    client.delete(&format!("/api/sessions/{}", quarantined.session)).expect(200);
    assert!(quarantined.list().is_empty());
}

#[test]
fn other_file_at_the_original_path_stays_unless_it_is_forced() {
    let quarantined = Quarantined::start();
    quarantined.stop();
    let file = quarantined.file(".bashrc");
    fs::write(&file, "mine").unwrap();
    let restore = json!({ "action": "restore", "names": [".bashrc"] });
    let refused = quarantined.release(&restore, 409);
    let text = refused["error"].as_str().unwrap();
    assert!(text.contains("restore .bashrc: ") && text.contains("with force"), "{text}");
    assert!(
        !text.contains(quarantined.server.data_dir().to_str().unwrap()) && !text.contains("--force"),
        "{text}"
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    quarantined.release(&json!({ "action": "restore", "names": [".bashrc"], "force": true }), 200);
    assert_eq!(fs::read_to_string(&file).unwrap(), "evil\n");
    assert_eq!(quarantined.paths(), LEFT, "what was there is in quarantine");
    // One that cannot be restored does not keep the others.
    let refused = quarantined.release(&json!({ "action": "restore" }), 409);
    assert!(refused["error"].as_str().unwrap().contains(".bashrc"), "{refused}");
    assert_eq!(quarantined.paths(), [".bashrc"]);
}

#[test]
fn restore_that_fails_for_another_reason_has_no_remedy() {
    let quarantined = Quarantined::start();
    quarantined.stop();
    fs::remove_dir_all(quarantined.file("sub")).unwrap();
    for force in [false, true] {
        let body = json!({ "action": "restore", "names": ["sub/.envrc"], "force": force });
        let failed = quarantined.release(&body, 500);
        let text = failed["error"].as_str().unwrap();
        assert!(text.contains("restore sub/.envrc: ") && !text.contains("force"), "{text}");
        assert!(!text.contains(quarantined.server.data_dir().to_str().unwrap()), "{text}");
    }
    assert_eq!(quarantined.paths(), LEFT);
    assert!(quarantined.releases().is_empty(), "no file was restored");
}

#[test]
fn restored_and_removed_files_are_in_the_events() {
    let quarantined = Quarantined::start();
    quarantined.stop();
    quarantined.release(&json!({ "action": "remove", "names": ["sub/.envrc"] }), 200);
    fs::write(quarantined.file(".bashrc"), "mine").unwrap();
    // One of the two files is restored.
    quarantined.release(&json!({ "action": "restore" }), 409);
    assert_eq!(
        quarantined.releases(),
        [
            json!({ "action": "quarantine_removed", "count": 1, "paths": ["sub/.envrc"] }),
            json!({ "action": "quarantine_restored", "count": 1, "paths": ["a/.git/config"] }),
        ]
    );
}

#[test]
fn invalid_requests_for_the_quarantine_change_nothing() {
    let quarantined = Quarantined::start();
    quarantined.stop();
    let all = quarantined.paths();
    let many: Vec<String> = (0..1001).map(|number| number.to_string()).collect();
    for (body, part) in [
        (json!({}), "action"),
        (json!({ "action": "delete" }), "body/action"),
        (json!({ "action": "remove", "names": "x" }), "body/names"),
        (json!({ "action": "remove", "names": many }), "body/names must have 1 to 1000 names"),
        (json!({ "action": "remove", "names": [] }), "body/names must have 1 to 1000 names"),
        (json!({ "action": "restore", "names": null }), "body/names"),
        (json!({ "action": "restore", "names": [] }), "body/names must have 1 to 1000 names"),
        (json!({ "action": "remove", "names": [".bashrc", "99"] }), "\"99\" is not in quarantine"),
        (json!({ "action": "restore", "names": ["bashrc"] }), "\"bashrc\" is not in quarantine"),
        (json!({ "action": "remove", "names": ["--force"] }), "\"--force\" is not in quarantine"),
        (json!({ "action": "restore", "force": 1 }), "body/force"),
    ] {
        let refused = quarantined.release(&body, 400);
        assert!(refused["message"].as_str().unwrap().contains(part), "{body}: {refused}");
    }
    let server = &quarantined.server;
    let unknown = "/api/sessions/00000000-0000-4000-8000-000000000000/quarantine";
    let own = quarantined.path("quarantine");
    for (client, path) in [(server.client(), unknown), (server.client_of_tenant("other"), own.as_str())] {
        assert_eq!(client.get(path).expect(404)["error"], "Session not found");
        client.post(path, &json!({ "action": "remove" })).expect(404);
        client.post(path, &json!({ "action": "restore" })).expect(404);
    }
    server.client().get("/api/sessions/x/quarantine").expect(400);
    assert_eq!(quarantined.paths(), all);
}

#[test]
fn only_admin_restores_from_quarantine() {
    let quarantined = Quarantined::start();
    quarantined.stop();
    let path = quarantined.path("quarantine");
    let [read, agent] = ["read", "agent"].map(|scope| client_of_scope(&quarantined.server, scope));
    for client in [&read, &agent] {
        client.get(&path).expect(200);
        let refused = client.post(&path, &json!({ "action": "restore" })).expect(403);
        assert!(refused["error"].as_str().unwrap().contains("needs an API key with the scope"), "{refused}");
    }
    let remove = json!({ "action": "remove" });
    read.post(&path, &remove).expect(403);
    assert_eq!(quarantined.paths().len(), 3);
    agent.post(&path, &remove).expect(200);
    assert!(quarantined.list().is_empty());
}

#[test]
fn session_without_quarantine_has_an_empty_list() {
    let server = Server::start();
    let session = server.create_session();
    let path = format!("/api/sessions/{session}/quarantine");
    assert_eq!(server.client().get(&path).expect(200), json!({ "files": [] }));
    server.client().post(&path, &json!({ "action": "remove" })).expect(200);
}
