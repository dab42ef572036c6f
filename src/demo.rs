//! The built-in demo agent. It needs no installed program, and demonstrates a sandbox and its bridge.
//!
//! It uses the bridge's own protocol on its stdin and stdout. Prompts:
//!
//! | prompt | action |
//! |---|---|
//! | `run: CMD` | runs CMD with `/bin/sh -c`, and reports it as a tool call and its result |
//! | `ask: CMD` | as `run:`, after a permission request that must be allowed |
//! | `count: N` | counts to N, one partial message every 20 ms |
//! | `recall` | replies with the earlier prompts of the conversation |
//! | `echo-json: RAW` | sends RAW unchanged as a message |
//! | `crash` | exits with code 3 during the turn |
//! | the prompt of a pair run | sends the messages of its turn by the mailbox |
//! | any other text | replies to it |
//!
//! The prompts of a conversation are stored in `$HOME/.demo/<session>.json`; `resume` loads them.

mod pair;
mod reply;
mod shell;
mod transcript;

use crate::bridge::proto::{BridgeCommand, CommandBody, QueryCommand};
use crate::spec::MailboxSpec;
use pair::PairTurn;
use reply::EventWriter;
use std::borrow::Cow;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use transcript::Transcript;

/// The hidden first argument with which saggar runs as the demo agent. It is checked before the command line is parsed,
/// because parsing takes longer than the agent's own start.
pub const ENTRY: &str = "__demo-agent";

/// The exit code after the prompt `crash`.
const CRASH_EXIT_CODE: u8 = 3;
/// Interval between two partial messages of `count`.
const COUNT_INTERVAL: Duration = Duration::from_millis(20);

/// Runs the demo agent until its input ends or it receives `shutdown`. Returns the exit code.
///
/// A separate thread reads `input`, so that an `interrupt` is received during a turn.
pub fn run(input: impl BufRead + Send + 'static, output: impl Write) -> u8 {
    run_at(std::env::var_os("HOME").map(PathBuf::from), input, output)
}

/// As [`run`], with the conversations stored below `home`.
fn run_at(home: Option<PathBuf>, input: impl BufRead + Send + 'static, output: impl Write) -> u8 {
    let (sender, commands) = channel();
    std::thread::spawn(move || {
        for line in input.split(b'\n') {
            let Ok(line) = line else { return };
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let mut demo = DemoAgent {
        home,
        commands,
        writer: EventWriter::new(output),
        transcript: None,
        deferred: Vec::new(),
    };
    match demo.serve() {
        DemoExit::Requested => 0,
        DemoExit::Crash => CRASH_EXIT_CODE,
    }
}

/// The reason why the demo agent exits.
enum DemoExit {
    Requested,
    Crash,
}

/// The end of a turn.
enum TurnEnd {
    Done(String),
    Interrupted,
    InputClosed,
    Crash,
}

struct DemoAgent<W> {
    home: Option<PathBuf>,
    commands: Receiver<Vec<u8>>,
    writer: EventWriter<W>,
    transcript: Option<Transcript>,
    /// Commands that were received during a turn.
    deferred: Vec<BridgeCommand>,
}

impl<W: Write> DemoAgent<W> {
    fn serve(&mut self) -> DemoExit {
        self.writer.ready();
        loop {
            let command = match self.deferred.is_empty() {
                true => match self.commands.recv() {
                    Ok(line) => self.parse(line),
                    Err(_) => return DemoExit::Requested,
                },
                false => Some(self.deferred.remove(0)),
            };
            match command.map(|command| command.body) {
                Some(CommandBody::Query(query)) => {
                    if let Some(end) = self.turn(&query) {
                        return end;
                    }
                }
                Some(CommandBody::Resume(resume)) => {
                    let origin = agent_session(&resume.line);
                    let transcript =
                        Transcript::load(self.home.as_deref(), &resume.session, origin.as_deref());
                    self.transcript = Some(transcript);
                    self.writer.done(&resume.session);
                }
                Some(CommandBody::Shutdown) => return DemoExit::Requested,
                Some(CommandBody::Exec(_) | CommandBody::Set(_) | CommandBody::Replay(_)) => {
                    self.writer.error("the demo agent does not do that")
                }
                Some(CommandBody::Interrupt | CommandBody::Response(_)) | None => {}
            }
        }
    }

    fn parse(&mut self, line: Vec<u8>) -> Option<BridgeCommand> {
        BridgeCommand::parse(Cow::Owned(line)).unwrap_or_else(|bad| {
            self.writer.error(&bad.reason);
            None
        })
    }

    fn turn(&mut self, query: &QueryCommand) -> Option<DemoExit> {
        let prompt = prompt_text(query.prompt());
        if self.transcript.as_ref().is_none_or(|transcript| transcript.session() != query.session()) {
            self.transcript = Some(Transcript::new(self.home.as_deref(), query.session()));
        }
        let earlier = self.transcript.as_mut().map(|transcript| transcript.add(&prompt)).unwrap_or_default();
        let started = Instant::now();
        self.writer.begin(query.session(), query.wants_partials());
        match self.answer(&prompt, &earlier) {
            TurnEnd::Done(text) => self.writer.result(&text, started.elapsed()),
            TurnEnd::Interrupted => self.writer.interrupted(started.elapsed()),
            TurnEnd::InputClosed => return Some(DemoExit::Requested),
            TurnEnd::Crash => return Some(DemoExit::Crash),
        }
        self.writer.done(query.session());
        None
    }

    fn answer(&mut self, prompt: &str, earlier: &[String]) -> TurnEnd {
        let (word, rest) = prompt.split_once(':').unwrap_or((prompt, ""));
        let rest = rest.trim();
        match word.trim() {
            "crash" => TurnEnd::Crash,
            "recall" => self.reply(&recall_text(earlier)),
            "run" => self.run_command(rest),
            "ask" => self.run_with_permission(rest),
            "count" => self.count(rest),
            "echo-json" if serde_json::from_str::<serde::de::IgnoredAny>(rest).is_ok() => {
                self.writer.message(rest);
                TurnEnd::Done(String::new())
            }
            "echo-json" => self.reply("that is not JSON"),
            _ => match PairTurn::of_prompt(prompt) {
                Some(turn) => self.reply(&pair_reply(&turn)),
                None => self.reply(&default_reply(prompt)),
            },
        }
    }

    fn reply(&mut self, text: &str) -> TurnEnd {
        self.writer.partial(text);
        self.writer.text(text);
        TurnEnd::Done(text.to_owned())
    }

    fn count(&mut self, rest: &str) -> TurnEnd {
        let Ok(last) = rest.parse::<u32>() else { return self.reply("count to what?") };
        for number in 1..=last {
            self.writer.partial(&format!("{number} "));
            let until = Instant::now() + COUNT_INTERVAL;
            while let Some(left) = until.checked_duration_since(Instant::now()) {
                if let Some(verdict) = self.poll_interruption(left) {
                    return verdict;
                }
            }
        }
        self.reply(&format!("counted to {last}"))
    }

    fn run_with_permission(&mut self, command: &str) -> TurnEnd {
        let request = self.writer.request_permission(command);
        loop {
            match self.commands.recv() {
                Err(_) => return TurnEnd::InputClosed,
                Ok(line) => match self.parse(line) {
                    Some(BridgeCommand { body: CommandBody::Response(answer), .. })
                        if answer.request_id == request =>
                    {
                        return match allowed_command(&answer.line) {
                            Some(rewritten) => self.run_command(rewritten.as_deref().unwrap_or(command)),
                            None => self.reply("I was not allowed to run it"),
                        };
                    }
                    Some(BridgeCommand { body: CommandBody::Interrupt, .. }) => {
                        self.writer.cancel_request(&request);
                        return TurnEnd::Interrupted;
                    }
                    Some(BridgeCommand { body: CommandBody::Response(_), .. }) | None => {}
                    Some(command) => self.deferred.push(command),
                },
            }
        }
    }

    fn run_command(&mut self, command: &str) -> TurnEnd {
        let tool = self.writer.tool_use(command);
        let mut running = match shell::RunningCommand::start(command) {
            Ok(running) => running,
            Err(error) => {
                self.writer.tool_result(&tool, &error.to_string(), true);
                return self.reply("the command did not start");
            }
        };
        loop {
            if let Some((output, code)) = running.poll() {
                self.writer.tool_result(&tool, &output, code != 0);
                return self.reply(&format!("the command ended with code {code}"));
            }
            if let Some(verdict) = self.poll_interruption(Duration::from_millis(5)) {
                // The drop kills the command and all processes that it started.
                drop(running);
                self.writer.tool_result(&tool, "stopped while running", true);
                return verdict;
            }
        }
    }

    /// Waits for at most `time`. Returns the reason if the turn must end.
    fn poll_interruption(&mut self, time: Duration) -> Option<TurnEnd> {
        match self.commands.recv_timeout(time) {
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(TurnEnd::InputClosed),
            Ok(line) => match self.parse(line) {
                Some(BridgeCommand { body: CommandBody::Interrupt, .. }) => Some(TurnEnd::Interrupted),
                Some(BridgeCommand { body: CommandBody::Shutdown, .. }) => Some(TurnEnd::InputClosed),
                Some(BridgeCommand { body: CommandBody::Response(_), .. }) | None => None,
                Some(command) => {
                    self.deferred.push(command);
                    None
                }
            },
        }
    }
}

/// Takes a turn of a pair run, and returns what is to be said of it.
fn pair_reply(turn: &PairTurn<'_>) -> String {
    let folder = std::env::var_os("ASH_AGENT_DIR").map(PathBuf::from);
    turn.take(folder.as_deref(), Path::new(MailboxSpec::SOCKET_PATH)).unwrap_or_else(|error| error)
}

/// The decision of a permission reply: `None` is a denial; `Some(Some(…))` allows another command than the requested
/// one.
fn allowed_command(line: &str) -> Option<Option<String>> {
    let line: serde_json::Value = serde_json::from_str(line).ok()?;
    let answer = &line["response"]["response"];
    (answer["behavior"] == "allow").then(|| answer["updatedInput"]["command"].as_str().map(str::to_owned))
}

/// The text of a prompt: a string, the texts of its blocks, or its JSON.
fn prompt_text(prompt: &str) -> String {
    match serde_json::from_str(prompt) {
        Ok(serde_json::Value::String(text)) => text,
        Ok(serde_json::Value::Array(items)) if !items.is_empty() => {
            let text = |item: &serde_json::Value| match item {
                serde_json::Value::String(text) => text.clone(),
                other => other["text"].as_str().map_or_else(|| other.to_string(), str::to_owned),
            };
            items.iter().map(text).collect::<Vec<_>>().join("\n")
        }
        _ => prompt.to_owned(),
    }
}

fn default_reply(prompt: &str) -> String {
    match prompt.trim().trim_end_matches(['!', '.', '?']).to_lowercase().as_str() {
        "hi" | "hello" | "hey" => "Hello! I am the demo agent. Try `run: ls`, or `count: 10`.".into(),
        _ => format!("You said: {prompt}"),
    }
}

/// The id under which the conversation of a `resume` began, if it is another one.
fn agent_session(line: &str) -> Option<String> {
    let line: serde_json::Value = serde_json::from_str(line).ok()?;
    line["agentSession"].as_str().map(str::to_owned)
}

fn recall_text(earlier: &[String]) -> String {
    match earlier {
        [] => "This is the beginning of our conversation.".into(),
        prompts => format!("Earlier you said: {}", prompts.join(" | ")),
    }
}

#[cfg(test)]
mod hub_tests;
#[cfg(test)]
mod tests;
