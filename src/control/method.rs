//! The methods of the control socket and their parameters. A parameter that is unknown, missing or of another type is
//! an error that names it.

use super::files::FileCall;
use super::rpc::{Call, Failure, Kind};
use nix::sys::signal::Signal;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::time::Duration;

/// The names of all methods, as `hello` lists them.
pub const NAMES: [&str; 17] = [
    "hello",
    "state",
    "stats",
    "kill",
    "pause",
    "resume",
    "update",
    "exec",
    "events.subscribe",
    "logs",
    "permission.list",
    "permission.respond",
    "files.list",
    "files.read",
    "files.write",
    "snapshot",
    "shutdown",
];

/// How long a command of `exec` runs at most when nothing is said, and the most that may be said.
const EXEC_TIMEOUT_MS: u64 = 120_000;
const EXEC_TIMEOUT_MOST_MS: u64 = 24 * 60 * 60 * 1000;
/// How many log entries one answer has at most.
const LOGS_MOST: u32 = 1000;

/// A call that makes sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Method {
    /// The greeting.
    Hello {
        /// The version of the protocol that the caller speaks.
        version: u64,
    },
    /// What the sandbox is and does.
    State,
    /// What it uses.
    Stats,
    /// A signal for the agent's program.
    Kill {
        /// Which.
        signal: Signal,
    },
    /// Everything in it stands still.
    Pause,
    /// And goes on.
    Resume,
    /// Other limits, all of them or none.
    Update(Update),
    /// A shell command beside the agent.
    Exec {
        /// For `/bin/sh -c`.
        command: String,
        /// When it is killed.
        timeout: Duration,
    },
    /// Events from now on.
    Subscribe,
    /// Log entries.
    Logs {
        /// Those after this number.
        after: u64,
        /// At most so many.
        limit: u32,
    },
    /// The questions of the agent that are open.
    Permissions,
    /// An answer to one.
    Respond {
        /// The bridge's name of the question.
        id: String,
        /// The JSON of `{"behavior":…}`, byte for byte.
        response: String,
    },
    /// Files of the workspace.
    Files(FileCall),
    /// What the session has on disk, in one file.
    Snapshot {
        /// With what can be made again, too.
        all: bool,
    },
    /// The end.
    Shutdown,
}

/// What is to be other than it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// Which limits.
    pub what: Change,
    /// Only when this is the generation as things stand.
    pub generation: Option<u64>,
}

/// Limits or hosts, as JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Those of an agent's sandbox: the table `[limits]` of a policy.
    Limits(String),
    /// Which hosts an agent's sandbox reaches: the lists of the table `[network]`.
    Network(String),
    /// Those of a container: `linux.resources` of the OCI runtime specification.
    Resources(String),
}

/// No parameters, as `{}`, `[]` or nothing.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HelloParams {
    version: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KillParams {
    #[serde(default)]
    signal: Option<SignalName>,
}

/// As kill(1) takes it: a name with or without SIG, or a number.
#[derive(Deserialize)]
#[serde(untagged)]
enum SignalName {
    Number(i32),
    Name(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExecParams {
    command: String,
    #[serde(default)]
    timeout: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UpdateParams {
    #[serde(default)]
    limits: Option<Box<RawValue>>,
    #[serde(default)]
    resources: Option<Box<RawValue>>,
    #[serde(default)]
    network: Option<Box<RawValue>>,
    #[serde(default)]
    generation: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LogsParams {
    #[serde(default)]
    after: u64,
    #[serde(default)]
    limit: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SnapshotParams {
    #[serde(default)]
    all: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RespondParams {
    id: String,
    response: Box<RawValue>,
}

impl Method {
    /// Reads the method of a call.
    ///
    /// # Errors
    /// [`Kind::Method`], [`Kind::Params`].
    pub fn of(call: &Call) -> Result<Self, Failure> {
        let method = match call.method.as_str() {
            "hello" => Method::Hello { version: params::<HelloParams>(call)?.version },
            "state" => none(call, Method::State)?,
            "stats" => none(call, Method::Stats)?,
            "kill" => Method::Kill { signal: signal(params::<KillParams>(call)?.signal)? },
            "pause" => none(call, Method::Pause)?,
            "resume" => none(call, Method::Resume)?,
            "update" => update(params(call)?)?,
            "exec" => exec(params(call)?)?,
            "events.subscribe" => none(call, Method::Subscribe)?,
            "logs" => {
                let LogsParams { after, limit } = params(call)?;
                Method::Logs { after, limit: limit.unwrap_or(LOGS_MOST).min(LOGS_MOST) }
            }
            "permission.list" => none(call, Method::Permissions)?,
            "permission.respond" => {
                let RespondParams { id, response } = params(call)?;
                Method::Respond { id, response: response.get().to_owned() }
            }
            "files.list" | "files.read" | "files.write" => Method::Files(FileCall::of(call)?),
            "snapshot" => Method::Snapshot { all: params::<SnapshotParams>(call)?.all },
            "shutdown" => none(call, Method::Shutdown)?,
            other => {
                let other = crate::bridge::proto::json::shorten(other);
                let message = format!("there is no method {other:?}; there are {}", NAMES.join(", "));
                return Err(Failure::new(Kind::Method, message));
            }
        };
        Ok(method)
    }
}

pub(super) fn params<'a, T: Deserialize<'a>>(call: &'a Call) -> Result<T, Failure> {
    let text = call.params.as_deref().unwrap_or("{}");
    if !text.starts_with('{') {
        // serde would take a list for the fields in their order.
        return Err(Failure::new(Kind::Params, format!("{}: params is not an object", call.method)));
    }
    serde_json::from_str(text)
        .map_err(|error| Failure::new(Kind::Params, format!("{}: {error}", call.method)))
}

fn none(call: &Call, method: Method) -> Result<Method, Failure> {
    if call.params.as_deref() != Some("[]") {
        params::<Nothing>(call)?;
    }
    Ok(method)
}

fn signal(name: Option<SignalName>) -> Result<Signal, Failure> {
    let unknown = |what: String| Failure::new(Kind::Params, format!("kill: there is no signal {what}"));
    match name {
        None => Ok(Signal::SIGTERM),
        Some(SignalName::Number(number)) => Signal::try_from(number).map_err(|_| unknown(number.to_string())),
        Some(SignalName::Name(name)) => {
            let upper = name.to_ascii_uppercase();
            let full = if upper.starts_with("SIG") { upper } else { format!("SIG{upper}") };
            full.parse().map_err(|_| unknown(format!("{:?}", crate::bridge::proto::json::shorten(&name))))
        }
    }
}

fn update(UpdateParams { limits, resources, network, generation }: UpdateParams) -> Result<Method, Failure> {
    let wrong = |why: &str| Err(Failure::new(Kind::Params, format!("update: {why}")));
    let text = |json: Box<RawValue>| json.get().to_owned();
    let what = match (limits, network, resources) {
        (Some(limits), None, None) => Change::Limits(text(limits)),
        (None, Some(network), None) => Change::Network(text(network)),
        (None, None, Some(resources)) => Change::Resources(text(resources)),
        (None, None, None) => {
            return wrong(
                "there is nothing to change: name limits, network, or the resources of a container",
            );
        }
        (Some(_), Some(_), None) => return wrong("limits and network change one after the other: name one"),
        (_, _, Some(_)) => {
            return wrong("limits and network are an agent's, and resources a container's: name one");
        }
    };
    Ok(Method::Update(Update { what, generation }))
}

fn exec(ExecParams { command, timeout }: ExecParams) -> Result<Method, Failure> {
    let wrong = |why: &str| Err(Failure::new(Kind::Params, format!("exec: {why}")));
    let timeout = timeout.unwrap_or(EXEC_TIMEOUT_MS);
    if command.contains('\0') {
        return wrong("the command has a NUL");
    }
    if !(1..=EXEC_TIMEOUT_MOST_MS).contains(&timeout) {
        return wrong("timeout is not between 1 and 86400000 milliseconds");
    }
    Ok(Method::Exec { command, timeout: Duration::from_millis(timeout) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn method(name: &str, params: Option<&str>) -> Result<Method, Failure> {
        Method::of(&Call { id: None, method: name.to_owned(), params: params.map(str::to_owned) })
    }

    #[test]
    fn every_name_is_a_method_and_no_other_is() {
        for name in NAMES {
            let params = match name {
                "hello" => Some(r#"{"version":1}"#),
                "update" => Some(r#"{"limits":{}}"#),
                "exec" => Some(r#"{"command":"x"}"#),
                "files.read" => Some(r#"{"path":"x"}"#),
                "files.write" => Some(r#"{"path":"x","content":""}"#),
                "permission.respond" => Some(r#"{"id":"x","response":{"behavior":"allow"}}"#),
                _ => None,
            };
            assert!(method(name, params).is_ok(), "{name}");
        }
        for name in ["", "State", "events", "__proto__"] {
            assert_eq!(method(name, None).unwrap_err().kind, Kind::Method, "{name}");
        }
    }

    #[test]
    fn parameters_are_checked_by_name() {
        let bad = |name: &str, params: &str, word: &str| {
            let failure = method(name, Some(params)).unwrap_err();
            assert_eq!(failure.kind, Kind::Params, "{failure:?}");
            assert!(failure.message.contains(word), "no {word:?} in {failure:?}");
        };
        bad("state", r#"{"x":1}"#, "x");
        bad("state", "3", "object");
        bad("hello", "{}", "version");
        bad("hello", "[1]", "object");
        bad("hello", r#"{"version":"1"}"#, "u64");
        bad("kill", r#"{"signal":"SIGNOPE"}"#, "SIGNOPE");
        bad("kill", r#"{"signal":99}"#, "99");
        bad("exec", r#"{"command":"a\u0000"}"#, "NUL");
        bad("exec", r#"{"command":"a","timeout":0}"#, "timeout");
        bad("permission.respond", r#"{"id":"x"}"#, "response");
        bad("logs", r#"{"after":-1}"#, "u64");
        bad("files.list", r#"{"after":"x"}"#, "next");
        bad("files.read", r#"{"path":"x","offset":-1}"#, "u64");
        bad("files.read", r#"{"path":"x","encoding":"latin1"}"#, "latin1");
        bad("files.write", r#"{"path":"x"}"#, "content");
        bad("files.write", r#"{"path":"x","content":"?","encoding":"base64"}"#, "base64");
        bad("snapshot", r#"{"all":"yes"}"#, "boolean");
        bad("snapshot", r#"{"output":"/etc/x"}"#, "output");
        bad("update", "{}", "nothing to change");
        bad("update", r#"{"limits":{},"resources":{}}"#, "name one");
        bad("update", r#"{"limits":{},"generation":"1"}"#, "u64");
        let both = method("update", Some(r#"{"limits":{},"network":{}}"#)).unwrap_err();
        assert!(both.kind == Kind::Params && both.message.contains("name one"), "{both:?}");
    }

    #[test]
    fn defaults_are_those_of_the_manual() {
        assert_eq!(method("kill", None), Ok(Method::Kill { signal: Signal::SIGTERM }));
        for name in [r#""kill""#, r#""SIGKILL""#, "9"] {
            let params = format!("{{\"signal\":{name}}}");
            assert_eq!(method("kill", Some(&params)), Ok(Method::Kill { signal: Signal::SIGKILL }));
        }
        let exec = method("exec", Some(r#"{"command":"x"}"#));
        assert_eq!(exec, Ok(Method::Exec { command: "x".into(), timeout: Duration::from_secs(120) }));
        assert_eq!(method("logs", Some(r#"{"limit":100000}"#)), Ok(Method::Logs { after: 0, limit: 1000 }));
        assert_eq!(method("state", Some("[]")), Ok(Method::State));
    }
}
