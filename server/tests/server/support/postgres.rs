//! PostgreSQL servers for tests, also for the unit tests of the store.
//!
//! `SAGGAR_TEST_POSTGRES` is the URL of a server whose user may create databases. Without it, a private server is
//! started from the installed programs; it exits with the process of the tests.

use sqlx::any::AnyConnectOptions;
use sqlx::{AnyConnection, AssertSqlSafe, Connection, Executor};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::str::FromStr;
use std::sync::OnceLock;
use uuid::Uuid;

/// Debian's directories of programs, one for each version.
const INSTALLED: &str = "/usr/lib/postgresql";
/// The first version whose databases can have an ICU locale.
const MIN_VERSION: u32 = 15;

/// A private PostgreSQL server. Dropping it, or the exit of this process, stops it and removes its files.
#[derive(Debug)]
pub(crate) struct Cluster {
    runner: Child,
    commands: Option<ChildStdin>,
    replies: BufReader<ChildStdout>,
    directory: String,
}

impl Cluster {
    /// Starts a server, as the account `postgres` if this process is root's. The error is the reason to skip a test.
    pub(crate) fn start() -> Result<Self, String> {
        let programs = newest_programs()?;
        let mut command = match rustix::process::geteuid().is_root() {
            true => {
                let mut command = Command::new("setpriv");
                command.args(["--reuid", "postgres", "--regid", "postgres", "--clear-groups", "sh"]);
                command
            }
            false => Command::new("sh"),
        };
        command.args(["-c", include_str!("postgres.sh"), "sh"]).arg(programs);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut runner = command.spawn().unwrap();
        let commands = runner.stdin.take();
        let mut replies = BufReader::new(runner.stdout.take().unwrap());
        let directory = read_line(&mut replies);
        assert!(!directory.is_empty(), "PostgreSQL does not start");
        Ok(Cluster { runner, commands, replies, directory })
    }

    /// The URL of the database `postgres`.
    pub(crate) fn url(&self) -> String {
        format!("postgres:///postgres?host={}&user=saggar", self.directory)
    }

    /// Stops the server at once; connections are closed.
    pub(crate) fn stop(&mut self) {
        self.run("stop");
    }

    /// Starts the server again after [`Cluster::stop`].
    pub(crate) fn restart(&mut self) {
        self.run("start");
    }

    fn run(&mut self, command: &str) {
        writeln!(self.commands.as_mut().unwrap(), "{command}").unwrap();
        assert_eq!(read_line(&mut self.replies), command);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.commands.take());
        let _ = self.runner.wait();
    }
}

fn read_line(lines: &mut impl BufRead) -> String {
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

fn newest_programs() -> Result<PathBuf, String> {
    let entries = fs::read_dir(INSTALLED).into_iter().flatten().flatten();
    let versions = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let newest = versions.filter(|version| *version >= MIN_VERSION).max();
    let newest = newest.map(|version| Path::new(INSTALLED).join(version.to_string()).join("bin"));
    newest
        .filter(|programs| programs.join("initdb").exists())
        .ok_or_else(|| format!("PostgreSQL {MIN_VERSION} or later is not installed (apt install postgresql)"))
}

/// The value of `SAGGAR_TEST_POSTGRES`.
pub(crate) fn configured_url() -> Option<String> {
    std::env::var("SAGGAR_TEST_POSTGRES").ok().filter(|url| !url.is_empty())
}

/// The URL of a server that all tests of this process share: the configured one, or else a private one. The error is
/// the reason to skip a test.
pub(crate) fn shared_url() -> Result<String, String> {
    // Never dropped: its server exits when the kernel closes the pipe of this process.
    static SHARED: OnceLock<Result<Cluster, String>> = OnceLock::new();
    match configured_url() {
        Some(url) => Ok(url),
        None => SHARED.get_or_init(Cluster::start).as_ref().map(Cluster::url).map_err(Clone::clone),
    }
}

/// An empty database. Dropping it drops the database.
#[derive(Debug)]
pub(crate) struct TestDatabase {
    server: String,
    name: String,
}

impl TestDatabase {
    /// Creates a database on the server with this URL.
    pub(crate) fn create(server: &str) -> Self {
        let name = format!("saggar_test_{}", Uuid::new_v4().simple());
        execute(server, format!("CREATE DATABASE {name}")).unwrap();
        TestDatabase { server: server.to_owned(), name }
    }

    /// The URL of the database.
    pub(crate) fn url(&self) -> String {
        let mut url = AnyConnectOptions::from_str(&self.server).unwrap().database_url;
        url.set_path(&format!("/{}", self.name));
        url.to_string()
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        // The server may have been stopped before.
        let _ = execute(&self.server, format!("DROP DATABASE {} WITH (FORCE)", self.name));
    }
}

/// Executes a statement, from tests with and without an asynchronous runtime.
fn execute(url: &str, statement: String) -> sqlx::Result<()> {
    sqlx::any::install_default_drivers();
    let url = url.to_owned();
    let work = async move {
        let mut connection = AnyConnection::connect(&url).await?;
        connection.execute(AssertSqlSafe(statement)).await?;
        connection.close().await
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::spawn(move || runtime.block_on(work)).join().unwrap()
}
