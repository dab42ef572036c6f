//! Keys of credentials that saggar adds to the requests of a sandbox, outside of it.

use crate::persisted_sessions::{Scene, wait_for_copies};
use crate::support::{Server, deploy_body, settings_file};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use tempfile::NamedTempFile;

const SECRET: &str = "sk-not-inside-the-sandbox";

/// A model API that answers each request with `{}`.
struct ModelApi {
    address: String,
    /// The head of each request, in lower case.
    heads: Receiver<String>,
}

impl ModelApi {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let (sender, heads) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, mut head, mut length) = (BufReader::new(stream.unwrap()), String::new(), 0);
                while !head.ends_with("\r\n\r\n") {
                    let start = head.len();
                    if stream.read_line(&mut head).unwrap() == 0 {
                        break;
                    }
                    let line = head[start..].to_ascii_lowercase();
                    if let Some(value) = line.strip_prefix("content-length:") {
                        length = value.trim().parse().unwrap();
                    }
                }
                stream.read_exact(&mut vec![0; length]).unwrap();
                let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
                stream.get_mut().write_all(answer.as_bytes()).unwrap();
                let _ = sender.send(head.to_ascii_lowercase());
            }
        });
        ModelApi { address, heads }
    }
}

/// Settings that send the keys of both services to this address.
fn settings(address: &str) -> NamedTempFile {
    settings_file(&format!(
        "[credentials]\nanthropic_api = \"{address}\"\nopenai_api = \"{address}/gateway\"\n"
    ))
}

/// A server with these settings.
fn start_server(settings: &NamedTempFile) -> Server {
    Server::start_with(&["--config", settings.path().to_str().unwrap()], &[])
}

fn store(server: &Server, service: &str, key: &str) -> String {
    let created = server.client().post("/api/credentials", &json!({ "type": service, "key": key }));
    created.expect(201)["credential"]["id"].as_str().unwrap().to_owned()
}

fn create_session(server: &Server, body: &Value) -> String {
    server.client().post("/api/sessions", body).expect(201)["session"]["id"].as_str().unwrap().to_owned()
}

fn exec(server: &Server, session: &str, command: &str) -> String {
    let path = format!("/api/sessions/{session}/exec");
    let output = server.client().post(&path, &json!({ "command": command })).expect(200);
    format!("{}{}", output["stdout"].as_str().unwrap(), output["stderr"].as_str().unwrap())
}

/// Makes a request as a program in the sandbox, with a key of its own, and returns the head that arrives.
fn request(server: &Server, api: &ModelApi, session: &str) -> String {
    let command =
        "curl --silent --show-error --data '{}' --header 'x-api-key: own' $ANTHROPIC_BASE_URL/v1/messages";
    assert_eq!(exec(server, session, command), "{}");
    api.heads.recv().unwrap()
}

/// Whether a command line or an environment on this machine contains the secret, as far as it can be read.
fn is_visible_in_proc() -> bool {
    fs::read_dir("/proc").unwrap().flatten().any(|process| {
        ["cmdline", "environ"].iter().any(|file| {
            let text = fs::read(process.path().join(file)).unwrap_or_default();
            text.windows(SECRET.len()).any(|part| part == SECRET.as_bytes())
        })
    })
}

#[test]
fn key_is_added_outside_the_sandbox_also_after_a_resume_and_a_fork() {
    let api = ModelApi::start();
    let settings = settings(&api.address);
    let server = start_server(&settings);
    let client = server.client();
    let mut agent = deploy_body("hello");
    agent["env"] = json!({ "ANTHROPIC_API_KEY": "of-the-agent", "OTHER": "1" });
    client.post("/api/agents", &agent).expect(201);
    let id = store(&server, "anthropic", SECRET);
    let session = create_session(&server, &json!({ "agent": "hello", "credentialId": id }));

    let seen = exec(
        &server,
        &session,
        "env; cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'; grep -rs sk-not-inside / --include='*' --exclude-dir=proc \
         --exclude-dir=usr --exclude-dir=sys; true",
    );
    assert!(seen.contains("OTHER=1") && !seen.contains(SECRET) && !seen.contains("of-the-agent"), "{seen}");
    assert!(!is_visible_in_proc());
    let head = request(&server, &api, &session);
    assert!(head.starts_with("post /v1/messages http/1.1\r\n"), "{head}");
    assert!(head.contains(&format!("x-api-key: {SECRET}\r\n")) && !head.contains("x-api-key: own"), "{head}");

    client.post(&format!("/api/sessions/{session}/stop"), &json!({})).expect(200);
    client.post(&format!("/api/sessions/{session}/resume"), &json!({})).expect(200);
    assert!(request(&server, &api, &session).contains(SECRET));
    let fork = client.post(&format!("/api/sessions/{session}/fork"), &json!({})).expect(201);
    let fork = fork["session"]["id"].as_str().unwrap();
    client.delete(&format!("/api/sessions/{session}")).expect(200);
    client.post(&format!("/api/sessions/{fork}/resume"), &json!({})).expect(200);
    assert!(request(&server, &api, fork).contains(SECRET));
    assert!(!exec(&server, fork, "env").contains(SECRET));

    client.delete(&format!("/api/sessions/{fork}")).expect(200);
    for id in [&session, fork] {
        assert!(!Path::new(&server.data_dir()).join("sessions").join(id).exists());
    }
}

#[test]
fn key_is_added_on_another_machine_which_has_no_file_of_it() {
    let api = ModelApi::start();
    let settings = settings(&api.address);
    let mut scene =
        Scene::start_with(tempfile::tempdir().unwrap(), &["--config", settings.path().to_str().unwrap()]);
    let client = scene.server.client();
    client.post("/api/agents", &deploy_body("hello")).expect(201);
    let id = store(&scene.server, "anthropic", SECRET);
    let session = create_session(&scene.server, &json!({ "agent": "hello", "credentialId": id }));
    client.post(&format!("/api/sessions/{session}/stop"), &json!({})).expect(200);
    wait_for_copies(&client);
    let database = ["saggar.db", "saggar.db-wal"].map(|name| scene.server.data_dir().join(name));
    for file in scene.objects("").into_iter().chain(database) {
        let bytes = fs::read(&file).unwrap();
        assert!(!bytes.windows(SECRET.len()).any(|part| part == SECRET.as_bytes()), "{}", file.display());
    }
    assert!(scene.server.stop(Signal::TERM).success());
    scene.server.move_to("second");
    let client = scene.server.client();
    client.post(&format!("/api/sessions/{session}/resume"), &json!({})).expect(200);
    assert!(request(&scene.server, &api, &session).contains(SECRET));
    assert!(!exec(&scene.server, &session, "env").contains(SECRET));
}

#[test]
fn programs_for_openai_find_the_address_in_their_variables() {
    let api = ModelApi::start();
    let settings = settings(&api.address);
    let server = start_server(&settings);
    server.client().post("/api/agents", &deploy_body("hello")).expect(201);
    let id = store(&server, "openai", SECRET);
    let session = create_session(&server, &json!({ "agent": "hello", "credentialId": id }));
    let command = "curl -sS --header \"authorization: Bearer $OPENAI_API_KEY\" $OPENAI_BASE_URL/models";
    assert_eq!(exec(&server, &session, command), "{}");
    let head = api.heads.recv().unwrap();
    assert!(head.starts_with("get /gateway/v1/models http/1.1\r\n"), "{head}");
    assert!(head.contains(&format!("authorization: bearer {SECRET}\r\n")), "{head}");
    assert!(!exec(&server, &session, "env").contains(SECRET));
}

/// The server does not connect to an address that a client chooses.
#[test]
fn key_for_another_address_is_a_variable() {
    let api = ModelApi::start();
    let settings = settings("https://unused.invalid");
    let server = start_server(&settings);
    server.client().post("/api/agents", &deploy_body("hello")).expect(201);
    let id = store(&server, "anthropic", "sk-a-variable");
    let own = json!({ "ANTHROPIC_BASE_URL": api.address });
    let body = json!({ "agent": "hello", "credentialId": id, "extraEnv": own });
    let session = create_session(&server, &body);
    let command = "echo $ANTHROPIC_API_KEY; curl -sS --max-time 5 $ANTHROPIC_BASE_URL";
    let output = exec(&server, &session, command);
    assert!(output.starts_with("sk-a-variable\n") && output.contains("curl:"), "{output}");
    assert!(api.heads.try_recv().is_err());
}
