//! The program `saggar`: each method runs `saggar session …` or another command as a process (saggar-session(1)).

use super::{EventReader, SessionSocket, SocketReader};
use crate::error::Error;
use crate::persisted::SnapshotUrl;
use crate::settings::Settings;
use crate::traces::ProcessSpan;
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;
use uuid::Uuid;

/// Maximum run time of a command that does not wait for programs in a sandbox.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(120);

/// Maximum size of the output of a command that is not streamed, in bytes: a list or a diff of a workspace can have any.
const MAX_OUTPUT: usize = 64 << 20;

/// The error text of a failed `saggar` process.
#[derive(Debug)]
pub struct CommandError {
    text: String,
    exit_code: Option<i32>,
}

impl CommandError {
    pub(super) fn new(text: impl Into<String>) -> Self {
        CommandError { text: text.into(), exit_code: None }
    }

    /// The exit status of saggar, if it exited.
    pub(super) fn exit_code(&self) -> Option<i32> {
        self.exit_code
    }

    /// The same error with another text.
    pub(super) fn with_text(&self, text: String) -> Self {
        CommandError { text, exit_code: self.exit_code }
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl std::error::Error for CommandError {}

impl From<Error> for CommandError {
    fn from(error: Error) -> Self {
        CommandError::new(error.to_string())
    }
}

/// The state of a session in saggar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionState {
    /// The sandbox is being created.
    Starting,
    /// The session accepts commands.
    Active,
    /// The processes are frozen, or no supervisor is running.
    Paused,
    /// The sandbox has failed; the session can be resumed.
    Error,
    /// The session has ended permanently.
    Ended,
}

/// A session as `saggar session show --json` prints it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionRecord {
    /// The name of the session; the server uses its UUID.
    pub id: String,
    /// The state when saggar printed the record.
    pub state: SessionState,
    /// The name of the sandbox, new for each start; empty before the first one.
    #[serde(default, deserialize_with = "null_as_default")]
    pub sandbox: String,
    /// The bridge socket; `None` if no supervisor is running.
    pub bridge_socket: Option<SessionSocket>,
    /// The control socket; `None` if no supervisor is running.
    pub control_socket: Option<SessionSocket>,
}

fn null_as_default<'de, D: Deserializer<'de>>(value: D) -> Result<String, D::Error> {
    Ok(Option::deserialize(value)?.unwrap_or_default())
}

impl SessionRecord {
    /// Whether a supervisor serves the sockets of the session. It does so even while the processes are frozen.
    pub fn is_served(&self) -> bool {
        self.bridge_socket.is_some()
    }
}

/// What a new session continues.
#[derive(Debug, Clone, Copy)]
pub struct SessionOrigin<'a> {
    /// The file of a snapshot.
    pub snapshot: &'a Path,
    /// A file with the events of the earlier session, which become those of the new one, and the lowest number of the next
    /// event.
    pub events: Option<(&'a Path, u64)>,
}

/// The path of `saggar`, and the options and state directory of each run.
#[derive(Debug, Clone)]
pub struct Program {
    path: PathBuf,
    state_directory: PathBuf,
    options: Vec<String>,
    /// Whether the variables `AWS_…` are those of the snapshot store.
    has_s3_store: bool,
}

impl Program {
    /// Finds the program: the path in the settings, else `saggar` in the directory of this program, else in `PATH`. The
    /// state directory of its sessions is in the data directory. A missing program is logged.
    pub fn find(settings: &Settings, data_dir: &Path) -> Self {
        let path = settings.saggar.clone().unwrap_or_else(default_program);
        let program = Program {
            path,
            state_directory: data_dir.join("saggar"),
            options: settings.sandbox_options.clone(),
            has_s3_store: matches!(settings.snapshot_url, Some(SnapshotUrl::S3 { .. })),
        };
        if !program.exists() {
            let path = program.path.display();
            tracing::warn!(
                "cannot find {path}: sessions cannot be started; set the path of saggar with --saggar"
            );
        }
        program
    }

    fn exists(&self) -> bool {
        if self.path.components().count() > 1 {
            return self.path.exists();
        }
        let search = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&search).any(|directory| directory.join(&self.path).exists())
    }

    /// Starts a session in the background, with a copy of `folder` as its workspace, or with the workspace and the
    /// conversation of an earlier one.
    ///
    /// # Errors
    /// Fails if the session cannot be started; no files of it remain.
    pub async fn create(
        &self,
        id: Uuid,
        folder: &Path,
        policy: Option<&Path>,
        origin: Option<SessionOrigin<'_>>,
    ) -> Result<SessionRecord, CommandError> {
        let mut command = self.command("create");
        command.args(["--json", "--session", &id.to_string()]).args(&self.options);
        if let Some(SessionOrigin { snapshot, events }) = origin {
            command.arg("--from").arg(snapshot);
            if let Some((events, next)) = events {
                command.arg("--events").arg(events).args(["--next-event", &next.to_string()]);
            }
        }
        if let Some(policy) = policy {
            command.arg("--policy").arg(policy);
        }
        command.arg("--").arg(folder);
        parse_record(&run(command).await?)
    }

    /// Lists all sessions.
    ///
    /// # Errors
    /// Fails if the list cannot be read.
    pub async fn list(&self) -> Result<Vec<SessionRecord>, CommandError> {
        let mut command = self.command("list");
        command.arg("--json");
        run_briefly(command, b"").await?.lines().map(parse_record).collect()
    }

    /// Returns one session, or `None` if saggar has no record of it.
    ///
    /// # Errors
    /// Fails if the record cannot be read.
    pub async fn find_session(&self, id: Uuid) -> Result<Option<SessionRecord>, CommandError> {
        let mut command = self.command("list");
        command.args(["--json", &id.to_string()]);
        run_briefly(command, b"").await?.lines().next().map(parse_record).transpose()
    }

    /// Reads the stored events of the bridge of a session after this number. No bridge needs to be running.
    ///
    /// # Errors
    /// Fails if saggar cannot be started.
    pub fn stored_events(&self, id: Uuid, after: u64) -> Result<StoredEvents, CommandError> {
        let mut command = self.command("events");
        command.args(["--after", &after.to_string(), &id.to_string()]);
        StoredEvents::of(command)
    }

    /// Writes the stored events of a session to a new file with mode 0600, as [`Program::stored_events`] reads them.
    ///
    /// # Errors
    /// Fails if the file cannot be created, or the events cannot be read.
    pub async fn save_events(&self, id: Uuid, file: &Path) -> Result<(), CommandError> {
        let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
        let failed = |error| CommandError::new(format!("cannot create {}: {error}", file.display()));
        let mut command = self.command("events");
        command.arg(id.to_string()).stdout(opened.map_err(failed)?).stderr(Stdio::null()).kill_on_drop(true);
        match timeout(COMMAND_TIMEOUT, command.status()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(CommandError::new(format!("saggar session events exited with {status}"))),
            Ok(Err(error)) => Err(CommandError::new(format!("cannot start saggar: {error}"))),
            Err(_) => Err(CommandError::new(format!("saggar did not exit within {COMMAND_TIMEOUT:?}"))),
        }
    }

    /// Thaws a paused session, or starts it in a new sandbox with its workspace and conversation.
    ///
    /// # Errors
    /// Fails if the session cannot be resumed.
    pub async fn resume(&self, id: Uuid) -> Result<SessionRecord, CommandError> {
        let mut command = self.command("resume");
        command.args(["--json", &id.to_string()]);
        parse_record(&run(command).await?)
    }

    /// Ends a session permanently. With `remove`, also removes its files.
    ///
    /// # Errors
    /// Fails if the session cannot be ended.
    pub async fn end(&self, id: Uuid, remove: bool) -> Result<(), CommandError> {
        let mut command = self.command("end");
        if remove {
            command.arg("--remove");
        }
        command.arg(id.to_string());
        run_briefly(command, b"").await.map(drop)
    }

    /// The same for a session that saggar may not know, or that may have ended.
    ///
    /// # Errors
    /// Fails if the session cannot be ended.
    pub async fn end_if_known(&self, id: Uuid, remove: bool) -> Result<(), CommandError> {
        match self.find_session(id).await? {
            None => Ok(()),
            Some(record) if record.state == SessionState::Ended && !remove => Ok(()),
            Some(_) => self.end(id, remove).await,
        }
    }

    /// The state directory of the sessions of the server.
    pub(super) fn state_directory(&self) -> &Path {
        &self.state_directory
    }

    /// `saggar session VERB`.
    pub(super) fn command(&self, verb: &str) -> Command {
        self.command_of("session", verb)
    }

    /// `saggar GROUP VERB`, such as `saggar quarantine list`.
    pub(super) fn command_of(&self, group: &str, verb: &str) -> Command {
        let mut command = Command::new(&self.path);
        let names = std::env::vars_os().map(|(name, _)| name);
        let is_hidden = |name: &[u8]| is_of_server(name) || self.has_s3_store && name.starts_with(b"AWS_");
        for name in names.filter(|name| is_hidden(name.as_encoded_bytes())) {
            command.env_remove(name);
        }
        command.env("SAGGAR_STATE_DIR", &self.state_directory);
        command.args([group, verb]).stdin(Stdio::null());
        command
    }
}

/// `saggar` in the directory of this program, else in `PATH`.
pub fn default_program() -> PathBuf {
    let sibling = std::env::current_exe().map(|path| path.with_file_name("saggar"));
    sibling.ok().filter(|path| path.exists()).unwrap_or_else(|| PathBuf::from("saggar"))
}

/// Whether a variable is for the server alone, and can contain a key: the sandbox must not inherit it.
fn is_of_server(name: &[u8]) -> bool {
    name.starts_with(b"ASH_")
        // The client of PostgreSQL in the server reads it.
        || name == b"PGPASSWORD"
        // Messages to the service manager are sent there (sd_notify(3)).
        || name == b"NOTIFY_SOCKET"
        // Those of the collector of traces.
        || name.starts_with(b"OTEL_EXPORTER_OTLP_") && name.ends_with(b"HEADERS")
}

/// The stored events of a session: the output of `saggar session events`, or of the relay of a pod.
#[derive(Debug)]
pub struct StoredEvents {
    /// None of a relay, whose response fails if its process does.
    process: Option<PipedProcess>,
    events: EventReader<SocketReader>,
}

impl StoredEvents {
    fn of(command: Command) -> Result<Self, CommandError> {
        let (process, output) = start_piped(command)?;
        Ok(StoredEvents { process: Some(process), events: EventReader::new(Box::new(output)) })
    }

    /// The events in a response of a relay.
    pub(super) fn of_relay(response: SocketReader) -> Self {
        StoredEvents { process: None, events: EventReader::new(response) }
    }

    /// The events.
    pub fn events(&mut self) -> &mut EventReader<SocketReader> {
        &mut self.events
    }

    /// Waits for the exit of saggar, after all events were read.
    ///
    /// # Errors
    /// Fails if it did not print all events.
    pub async fn finish(self) -> Result<(), CommandError> {
        let Some(mut process) = self.process else { return Ok(()) };
        match process.wait().await {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(CommandError::new(format!("saggar session events exited with {status}"))),
            Err(error) => Err(CommandError::new(format!("cannot wait for saggar: {error}"))),
        }
    }
}

/// Runs a command that does not wait for programs in a sandbox, with this standard input. A command that hangs is
/// killed.
pub(super) async fn run_briefly(mut command: Command, input: &[u8]) -> Result<String, CommandError> {
    command.kill_on_drop(true);
    match timeout(COMMAND_TIMEOUT, run_with_input(command, input)).await {
        Ok(result) => result,
        Err(_) => Err(CommandError::new(format!("saggar did not exit within {COMMAND_TIMEOUT:?}"))),
    }
}

/// Runs the command and returns its standard output.
async fn run(command: Command) -> Result<String, CommandError> {
    run_with_input(command, b"").await
}

async fn run_with_input(mut command: Command, input: &[u8]) -> Result<String, CommandError> {
    if !input.is_empty() {
        command.stdin(Stdio::piped());
    }
    let program = command.as_std().get_program().display().to_string();
    let failed = |error| CommandError::new(format!("cannot start {program}: {error}"));
    let span = ProcessSpan::start(command.as_std());
    let process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut process = process.inspect_err(|_| span.fail_to_start()).map_err(failed)?;
    let (stdin, stdout, stderr) = (process.stdin.take(), process.stdout.take(), process.stderr.take());
    let write = async move {
        if let Some(mut stdin) = stdin {
            // A program that refuses the input does not read it; its exit status has the error.
            let _ = stdin.write_all(input).await;
        }
    };
    let (stdout, stderr, ()) = tokio::join!(read_output(stdout), read_output(stderr), write);
    let (stdout, stderr) = (stdout.map_err(failed)?, stderr.map_err(failed)?);
    if stdout.len() > MAX_OUTPUT || stderr.len() > MAX_OUTPUT {
        let _ = process.kill().await;
        return Err(CommandError::new(format!("saggar printed more than {MAX_OUTPUT} bytes")));
    }
    let status = process.wait().await.map_err(failed)?;
    span.set_exit(status);
    if status.success() {
        return String::from_utf8(stdout).map_err(|_| CommandError::new("saggar printed invalid UTF-8"));
    }
    let stderr = String::from_utf8_lossy(&stderr);
    let error = stderr.trim().strip_prefix("saggar: error: ").unwrap_or(stderr.trim());
    let text = match error {
        "" => format!("saggar exited with {status}"),
        error => error.to_owned(),
    };
    Err(CommandError { text, exit_code: status.code() })
}

/// Reads an output to its end, or up to one byte more than [`MAX_OUTPUT`].
async fn read_output(output: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(output) = output {
        output.take(MAX_OUTPUT as u64 + 1).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

/// A process whose standard output is read while it runs. It is killed when it is dropped.
#[derive(Debug)]
pub(super) struct PipedProcess {
    process: Child,
    span: ProcessSpan,
}

impl PipedProcess {
    /// Waits for the exit, after the output was read.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.process.wait().await?;
        self.span.set_exit(status);
        Ok(status)
    }
}

/// Starts a command whose standard output is read while it runs.
pub(super) fn start_piped(mut command: Command) -> Result<(PipedProcess, ChildStdout), CommandError> {
    command.stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let program = command.as_std().get_program().display().to_string();
    let failed = |error| CommandError::new(format!("cannot start {program}: {error}"));
    let span = ProcessSpan::start(command.as_std());
    let process = command.spawn().inspect_err(|_| span.fail_to_start());
    let mut process = process.map_err(failed)?;
    let output = process.stdout.take().ok_or_else(|| failed(io::ErrorKind::BrokenPipe.into()))?;
    Ok((PipedProcess { process, span }, output))
}

fn parse_record(line: &str) -> Result<SessionRecord, CommandError> {
    serde_json::from_str(line)
        .map_err(|error| CommandError::new(format!("saggar printed an invalid session record: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starting_session_has_no_sandbox() {
        let line = r#"{"id":"a","state":"starting","sandbox":null,"bridgeSocket":null,"controlSocket":null}"#;
        let record = parse_record(line).unwrap();
        assert_eq!((record.sandbox.as_str(), record.is_served()), ("", false));
    }

    #[test]
    fn session_record_is_parsed() {
        let line = r#"{"version":1,"id":"a","state":"active","sandbox":"s","bridgeSocket":"/b","controlSocket":null,"more":1}"#;
        let found = parse_record(line).unwrap();
        assert_eq!((found.state, found.sandbox.as_str()), (SessionState::Active, "s"));
        assert!(matches!(found.bridge_socket, Some(SessionSocket::Local(path)) if path == Path::new("/b")));
        assert!(found.control_socket.is_none());
        assert!(parse_record("x").unwrap_err().to_string().contains("invalid session record"));
    }

    #[tokio::test]
    async fn output_without_end_is_refused() {
        let mut command = Command::new("yes");
        command.stdin(Stdio::null());
        let error = run_briefly(command, b"").await.unwrap_err().to_string();
        assert!(error.contains("more than 67108864 bytes"), "{error}");
        let mut command = Command::new("sh");
        command.args(["-c", "cat; echo 'saggar: error: cannot x' >&2; exit 3"]);
        assert_eq!(run_briefly(command, b"in").await.unwrap_err().to_string(), "cannot x");
    }
}
