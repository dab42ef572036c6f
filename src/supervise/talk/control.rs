//! The control socket of a sandbox that runs, on the loop of its supervisor.
//!
//! What a call asks of the sandbox itself, the loop does ([`Controlled`]); what it asks of the socket alone (log entries,
//! events, how long a command may run) is done here.

use crate::bridge::core::{ExecId, NotTaken, Outcome, Told};
use crate::bridge::io::{Hub, Listener};
use crate::bridge::proto::LogLevel;
use crate::bridge::proto::permission::Pending;
use crate::control::clients::{Ask, Clients, Ticket};
use crate::control::files::FileCall;
use crate::control::journal::Journal;
use crate::control::method::{Change, Method, Update};
use crate::control::rpc::{Failure, Kind};
use crate::error::{Code, Error, Result};
use crate::session::logs::{self, Entry, Writer};
use mio::event::Event;
use mio::{Registry, Token};
use nix::sys::signal::Signal;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Tokens of the socket and its clients, from this one on.
const FIRST: Token = Token(1 << 17);
/// Numbers of commands that came by this socket, from this one on; those of the bridge are below.
const COMMANDS: u64 = 1 << 63;
/// How many commands may run at once.
const COMMANDS_MOST: usize = 64;

/// The control socket.
#[derive(Debug)]
pub(in crate::supervise) struct Control {
    hub: Hub<Clients>,
    journal: Journal,
    /// Where the entries are instead, for a session.
    logs: Option<Logs>,
    commands: BTreeMap<ExecId, Command>,
    next: u64,
    started: Instant,
}

/// A command that runs.
#[derive(Debug)]
struct Command {
    ticket: Ticket,
    until: Instant,
    /// It was told to end.
    late: bool,
}

/// The log of a session on disk, shared with the back end of the `log` macros.
#[derive(Debug, Clone)]
pub struct Logs {
    writer: Arc<Mutex<Writer>>,
}

impl Logs {
    /// Opens the log of the session in `directory`.
    ///
    /// # Errors
    /// As [`Writer::open`].
    pub fn open(directory: &Path) -> Result<Self> {
        let writer = Arc::new(Mutex::new(Writer::open(directory)?));
        Ok(Logs { writer })
    }

    /// Adds an entry. One that finds no room on the disk is lost: there is nobody else to tell.
    pub fn add(&self, ts: u64, level: LogLevel, text: &str) {
        if let Ok(mut writer) = self.writer.lock() {
            let _ = writer.add(ts, level, text);
        }
    }

    /// The entries after number `after`, and the number of the newest.
    fn after(&self, after: u64, limit: usize) -> (Vec<Entry>, u64) {
        let Ok(writer) = self.writer.lock() else { return (Vec::new(), 0) };
        let last = writer.last();
        let from = after.max(logs::oldest(last) - 1);
        (writer.pieces().after(from, limit), last)
    }
}

/// What a call can come to: nothing to say, or why not.
pub(in crate::supervise) type Done = std::result::Result<(), Failure>;

/// A loop with a control socket.
pub(in crate::supervise) trait Controlled {
    /// The socket; `None` when it is closed.
    fn control(&mut self) -> Option<&mut Control>;

    /// What the sandbox is and does (saggar-control(7), STATE).
    fn state(&self) -> Value;

    /// What it uses.
    fn stats(&self) -> std::result::Result<Value, Failure>;

    /// Sends its program a signal.
    fn kill(&mut self, signal: Signal) -> Done;

    /// Stops everything in it, or lets it go on; the loop answers when that is done.
    fn freeze(&mut self, freeze: bool, ticket: Ticket);

    /// Changes limits: all that are named hold, or all are as they were.
    fn change(&mut self, what: &Change) -> Done;

    /// How often limits have changed, and one.
    fn generation(&mut self) -> &mut u64;

    /// Starts a shell command; what becomes of it is told by [`Controlled::command_over`].
    fn begin(&mut self, exec: ExecId, command: String) -> Result<()>;

    /// Kills a command.
    fn end(&mut self, exec: ExecId);

    /// Begins the end.
    fn shut_down(&mut self);

    /// Does something with files of its workspace; the loop answers when that is done.
    fn files(&mut self, call: FileCall, ticket: Ticket);

    /// Takes a snapshot of its session; the loop answers when that is done.
    fn snapshot(&mut self, all: bool, ticket: Ticket);

    /// Whether it stands still.
    fn is_frozen(&self) -> bool;

    /// The bridge of its agent.
    fn bridge(&mut self) -> &mut Hub;

    /// Does what was asked for.
    fn serve(&mut self) {
        while let Some(Ask { ticket, method }) = self.control().and_then(Control::next) {
            let done = |done: Done| done.map(|()| json!({}));
            let result = match method {
                Method::Hello { .. } => Ok(json!({})),
                Method::State => Ok(self.state()),
                Method::Stats => self.stats(),
                Method::Kill { signal } => done(self.kill(signal)),
                Method::Pause | Method::Resume => {
                    self.freeze(method == Method::Pause, ticket);
                    continue;
                }
                Method::Update(update) => self.update(&update),
                Method::Exec { command, timeout } => {
                    self.run(ticket, command, timeout);
                    continue;
                }
                Method::Subscribe => {
                    if let Some(control) = self.control() {
                        control.hub.core(|clients| clients.subscribe(ticket));
                    }
                    continue;
                }
                Method::Logs { after, limit } => {
                    self.control().map_or(Ok(Value::Null), |control| Ok(control.logs(after, limit)))
                }
                Method::Permissions => {
                    let open: Vec<Value> = self.bridge().state().permissions().map(question).collect();
                    Ok(json!({ "open": open }))
                }
                Method::Respond { id, response } => done(
                    self.bridge()
                        .bridge(|bridge| bridge.answer_permission(&id, &response))
                        .map_err(not_taken),
                ),
                Method::Files(call) => {
                    self.files(call, ticket);
                    continue;
                }
                Method::Snapshot { all } => {
                    self.snapshot(all, ticket);
                    continue;
                }
                Method::Shutdown => {
                    self.shut_down();
                    Ok(json!({}))
                }
            };
            self.answer(ticket, result);
        }
        for late in self.control().map(Control::late).unwrap_or_default() {
            self.end(late);
        }
    }

    /// Changes limits as things stand; the new generation.
    fn update(&mut self, Update { what, generation }: &Update) -> std::result::Result<Value, Failure> {
        let now = *self.generation();
        if let Some(asked) = generation.filter(|asked| *asked != now) {
            let message =
                format!("update: the generation is {now}, and not {asked}: look at the state again");
            return Err(Failure::new(Kind::State, message));
        }
        self.change(what)?;
        *self.generation() = now + 1;
        Ok(json!({ "generation": now + 1 }))
    }

    /// Tells of a question of the agent that was asked, or is answered or given up.
    fn tell_question(&mut self, id: &str, open: bool) {
        let event = if open {
            let found = self.bridge().state().permissions().find(|pending| pending.id == id).map(question);
            json!({ "event": "permission_asked", "question": found })
        } else {
            json!({ "event": "permission_closed", "question": { "id": id } })
        };
        if let Some(control) = self.control() {
            control.event(&event);
        }
    }

    /// Starts a command, or says why not.
    fn run(&mut self, ticket: Ticket, command: String, timeout: Duration) {
        if self.is_frozen() {
            let failure = Failure::new(Kind::State, "the sandbox is paused: resume it first");
            return self.answer(ticket, Err(failure));
        }
        let Some(exec) = self.control().and_then(|control| control.admit(ticket, timeout)) else { return };
        self.begin_or_tell(exec, command);
    }

    /// Starts a command of this socket or of the bridge; who has asked for it hears why it could not.
    fn begin_or_tell(&mut self, exec: ExecId, command: String) {
        if let Err(error) = self.begin(exec, command) {
            self.command_over(exec, Err(&error));
        }
    }

    /// A command has ended, or never ran: tells who has asked for it.
    fn command_over(&mut self, exec: ExecId, end: std::result::Result<&Outcome, &Error>) {
        if exec.0 >= COMMANDS {
            if let Some(control) = self.control() {
                control.command_over(exec, end);
            }
            return;
        }
        self.bridge().bridge(|bridge| match end {
            Ok(outcome) => bridge.exec_finished(exec, outcome),
            Err(error) => bridge.exec_failed(exec, &error.to_string()),
        });
    }

    /// Answers a call.
    fn answer(&mut self, ticket: Ticket, result: std::result::Result<Value, Failure>) {
        if let Some(control) = self.control() {
            control.answer(ticket, result);
        }
    }
}

/// A question as saggar-control(7) shows it.
fn question(pending: &Pending<Told>) -> Value {
    let Some(tool) = &pending.ask.tool else { return Value::Null };
    // What no reader of JSON would take for a value is shown as the text that it is.
    let input = serde_json::from_str(&tool.input).unwrap_or_else(|_| json!(tool.input));
    json!({
        "id": pending.id,
        "agentId": pending.ask.agent_id,
        "tool": tool.name,
        "toolUseId": tool.use_id,
        "input": input,
    })
}

/// An error of a call, with its cure.
pub(in crate::supervise) fn failure(error: &Error) -> Failure {
    let kind = match error.code() {
        Code::Unsupported => Kind::Unsupported,
        Code::Invalid => Kind::Params,
        Code::Refused => Kind::State,
        _ => Kind::Internal,
    };
    let cure = error.hint_text().map_or_else(String::new, |hint| format!("; {hint}"));
    Failure::new(kind, format!("{error}{cure}"))
}

fn not_taken(why: NotTaken) -> Failure {
    let kind = match why {
        NotTaken::Unknown => Kind::State,
        NotTaken::Malformed(_) => Kind::Params,
        NotTaken::NoRoom => Kind::Internal,
    };
    Failure::new(kind, format!("permission.respond: {why}"))
}

impl Control {
    /// Registers with the loop.
    ///
    /// # Errors
    /// [`crate::error::Code::System`] when the loop does not take the socket.
    pub(in crate::supervise) fn new(
        listener: Listener,
        logs: Option<Logs>,
        registry: &Registry,
    ) -> Result<Self> {
        Ok(Control {
            hub: Hub::new(Clients::default(), listener, registry, FIRST)?,
            journal: Journal::default(),
            logs,
            commands: BTreeMap::new(),
            next: COMMANDS,
            started: Instant::now(),
        })
    }

    /// Handles an event; false when the token is somebody else's.
    pub(in crate::supervise) fn ready(&mut self, event: &Event) -> bool {
        let ours = self.hub.owns(event.token());
        if ours {
            self.hub.ready(event);
        }
        ours
    }

    /// Tells the time; to be called before events are handled.
    pub(in crate::supervise) fn tick(&mut self) {
        self.hub.tick(self.started.elapsed());
    }

    /// How long it can wait.
    pub(in crate::supervise) fn patience(&self) -> Option<Duration> {
        let hub = self.hub.next_deadline().map(|at| at.saturating_sub(self.started.elapsed()));
        let ends = self.commands.values().filter(|command| !command.late).map(|command| command.until);
        let ends = ends.min().map(|at| at.saturating_duration_since(Instant::now()));
        [hub, ends].into_iter().flatten().min()
    }

    fn command_over(&mut self, exec: ExecId, end: std::result::Result<&Outcome, &Error>) {
        let Some(command) = self.commands.remove(&exec) else { return };
        let failed = |error: &Error| Failure::new(Kind::Internal, error.to_string());
        let result = end.map_err(failed).map(|outcome| {
            json!({
                "exitCode": outcome.exit_code,
                "stdout": String::from_utf8_lossy(&outcome.stdout),
                "stderr": String::from_utf8_lossy(&outcome.stderr),
                "truncated": outcome.truncated,
            })
        });
        self.answer(command.ticket, result);
    }

    /// Keeps a log entry.
    pub(in crate::supervise) fn log(&mut self, ts: u64, level: LogLevel, text: &str) {
        match &self.logs {
            Some(logs) => logs.add(ts, level, text),
            None => self.journal.add(ts, level, text),
        }
    }

    /// Tells of an event all who want to hear of it.
    pub(in crate::supervise) fn event(&mut self, event: &impl Serialize) {
        if self.hub.state().has_listeners() {
            self.hub.core(|clients| clients.event(event));
        }
    }

    /// Whether anybody hears events.
    pub(in crate::supervise) fn has_listeners(&self) -> bool {
        self.hub.state().has_listeners()
    }

    /// Answers a call.
    pub(in crate::supervise) fn answer(
        &mut self,
        ticket: Ticket,
        result: std::result::Result<Value, Failure>,
    ) {
        self.hub.core(|clients| clients.answer(ticket, result));
    }

    fn next(&mut self) -> Option<Ask> {
        self.hub.next_action()
    }

    fn logs(&self, after: u64, limit: u32) -> Value {
        if let Some(logs) = &self.logs {
            let (entries, last) = logs.after(after, limit as usize);
            return json!({ "entries": entries, "last": last });
        }
        let entries = self.journal.after(after, limit as usize);
        json!({ "entries": entries, "last": self.journal.last() })
    }

    /// A number for a command, while there is room for it; else the answer says so.
    fn admit(&mut self, ticket: Ticket, timeout: Duration) -> Option<ExecId> {
        if self.commands.len() >= COMMANDS_MOST {
            let failure = Failure::new(Kind::Busy, format!("{COMMANDS_MOST} commands run already"));
            self.answer(ticket, Err(failure));
            return None;
        }
        let exec = ExecId(self.next);
        self.next += 1;
        self.commands.insert(exec, Command { ticket, until: Instant::now() + timeout, late: false });
        Some(exec)
    }

    /// Whether a command that runs was killed at its timeout.
    pub(in crate::supervise) fn exec_timed_out(&self, exec: ExecId) -> bool {
        self.commands.get(&exec).is_some_and(|command| command.late)
    }

    /// Commands that have run for as long as they may.
    fn late(&mut self) -> Vec<ExecId> {
        let now = Instant::now();
        let late = self.commands.iter_mut().filter(|(_, command)| !command.late && command.until <= now);
        late.map(|(exec, command)| {
            command.late = true;
            *exec
        })
        .collect()
    }
}
