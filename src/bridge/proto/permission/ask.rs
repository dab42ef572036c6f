//! What the agent asks: a `control_request`, or the `control_cancel_request` that takes one back.

use crate::bridge::proto::json::{self, quote};

/// A line of the agent, told apart.
#[derive(Debug, PartialEq, Eq)]
pub enum Asked {
    /// It asks something.
    Question(Ask),
    /// It takes the question of this id back.
    Back(String),
    /// It asks in a way that nobody could answer: no id, or one that stands there twice.
    Unanswerable,
}

/// A question of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// The agent's own name of it.
    pub agent_id: String,
    /// The agent's line, byte for byte.
    pub line: String,
    /// What kind of question it is.
    pub subtype: String,
    /// The tool, when it is about one (`can_use_tool`).
    pub tool: Option<Tool>,
}

/// What a `can_use_tool` is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tool {
    /// The tool's name; empty when the agent says none.
    pub name: String,
    /// The JSON of what it is to be called with, byte for byte.
    pub input: String,
    /// The agent's name of this call.
    pub use_id: String,
}

/// The fields of a `can_use_tool` that leave in the second dialect; the last two only when they are there.
const FIELDS: [&str; 6] =
    ["tool_name", "input", "tool_use_id", "description", "permission_suggestions", "blocked_path"];

impl Asked {
    /// Reads a line of the agent.
    pub fn read(line: &str) -> Asked {
        let Ok(scan) = json::scan(line, &["request_id", "type", "request"]) else {
            return Asked::Unanswerable;
        };
        let [id, kind, request] = scan.fields;
        let (Some(agent_id), None) = (id.and_then(json::string), scan.repeated) else {
            return Asked::Unanswerable;
        };
        if kind == Some("\"control_cancel_request\"") {
            return Asked::Back(agent_id);
        }
        let Some(scan) = request.and_then(|request| json::scan(request, &["subtype"]).ok()) else {
            return Asked::Unanswerable;
        };
        let subtype = scan.fields[0].and_then(json::string).unwrap_or_default();
        let tool = (subtype == "can_use_tool").then(|| Tool::read(request.unwrap_or("{}")));
        Asked::Question(Ask { agent_id, line: line.to_owned(), subtype, tool })
    }
}

impl Tool {
    fn read(request: &str) -> Tool {
        let scan = json::scan(request, &["tool_name", "input", "tool_use_id"]);
        let [name, input, use_id] = scan.map_or([None; 3], |scan| scan.fields);
        let text = |field: Option<&str>| field.and_then(json::string).unwrap_or_default();
        Tool { name: text(name), input: input.unwrap_or("{}").to_owned(), use_id: text(use_id) }
    }
}

impl Ask {
    /// The question as a server of the second dialect hears it (RB-28), under a name of the bridge's own.
    pub fn outward(&self, session: &str, id: &str) -> Vec<u8> {
        let request = json::scan(&self.line, &["request"]).ok().and_then(|scan| scan.fields[0]);
        let scan = request.and_then(|request| json::scan(request, &FIELDS).ok());
        let fields = scan.map_or([None; FIELDS.len()], |scan| scan.fields);
        let (id, session) = (quote(id), quote(session));
        let mut line = format!(
            "{{\"type\":\"control_request\",\"request_id\":{id},\
             \"request\":{{\"subtype\":\"can_use_tool\""
        );
        for (at, (name, field)) in FIELDS.into_iter().zip(fields).enumerate() {
            let value = match (field, name) {
                (Some(value), _) => value,
                (None, "input") => "{}",
                (None, _) if at < 4 => "\"\"",
                (None, _) => continue,
            };
            line.push_str(&format!(",\"{name}\":{value}"));
        }
        line.push_str(&format!("}},\"session_id\":{session}}}\n"));
        line.into_bytes()
    }

    /// The answer of this verdict as the agent expects it: by its own name for the question, and the body byte
    /// for byte (RB-30).
    pub fn answer(&self, verdict: super::Verdict, body: &str) -> String {
        let id = quote(&self.agent_id);
        let (subtype, key) = match verdict {
            super::Verdict::Error => ("error", "error"),
            super::Verdict::Allow | super::Verdict::Deny => ("success", "response"),
        };
        format!(
            "{{\"type\":\"control_response\",\"response\":{{\"subtype\":\"{subtype}\",\
             \"request_id\":{id},\"{key}\":{body}}}}}"
        )
    }

    /// The answer no, with the reason the model is told.
    pub fn denial(&self, why: &str) -> String {
        match self.tool {
            Some(_) => {
                let body = format!("{{\"behavior\":\"deny\",\"message\":{}}}", quote(why));
                self.answer(super::Verdict::Deny, &body)
            }
            // Another kind of question has another kind of answer; that there is none, all of them understand.
            None => self.answer(super::Verdict::Error, &quote(why)),
        }
    }

    /// The answer yes, to what was asked and nothing else.
    pub fn allowance(&self) -> String {
        let input = self.tool.as_ref().map_or("{}", |tool| tool.input.as_str());
        self.answer(super::Verdict::Allow, &format!("{{\"behavior\":\"allow\",\"updatedInput\":{input}}}"))
    }

    /// How many bytes it holds.
    pub fn size(&self) -> usize {
        let tool =
            self.tool.as_ref().map_or(0, |tool| tool.name.len() + tool.input.len() + tool.use_id.len());
        self.agent_id.len() + self.line.len() + tool
    }

    /// Whether this answer has the tool called with something else than was asked about.
    pub fn is_changed_by(&self, answer: &str) -> bool {
        let inner = |text: &str, name: &str| {
            json::scan(text, &[name]).ok().and_then(|scan| scan.fields[0]).map(str::to_owned)
        };
        let body = inner(answer, "response").and_then(|response| inner(&response, "response"));
        let input = body.and_then(|body| inner(&body, "updatedInput"));
        let (Some(input), Some(tool)) = (input, &self.tool) else { return false };
        // As values: a server may write the same in another way.
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
        input != tool.input && value(&input) != value(&tool.input)
    }

    /// The notice that the question is no longer open, under the agent's own name for it.
    pub fn back(&self) -> String {
        format!("{{\"type\":\"control_cancel_request\",\"request_id\":{}}}", quote(&self.agent_id))
    }
}
