//! `saggar session …`, each call of it a process (saggar-session(1)).

use crate::settings::Settings;
use serde::Deserialize;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::process::Command;
use uuid::Uuid;

/// Why a call failed: the text of saggar for people.
#[derive(Debug)]
pub struct Failure(pub String);

/// The state of a session, as saggar names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionState {
    /// The sandbox is being made.
    Starting,
    /// It takes commands.
    Active,
    /// Frozen, or without a supervisor.
    Paused,
    /// Failed; it can be resumed.
    Error,
    /// Over.
    Ended,
}

/// What saggar says of a session.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionRecord {
    /// The name of the session.
    pub id: String,
    /// The state.
    pub state: SessionState,
    /// The name of its sandbox.
    pub sandbox: String,
    /// The bridge, while a supervisor serves the session.
    pub bridge_socket: Option<PathBuf>,
    /// The control socket, likewise.
    pub control_socket: Option<PathBuf>,
}

impl SessionRecord {
    /// Whether a supervisor serves it: then it has sockets, also while its processes are frozen.
    pub fn is_served(&self) -> bool {
        self.bridge_socket.is_some()
    }
}

/// The program, and what each call of it has.
#[derive(Debug, Clone)]
pub struct Program {
    path: PathBuf,
    state_directory: PathBuf,
    options: Vec<String>,
}

impl Program {
    /// The program that the settings name, else `saggar` next to this program, else that of `PATH`. Its sessions are in the
    /// data directory.
    pub fn find(settings: &Settings, data: &Path) -> Self {
        let beside =
            || Some(std::env::current_exe().ok()?.with_file_name("saggar")).filter(|path| path.exists());
        let path = settings.saggar.clone().or_else(beside).unwrap_or_else(|| PathBuf::from("saggar"));
        let program =
            Program { path, state_directory: data.join("saggar"), options: settings.sandbox_options.clone() };
        if !program.is_there() {
            let path = program.path.display();
            tracing::warn!(
                "{path} was not found: no session can start; name the program saggar with --saggar"
            );
        }
        program
    }

    fn is_there(&self) -> bool {
        if self.path.components().count() > 1 {
            return self.path.exists();
        }
        let search = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&search).any(|directory| directory.join(&self.path).exists())
    }

    /// Starts a session in the background, with a copy of `folder` as its workspace.
    ///
    /// # Errors
    /// It was not started; nothing is left of it.
    pub async fn create(
        &self,
        id: Uuid,
        folder: &Path,
        policy: Option<&Path>,
    ) -> Result<SessionRecord, Failure> {
        let mut command = self.command("create");
        command.args(["--json", "--session", &id.to_string()]).args(&self.options);
        if let Some(policy) = policy {
            command.arg("--policy").arg(policy);
        }
        command.arg("--").arg(folder);
        record(&run(command).await?)
    }

    /// What saggar knows of all sessions.
    ///
    /// # Errors
    /// It does not say.
    pub async fn list(&self) -> Result<Vec<SessionRecord>, Failure> {
        let mut command = self.command("list");
        command.arg("--json");
        run(command).await?.lines().map(record).collect()
    }

    /// What saggar knows of one session.
    ///
    /// # Errors
    /// There is no such session.
    pub async fn show(&self, id: Uuid) -> Result<SessionRecord, Failure> {
        let mut command = self.command("show");
        command.args(["--json", &id.to_string()]);
        record(&run(command).await?)
    }

    /// Freezes all processes of a session.
    ///
    /// # Errors
    /// They are not frozen, for example since the machine gives saggar no cgroup.
    pub async fn pause(&self, id: Uuid) -> Result<(), Failure> {
        let mut command = self.command("pause");
        command.arg(id.to_string());
        run(command).await.map(drop)
    }

    /// Lets a frozen session go on, or starts it in a new sandbox with its workspace and its conversation.
    ///
    /// # Errors
    /// It does not run.
    pub async fn resume(&self, id: Uuid) -> Result<SessionRecord, Failure> {
        let mut command = self.command("resume");
        command.arg(id.to_string());
        run(command).await?;
        self.show(id).await
    }

    /// Ends a session for good, and with `remove` removes its files.
    ///
    /// # Errors
    /// It was not ended.
    pub async fn end(&self, id: Uuid, remove: bool) -> Result<(), Failure> {
        let mut command = self.command("end");
        if remove {
            command.arg("--remove");
        }
        command.arg(id.to_string());
        run(command).await.map(drop)
    }

    fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(&self.path);
        // The variables of the server itself, which has keys in them, are none of the sandbox's supervisor.
        let own = std::env::vars_os().map(|(name, _)| name);
        for name in own.filter(|name| name.as_encoded_bytes().starts_with(b"ASH_")) {
            command.env_remove(name);
        }
        command.env("SAGGAR_STATE_DIR", &self.state_directory);
        command.args([OsStr::new("session"), OsStr::new(verb)]).stdin(Stdio::null());
        command
    }
}

/// What a call prints on standard output.
async fn run(mut command: Command) -> Result<String, Failure> {
    let output = command.output().await.map_err(|error| {
        let program = command.as_std().get_program().display();
        Failure(format!("{program} cannot be started: {error}"))
    })?;
    if output.status.success() {
        return String::from_utf8(output.stdout).map_err(|_| Failure("saggar printed no UTF-8".into()));
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let error = said.trim().strip_prefix("saggar: error: ").unwrap_or(said.trim());
    Err(Failure(match error {
        "" => format!("saggar ended with {}", output.status),
        error => error.to_owned(),
    }))
}

fn record(line: &str) -> Result<SessionRecord, Failure> {
    serde_json::from_str(line).map_err(|error| Failure(format!("saggar printed no session: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_of_saggar_is_read() {
        let line = r#"{"version":1,"id":"a","state":"active","sandbox":"s","bridgeSocket":"/b","controlSocket":null,"more":1}"#;
        let found = record(line).unwrap();
        assert_eq!((found.state, found.sandbox.as_str()), (SessionState::Active, "s"));
        assert_eq!((found.bridge_socket, found.control_socket), (Some("/b".into()), None));
        assert!(record("x").unwrap_err().0.contains("no session"));
    }
}
