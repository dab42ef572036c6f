//! What the model does, decided by what the last user message of the request says.

use serde_json::{Map, Value, json};

use crate::mailbox::tools::CONVERSATION;

/// Marks an instruction to the mock inside a prompt.
const MARK: &str = "mock:";

/// One answer of the model.
#[derive(Debug, PartialEq)]
pub(super) enum Reply {
    /// Text, then the end of the turn.
    Text(String),
    /// Text that goes on until the peer goes or the mock is told to stop.
    Endless,
    /// A call of a tool that the request offers.
    ToolUse { name: String, input: Value },
}

/// The answer to a request.
pub(super) fn reply_to(request: &Value) -> Reply {
    if let Some(reply) = pair_reply(request) {
        return reply;
    }
    let last_user = messages(request).filter(|message| message["role"] == "user").last();
    // Newest first: after an interrupt one message holds the old tool's result and the new prompt.
    for block in last_user.map(blocks).unwrap_or_default().iter().rev() {
        if block["type"] == "tool_result" {
            return Reply::Text(format!("the tool said: {}", text_of(&block["content"])));
        }
        if let Some((_, instruction)) = block["text"].as_str().and_then(|text| text.split_once(MARK)) {
            return follow(instruction.lines().next().unwrap_or_default(), &request["tools"]);
        }
    }
    Reply::Text("there was nothing for the mock to do".to_owned())
}

/// The tools of a turn of a pair run.
const SEND: &str = "mcp__mailbox__send_to_agent";
const SEARCH: &str = "ToolSearch";

/// The answer to the prompt of a turn of a pair run: the messages of the example conversation that this agent sends in
/// this iteration, one call each; `None` for another prompt.
fn pair_reply(request: &Value) -> Option<Reply> {
    let all: Vec<&Value> = messages(request).collect();
    let is_prompt = |message: &Value| {
        message["role"] == "user"
            && blocks(message).iter().any(|block| PairPrompt::of(&text_of(block)).is_some())
    };
    let at = all.iter().rposition(|message| is_prompt(message))?;
    let texts: Vec<String> = blocks(all[at]).iter().map(text_of).collect();
    let PairPrompt { name, iteration } = texts.iter().find_map(|text| PairPrompt::of(text))?;
    let calls = |name: &str| {
        let answers = all[at..].iter().filter(|message| message["role"] == "assistant");
        answers.flat_map(|message| blocks(message)).filter(|block| block["name"] == name).count()
    };
    let made = calls(SEND);
    let part = if iteration == 1 { &CONVERSATION[1..3] } else { &CONVERSATION[3..] };
    let Some((_, to, message_type, content, signal)) =
        part.iter().filter(|(from, ..)| *from == name).nth(made)
    else {
        return Some(Reply::Text("sent".to_owned()));
    };
    let values = [("to", *to), ("message_type", message_type), ("content", content), ("signal", signal)];
    let tools = &request["tools"];
    // Agents may offer the tools of a server only when the model has searched for them.
    let is_offered = tools
        .as_array()
        .into_iter()
        .flatten()
        .any(|tool| tool["name"] == SEND && tool["defer_loading"] != true);
    if !is_offered && calls(SEARCH) == 0 {
        return Some(call(tools, SEARCH, &[("query", &format!("select:{SEND}"))]));
    }
    Some(call(tools, SEND, &values))
}

/// The beginning of such a prompt.
struct PairPrompt<'a> {
    name: &'a str,
    iteration: u32,
}

impl<'a> PairPrompt<'a> {
    fn of(text: &'a str) -> Option<Self> {
        let (_, rest) = text.split_once("You are ")?;
        let (name, rest) = rest.split_once(", the ")?;
        let (_, rest) = rest.split_once(". Iteration ")?;
        let (iteration, _) = rest.split_once(" of ")?;
        Some(PairPrompt { name, iteration: iteration.parse().ok()? })
    }
}

/// The texts of all user messages of a request, joined: the conversation as the model is told of it.
pub(super) fn user_text(request: &Value) -> String {
    messages(request)
        .filter(|message| message["role"] == "user")
        .flat_map(blocks)
        .map(
            |block| if block["type"] == "tool_result" { text_of(&block["content"]) } else { text_of(&block) },
        )
        .collect::<Vec<_>>()
        .join("\n")
}

fn follow(instruction: &str, tools: &Value) -> Reply {
    let (verb, rest) = instruction.split_once(' ').unwrap_or((instruction, ""));
    match verb {
        "say" => Reply::Text(rest.to_owned()),
        "stream" => Reply::Endless,
        "run" => call(tools, "Bash", &[("command", rest)]),
        "write" => {
            let (path, text) = rest.split_once(' ').unwrap_or((rest, ""));
            call(tools, "Write", &[("file_path", path), ("content", text)])
        }
        _ => Reply::Text(format!("the mock does not know: {instruction}")),
    }
}

/// Calls the tool with these values; what else its schema requires is filled in, so that it stays valid when
/// the agent grows a field. A tool that is not offered, or not with these fields, is said so in words.
fn call(tools: &Value, name: &str, values: &[(&str, &str)]) -> Reply {
    let offered = tools.as_array().into_iter().flatten().find(|tool| tool["name"] == name);
    let Some(tool) = offered else {
        return Reply::Text(format!("the agent offers no tool {name}"));
    };
    let schema = &tool["input_schema"];
    let mut input = Map::new();
    for &(field, value) in values {
        if schema["properties"].get(field).is_none() {
            return Reply::Text(format!("the agent's tool {name} takes no {field}"));
        }
        input.insert(field.to_owned(), json!(value));
    }
    for field in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let is_number = matches!(schema["properties"][field]["type"].as_str(), Some("number" | "integer"));
        input.entry(field).or_insert_with(|| if is_number { json!(5) } else { json!("from the mock") });
    }
    Reply::ToolUse { name: name.to_owned(), input: input.into() }
}

fn messages(request: &Value) -> impl Iterator<Item = &Value> {
    request["messages"].as_array().into_iter().flatten()
}

/// The content blocks of a message; a plain string is one text block.
fn blocks(message: &Value) -> Vec<Value> {
    match &message["content"] {
        Value::Array(blocks) => blocks.clone(),
        Value::String(text) => vec![json!({"type": "text", "text": text})],
        _ => Vec::new(),
    }
}

fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => blocks.iter().map(text_of).collect::<Vec<_>>().join("\n"),
        block => block["text"].as_str().unwrap_or_default().to_owned(),
    }
}
