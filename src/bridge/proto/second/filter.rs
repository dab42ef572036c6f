//! Which lines of the agent cross the bridge when the filter is on (RB-01 to RB-03): the turns of the
//! conversation and the events of local commands. The kind of the line alone decides, not what is in it.

use crate::bridge::proto::json;

/// What a line of the agent is to a server of the second dialect.
#[derive(Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// It crosses when the filter is on.
    pub eligible: bool,
    /// Its uuid, by which an echo of it is known.
    pub uuid: Option<String>,
}

/// Looks at a line of the agent.
pub fn look(data: &str) -> Outgoing {
    let scan = json::scan(data, &["type", "subtype", "isVirtual", "uuid"]);
    let [kind, subtype, is_virtual, uuid] = scan.map_or([None; 4], |scan| scan.fields);
    let eligible = match kind.and_then(json::string).as_deref() {
        Some("user" | "assistant") => !is_virtual.is_some_and(is_truthy),
        Some("system") => subtype.and_then(json::string).as_deref() == Some("local_command"),
        _ => false,
    };
    Outgoing { eligible, uuid: uuid.and_then(json::string) }
}

/// Whether JavaScript takes this JSON for true: the definition of the filter is in that language.
fn is_truthy(json: &str) -> bool {
    match json {
        "false" | "null" | "\"\"" => false,
        number if number.starts_with(|c: char| c == '-' || c.is_ascii_digit()) => {
            number.parse::<f64>().is_ok_and(|number| number != 0.0)
        }
        _ => true,
    }
}
