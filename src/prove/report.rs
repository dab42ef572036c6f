//! Reports the results of the attempts, as text and as JSON.

use super::{AttemptClass, Boundary};
use serde::Serialize;
use std::fmt::Write;

/// The judgement of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttemptStatus {
    /// The sandbox contained the attempt.
    Held,
    /// The attempt succeeded, or its result is unknown.
    NotHeld,
    /// The attempt does not apply: the kernel does not support the operation, or the policy grants it by design.
    NotThere,
}

/// One attempt and its result.
#[derive(Debug, Serialize)]
pub struct AttemptRow {
    /// The name of the attempt.
    pub attempt: &'static str,
    /// The class of the attempt.
    pub class: AttemptClass,
    /// A description of the attempt.
    pub does: &'static str,
    /// The judgement of the attempt.
    pub status: AttemptStatus,
    /// The boundary that must stop it.
    pub boundary: Boundary,
    /// The result: an error, a signal, `nothing` or `ok`.
    pub answer: String,
    /// Whether a sandbox must not start without this boundary.
    pub required: bool,
    /// The reason why the attempt does not apply.
    pub reason: Option<String>,
}

impl AttemptRow {
    /// Marks the attempt as not applicable.
    pub(super) fn mark_not_applicable(&mut self, reason: String) {
        self.status = AttemptStatus::NotThere;
        self.reason = Some(reason);
    }
}

/// All attempts and their results.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProveReport {
    version: u32,
    /// Whether every required boundary held.
    pub ok: bool,
    held: usize,
    not_held: usize,
    not_there: usize,
    /// One row for each attempt.
    pub attempts: Vec<AttemptRow>,
}

impl ProveReport {
    /// A report with these rows.
    pub fn new(attempts: Vec<AttemptRow>) -> Self {
        let count = |status| attempts.iter().filter(|row| row.status == status).count();
        ProveReport {
            version: 1,
            ok: !attempts.iter().any(|row| row.required && row.status == AttemptStatus::NotHeld),
            held: count(AttemptStatus::Held),
            not_held: count(AttemptStatus::NotHeld),
            not_there: count(AttemptStatus::NotThere),
            attempts,
        }
    }

    /// The report as JSON, on one line.
    pub fn json(&self) -> String {
        let mut text = serde_json::to_string(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// The report as text: one line for each attempt, and a summary.
    pub fn text(&self) -> String {
        let width = self.attempts.iter().map(|row| row.attempt.len()).max().unwrap_or(0);
        let mut text = String::new();
        for row in &self.attempts {
            let status = match row.status {
                AttemptStatus::Held => "held",
                AttemptStatus::NotHeld => "NOT HELD",
                AttemptStatus::NotThere => "not there",
            };
            let _ = write!(
                text,
                "{status:<9}  {:<width$}  {} [{}: {}]",
                row.attempt,
                row.does,
                boundary_name(row.boundary),
                row.answer
            );
            match (&row.reason, row.status, row.required) {
                (Some(reason), ..) => {
                    let _ = write!(text, " ({reason})");
                }
                (None, AttemptStatus::NotHeld, false) => text.push_str(" (preferred, not required)"),
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

/// The name of a boundary in JSON.
fn boundary_name(boundary: Boundary) -> String {
    let name = serde_json::to_value(boundary).ok();
    name.and_then(|name| Some(name.as_str()?.to_owned())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(status: AttemptStatus, required: bool) -> AttemptRow {
        AttemptRow {
            attempt: "bpf",
            class: AttemptClass::Calls,
            does: "Reach bpf(2)",
            status,
            boundary: Boundary::Seccomp,
            answer: "EPERM".to_owned(),
            required,
            reason: (status == AttemptStatus::NotThere).then(|| "policy: profile nesting".to_owned()),
        }
    }

    #[test]
    fn only_what_is_required_and_not_held_is_a_failure() {
        assert!(
            ProveReport::new(vec![row(AttemptStatus::Held, true), row(AttemptStatus::NotHeld, false)]).ok
        );
        assert!(ProveReport::new(vec![row(AttemptStatus::NotThere, true)]).ok);
        assert!(!ProveReport::new(vec![row(AttemptStatus::NotHeld, true)]).ok);
    }

    #[test]
    fn each_attempt_is_a_line() {
        let rows = vec![
            row(AttemptStatus::Held, true),
            row(AttemptStatus::NotHeld, false),
            row(AttemptStatus::NotThere, true),
        ];
        let text = "held       bpf  Reach bpf(2) [seccomp: EPERM]\n\
            NOT HELD   bpf  Reach bpf(2) [seccomp: EPERM] (preferred, not required)\n\
            not there  bpf  Reach bpf(2) [seccomp: EPERM] (policy: profile nesting)\n\n\
            1 held, 1 not held, 1 not there.\nThe sandbox holds what it is required to hold.\n";
        assert_eq!(ProveReport::new(rows).text(), text);
    }

    #[test]
    fn the_json_is_stable() {
        let json = r#"{"version":1,"ok":true,"held":0,"notHeld":0,"notThere":1,"attempts":[{"attempt":"bpf","class":"calls","does":"Reach bpf(2)","status":"not-there","boundary":"seccomp","answer":"EPERM","required":true,"reason":"policy: profile nesting"}]}"#;
        assert_eq!(ProveReport::new(vec![row(AttemptStatus::NotThere, true)]).json(), format!("{json}\n"));
    }
}
