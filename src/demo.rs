//! The built-in demo agent: it needs nothing installed, and shows what a sandbox and its bridge do.
//!
//! It speaks seed 000 on its stdin and stdout. What it understands in a prompt:
//!
//! | prompt | what it does |
//! |---|---|
//! | `run: CMD` | runs CMD with `/bin/sh -c`, and shows it as a tool call and its result |
//! | `ask: CMD` | the same, after a permission request that must be allowed |
//! | `count: N` | counts to N, a piece every 20 ms |
//! | `recall` | tells the earlier prompts of the conversation |
//! | `echo-json: RAW` | says RAW, as it is, as a message |
//! | `crash` | exits with code 3 in the middle of the turn |
//! | anything else | answers it |
//!
//! The prompts of a conversation are kept in `$HOME/.demo/<session>.json`; `resume` takes them up again.

mod reply;
mod shell;
mod transcript;

use crate::bridge::proto::{Command, Query, Request};
use reply::Speaker;
use std::borrow::Cow;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use transcript::Transcript;

/// The hidden first argument with which saggar is the demo agent. It stands before the command line proper,
/// which costs more than the agent's own start.
pub const ENTRY: &str = "__demo-agent";

/// The exit code of the prompt `crash`.
const CRASHED: u8 = 3;
/// How long a piece of `count` takes.
const PIECE: Duration = Duration::from_millis(20);

/// Runs the demo agent until its input ends or `shutdown`; gives the exit code.
///
/// `input` is read on a thread of its own, so that an `interrupt` is heard in the middle of a turn.
pub fn run(input: impl BufRead + Send + 'static, output: impl Write) -> u8 {
    run_at(std::env::var_os("HOME").map(PathBuf::from), input, output)
}

/// The same, with the conversations kept below `home`.
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
    let mut demo =
        Demo { home, commands, speaker: Speaker::new(output), transcript: None, later: Vec::new() };
    match demo.serve() {
        End::Asked => 0,
        End::Crash => CRASHED,
    }
}

/// Why the demo ends.
enum End {
    Asked,
    Crash,
}

/// How a turn ends.
enum Verdict {
    Done(String),
    Interrupted,
    Gone,
    Crash,
}

struct Demo<W> {
    home: Option<PathBuf>,
    commands: Receiver<Vec<u8>>,
    speaker: Speaker<W>,
    transcript: Option<Transcript>,
    /// Commands that came in the middle of a turn.
    later: Vec<Command>,
}

impl<W: Write> Demo<W> {
    fn serve(&mut self) -> End {
        self.speaker.ready();
        loop {
            let command = match self.later.is_empty() {
                true => match self.commands.recv() {
                    Ok(line) => self.parse(line),
                    Err(_) => return End::Asked,
                },
                false => Some(self.later.remove(0)),
            };
            match command.map(|command| command.request) {
                Some(Request::Query(query)) => {
                    if let Some(end) = self.turn(&query) {
                        return end;
                    }
                }
                Some(Request::Resume(resume)) => {
                    self.transcript = Some(Transcript::load(self.home.as_deref(), &resume.session));
                    self.speaker.done(&resume.session);
                }
                Some(Request::Shutdown) => return End::Asked,
                Some(Request::Exec(_) | Request::Set(_) | Request::Replay(_)) => {
                    self.speaker.error("the demo agent does not do that")
                }
                Some(Request::Interrupt | Request::Answer(_)) | None => {}
            }
        }
    }

    fn parse(&mut self, line: Vec<u8>) -> Option<Command> {
        Command::parse(Cow::Owned(line)).unwrap_or_else(|bad| {
            self.speaker.error(&bad.reason);
            None
        })
    }

    fn turn(&mut self, query: &Query) -> Option<End> {
        let prompt = prompt_text(query.prompt());
        if self.transcript.as_ref().is_none_or(|transcript| transcript.session() != query.session()) {
            self.transcript = Some(Transcript::new(self.home.as_deref(), query.session()));
        }
        let earlier = self.transcript.as_mut().map(|transcript| transcript.add(&prompt)).unwrap_or_default();
        let started = Instant::now();
        self.speaker.begin(query.session(), query.partials());
        match self.answer(&prompt, &earlier) {
            Verdict::Done(text) => self.speaker.result(&text, started.elapsed()),
            Verdict::Interrupted => self.speaker.interrupted(started.elapsed()),
            Verdict::Gone => return Some(End::Asked),
            Verdict::Crash => return Some(End::Crash),
        }
        self.speaker.done(query.session());
        None
    }

    fn answer(&mut self, prompt: &str, earlier: &[String]) -> Verdict {
        let (word, rest) = prompt.split_once(':').unwrap_or((prompt, ""));
        let rest = rest.trim();
        match word.trim() {
            "crash" => Verdict::Crash,
            "recall" => self.say(&recall(earlier)),
            "run" => self.run_command(rest),
            "ask" => self.ask(rest),
            "count" => self.count(rest),
            "echo-json" if serde_json::from_str::<serde::de::IgnoredAny>(rest).is_ok() => {
                self.speaker.message(rest);
                Verdict::Done(String::new())
            }
            "echo-json" => self.say("that is not JSON"),
            _ => self.say(&friendly(prompt)),
        }
    }

    fn say(&mut self, text: &str) -> Verdict {
        self.speaker.partial(text);
        self.speaker.text(text);
        Verdict::Done(text.to_owned())
    }

    fn count(&mut self, rest: &str) -> Verdict {
        let Ok(last) = rest.parse::<u32>() else { return self.say("count to what?") };
        for number in 1..=last {
            self.speaker.partial(&format!("{number} "));
            let until = Instant::now() + PIECE;
            while let Some(left) = until.checked_duration_since(Instant::now()) {
                if let Some(verdict) = self.listen(left) {
                    return verdict;
                }
            }
        }
        self.say(&format!("counted to {last}"))
    }

    fn ask(&mut self, command: &str) -> Verdict {
        let request = self.speaker.ask(command);
        loop {
            match self.commands.recv() {
                Err(_) => return Verdict::Gone,
                Ok(line) => match self.parse(line) {
                    Some(Command { request: Request::Answer(answer), .. })
                        if answer.request_id == request =>
                    {
                        return match allowed(&answer.line) {
                            Some(rewritten) => self.run_command(rewritten.as_deref().unwrap_or(command)),
                            None => self.say("I was not allowed to run it"),
                        };
                    }
                    Some(Command { request: Request::Interrupt, .. }) => {
                        self.speaker.take_back(&request);
                        return Verdict::Interrupted;
                    }
                    Some(Command { request: Request::Answer(_), .. }) | None => {}
                    Some(command) => self.later.push(command),
                },
            }
        }
    }

    fn run_command(&mut self, command: &str) -> Verdict {
        let tool = self.speaker.tool_use(command);
        let mut running = match shell::Running::start(command) {
            Ok(running) => running,
            Err(error) => {
                self.speaker.tool_result(&tool, &error.to_string(), true);
                return self.say("the command did not start");
            }
        };
        loop {
            if let Some((output, code)) = running.poll() {
                self.speaker.tool_result(&tool, &output, code != 0);
                return self.say(&format!("the command ended with code {code}"));
            }
            if let Some(verdict) = self.listen(Duration::from_millis(5)) {
                // Dropped here, the command and all it started are killed.
                drop(running);
                self.speaker.tool_result(&tool, "stopped while running", true);
                return verdict;
            }
        }
    }

    /// Waits for at most `time`, and says when the turn must end.
    fn listen(&mut self, time: Duration) -> Option<Verdict> {
        match self.commands.recv_timeout(time) {
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Verdict::Gone),
            Ok(line) => match self.parse(line) {
                Some(Command { request: Request::Interrupt, .. }) => Some(Verdict::Interrupted),
                Some(Command { request: Request::Shutdown, .. }) => Some(Verdict::Gone),
                Some(Command { request: Request::Answer(_), .. }) | None => None,
                Some(command) => {
                    self.later.push(command);
                    None
                }
            },
        }
    }
}

/// What a permission answer allows: `None` is no; `Some(Some(…))` another command than was asked for.
fn allowed(line: &str) -> Option<Option<String>> {
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

fn friendly(prompt: &str) -> String {
    match prompt.trim().trim_end_matches(['!', '.', '?']).to_lowercase().as_str() {
        "hi" | "hello" | "hey" => "Hello! I am the demo agent. Try `run: ls`, or `count: 10`.".into(),
        _ => format!("You said: {prompt}"),
    }
}

fn recall(earlier: &[String]) -> String {
    match earlier {
        [] => "This is the beginning of our conversation.".into(),
        prompts => format!("Earlier you said: {}", prompts.join(" | ")),
    }
}

#[cfg(test)]
mod tests;
