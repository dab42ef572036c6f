//! The control socket of a running sandbox, on the loop of its supervisor.
//!
//! The loop executes requests that concern the sandbox ([`ControlHandler`]). This module executes those that concern
//! the socket alone (log entries, events, timeouts of commands).

use crate::bridge::core::{ExecId, ExecOutcome, PermissionResponseError, QuestionRecipient};
use crate::bridge::io::{ConnectionHub, UnixSocketListener};
use crate::bridge::proto::LogLevel;
use crate::bridge::proto::permission::PendingQuestion;
use crate::control::files::FileRequest;
use crate::control::journal::Journal;
use crate::control::method::{ControlMethod, UpdateChange, UpdateRequest};
use crate::control::rpc::{RpcError, RpcErrorKind, RpcId};
use crate::control::server::{ControlRequest, ControlServer, ResponseTicket};
use crate::error::{Code, Error, Result};
use crate::session::logs::{self, LogEntry, LogWriter};
use crate::text::{prefix, suffix};
use mio::event::Event;
use mio::{Registry, Token};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// First token of the socket and its clients.
const FIRST_TOKEN: Token = Token(1 << 17);
/// First id of commands of this socket; ids of the bridge are below.
const FIRST_EXEC_ID: u64 = 1 << 63;
/// Most commands that may run at once.
const MAX_COMMANDS: usize = 64;

/// The control socket.
#[derive(Debug)]
pub(in crate::supervise) struct ControlSocket {
    hub: ConnectionHub<ControlServer>,
    journal: Journal,
    /// The log entries of a session, which are kept on disk instead.
    session_log: Option<SessionLog>,
    commands: BTreeMap<ExecId, ControlCommand>,
    next_exec: u64,
    started: Instant,
}

/// A running command.
#[derive(Debug)]
pub(in crate::supervise) struct ControlCommand {
    ticket: ResponseTicket,
    deadline: Instant,
    /// It is killed when its client disconnects.
    is_attached: bool,
    /// Most bytes of each stream in the result.
    limit: Option<usize>,
    /// Why it was killed, if it was.
    killed: Option<CommandKill>,
}

/// Why a running command was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CommandKill {
    Timeout,
    /// The client has cancelled its call, or closed the connection of an attached one.
    Cancellation,
}

/// The log of a session on disk, shared with the back end of the `log` macros.
#[derive(Debug, Clone)]
pub struct SessionLog {
    writer: Arc<Mutex<LogWriter>>,
}

impl SessionLog {
    /// Opens the log of the session in `directory`.
    ///
    /// # Errors
    /// As [`LogWriter::open`].
    pub fn open(directory: &Path) -> Result<Self> {
        let writer = Arc::new(Mutex::new(LogWriter::open(directory)?));
        Ok(SessionLog { writer })
    }

    /// Appends an entry. An entry that does not fit on the disk is lost.
    pub fn append(&self, ts: u64, level: LogLevel, text: &str) {
        if let Ok(mut writer) = self.writer.lock() {
            let _ = writer.append(ts, level, text);
        }
    }

    /// The entries with a number above `after`, and the number of the newest entry.
    fn entries_after(&self, after: u64, limit: usize) -> (Vec<LogEntry>, u64) {
        let Ok(writer) = self.writer.lock() else { return (Vec::new(), 0) };
        let last = writer.last_index();
        let from = after.max(logs::oldest_index(last) - 1);
        (writer.files().entries_after(from, limit), last)
    }
}

/// The result of a request without data.
pub(in crate::supervise) type ControlResult = std::result::Result<(), RpcError>;

/// A loop with a control socket.
pub(in crate::supervise) trait ControlHandler {
    /// The socket; `None` when it is closed.
    fn control_socket(&mut self) -> Option<&mut ControlSocket>;

    /// Identity and state of the sandbox (saggar-control(7), STATE).
    fn state_json(&self) -> Value;

    /// Resource usage of the sandbox.
    fn stats_json(&self) -> std::result::Result<Value, RpcError>;

    /// Sends its program a signal.
    fn kill(&mut self, signal: i32) -> ControlResult;

    /// Freezes or thaws the sandbox; the loop responds when that is done.
    fn freeze(&mut self, freeze: bool, ticket: ResponseTicket);

    /// Changes limits or hosts; on an error nothing changes.
    fn apply_change(&mut self, what: &UpdateChange) -> ControlResult;

    /// Number of policy changes plus one.
    fn generation(&mut self) -> &mut u64;

    /// Starts a shell command; its end is reported by [`ControlHandler::on_command_exited`].
    fn start_command(&mut self, exec: ExecId, command: String) -> Result<()>;

    /// Kills a command.
    fn kill_command(&mut self, exec: ExecId);

    /// Starts the shutdown.
    fn shut_down(&mut self);

    /// Whether a shutdown now would end work: a turn, a command, a call for files, a snapshot, or a start.
    fn is_working(&mut self) -> bool {
        self.has_own_work()
            || self.bridge().core().is_busy()
            || self.control_socket().is_some_and(|socket| socket.has_commands())
    }

    /// Whether the loop itself has work that a shutdown would end.
    fn has_own_work(&self) -> bool {
        false
    }

    /// Starts a call for files of its workspace; the loop responds when that is done.
    fn start_file_call(&mut self, call: FileRequest, ticket: ResponseTicket);

    /// Takes a snapshot of its session; the loop responds when that is done.
    fn request_snapshot(&mut self, all: bool, ticket: ResponseTicket);

    /// Whether the sandbox is frozen.
    fn is_frozen(&self) -> bool;

    /// The bridge of its agent.
    fn bridge(&mut self) -> &mut ConnectionHub;

    /// Executes pending requests.
    fn serve_requests(&mut self) {
        while let Some(ControlRequest { ticket, method }) =
            self.control_socket().and_then(ControlSocket::next_request)
        {
            let done = |done: ControlResult| done.map(|()| json!({}));
            let result = match method {
                ControlMethod::Hello { .. } => Ok(json!({})),
                ControlMethod::State => Ok(self.state_json()),
                ControlMethod::Stats => self.stats_json(),
                ControlMethod::Kill { signal } => done(self.kill(signal)),
                ControlMethod::Pause | ControlMethod::Resume => {
                    self.freeze(method == ControlMethod::Pause, ticket);
                    continue;
                }
                ControlMethod::Update(update) => self.apply_update(&update),
                ControlMethod::Exec { command, timeout, is_attached, limit } => {
                    let deadline = Instant::now() + timeout;
                    self.start_exec(
                        command,
                        ControlCommand { ticket, deadline, is_attached, limit, killed: None },
                    );
                    continue;
                }
                ControlMethod::CancelExec { id } => {
                    let found =
                        self.control_socket().and_then(|control| control.cancel_command(&ticket, &id));
                    found.map(|exec| self.kill_command(exec)).map(|()| json!({})).ok_or_else(|| {
                        let message = "exec.cancel: no command of this connection runs with this id";
                        RpcError::new(RpcErrorKind::State, message)
                    })
                }
                ControlMethod::Subscribe => {
                    if let Some(control) = self.control_socket() {
                        control.hub.with_core(|clients| clients.subscribe(ticket));
                    }
                    continue;
                }
                ControlMethod::Logs { after, limit } => self
                    .control_socket()
                    .map_or(Ok(Value::Null), |control| Ok(control.log_entries(after, limit))),
                ControlMethod::ListPermissions => {
                    let core = self.bridge().core();
                    let open: Vec<Value> = core
                        .pending_permissions()
                        .map(|pending| question_json(pending, |time| core.to_epoch_ms(time)))
                        .collect();
                    Ok(json!({ "open": open }))
                }
                ControlMethod::RespondToPermission { id, response } => done(
                    self.bridge()
                        .with_bridge(|bridge| bridge.respond_to_permission(&id, &response))
                        .map_err(not_accepted_error),
                ),
                ControlMethod::Files(call) => {
                    self.start_file_call(call, ticket);
                    continue;
                }
                ControlMethod::Snapshot { include_skipped: all } => {
                    self.request_snapshot(all, ticket);
                    continue;
                }
                ControlMethod::Shutdown { if_idle: true } if self.is_working() => {
                    let message = "shutdown: the sandbox is not idle";
                    Err(RpcError::new(RpcErrorKind::State, message))
                }
                ControlMethod::Shutdown { .. } => {
                    self.shut_down();
                    Ok(json!({}))
                }
            };
            self.respond(ticket, result);
        }
        for command in self.control_socket().map(ControlSocket::commands_to_kill).unwrap_or_default() {
            self.kill_command(command);
        }
    }

    /// Applies a change if the generation matches; returns the new generation.
    fn apply_update(
        &mut self,
        UpdateRequest { change: what, generation }: &UpdateRequest,
    ) -> std::result::Result<Value, RpcError> {
        let now = *self.generation();
        if let Some(asked) = generation.filter(|asked| *asked != now) {
            let message =
                format!("update: the generation is {now}, and not {asked}: look at the state again");
            return Err(RpcError::new(RpcErrorKind::State, message));
        }
        self.apply_change(what)?;
        *self.generation() = now + 1;
        Ok(json!({ "generation": now + 1 }))
    }

    /// Publishes that a permission request was opened or closed.
    fn notify_question(&mut self, id: &str, open: bool) {
        let event = if open {
            let core = self.bridge().core();
            let found = core
                .pending_permissions()
                .find(|pending| pending.id == id)
                .map(|pending| question_json(pending, |time| core.to_epoch_ms(time)));
            json!({ "event": "permission_asked", "question": found })
        } else {
            json!({ "event": "permission_closed", "question": { "id": id } })
        };
        if let Some(control) = self.control_socket() {
            control.publish_event(&event);
        }
    }

    /// Starts a command, or responds with an error.
    fn start_exec(&mut self, shell_command: String, command: ControlCommand) {
        if self.is_frozen() {
            let failure = RpcError::new(RpcErrorKind::State, "the sandbox is paused: resume it first");
            return self.respond(command.ticket, Err(failure));
        }
        let Some(exec) = self.control_socket().and_then(|control| control.allocate_exec(command)) else {
            return;
        };
        self.start_or_report_failure(exec, shell_command);
    }

    /// Starts a command of this socket or of the bridge; if that fails, reports the error to the requester.
    fn start_or_report_failure(&mut self, exec: ExecId, command: String) {
        if let Err(error) = self.start_command(exec, command) {
            self.on_command_exited(exec, Err(&error));
        }
    }

    /// A command has ended, or could not start: reports that to the requester.
    fn on_command_exited(&mut self, exec: ExecId, end: std::result::Result<&ExecOutcome, &Error>) {
        if exec.0 >= FIRST_EXEC_ID {
            if let Some(control) = self.control_socket() {
                control.on_command_exited(exec, end);
            }
            return;
        }
        self.bridge().with_bridge(|bridge| match end {
            Ok(outcome) => bridge.exec_finished(exec, outcome),
            Err(error) => bridge.exec_failed(exec, &error.to_string()),
        });
    }

    /// Responds to a request.
    fn respond(&mut self, ticket: ResponseTicket, result: std::result::Result<Value, RpcError>) {
        if let Some(control) = self.control_socket() {
            control.respond(ticket, result);
        }
    }
}

/// A stream of a command as text, and whether its middle was left out. The limit is for its beginning and its end together.
fn stream_text(stream: &[u8], limit: Option<usize>) -> (String, bool) {
    let text = String::from_utf8_lossy(stream);
    match limit.filter(|limit| text.len() > *limit) {
        None => (text.into_owned(), false),
        Some(limit) => {
            let (first, last) = (prefix(&text, limit / 2), suffix(&text, limit / 2));
            let left_out = text.len() - first.len() - last.len();
            (format!("{first}\n[{left_out} bytes left out]\n{last}"), true)
        }
    }
}

/// A permission request in the format of saggar-control(7).
fn question_json(
    pending: &PendingQuestion<QuestionRecipient>,
    to_epoch_ms: impl Fn(Duration) -> u64,
) -> Value {
    let Some(tool) = &pending.question.tool else { return Value::Null };
    // Input that is not valid JSON is shown as a string.
    let input = serde_json::from_str(&tool.input).unwrap_or_else(|_| json!(tool.input));
    json!({
        "id": pending.id,
        "agentId": pending.question.agent_request_id,
        "tool": tool.name,
        "toolUseId": tool.tool_use_id,
        "input": input,
        "suggestions": pending.question.suggestions().and_then(|list| serde_json::from_str::<Value>(list).ok()),
        "asked": to_epoch_ms(pending.asked),
        "deadline": pending.deadline.map(to_epoch_ms),
    })
}

/// The RPC error of an error, with its hint.
pub(in crate::supervise) fn to_rpc_error(error: &Error) -> RpcError {
    let kind = match error.code() {
        Code::Unsupported => RpcErrorKind::Unsupported,
        Code::Invalid => RpcErrorKind::Params,
        Code::Refused => RpcErrorKind::State,
        _ => RpcErrorKind::Internal,
    };
    let cure = error.hint_text().map_or_else(String::new, |hint| format!("; {hint}"));
    RpcError::new(kind, format!("{error}{cure}"))
}

fn not_accepted_error(why: PermissionResponseError) -> RpcError {
    let kind = match why {
        PermissionResponseError::UnknownQuestion => RpcErrorKind::State,
        PermissionResponseError::Malformed(_) => RpcErrorKind::Params,
        PermissionResponseError::AgentInputFull => RpcErrorKind::Internal,
    };
    RpcError::new(kind, format!("permission.respond: {why}"))
}

impl ControlSocket {
    /// Registers the socket with the loop.
    ///
    /// # Errors
    /// [`crate::error::Code::System`] when the socket cannot be registered.
    pub(in crate::supervise) fn new(
        listener: UnixSocketListener,
        logs: Option<SessionLog>,
        registry: &Registry,
    ) -> Result<Self> {
        Ok(ControlSocket {
            hub: ConnectionHub::new(ControlServer::default(), listener, registry, FIRST_TOKEN)?,
            journal: Journal::default(),
            session_log: logs,
            commands: BTreeMap::new(),
            next_exec: FIRST_EXEC_ID,
            started: Instant::now(),
        })
    }

    /// Handles an event; false when the token belongs to another module.
    pub(in crate::supervise) fn on_event(&mut self, event: &Event) -> bool {
        let ours = self.hub.owns_token(event.token());
        if ours {
            self.hub.on_event(event);
        }
        ours
    }

    /// Updates the clock; call it before events are handled.
    pub(in crate::supervise) fn tick(&mut self) {
        self.hub.tick(self.started.elapsed());
    }

    /// Longest time that the loop may wait.
    pub(in crate::supervise) fn poll_timeout(&self) -> Option<Duration> {
        let hub = self.hub.next_deadline().map(|at| at.saturating_sub(self.started.elapsed()));
        let ends =
            self.commands.values().filter(|command| command.killed.is_none()).map(|command| command.deadline);
        let ends = ends.min().map(|at| at.saturating_duration_since(Instant::now()));
        [hub, ends].into_iter().flatten().min()
    }

    fn on_command_exited(&mut self, exec: ExecId, end: std::result::Result<&ExecOutcome, &Error>) {
        let Some(command) = self.commands.remove(&exec) else { return };
        let result = match end {
            _ if command.killed == Some(CommandKill::Cancellation) => {
                Err(RpcError::new(RpcErrorKind::State, "exec: the command was cancelled"))
            }
            Err(error) => Err(RpcError::new(RpcErrorKind::Internal, error.to_string())),
            Ok(outcome) => {
                let [(stdout, is_cut), (stderr, is_also_cut)] =
                    [&outcome.stdout, &outcome.stderr].map(|stream| stream_text(stream, command.limit));
                Ok(json!({
                    "exitCode": outcome.exit_code,
                    "stdout": stdout,
                    "stderr": stderr,
                    "truncated": outcome.truncated || is_cut || is_also_cut,
                    "timedOut": command.killed == Some(CommandKill::Timeout),
                }))
            }
        };
        self.respond(command.ticket, result);
    }

    /// Appends a log entry.
    pub(in crate::supervise) fn append_log(&mut self, timestamp_ms: u64, level: LogLevel, text: &str) {
        match &self.session_log {
            Some(logs) => logs.append(timestamp_ms, level, text),
            None => self.journal.append(timestamp_ms, level, text),
        }
    }

    /// Sends an event to all subscribers.
    pub(in crate::supervise) fn publish_event(&mut self, event: &impl Serialize) {
        if self.hub.core().has_subscribers() {
            self.hub.with_core(|clients| clients.publish_event(event));
        }
    }

    /// Whether any client is subscribed to events.
    pub(in crate::supervise) fn has_subscribers(&self) -> bool {
        self.hub.core().has_subscribers()
    }

    /// Responds to a request.
    pub(in crate::supervise) fn respond(
        &mut self,
        ticket: ResponseTicket,
        result: std::result::Result<Value, RpcError>,
    ) {
        self.hub.with_core(|clients| clients.respond(ticket, result));
    }

    fn next_request(&mut self) -> Option<ControlRequest> {
        self.hub.next_action()
    }

    fn log_entries(&self, after: u64, limit: u32) -> Value {
        if let Some(logs) = &self.session_log {
            let (entries, last) = logs.entries_after(after, limit as usize);
            return json!({ "entries": entries, "last": last });
        }
        let entries = self.journal.entries_after(after, limit as usize);
        json!({ "entries": entries, "last": self.journal.last_index() })
    }

    /// Allocates the id of a command; responds with an error if too many are running.
    fn allocate_exec(&mut self, command: ControlCommand) -> Option<ExecId> {
        if self.commands.len() >= MAX_COMMANDS {
            let failure = RpcError::new(RpcErrorKind::Busy, format!("{MAX_COMMANDS} commands run already"));
            self.respond(command.ticket, Err(failure));
            return None;
        }
        let exec = ExecId(self.next_exec);
        self.next_exec += 1;
        self.commands.insert(exec, command);
        Some(exec)
    }

    /// Whether commands of clients run.
    pub(in crate::supervise) fn has_commands(&self) -> bool {
        !self.commands.is_empty()
    }

    /// Whether a running command was killed at its timeout.
    pub(in crate::supervise) fn exec_timed_out(&self, exec: ExecId) -> bool {
        self.commands.get(&exec).is_some_and(|command| command.killed == Some(CommandKill::Timeout))
    }

    /// Commands that have reached their timeout, or have lost their client, since the last call.
    fn commands_to_kill(&mut self) -> Vec<ExecId> {
        let now = Instant::now();
        let mut found = Vec::new();
        for (exec, command) in self.commands.iter_mut().filter(|(_, command)| command.killed.is_none()) {
            let is_alone = command.is_attached && !self.hub.core().is_connected(&command.ticket);
            command.killed = match () {
                () if is_alone => Some(CommandKill::Cancellation),
                () if command.deadline <= now => Some(CommandKill::Timeout),
                () => continue,
            };
            found.push(*exec);
        }
        found
    }

    /// The command that `canceller`'s client has started by a call with this id, which now counts as cancelled.
    fn cancel_command(&mut self, canceller: &ResponseTicket, id: &RpcId) -> Option<ExecId> {
        let (exec, command) = self.commands.iter_mut().find(|(_, command)| {
            command.killed.is_none() && command.ticket.is_call_of_same_client(canceller, id)
        })?;
        command.killed = Some(CommandKill::Cancellation);
        Some(*exec)
    }
}
