//! Selects the lines of the agent that pass the filter (RB-01 to RB-03): the turns of the conversation and the events
//! of local commands. Only the type of the line decides, not its content.

use crate::proto::json;

/// The classification of a line of the agent for servers of the SDK dialect.
#[derive(Debug, PartialEq, Eq)]
pub struct ClassifiedLine {
    /// Whether the line passes the filter.
    pub is_eligible: bool,
    /// The uuid of the line, by which an echo of it is recognised.
    pub uuid: Option<String>,
}

/// Classifies a line of the agent.
pub fn classify_line(data: &str) -> ClassifiedLine {
    let scan = json::scan(data, &["type", "subtype", "isVirtual", "uuid"]);
    let [kind, subtype, is_virtual, uuid] = scan.map_or([None; 4], |scan| scan.fields);
    let eligible = match kind.and_then(json::parse_string).as_deref() {
        Some("user" | "assistant") => !is_virtual.is_some_and(is_truthy),
        Some("system") => subtype.and_then(json::parse_string).as_deref() == Some("local_command"),
        _ => false,
    };
    ClassifiedLine { is_eligible: eligible, uuid: uuid.and_then(json::parse_string) }
}

/// Whether this JSON is truthy in JavaScript, the language in which the filter is defined.
fn is_truthy(json: &str) -> bool {
    match json {
        "false" | "null" | "\"\"" => false,
        number if number.starts_with(|c: char| c == '-' || c.is_ascii_digit()) => {
            number.parse::<f64>().is_ok_and(|number| number != 0.0)
        }
        _ => true,
    }
}
