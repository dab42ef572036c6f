//! A span for each run of the program `saggar`, with the attributes of the semantic conventions of OpenTelemetry for
//! command-line programs. The arguments are not among them, except for the verb.

use super::OpenSpan;
use opentelemetry::KeyValue;
use opentelemetry::trace::SpanKind;
use std::process::{Command, ExitStatus};

/// The span of a process, which ends when it is dropped.
#[derive(Debug)]
pub(crate) struct ProcessSpan(OpenSpan);

impl ProcessSpan {
    /// Starts the span of `saggar session VERB …`.
    pub(crate) fn start(command: &Command) -> Self {
        let mut name = "saggar".to_owned();
        for argument in command.get_args().take(2) {
            name.push(' ');
            name.push_str(&argument.to_string_lossy());
        }
        let attributes = vec![KeyValue::new("process.executable.name", "saggar")];
        ProcessSpan(OpenSpan::start(SpanKind::Client, name, attributes))
    }

    /// Marks the process as one that could not be started.
    pub(crate) fn fail_to_start(&self) {
        self.0.fail("spawn");
    }

    /// Sets the status of the exit.
    pub(crate) fn set_exit(&self, status: ExitStatus) {
        if let Some(code) = status.code() {
            self.0.set("process.exit.code", i64::from(code));
        }
        if !status.success() {
            self.0.fail("exit_status");
        }
    }
}
