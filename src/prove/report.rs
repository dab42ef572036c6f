//! What came of the attempts, for people and for programs.

use super::{Boundary, Class};
use serde::Serialize;
use std::fmt::Write;

/// What came of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// The sandbox held.
    Held,
    /// The attempt got through, or nothing is known of it.
    NotHeld,
    /// There is nothing to hold: the kernel lacks it, or the policy gives it by design.
    NotThere,
}

/// One attempt and its outcome.
#[derive(Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub attempt: &'static str,
    /// What it has in common with others.
    pub class: Class,
    /// What it does.
    pub does: &'static str,
    /// What came of it.
    pub status: Status,
    /// What is to answer it.
    pub boundary: Boundary,
    /// What was answered: an error, a signal, `nothing`, `ok`.
    pub answer: String,
    /// Whether the sandbox must not be without this boundary.
    pub required: bool,
    /// Why there is nothing to hold.
    pub reason: Option<String>,
}

impl Row {
    /// There is nothing to hold.
    pub(super) fn lacks(&mut self, reason: String) {
        self.status = Status::NotThere;
        self.reason = Some(reason);
    }
}

/// All attempts and their outcome.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    version: u32,
    /// Whether everything that is required held.
    pub ok: bool,
    held: usize,
    not_held: usize,
    not_there: usize,
    /// One row each.
    pub attempts: Vec<Row>,
}

impl Report {
    /// Of these rows.
    pub fn new(attempts: Vec<Row>) -> Self {
        let count = |status| attempts.iter().filter(|row| row.status == status).count();
        Report {
            version: 1,
            ok: !attempts.iter().any(|row| row.required && row.status == Status::NotHeld),
            held: count(Status::Held),
            not_held: count(Status::NotHeld),
            not_there: count(Status::NotThere),
            attempts,
        }
    }

    /// As JSON, on one line.
    pub fn json(&self) -> String {
        let mut text = serde_json::to_string(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// One line for each attempt, and the sum.
    pub fn text(&self) -> String {
        let width = self.attempts.iter().map(|row| row.attempt.len()).max().unwrap_or(0);
        let mut text = String::new();
        for row in &self.attempts {
            let status = match row.status {
                Status::Held => "held",
                Status::NotHeld => "NOT HELD",
                Status::NotThere => "not there",
            };
            let _ = write!(
                text,
                "{status:<9}  {:<width$}  {} [{}: {}]",
                row.attempt,
                row.does,
                name(row.boundary),
                row.answer
            );
            match (&row.reason, row.status, row.required) {
                (Some(reason), ..) => {
                    let _ = write!(text, " ({reason})");
                }
                (None, Status::NotHeld, false) => text.push_str(" (preferred, not required)"),
                _ => {}
            }
            text.push('\n');
        }
        let _ =
            write!(text, "\n{} held, {} not held, {} not there.\n", self.held, self.not_held, self.not_there);
        text.push_str(match self.ok {
            true => "The sandbox holds what it is required to hold.\n",
            false => "The sandbox does not hold what it is required to hold.\n",
        });
        text
    }
}

/// The name of a boundary, as JSON has it.
fn name(boundary: Boundary) -> String {
    let name = serde_json::to_value(boundary).ok();
    name.and_then(|name| Some(name.as_str()?.to_owned())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(status: Status, required: bool) -> Row {
        Row {
            attempt: "bpf",
            class: Class::Calls,
            does: "Reach bpf(2)",
            status,
            boundary: Boundary::Seccomp,
            answer: "EPERM".to_owned(),
            required,
            reason: (status == Status::NotThere).then(|| "policy: profile nesting".to_owned()),
        }
    }

    #[test]
    fn only_what_is_required_and_not_held_is_a_failure() {
        assert!(Report::new(vec![row(Status::Held, true), row(Status::NotHeld, false)]).ok);
        assert!(Report::new(vec![row(Status::NotThere, true)]).ok);
        assert!(!Report::new(vec![row(Status::NotHeld, true)]).ok);
    }

    #[test]
    fn each_attempt_is_a_line() {
        let rows = vec![row(Status::Held, true), row(Status::NotHeld, false), row(Status::NotThere, true)];
        let text = "held       bpf  Reach bpf(2) [seccomp: EPERM]\n\
            NOT HELD   bpf  Reach bpf(2) [seccomp: EPERM] (preferred, not required)\n\
            not there  bpf  Reach bpf(2) [seccomp: EPERM] (policy: profile nesting)\n\n\
            1 held, 1 not held, 1 not there.\nThe sandbox holds what it is required to hold.\n";
        assert_eq!(Report::new(rows).text(), text);
    }

    #[test]
    fn the_json_is_stable() {
        let json = r#"{"version":1,"ok":true,"held":0,"notHeld":0,"notThere":1,"attempts":[{"attempt":"bpf","class":"calls","does":"Reach bpf(2)","status":"not-there","boundary":"seccomp","answer":"EPERM","required":true,"reason":"policy: profile nesting"}]}"#;
        assert_eq!(Report::new(vec![row(Status::NotThere, true)]).json(), format!("{json}\n"));
    }
}
