//! A server process for tests.

use super::postgres::{TestDatabase, configured_url};
use super::{Client, deploy_body};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use sqlx::Connection;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// A server process with its own data directory, and with a PostgreSQL database of its own if `SAGGAR_TEST_POSTGRES` is
/// set. Dropping it ends all its sessions.
pub struct Server {
    process: Option<Child>,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    directory: TempDir,
    /// The names of the data directories, of which the last one is in use.
    machines: Vec<String>,
    database: Option<TestDatabase>,
    url: String,
    /// Standard output of the current process.
    pub stdout: String,
}

impl Server {
    /// Starts a server.
    pub fn start() -> Self {
        Server::start_with(&[], &[])
    }

    /// Starts a server with these arguments and environment variables.
    pub fn start_with(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let database = configured_url().map(|server| TestDatabase::create(&server));
        Server::start_on(database, arguments, variables)
    }

    /// Starts a server that uses this PostgreSQL database.
    pub fn start_on_postgres(database: TestDatabase) -> Self {
        Server::start_on(Some(database), &[], &[])
    }

    fn start_on(database: Option<TestDatabase>, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let own = |text: &&str| (*text).to_owned();
        let mut server = Server {
            process: None,
            arguments: arguments.iter().map(own).collect(),
            variables: variables.iter().map(|(name, value)| (own(name), own(value))).collect(),
            directory: tempfile::tempdir().unwrap(),
            machines: vec!["data".into()],
            database,
            url: String::new(),
            stdout: String::new(),
        };
        let settings = server.config_home().join("saggar");
        fs::create_dir_all(&settings).unwrap();
        fs::write(settings.join("config.toml"), "adapter = \"demo\"\n").unwrap();
        server.restart();
        server
    }

    /// Starts the server again with the same data. The previous process must have exited.
    pub fn restart(&mut self) {
        assert!(self.process.is_none());
        let mut command = self.command();
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap());
        self.process = Some(process);
        self.stdout.clear();
        // The first line contains the address, the second the initial key if one was created.
        lines.read_line(&mut self.stdout).unwrap();
        let line = self.stdout.trim_end();
        self.url =
            line.rsplit_once(" on ").unwrap_or_else(|| panic!("unexpected first line {line:?}")).1.to_owned();
        assert_eq!(self.data_dir().join("saggar.db").exists(), self.database.is_none());
        let key_file = self.data_dir().join("initial-api-key");
        if key_file.exists() && self.stdout.lines().count() == 1 && !self.is_known_key(&key_file) {
            lines.read_line(&mut self.stdout).unwrap();
        }
        // Standard output must stay open, so that later lines do not fail.
        std::thread::spawn(move || lines.lines().map_while(Result::ok).for_each(drop));
    }

    /// Whether the key file existed before this start: then the server prints no second line.
    fn is_known_key(&self, file: &Path) -> bool {
        let marker = self.directory.path().join("known-key");
        let key = fs::read(file).unwrap();
        let is_known = fs::read(&marker).is_ok_and(|known| known == key);
        fs::write(marker, key).unwrap();
        is_known
    }

    /// Whether the database is SQLite, and not PostgreSQL.
    pub fn has_sqlite(&self) -> bool {
        self.database.is_none()
    }

    /// Runs a statement in the database, and returns the number of changed rows.
    pub fn execute(&self, statement: &str) -> u64 {
        self.with_database(async |connection| {
            let done = sqlx::query(sqlx::AssertSqlSafe(statement)).execute(connection).await.unwrap();
            done.rows_affected()
        })
    }

    /// Runs a query in the database that returns one value.
    pub fn query_value<T>(&self, statement: &str) -> T
    where
        T: Send + Unpin,
        (T,): for<'row> sqlx::FromRow<'row, sqlx::any::AnyRow>,
    {
        self.with_database(async |connection| {
            sqlx::query_scalar(sqlx::AssertSqlSafe(statement)).fetch_one(connection).await.unwrap()
        })
    }

    fn with_database<T>(&self, run: impl AsyncFnOnce(&mut sqlx::AnyConnection) -> T) -> T {
        let url = match &self.database {
            Some(database) => database.url(),
            None => format!("sqlite://{}", self.data_dir().join("saggar.db").display()),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            sqlx::any::install_default_drivers();
            let mut connection = sqlx::AnyConnection::connect(&url).await.unwrap();
            let result = run(&mut connection).await;
            connection.close().await.unwrap();
            result
        })
    }

    /// A client with a key of another tenant.
    pub fn client_of_tenant(&self, tenant: &str) -> Client {
        let (key, hash) =
            (format!("ash_{tenant}"), saggar_server::api_key::hash_key(&format!("ash_{tenant}")));
        self.execute(&format!(
            "INSERT INTO api_keys (id, tenant_id, key_hash, label, created_at) \
             VALUES ('{tenant}', '{tenant}', '{hash}', '', '')"
        ));
        self.client_with(Some(&key))
    }

    /// The command that starts the server.
    pub fn command(&self) -> Command {
        self.command_with_data(&self.data_dir())
    }

    /// The command that starts the server on another data directory, with the same database if that is PostgreSQL.
    pub fn command_with_data(&self, data_dir: &Path) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_saggar-server"));
        command.arg("--data").arg(data_dir).args(["--listen", "127.0.0.1:0"]).args(&self.arguments);
        if !self.arguments.iter().any(|argument| argument == "--saggar") {
            command.arg("--saggar").arg(saggar_program());
        }
        for name in [
            "ASH_API_KEY",
            "ASH_INTERNAL_SECRET",
            "ASH_CREDENTIAL_KEY",
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        ] {
            command.env_remove(name);
        }
        command.env("XDG_CONFIG_HOME", self.config_home());
        // Not as an option: others can read a command line.
        match &self.database {
            Some(database) => command.env("ASH_DATABASE_URL", database.url()),
            None => command.env_remove("ASH_DATABASE_URL"),
        };
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null());
        command
    }

    /// The data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.directory.path().join(self.machines.last().unwrap())
    }

    /// The directory of the user's settings, by which an agent that names no program is the demo agent.
    fn config_home(&self) -> PathBuf {
        self.directory.path().join("config")
    }

    /// Starts the server again with another data directory and the same database, as on another machine. The previous
    /// process must have exited.
    pub fn move_to(&mut self, machine: &str) {
        let former = self.data_dir();
        self.machines.push(machine.to_owned());
        let current = self.data_dir();
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&current).unwrap();
        copy_database(&former, &current);
        self.restart();
    }

    /// Starts the server again as on another machine whose data directory has the same path: its files become those in
    /// `next`, and the former ones are kept in `former`. The previous process must have exited.
    pub fn exchange_data(&mut self, former: &str, next: &str) {
        let (current, former) = (self.data_dir(), self.directory.path().join(former));
        fs::rename(&current, &former).unwrap();
        let next = self.directory.path().join(next);
        if next.exists() {
            fs::rename(next, &current).unwrap();
        } else {
            fs::DirBuilder::new().mode(0o700).create(&current).unwrap();
        }
        copy_database(&former, &current);
        self.restart();
    }

    /// Adds arguments for later starts.
    pub fn add_arguments(&mut self, arguments: &[&str]) {
        self.arguments.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    }

    /// The initial key.
    pub fn key(&self) -> String {
        fs::read_to_string(self.data_dir().join("initial-api-key")).unwrap().trim().to_owned()
    }

    /// The address, as HOST:PORT.
    pub fn address(&self) -> &str {
        self.url.split_once("://").unwrap().1
    }

    /// A client with the initial key.
    pub fn client(&self) -> Client {
        Client::new(&self.url, Some(&self.key()))
    }

    /// A client with this key, or without a key.
    pub fn client_with(&self, key: Option<&str>) -> Client {
        Client::new(&self.url, key)
    }

    /// Creates a session of the demo agent and returns its id.
    pub fn create_session(&self) -> String {
        let client = self.client();
        client.post("/api/agents", &deploy_body("hello")).expect(201);
        client.post("/api/sessions", &json!({ "agent": "hello" })).expect(201)["session"]["id"].text()
    }

    /// Sends a signal, waits for the exit and returns the exit status.
    pub fn stop(&mut self, signal: Signal) -> std::process::ExitStatus {
        let mut process = self.process.take().unwrap();
        let pid = Pid::from_child(&process);
        kill_process(pid, signal).unwrap();
        process.wait().unwrap()
    }

    /// The process id.
    pub fn pid(&self) -> Pid {
        Pid::from_child(self.process.as_ref().unwrap())
    }

    /// Returns the standard output of `saggar session ARGUMENTS`.
    pub fn saggar(&self, arguments: &[&str]) -> String {
        let output = self.saggar_command(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Whether `saggar session ARGUMENTS` succeeds.
    pub fn try_saggar(&self, arguments: &[&str]) -> bool {
        self.saggar_command(arguments).output().unwrap().status.success()
    }

    fn saggar_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(saggar_program());
        command.env("SAGGAR_STATE_DIR", self.data_dir().join("saggar")).arg("session").args(arguments);
        command
    }

    /// The record of a session, as saggar prints it.
    pub fn session_record(&self, session: &str) -> Value {
        serde_json::from_str(&self.saggar(&["show", "--json", session])).unwrap()
    }

    /// The process id of the supervisor of a session.
    pub fn supervisor(&self, session: &str) -> Pid {
        let pid = self.session_record(session)["supervisor"]["pid"].as_i64().unwrap();
        Pid::from_raw(pid.try_into().unwrap()).unwrap()
    }
}

/// Replaces a database of SQLite, and the initial key.
fn copy_database(from: &Path, to: &Path) {
    for name in ["saggar.db", "saggar.db-wal", "saggar.db-shm", "initial-api-key"] {
        let _ = fs::remove_file(to.join(name));
        if from.join(name).exists() {
            fs::copy(from.join(name), to.join(name)).unwrap();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
        while !self.machines.is_empty() {
            let listed = self.saggar_command(&["list", "--json"]).output().unwrap();
            for line in String::from_utf8_lossy(&listed.stdout).lines() {
                let record: Value = serde_json::from_str(line).unwrap();
                let id = record["id"].as_str().unwrap().to_owned();
                let _ = self.saggar_command(&["end", "--remove", &id]).output();
            }
            self.machines.pop();
        }
    }
}

/// The path of the program `saggar`, built together with the server.
pub fn saggar_program() -> PathBuf {
    let named = std::env::var_os("SAGGAR_TEST_BINARY").filter(|path| !path.is_empty()).map(PathBuf::from);
    let saggar =
        named.unwrap_or_else(|| Path::new(env!("CARGO_BIN_EXE_saggar-server")).with_file_name("saggar"));
    assert!(saggar.exists(), "{} is missing: cargo build", saggar.display());
    saggar
}

trait Text {
    fn text(&self) -> String;
}

impl Text for Value {
    fn text(&self) -> String {
        self.as_str().unwrap_or_else(|| panic!("{self} is not a string")).to_owned()
    }
}
