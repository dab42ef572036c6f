//! The messages of a run, as they come: a timeline for people, NDJSON for programs.

use crate::app::pair::Timeline;
use crate::cmd::{print_raw, print_text};
use crate::error::{Error, Result};
use crate::text::{multi_line, one_line};
use saggar_mailbox::Message;
use saggar_mailbox::pair::{Outcome, PairSettings};
use serde_json::{Value, json};
use std::io::IsTerminal;

/// How messages are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimelineFormat {
    Text,
    Json,
}

impl TimelineFormat {
    /// Text on a terminal, otherwise JSON.
    pub(super) fn chosen(json: bool) -> Self {
        if json || !std::io::stdout().is_terminal() { TimelineFormat::Json } else { TimelineFormat::Text }
    }
}

/// Prints messages on standard output.
#[derive(Debug)]
pub(super) struct TimelinePrinter {
    format: TimelineFormat,
}

impl TimelinePrinter {
    pub(super) fn new(format: TimelineFormat) -> Self {
        TimelinePrinter { format }
    }

    /// Prints that no process runs the agents, and that the run has no outcome.
    pub(super) fn stopped(&self, run: u64) -> Result<()> {
        self.print(&json!({ "event": "ended", "run": run, "result": "stopped" }), || {
            format!("run {run}: stopped; saggar pair resume {run} continues it\n")
        })
    }

    /// Prints how the run ended.
    pub(super) fn end(&self, run: u64, outcome: &Outcome) -> Result<()> {
        let mut line = json!({ "event": "ended", "run": run });
        if let (Value::Object(line), Ok(Value::Object(outcome))) = (&mut line, serde_json::to_value(outcome))
        {
            line.extend(outcome);
        }
        self.print(&line, || {
            let outcome_text = outcome.to_string();
            match outcome {
                Outcome::Approved { .. } => format!("run {run}: {}\n", one_line(&outcome_text)),
                Outcome::NotApproved { .. } => format!(
                    "run {run}: {}; saggar pair resume --max-iterations N {run} continues it\n",
                    one_line(&outcome_text)
                ),
                _ => {
                    format!("run {run}: {}; saggar pair resume {run} continues it\n", one_line(&outcome_text))
                }
            }
        })
    }

    fn print(&self, line: &Value, text: impl FnOnce() -> String) -> Result<()> {
        match self.format {
            TimelineFormat::Json => print_raw(&format!("{line}\n")),
            TimelineFormat::Text => print_text(&text()),
        }
    }
}

impl Timeline for TimelinePrinter {
    fn begin(&mut self, run: u64, settings: &PairSettings) -> Result<()> {
        let PairSettings { worker, reviewer, max_iterations, .. } = settings;
        self.print(
            &json!({ "event": "begun", "run": run, "worker": worker, "reviewer": reviewer, "maxIterations": max_iterations }),
            || format!("run {run}: {worker} works, {reviewer} reviews, at most {max_iterations} iterations\n"),
        )
    }

    fn show(&mut self, message: &Message) -> Result<()> {
        match self.format {
            TimelineFormat::Json => print_raw(&format!("{}\n", json_line(message)?)),
            TimelineFormat::Text => print_text(&text(message)),
        }
    }
}

/// A message as the mailbox has it.
pub(super) fn json_line(message: &Message) -> Result<String> {
    serde_json::to_string(message).map_err(|e| Error::system("write a message as JSON", e))
}

/// A message for people: a heading with the time, and the content below it.
fn text(message: &Message) -> String {
    let time = message.timestamp.strftime("%H:%M:%S");
    let to = if message.to.is_empty() { "all" } else { &message.to };
    let what = match message.effective_signal() {
        Some(signal) => signal.to_string(),
        None => message.message_type.to_string(),
    };
    let mut text = format!("\n{time}  {} → {}  {what}\n", one_line(&message.from), one_line(to));
    for line in message.content.lines() {
        text.push_str(&format!("  {}\n", multi_line(line)));
    }
    text
}
