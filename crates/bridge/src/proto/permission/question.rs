//! Questions of the agent: a `control_request`, or the `control_cancel_request` that cancels one.

use crate::proto::json::{self, quote};

/// A control line of the agent, classified.
#[derive(Debug, PartialEq, Eq)]
pub enum AgentControlLine {
    /// A question.
    Question(AgentQuestion),
    /// The agent cancels the question with this id.
    Cancel(String),
    /// A question that cannot be answered: it has no id, or its id occurs twice.
    Unanswerable,
}

/// A question of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentQuestion {
    /// The agent's id of the question.
    pub agent_request_id: String,
    /// The agent's line, byte for byte.
    pub line: String,
    /// The `subtype` of the request.
    pub subtype: String,
    /// The tool call, for a `can_use_tool`.
    pub tool: Option<ToolCall>,
    /// The number of the host access question, if the sandbox's network asks and not the agent.
    pub host_question: Option<u64>,
}

/// The tool name of a host access question, as clients of this protocol know it.
const HOST_TOOL: &str = "SandboxNetworkAccess";

/// The tool call of a `can_use_tool`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// The name of the tool; empty if the agent gives none.
    pub name: String,
    /// The JSON of the tool's input, byte for byte.
    pub input: String,
    /// The agent's id of the tool call.
    pub tool_use_id: String,
}

/// The fields of a `can_use_tool` that are sent in the SDK dialect; the last two only if they are present.
const SDK_FIELDS: [&str; 6] =
    ["tool_name", "input", "tool_use_id", "description", "permission_suggestions", "blocked_path"];

impl AgentControlLine {
    /// Parses a control line of the agent.
    pub fn parse(line: &str) -> AgentControlLine {
        let Ok(scan) = json::scan(line, &["request_id", "type", "request"]) else {
            return AgentControlLine::Unanswerable;
        };
        let [id, kind, request] = scan.fields;
        let (Some(agent_id), None) = (id.and_then(json::parse_string), scan.repeated) else {
            return AgentControlLine::Unanswerable;
        };
        if kind == Some("\"control_cancel_request\"") {
            return AgentControlLine::Cancel(agent_id);
        }
        let Some(scan) = request.and_then(|request| json::scan(request, &["subtype"]).ok()) else {
            return AgentControlLine::Unanswerable;
        };
        let subtype = scan.fields[0].and_then(json::parse_string).unwrap_or_default();
        let tool = (subtype == "can_use_tool").then(|| ToolCall::parse(request.unwrap_or("{}")));
        AgentControlLine::Question(AgentQuestion {
            agent_request_id: agent_id,
            line: line.to_owned(),
            subtype,
            tool,
            host_question: None,
        })
    }
}

impl ToolCall {
    fn parse(request: &str) -> ToolCall {
        let scan = json::scan(request, &["tool_name", "input", "tool_use_id"]);
        let [name, input, use_id] = scan.map_or([None; 3], |scan| scan.fields);
        let text = |field: Option<&str>| field.and_then(json::parse_string).unwrap_or_default();
        ToolCall { name: text(name), input: input.unwrap_or("{}").to_owned(), tool_use_id: text(use_id) }
    }
}

/// A connection to a host that needs consent.
#[derive(Debug, Clone, Copy)]
pub struct HostAccessQuestion<'a> {
    /// The number of the question; never reused for another one.
    pub number: u64,
    /// The name or address of the host.
    pub host: &'a str,
    /// The port.
    pub port: u16,
    /// The calling program and its pid on the host, if known.
    pub program: Option<(&'a str, i32)>,
}

impl AgentQuestion {
    /// The JSON of the rules that the agent or the bridge suggests to add, if there are any.
    pub fn suggestions(&self) -> Option<&str> {
        let request = json::scan(&self.line, &["request"]).ok()?.fields[0]?;
        json::scan(request, &["permission_suggestions"]).ok()?.fields[0].filter(|list| *list != "null")
    }

    /// Encodes the question whether a connection to a host is allowed as a question about a tool. `id` cannot be
    /// guessed by the agent. A server makes its answer permanent by accepting the suggested rule.
    pub(crate) fn for_host(
        id: String,
        HostAccessQuestion { number, host, port, program }: HostAccessQuestion<'_>,
    ) -> Self {
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
        let tool = Some(ToolCall { name: HOST_TOOL.to_owned(), input, tool_use_id: id.clone() });
        AgentQuestion {
            agent_request_id: id,
            line,
            subtype: "can_use_tool".to_owned(),
            tool,
            host_question: Some(number),
        }
    }

    /// Whether the response applies to more than the waiting connection: it accepts the suggestion or adds rules of
    /// its own.
    pub(crate) fn adds_rules(answer: &str) -> bool {
        let updates = response_body(answer).and_then(|body| field_json(&body, "updatedPermissions"));
        let updates =
            updates.and_then(|updates| serde_json::from_str::<Vec<serde_json::Value>>(&updates).ok());
        updates.is_some_and(|updates| updates.iter().any(|update| update["type"] == "addRules"))
    }

    /// The reason that a denial gives.
    pub(crate) fn denial_message(answer: &str) -> Option<String> {
        let message = response_body(answer).and_then(|body| field_json(&body, "message"))?;
        json::parse_string(&message).filter(|message| !message.is_empty())
    }

    /// Encodes the question for a server of the SDK dialect (RB-28), under the bridge's own id.
    pub(crate) fn encode_sdk(&self, session: &str, id: &str) -> Vec<u8> {
        let request = json::scan(&self.line, &["request"]).ok().and_then(|scan| scan.fields[0]);
        let scan = request.and_then(|request| json::scan(request, &SDK_FIELDS).ok());
        let fields = scan.map_or([None; SDK_FIELDS.len()], |scan| scan.fields);
        let (id, session) = (quote(id), quote(session));
        let mut line = format!(
            "{{\"type\":\"control_request\",\"request_id\":{id},\
             \"request\":{{\"subtype\":\"can_use_tool\""
        );
        for (at, (name, field)) in SDK_FIELDS.into_iter().zip(fields).enumerate() {
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

    /// Encodes the response with this verdict for the agent: the agent's own id of the question, and the body byte for
    /// byte (RB-30).
    pub(crate) fn encode_response(&self, verdict: super::PermissionVerdict, body: &str) -> String {
        let id = quote(&self.agent_request_id);
        let (subtype, key) = match verdict {
            super::PermissionVerdict::Error => ("error", "error"),
            super::PermissionVerdict::Allow | super::PermissionVerdict::Deny => ("success", "response"),
        };
        format!(
            "{{\"type\":\"control_response\",\"response\":{{\"subtype\":\"{subtype}\",\
             \"request_id\":{id},\"{key}\":{body}}}}}"
        )
    }

    /// Encodes a denial, with the reason that the model receives.
    pub(crate) fn encode_denial(&self, why: &str) -> String {
        match self.tool {
            Some(_) => {
                let body = format!("{{\"behavior\":\"deny\",\"message\":{}}}", quote(why));
                self.encode_response(super::PermissionVerdict::Deny, &body)
            }
            // The response format of other questions is unknown. All of them accept an error.
            None => self.encode_response(super::PermissionVerdict::Error, &quote(why)),
        }
    }

    /// Encodes a response that allows exactly the requested call.
    pub(crate) fn encode_allowance(&self) -> String {
        let input = self.tool.as_ref().map_or("{}", |tool| tool.input.as_str());
        self.encode_response(
            super::PermissionVerdict::Allow,
            &format!("{{\"behavior\":\"allow\",\"updatedInput\":{input}}}"),
        )
    }

    /// Number of bytes that the question occupies.
    pub fn size(&self) -> usize {
        let tool =
            self.tool.as_ref().map_or(0, |tool| tool.name.len() + tool.input.len() + tool.tool_use_id.len());
        self.agent_request_id.len() + self.line.len() + tool
    }

    /// Whether this response runs the tool with another input than requested.
    pub(crate) fn is_input_changed_by(&self, answer: &str) -> bool {
        let input = response_body(answer).and_then(|body| field_json(&body, "updatedInput"));
        let (Some(input), Some(tool)) = (input, &self.tool) else { return false };
        // Compared as values, because a server may format the same JSON differently.
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
        input != tool.input && value(&input) != value(&tool.input)
    }

    /// Encodes the notice that the question is no longer open, under the agent's own id.
    pub(crate) fn encode_cancel(&self) -> String {
        format!("{{\"type\":\"control_cancel_request\",\"request_id\":{}}}", quote(&self.agent_request_id))
    }
}

/// The inner `response` of a `control_response` line.
fn response_body(answer: &str) -> Option<String> {
    field_json(answer, "response").and_then(|response| field_json(&response, "response"))
}

fn field_json(text: &str, name: &str) -> Option<String> {
    json::scan(text, &[name]).ok().and_then(|scan| scan.fields[0]).map(str::to_owned)
}
