//! saggar-server on a cluster of one node, whose pods containerd runs: saggar-server(8), KUBERNETES.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;

use serde_json::{Value, json};

use super::session_pod::SessionPod;
use crate::callers::cri::{Cri, server_file};
use crate::callers::{Engine, IMAGE};
use crate::certificate::TestCertificate;
use crate::daemon::Daemon;
use crate::kubernetes_api::{ApiState, NAMESPACE};
use crate::output::{Output, Running};

/// The image in the packaged manifest.
const PLACEHOLDER: &str = "registry.example/agent:1";

/// The server, and the relay of the node.
struct Installation<'a> {
    cri: &'a Cri,
    api: Arc<ApiState>,
    url: String,
    key: String,
    _programs: [Daemon; 2],
}

impl<'a> Installation<'a> {
    #[track_caller]
    fn start(cri: &'a Cri) -> Self {
        let directory = cri.dir().join("server");
        fs::create_dir(&directory).unwrap();
        let certificate = TestCertificate::create(&directory);
        let api = Arc::<ApiState>::default();
        let api_address = serve(Arc::clone(&api));

        let mut relay = server_program(cri);
        relay.args(["relay", "--listen", "127.0.0.1:0", "--sockets"]).arg(cri.sockets());
        for option in ["--client-authority", "--tls-certificate"] {
            relay.arg(option).arg(&certificate.certificate);
        }
        relay.arg("--tls-key").arg(&certificate.key).arg("--saggar").arg(cri.runtime());
        let (relay, relay_url) = start(&relay, directory.join("relay.log"));

        let pod = directory.join("pod.yaml");
        fs::write(&pod, server_file("pod.yaml").replace(PLACEHOLDER, IMAGE)).unwrap();
        let mut settings: toml::Table = server_file("server.toml").parse().unwrap();
        let kubernetes = settings["kubernetes"].as_table_mut().unwrap();
        kubernetes.insert("pod".into(), path(&pod));
        kubernetes.insert("namespace".into(), NAMESPACE.into());
        kubernetes.insert("api".into(), format!("http://{api_address}").into());
        let of_relay = kubernetes["relay"].as_table_mut().unwrap();
        let port: u16 = relay_url.rsplit_once(':').unwrap().1.parse().unwrap();
        of_relay.insert("port".into(), i64::from(port).into());
        of_relay.insert("name".into(), "localhost".into());
        of_relay.insert("certificate".into(), path(&certificate.certificate));
        of_relay.insert("key".into(), path(&certificate.key));
        of_relay.insert("certificate_authority".into(), path(&certificate.certificate));
        let config = directory.join("server.toml");
        fs::write(&config, settings.to_string()).unwrap();

        let data = directory.join("data");
        let mut server = server_program(cri);
        server.args(["--listen", "127.0.0.1:0", "--config"]).arg(&config).arg("--data").arg(&data);
        server.arg("--saggar").arg(cri.runtime());
        let (server, url) = start(&server, directory.join("server.log"));
        let key = fs::read_to_string(data.join("initial-api-key")).unwrap().trim().to_owned();
        Installation { cri, api, url, key, _programs: [server, relay] }
    }

    /// `saggar remote ARGUMENTS`, started.
    fn begin(&self, arguments: &[&str]) -> Running {
        let mut command = self.cri.program(self.cri.runtime());
        command.env("SAGGAR_REMOTE_URL", &self.url).env("SAGGAR_REMOTE_KEY", &self.key);
        command.arg("remote").args(arguments);
        Running::start(command, b"")
    }

    /// The same, to its end.
    fn remote(&self, arguments: &[&str]) -> Output {
        self.begin(arguments).wait()
    }
}

/// A session has its folder, its variables and its conversation in a pod, and the node has its events after the pod's end.
pub(in crate::scenarios) fn server_pods(engine: &dyn Engine) {
    let installation = Installation::start(engine.cri());
    let folder = engine.dir().join("server/helper");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("CLAUDE.md"), "Be brief.").unwrap();
    installation.remote(&["deploy", folder.to_str().unwrap()]).exits(0);

    let created = installation.begin(&["session", "create", "helper", "--env", "WORD=plum"]);
    let pod = SessionPod::run(engine, &installation.api);
    let session = created.wait().says();
    assert_eq!(pod.name(), format!("saggar-{session}"));
    for prompt in ["first", "second"] {
        let reply = installation.remote(&["session", "send", "--json", &session, prompt]).says();
        let messages: Vec<Value> = reply.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let answer = messages.iter().find(|message| message["type"] == "assistant").unwrap();
        assert_eq!((&answer["pid"], &answer["heard"]["message"]["content"]), (&json!(1), &json!(prompt)));
    }
    let line = "pwd; cat CLAUDE.md; echo; echo $WORD; tr '\\0' ' ' </proc/1/cmdline";
    let said = installation.remote(&["exec", &session, "sh", "-c", line]).says();
    assert!(
        said.starts_with("/workspace\nBe brief.\nplum\n") && said.contains("/bin/claude --print"),
        "{said}"
    );

    let ended = installation.begin(&["session", "end", &session]);
    pod.end();
    ended.wait().exits(0);
    assert!(installation.api.objects.lock().unwrap().secrets.is_empty());
    let events = installation.remote(&["session", "follow", &session]).says();
    assert!(events.contains("\"first\"") && events.contains("\"second\""), "{events}");
}

/// The server is built with the workspace, and not copied for each run.
fn server_program(cri: &Cri) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_saggar")).with_file_name("saggar-server");
    assert!(program.exists(), "{} is missing: cargo build -p saggar-server", program.display());
    cri.program(&program)
}

/// Starts the server or the relay, which print the URL that they listen on.
fn start(command: &Command, log: PathBuf) -> (Daemon, String) {
    let file = log.clone();
    Daemon::start_until(command, log, || {
        let text = fs::read_to_string(&file).unwrap_or_default();
        let (line, _) = text.split_once('\n')?;
        Some(line.rsplit_once(" on ")?.1.to_owned())
    })
}

/// Answers requests until the run ends.
fn serve(api: Arc<ApiState>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // A client that has been killed is no failure.
            let _ = api.serve(&mut stream);
        }
    });
    address
}

fn path(path: &Path) -> toml::Value {
    path.to_str().unwrap().into()
}
