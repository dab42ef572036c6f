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
    /// The number of the question, where it is the sandbox's network that asks, and not the agent.
    pub host: Option<u64>,
}

/// What is asked when a program calls a host: the name that clients of this protocol know it by.
const HOST_TOOL: &str = "SandboxNetworkAccess";

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
        Asked::Question(Ask { agent_id, line: line.to_owned(), subtype, tool, host: None })
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

/// A call of a host that is to be asked about.
#[derive(Debug, Clone, Copy)]
pub struct HostAsk<'a> {
    /// Names the question; never used again for another one.
    pub number: u64,
    /// A name or an address.
    pub host: &'a str,
    /// The port.
    pub port: u16,
    /// Which program calls, and its pid on the host, where they are known.
    pub program: Option<(&'a str, i32)>,
}

impl Ask {
    /// The question whether a host may be called, in the form of a question about a tool, under this name that the
    /// agent cannot guess. The answer can be kept by taking its suggestion.
    pub fn about_host(id: String, HostAsk { number, host, port, program }: HostAsk<'_>) -> Self {
        let who = program.map_or("A program".to_owned(), |(name, pid)| format!("{name} (pid {pid})"));
        let rule = format!("{host}:{port}");
        let input = format!("{{\"host\":{},\"port\":{port}}}", quote(host));
        let line = format!(
            "{{\"type\":\"control_request\",\"request_id\":{id},\"request\":{{\"subtype\":\"can_use_tool\",\
             \"tool_name\":\"{HOST_TOOL}\",\"input\":{input},\"tool_use_id\":{id},\"description\":{description},\
             \"permission_suggestions\":[{{\"type\":\"addRules\",\"behavior\":\"allow\",\"destination\":\"session\",\
             \"rules\":[{{\"toolName\":\"{HOST_TOOL}\",\"ruleContent\":{rule}}}]}}]}}}}",
            id = quote(&id),
            description = quote(&format!("{who} wants to reach {rule}")),
            rule = quote(&rule),
        );
        let tool = Some(Tool { name: HOST_TOOL.to_owned(), input, use_id: id.clone() });
        Ask { agent_id: id, line, subtype: "can_use_tool".to_owned(), tool, host: Some(number) }
    }

    /// Whether an answer is to hold for more than what waits for it: it takes the suggestion, or says rules of its own.
    pub fn is_kept_by(answer: &str) -> bool {
        let updates = body_of(answer).and_then(|body| inner(&body, "updatedPermissions"));
        let updates =
            updates.and_then(|updates| serde_json::from_str::<Vec<serde_json::Value>>(&updates).ok());
        updates.is_some_and(|updates| updates.iter().any(|update| update["type"] == "addRules"))
    }

    /// What an answer says of why not.
    pub fn reason_of(answer: &str) -> Option<String> {
        let message = body_of(answer).and_then(|body| inner(&body, "message"))?;
        json::string(&message).filter(|message| !message.is_empty())
    }

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
        let input = body_of(answer).and_then(|body| inner(&body, "updatedInput"));
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

/// The inner `response` of a `control_response` line.
fn body_of(answer: &str) -> Option<String> {
    inner(answer, "response").and_then(|response| inner(&response, "response"))
}

fn inner(text: &str, name: &str) -> Option<String> {
    json::scan(text, &[name]).ok().and_then(|scan| scan.fields[0]).map(str::to_owned)
}
