//! The network of a session: the hosts that its programs connect to, and the rules for them. No host is reached: an allowed
//! connection is accepted by the relay, which listens on the ports of rules only.

use crate::support::{Client, Frame, Server, saggar_program, settings_file, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// An address for documentation, which no host has.
const HOST: &str = "192.0.2.1";

/// A server whose sandboxes have these options, and a session of the demo agent.
struct Networked {
    server: Server,
    session: String,
    /// The server reads it again when it is restarted.
    _settings: NamedTempFile,
}

impl Networked {
    fn start(options: &[&str]) -> Self {
        Networked::start_with(options, &[])
    }

    fn start_with(options: &[&str], variables: &[(&str, &str)]) -> Self {
        Networked::start_program(&saggar_program(), options, variables)
    }

    /// With this program as saggar.
    fn start_program(saggar: &Path, options: &[&str], variables: &[(&str, &str)]) -> Self {
        let file = settings_file(&format!("[sandbox]\noptions = {}\n", json!(options)));
        let config = file.path().to_str().unwrap();
        let server =
            Server::start_with(&["--config", config, "--saggar", saggar.to_str().unwrap()], variables);
        let session = server.create_session();
        Networked { server, session, _settings: file }
    }

    fn client(&self) -> Client {
        self.server.client()
    }

    fn path(&self, part: &str) -> String {
        format!("/api/sessions/{}/{part}", self.session)
    }

    fn network(&self) -> Value {
        self.client().get(&self.path("network")).expect(200)
    }

    #[track_caller]
    fn allow(&self, rules: &[&str], status: u16) -> Value {
        self.client().post(&self.path("network"), &json!({ "allow": rules })).expect(status)
    }

    /// The file in which the server stores the allowed hosts.
    fn stored(&self) -> PathBuf {
        self.server.data_dir().join("sessions").join(&self.session).join("allowed-hosts.json")
    }

    /// The events of this action, the oldest first.
    fn events(&self, action: &str) -> Vec<Value> {
        let mut events = self.client().lifecycle_events(&self.session);
        events.retain(|data| data["action"] == action);
        events
    }

    /// Whether a program in the sandbox can connect to this port of the host.
    fn connects(&self, port: u16) -> bool {
        let command = format!("bash -c 'exec 3<>/dev/tcp/{HOST}/{port}'");
        let output = self.client().post(&self.path("exec"), &json!({ "command": command })).expect(200);
        output["exitCode"] == 0
    }

    /// The counts of this port of the host.
    fn counts(&self, port: u16) -> Value {
        let network = self.network();
        let hosts = network["hosts"].as_array().unwrap();
        hosts.iter().find(|row| row["host"] == HOST && row["port"] == port).cloned().unwrap_or_default()
    }

    fn restart_sandbox(&self) {
        self.client().post(&self.path("stop"), &json!({})).expect(200);
        self.client().post(&self.path("resume"), &json!({})).expect(200);
    }
}

fn until(frames: &mut impl Iterator<Item = Frame>, event: &str) -> Frame {
    frames.find(|frame| frame.event == event).unwrap_or_else(|| panic!("no {event}"))
}

#[test]
fn refused_host_is_counted_and_can_be_allowed() {
    let networked =
        Networked::start(&["--allow-host", &format!("{HOST}:80"), "--deny-host", "denied.example"]);
    let network = networked.network();
    assert_eq!((&network["mode"], &network["allow"]), (&json!("policy"), &json!([format!("{HOST}:80")])));
    assert_eq!((&network["deny"], &network["hosts"]), (&json!(["denied.example"]), &json!([])));
    assert!(!networked.connects(81));
    wait_until("the refusal is counted", || networked.counts(81)["refused"].as_u64() >= Some(1));
    let counts = networked.counts(81);
    assert_eq!(
        (&counts["connections"], &counts["sent"], &counts["received"]),
        (&json!(0), &json!(0), &json!(0))
    );

    assert_eq!(networked.allow(&[&format!("{HOST}:81")], 200), json!({ "ok": true }));
    assert!(networked.connects(81));
    wait_until("the connection is relayed, to a host that does not exist", || {
        networked.counts(81)["unreachable"].as_u64() >= Some(1)
    });
    let network = networked.network();
    assert_eq!(network["allow"], json!([format!("{HOST}:80"), format!("{HOST}:81")]));
    assert_eq!(network["deny"], json!(["denied.example"]), "no other rule is changed");
    networked.allow(&[&format!("{HOST}:81"), &format!("{HOST}:80")], 200);
    assert_eq!(networked.network()["allow"], network["allow"], "each rule once");

    let allowed = json!({ "action": "hosts_allowed", "hosts": [format!("{HOST}:81")] });
    let events = networked.events("hosts_allowed");
    assert!(events.contains(&allowed), "{events:?}");
}

#[test]
fn spellings_of_a_host_are_one_rule() {
    let networked = Networked::start(&["--allow-host", &format!("{HOST}:80")]);
    networked.allow(&["Example.COM:443", "example.com:443"], 200);
    networked.allow(&["EXAMPLE.com:443"], 200);
    assert_eq!(networked.network()["allow"], json!([format!("{HOST}:80"), "example.com:443"]));
    let stored: Value = serde_json::from_slice(&fs::read(networked.stored()).unwrap()).unwrap();
    assert_eq!(stored, json!(["example.com:443"]));
    let event = json!({ "action": "hosts_allowed", "hosts": ["example.com:443"] });
    assert_eq!(networked.events("hosts_allowed"), [event], "the second request changed nothing");
    networked.restart_sandbox();
    assert_eq!(networked.network()["allow"], json!([format!("{HOST}:80"), "example.com:443"]));
}

#[test]
fn stored_host_is_allowed_though_the_server_was_killed_after_the_start_of_the_sandbox() {
    let directory = tempfile::tempdir().unwrap();
    let [wrapper, hold, resumed] = ["saggar", "hold", "resumed"].map(|name| directory.path().join(name));
    let script = format!(
        "#!/bin/sh\n{saggar} \"$@\"\nstatus=$?\n\
         if [ \"$1 $2\" = 'session resume' ] && [ -e {hold} ]; then\n\
         touch {resumed}\nwhile [ -e {hold} ]; do sleep 0.1; done\nfi\nexit $status\n",
        saggar = saggar_program().display(),
        hold = hold.display(),
        resumed = resumed.display()
    );
    fs::write(&wrapper, script).unwrap();
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    let mut networked = Networked::start_program(&wrapper, &["--allow-host", &format!("{HOST}:80")], &[]);
    networked.allow(&[&format!("{HOST}:81")], 200);
    networked.client().post(&networked.path("stop"), &json!({})).expect(200);
    fs::write(&hold, "").unwrap();
    let (client, path) = (networked.client(), networked.path("resume"));
    // It gets no response.
    let resume = std::thread::spawn(move || client.post(&path, &json!({})));
    wait_until("saggar has started the sandbox", || resumed.exists());
    networked.server.stop(Signal::KILL);
    fs::remove_file(&hold).unwrap();
    assert!(resume.join().is_err());
    networked.server.restart();
    assert!(networked.connects(81));
    assert_eq!(networked.network()["allow"], json!([format!("{HOST}:80"), format!("{HOST}:81")]));
}

#[test]
fn stored_hosts_are_allowed_though_one_is_refused() {
    let networked = Networked::start(&["--allow-host", &format!("{HOST}:80")]);
    networked.allow(&[&format!("{HOST}:81")], 200);
    networked.client().post(&networked.path("stop"), &json!({})).expect(200);
    let refused = "good.example:53";
    let stored = json!([refused, format!("{HOST}:81"), format!("{HOST}:82")]);
    fs::write(networked.stored(), stored.to_string()).unwrap();
    networked.client().post(&networked.path("resume"), &json!({})).expect(200);
    assert!(networked.connects(81) && networked.connects(82));
    let events = networked.events("hosts_not_allowed");
    assert_eq!((events.len(), &events[0]["hosts"]), (1, &json!([refused])), "{events:?}");
    assert!(events[0]["reason"].as_str().unwrap().contains("53"), "{events:?}");
}

#[test]
fn allowed_host_remains_allowed_in_a_new_sandbox() {
    let mut networked = Networked::start(&["--allow-host", &format!("{HOST}:80")]);
    networked.allow(&[&format!("{HOST}:81")], 200);
    networked.allow(&[&format!("{HOST}:82")], 200);
    networked.client().post(&networked.path("stop"), &json!({})).expect(200);
    let stopped = json!({ "mode": null, "hosts": [], "allow": [], "deny": [], "ask": [], "consented": [] });
    assert_eq!(networked.network(), stopped);
    let refused = networked.allow(&[&format!("{HOST}:83")], 400);
    assert_eq!(refused["error"], "Session is stopped: no sandbox is running");
    networked.client().post(&networked.path("resume"), &json!({})).expect(200);
    assert!(networked.connects(81) && networked.connects(82) && !networked.connects(83));
    // Also after a restart of the server.
    networked.server.stop(Signal::KILL);
    networked.server.restart();
    assert!(networked.connects(82));
    networked.restart_sandbox();
    assert!(networked.connects(81) && networked.connects(82) && !networked.connects(83));
    // A fork has the rules of its policy.
    let fork = networked.client().post(&networked.path("fork"), &json!({})).expect(201);
    networked.session = fork["session"]["id"].as_str().unwrap().to_owned();
    networked.client().post(&networked.path("resume"), &json!({})).expect(200);
    assert_eq!(networked.network()["allow"], json!([format!("{HOST}:80")]));
}

#[test]
fn frozen_session_can_be_allowed_hosts() {
    let networked = Networked::start(&["--allow-host", &format!("{HOST}:80")]);
    let paused = networked.client().post(&networked.path("pause"), &json!({})).expect(200);
    assert_eq!(paused["session"]["status"], "paused");
    // Without a cgroup, the sandbox has ended instead.
    if networked.network()["mode"] == "policy" {
        networked.allow(&[&format!("{HOST}:81")], 200);
    }
    networked.client().post(&networked.path("resume"), &json!({})).expect(200);
    networked.allow(&[&format!("{HOST}:81")], 200);
    assert!(networked.connects(81));
}

#[test]
fn hosts_that_are_allowed_at_the_same_time_are_all_allowed() {
    let networked = Networked::start(&["--allow-host", &format!("{HOST}:80")]);
    std::thread::scope(|scope| {
        for port in 81..91 {
            let networked = &networked;
            scope.spawn(move || networked.allow(&[&format!("{HOST}:{port}")], 200));
        }
    });
    let allowed = networked.network()["allow"].clone();
    for port in 80..91 {
        assert!(allowed.as_array().unwrap().contains(&json!(format!("{HOST}:{port}"))), "{port}: {allowed}");
    }
    networked.restart_sandbox();
    let again = networked.network()["allow"].clone();
    assert_eq!(again.as_array().unwrap().len(), allowed.as_array().unwrap().len(), "{again}");
}

#[test]
fn invalid_rules_change_nothing() {
    let networked = Networked::start(&["--allow-host", &format!("{HOST}:80")]);
    let many: Vec<String> = (0..129).map(|number| format!("h{number}.example")).collect();
    for (body, part) in [
        (json!({}), "allow"),
        (json!({ "allow": HOST }), "body/allow"),
        (json!({ "allow": [] }), "1 to 128 rules"),
        (json!({ "allow": many }), "1 to 128 rules"),
        (json!({ "allow": ["good.example:443", "http://x/"] }), "is a URL"),
        (json!({ "allow": ["good.example:0"] }), "body/allow"),
        (json!({ "allow": ["good.example:53"] }), "53"),
        (json!({ "allow": [""] }), "body/allow"),
    ] {
        let refused = networked.client().post(&networked.path("network"), &body).expect(400);
        assert!(refused["message"].as_str().unwrap().contains(part), "{body}: {refused}");
    }
    assert_eq!(networked.network()["allow"], json!([format!("{HOST}:80")]));
    networked.restart_sandbox();
    assert_eq!(networked.network()["allow"], json!([format!("{HOST}:80")]));
}

#[test]
fn sandbox_without_policy_for_hosts_refuses_them() {
    let networked = Networked::start(&[]);
    let none = json!({ "mode": "none", "hosts": [], "allow": [], "deny": [], "ask": [], "consented": [] });
    assert_eq!(networked.network(), none);
    let refused = networked.allow(&["good.example:443"], 409);
    assert!(refused["error"].as_str().unwrap().contains("network.mode is none"), "{refused}");
    let networked = Networked::start(&["--net", "host"]);
    assert_eq!(networked.network()["mode"], "host");
    networked.allow(&["good.example:443"], 409);
}

#[test]
fn locked_network_refuses_further_hosts() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("saggar")).unwrap();
    let policy = format!("locked = [\"network\"]\n[network]\nallow = [\"{HOST}:80\"]\n");
    fs::write(directory.path().join("saggar/config.toml"), policy).unwrap();
    let variables = [("XDG_CONFIG_HOME", directory.path().to_str().unwrap())];
    let networked = Networked::start_with(&[], &variables);
    let refused = networked.allow(&[&format!("{HOST}:81")], 409);
    assert!(refused["error"].as_str().unwrap().contains("locks network"), "{refused}");
    assert_eq!(networked.network()["allow"], json!([format!("{HOST}:80")]));
    assert!(!networked.connects(81));
}

#[test]
fn only_admin_allows_hosts_in_its_tenant() {
    let networked = Networked::start(&["--allow-host", &format!("{HOST}:80")]);
    let path = networked.path("network");
    let body = json!({ "allow": [format!("{HOST}:81")] });
    for scope in ["read", "agent"] {
        let key = networked.client().post("/api/api-keys", &json!({ "scope": scope })).expect(201);
        let client = networked.server.client_with(Some(key["key"].as_str().unwrap()));
        client.get(&path).expect(200);
        let refused = client.post(&path, &body).expect(403);
        assert!(refused["error"].as_str().unwrap().contains("the scope admin"), "{refused}");
    }
    let unknown = "/api/sessions/00000000-0000-4000-8000-000000000000/network";
    for (client, path) in
        [(networked.client(), unknown), (networked.server.client_of_tenant("other"), path.as_str())]
    {
        assert_eq!(client.get(path).expect(404)["error"], "Session not found");
        client.post(path, &body).expect(404);
    }
    networked.client().get("/api/sessions/x/network").expect(400);
    assert!(!networked.connects(81));
}

#[test]
fn host_in_ask_is_a_permission_request_whose_answer_allows_it() {
    let networked = Networked::start(&["--ask-host", &format!("{HOST}:80")]);
    let client = networked.client();
    let command = format!("run: bash -c 'read < /dev/tcp/{HOST}/80'");
    let mut turn = client.send(&networked.session, &json!({ "content": command }));
    let request = until(&mut turn, "permission_request").json();
    assert_eq!((&request["kind"], &request["input"]["host"]), (&json!("network"), &json!(HOST)), "{request}");
    assert_eq!(request["input"]["port"], 80);
    let path = networked.path("permissions");
    assert_eq!(client.get(&path).expect(200), json!({ "permissions": [request] }));
    assert_eq!(networked.network()["ask"], json!([format!("{HOST}:80")]));
    let answer = json!({ "behavior": "allow", "updatedPermissions": request["suggestions"] });
    let id = request["id"].as_str().unwrap();
    client.post(&format!("{path}/{id}"), &answer).expect(200);
    wait_until("the host is allowed for the session", || {
        networked.network()["consented"] == json!([format!("{HOST}:80")])
    });
    assert_eq!(client.get(&path).expect(200), json!({ "permissions": [] }));
}
