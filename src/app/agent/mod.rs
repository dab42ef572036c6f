//! The agent of a folder in a sandbox, and its conversation on the bridge.
//!
//! ```text
//!  AgentRequest ── check ──> CheckedAgent ── open ──> OpenedAgent ── prepare ──> PreparedAgent ── supervise ──> RunOutcome
//!                  policy                    session               workspace, plan              pid 1, event loop
//! ```
//! From `open` on, the session is held and has a record; the step that fails leaves the record with the reason. The
//! calling process becomes the supervisor, as with [`super::wrap`].

mod choice;
mod launch;
mod sandbox;
mod server_environment;

use super::folder_files;
use super::prepare::{self, LaunchRequest};
use super::{RunOutcome, SandboxOptions};
use crate::error::{Error, Result};
use crate::id::SandboxId;
use crate::session::record::{RecordWriter, SessionOptions, SessionRecord, StateReason};
use crate::session::session_state::SessionTransition;
use crate::session::{OpenMode, Session};
use crate::spec::policy::HomeSource;
use crate::supervise::agent::SessionRemoval;
use crate::supervise::parent_watch::ParentWatch;
use crate::supervise::status::StatusWriter;
use crate::sys::untrusted_directory::UntrustedDirectory;
use launch::AgentLaunch;
use sandbox::AgentSandbox;
use std::fs::File;
use std::os::fd::RawFd;
use std::path::PathBuf;

pub use super::overrides::{OverrideOptions, SystemPrompt};
pub use crate::supervise::agent::ConsoleFormat;
pub(crate) use choice::{NO_AGENT_HINT, bind_demo_program, choose_agent, refuse_without_api};
pub(crate) use server_environment::passed_names;
pub use server_environment::{ServerEnvironment, ServerPermissionMode, parse_names};

/// Variables that an agent gets beside those of a command, whatever a policy says; known when it starts.
pub(crate) const OWN_VARIABLES: [&str; 4] =
    ["ASH_AGENT_DIR", "ASH_SANDBOX_ID", "ASH_SESSION_ID", "ASH_WORKSPACE_DIR"];

/// An agent, its session and the sandbox that it runs in.
#[derive(Debug, Clone, Default)]
pub struct AgentRequest {
    /// The sandbox. Its policy names the agent and its sockets: [`agent_cmd`](crate::spec::policy::PolicyOptions::agent_cmd),
    /// `adapter`, `bridge_socket`, `control_socket`.
    pub sandbox: SandboxOptions,
    /// The agent's folder: a CLAUDE.md, and whatever else the agent needs.
    pub folder: PathBuf,
    /// The session, whose home and workspace last; named like the sandbox without.
    pub session: Option<String>,
    /// Whether the conversation of the session is continued; else the session must be new.
    pub resume: bool,
    /// The snapshot that a new session starts from, instead of the folder alone.
    pub snapshot: Option<PathBuf>,
    /// The events that a new session continues.
    pub events: Option<EventImport>,
    /// What this start adds to the folder.
    pub overrides: OverrideOptions,
    /// Whether events are kept for servers that come back, and turns outlive their connections.
    pub spool: bool,
    /// One turn with this prompt, whose messages go to standard output; without it the bridge stays open until
    /// `shutdown`.
    pub prompt: Option<(String, ConsoleFormat)>,
    /// An open descriptor that gets one byte `R` once the bridge listens.
    pub ready_fd: Option<RawFd>,
    /// An open descriptor that gets events as NDJSON (saggar(1), STATUS EVENTS).
    pub status_fd: Option<RawFd>,
    /// Whether the sandbox ends when the parent of this process exits.
    pub dies_with_parent: bool,
    /// The environment of the server that started this process as its child (DECISIONS 36).
    pub server: Option<ServerEnvironment>,
}

/// The events of an earlier session that a new one continues.
#[derive(Debug, Clone)]
pub struct EventImport {
    /// A file with the output of `saggar session events`.
    pub file: PathBuf,
    /// The lowest number of the next event.
    pub next: u64,
}

/// What is different for a session that outlives its caller.
#[derive(Debug)]
pub(crate) struct DetachedStart {
    /// Gets one byte `R` as that of [`AgentRequest::ready_fd`] does.
    pub(crate) ready: File,
    /// What is to be remembered for later starts.
    pub(crate) options: SessionOptions,
}

/// An agent that its policy allows and its host can run; nothing is made for it.
#[derive(Debug)]
#[must_use = "its session is to be opened"]
pub struct CheckedAgent {
    call: AgentCall,
    launch: AgentLaunch,
    status: StatusWriter,
}

/// An agent whose session is held by this process.
#[derive(Debug)]
#[must_use = "it is to be prepared"]
pub struct OpenedAgent {
    checked: CheckedAgent,
    open: OpenSession,
}

/// An agent with its workspace and its plan, of which nothing runs.
#[derive(Debug)]
#[must_use = "it is to be supervised"]
pub struct PreparedAgent {
    call: AgentCall,
    sandbox: AgentSandbox,
    notices: Vec<String>,
    open: OpenSession,
    status: StatusWriter,
}

/// Loads the policy and refuses what it or this host does not allow.
///
/// # Errors
/// [`crate::error::Code::Invalid`], [`crate::error::Code::Refused`] and [`crate::error::Code::Unsupported`], with a hint.
pub fn check(request: AgentRequest) -> Result<CheckedAgent> {
    let status = StatusWriter::open(request.status_fd)?;
    CheckedAgent::new(AgentCall::new(request, None)?, status)
}

/// The same for a session that outlives its caller. A new one that does not come to run leaves nothing.
///
/// # Errors
/// As [`check`].
pub(crate) fn check_detached(request: AgentRequest, detached: DetachedStart) -> Result<CheckedAgent> {
    CheckedAgent::new(AgentCall::new(request, Some(detached))?, StatusWriter::default())
}

impl CheckedAgent {
    fn new(call: AgentCall, mut status: StatusWriter) -> Result<Self> {
        let launch = AgentLaunch::check(&call).inspect_err(|error| status.report_start_failure(error))?;
        Ok(CheckedAgent { call, launch, status })
    }

    /// Opens the session, and makes its record.
    ///
    /// # Errors
    /// [`crate::error::Code::Exists`] for a session that is served or not new, [`crate::error::Code::State`] for one that
    /// cannot be resumed, [`crate::error::Code::System`].
    pub fn open(mut self) -> Result<OpenedAgent> {
        let open = OpenSession::new(&self.call, &self.launch);
        let open = open.inspect_err(|error| self.status.report_start_failure(error))?;
        Ok(OpenedAgent { checked: self, open })
    }
}

impl OpenedAgent {
    /// Makes the workspace and the home of the session, and the plan.
    ///
    /// # Errors
    /// As [`check`], and [`crate::error::Code::System`]; the record of the session has the reason.
    pub fn prepare(self) -> Result<PreparedAgent> {
        let OpenedAgent { checked: CheckedAgent { call, launch, mut status }, mut open } = self;
        match launch.build(&call, &mut open.session) {
            Ok((sandbox, notices)) => Ok(PreparedAgent { call, sandbox, notices, open, status }),
            Err(error) => {
                status.report_start_failure(&error);
                open.fail(&error);
                Err(error)
            }
        }
    }
}

impl PreparedAgent {
    /// Where the workspace is, as lines for people.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// Starts the sandbox and serves its agent to the end; the sandbox is gone when this returns. This process has no
    /// rights from now on, as the head of [`super::wrap`] says.
    pub fn supervise(self) -> RunOutcome {
        let PreparedAgent { call, sandbox, mut open, status, .. } = self;
        let mut outcome = sandbox
            .run(call, status, &mut open)
            .unwrap_or_else(|error| RunOutcome { status: Err(error), notices: Vec::new() });
        if let Err(error) = &outcome.status {
            open.fail(error);
        }
        if open.removal == SessionRemoval::WithoutResults && !open.record_writer.is_removed() {
            let id = open.record_writer.record().id.as_str();
            outcome.notices.push(format!("session: {id} is kept: saggar session diff, logs or remove {id}"));
        }
        outcome
    }
}

/// A request whose folder is open and whose sandbox has a name.
#[derive(Debug)]
struct AgentCall {
    request: AgentRequest,
    id: SandboxId,
    /// The folder, without links.
    folder: PathBuf,
    /// The same folder, for what is read of it.
    handle: UntrustedDirectory,
    detached: Option<DetachedStart>,
    parent: Option<ParentWatch>,
    /// Whether the session was named, or keeps events for a process that returns to it.
    is_asked_for: bool,
}

impl AgentCall {
    fn new(mut request: AgentRequest, detached: Option<DetachedStart>) -> Result<Self> {
        let is_named = request.session.is_some() || request.sandbox.id.is_some();
        let is_asked_for = is_named || request.spool;
        let handle = folder_files::open(&request.folder)?;
        folder_files::check(&handle)?;
        let id = match &request.sandbox.id {
            Some(id) => SandboxId::parse(id)?,
            None => SandboxId::random()?,
        };
        request.sandbox.id = Some(id.to_string());
        let parent = request.dies_with_parent.then(ParentWatch::open).transpose()?;
        Ok(AgentCall {
            folder: handle.path().to_owned(),
            request,
            id,
            handle,
            detached,
            parent,
            is_asked_for,
        })
    }

    /// Whether the agent works on a copy of its folder.
    fn copies_folder(&self) -> bool {
        let sandbox = &self.request.sandbox;
        sandbox.workspace.is_none() && !sandbox.workspace_overlay
    }

    /// Whether a start that fails, and a session at its end, leave nothing. A session that was asked for is kept, and all are
    /// if the policy says so.
    fn removal(&self, policy_keeps: bool) -> SessionRemoval {
        let is_for_another_process = self.detached.is_some() || self.request.server.is_some();
        if self.request.resume {
            SessionRemoval::Never
        } else if is_for_another_process {
            SessionRemoval::IfNotStarted
        } else if self.is_asked_for || policy_keeps {
            SessionRemoval::Never
        } else {
            SessionRemoval::WithoutResults
        }
    }

    fn launch_request(&self) -> Result<LaunchRequest> {
        let workspace = match &self.request.sandbox.workspace {
            Some(workspace) => prepare::canonical_directory(workspace)?,
            None => self.folder.clone(),
        };
        Ok(LaunchRequest {
            home: HomeSource::Session,
            is_copy: self.copies_folder(),
            start_directory: prepare::agent_start_directory(&self.request.sandbox, &workspace)?,
            repository: workspace.clone(),
            workspace,
            agent_folder: Some(self.folder.clone()),
            program: None,
            session_home: None,
            changes: None,
            own_binds: Vec::new(),
            inherits_streams: false,
            will_start: true,
            planned: Vec::new(),
        })
    }
}

/// A session that is open, with its record.
#[derive(Debug)]
struct OpenSession {
    session: Session,
    record_writer: RecordWriter,
    removal: SessionRemoval,
}

impl OpenSession {
    fn new(call: &AgentCall, launch: &AgentLaunch) -> Result<Self> {
        let id = &launch.session_id;
        let mode = if call.request.resume { OpenMode::Resume } else { OpenMode::New };
        let session = Session::open(id, mode)?;
        let options = call.detached.as_ref().map(|detached| detached.options.clone());
        let fresh = SessionRecord::new(id, &call.folder, options);
        let record_writer = RecordWriter::create(session.directory(), fresh)?;
        Ok(OpenSession { session, record_writer, removal: call.removal(launch.keeps_sessions()) })
    }

    /// Records a failed start. The loop leaves a record behind when it has begun; before that nothing has.
    fn fail(&mut self, error: &Error) {
        let writer = &mut self.record_writer;
        let recorded = match writer.record().is_served() {
            true => writer.close(SessionTransition::Fail, Some(StateReason::Start), Some(error.to_string())),
            false => Ok(()),
        };
        let stays = writer.agent_has_run() || writer.is_removed() || writer.is_kept();
        let left = if self.removal != SessionRemoval::Never && !stays {
            writer.mark_removed();
            self.session.remove()
        } else {
            recorded
        };
        if let Err(error) = left {
            log::warn!("{error}");
        }
    }
}
