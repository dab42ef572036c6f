//! The methods of the control socket and their parameters. An unknown or missing parameter, or one of the wrong type,
//! is an error that names the parameter.

use super::files::FileRequest;
use super::rpc::{RpcError, RpcErrorKind, RpcId, RpcRequest};
use saggar_sys::signal_name;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::time::Duration;

/// The names of all methods, as the result of `hello` lists them.
pub const METHOD_NAMES: [&str; 20] = [
    "hello",
    "state",
    "stats",
    "kill",
    "pause",
    "resume",
    "update",
    "exec",
    "exec.cancel",
    "events.subscribe",
    "logs",
    "permission.list",
    "permission.respond",
    "files.list",
    "files.walk",
    "files.read",
    "files.write",
    "files.remove",
    "snapshot",
    "shutdown",
];

/// Timeout of a command of `exec` when the call has none, and the longest timeout that a call can ask for.
const DEFAULT_EXEC_TIMEOUT_MS: u64 = 120_000;
const MAX_EXEC_TIMEOUT_MS: u64 = 24 * 60 * 60 * 1000;
/// Most log entries in one response.
const MAX_LOG_ENTRIES: u32 = 1000;

/// A call with a known method and valid parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlMethod {
    /// `hello`: the first call of each client.
    Hello {
        /// The protocol version of the client.
        version: u64,
        /// The methods that this connection is limited to; `None` for all.
        methods: Option<Vec<String>>,
    },
    /// `state`: identity and state of the sandbox.
    State,
    /// `stats`: resource usage of the sandbox.
    Stats,
    /// `kill`: sends a signal to the agent's program.
    Kill {
        /// The number of the signal to send.
        signal: i32,
    },
    /// `pause`: freezes every process of the sandbox.
    Pause,
    /// `resume`: thaws the sandbox.
    Resume,
    /// `update`: changes limits or hosts; either all of them change or none.
    Update(UpdateRequest),
    /// `exec`: runs a shell command next to the agent.
    Exec {
        /// The command, an argument of `/bin/sh -c`.
        command: String,
        /// Run time after which saggar kills the command.
        timeout: Duration,
        /// Whether saggar kills the command when the connection closes.
        is_attached: bool,
        /// Most bytes of each stream in the result; `None` for all that was captured.
        limit: Option<usize>,
    },
    /// `exec.cancel`: kills a command of this client.
    CancelExec {
        /// The id of the call `exec`.
        id: RpcId,
    },
    /// `events.subscribe`: sends events to this client from now on.
    Subscribe,
    /// `logs`: reads log entries.
    Logs {
        /// Returns only entries with a number above this one.
        after: u64,
        /// Most entries to return.
        limit: u32,
    },
    /// `permission.list`: lists the open permission requests of the agent.
    ListPermissions,
    /// `permission.respond`: answers a permission request.
    RespondToPermission {
        /// The bridge's id of the request.
        id: String,
        /// The JSON of `{"behavior":…}`, byte for byte.
        response: String,
    },
    /// A `files.*` method: access to the files of the workspace.
    Files(FileRequest),
    /// `snapshot`: writes the data of the session on disk to one file.
    Snapshot {
        /// Includes directories that can be generated again (caches, build output), which a snapshot skips by default.
        include_skipped: bool,
    },
    /// `shutdown`: ends the sandbox.
    Shutdown {
        /// Fails while the sandbox works: it runs a turn, a command or a snapshot, or is not ready yet.
        if_idle: bool,
    },
}

/// The parameters of `update`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpdateRequest {
    /// The new values.
    pub change: UpdateChange,
    /// Applies the change only if this is the current generation of the policy.
    pub generation: Option<u64>,
}

/// The new limits or hosts, as JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpdateChange {
    /// Limits of an agent's sandbox: the table `[limits]` of a policy.
    Limits(String),
    /// Hosts that an agent's sandbox may reach: the lists of the table `[network]` of a policy.
    Network(String),
    /// Limits of a container: `linux.resources` of the OCI runtime specification.
    Resources(String),
}

/// No parameters: `{}`, `[]`, or no `params` at all.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoParams {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HelloParams {
    version: u64,
    #[serde(default)]
    methods: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KillParams {
    #[serde(default)]
    signal: Option<SignalName>,
}

/// A signal as [`signal_name`] has it, or a number.
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
    #[serde(default)]
    attached: bool,
    #[serde(default)]
    limit: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CancelExecParams {
    id: Box<RawValue>,
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

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ShutdownParams {
    #[serde(default)]
    if_idle: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RespondParams {
    id: String,
    response: Box<RawValue>,
}

impl ControlMethod {
    /// Parses the method and the parameters of a call.
    ///
    /// # Errors
    /// [`RpcErrorKind::Method`] for an unknown method, [`RpcErrorKind::Params`] for invalid parameters.
    pub fn parse(call: &RpcRequest) -> Result<Self, RpcError> {
        let method = match call.method.as_str() {
            "hello" => {
                let HelloParams { version, methods } = parse_params(call)?;
                ControlMethod::Hello { version, methods }
            }
            "state" => parse_without_params(call, ControlMethod::State)?,
            "stats" => parse_without_params(call, ControlMethod::Stats)?,
            "kill" => ControlMethod::Kill { signal: parse_signal(parse_params::<KillParams>(call)?.signal)? },
            "pause" => parse_without_params(call, ControlMethod::Pause)?,
            "resume" => parse_without_params(call, ControlMethod::Resume)?,
            "update" => parse_update(parse_params(call)?)?,
            "exec" => parse_exec(parse_params(call)?)?,
            "exec.cancel" => {
                let id = RpcId::parse(parse_params::<CancelExecParams>(call)?.id.get());
                let id = id.map_err(|error| RpcError::new(RpcErrorKind::Params, error.message))?;
                ControlMethod::CancelExec { id }
            }
            "events.subscribe" => parse_without_params(call, ControlMethod::Subscribe)?,
            "logs" => {
                let LogsParams { after, limit } = parse_params(call)?;
                ControlMethod::Logs { after, limit: limit.unwrap_or(MAX_LOG_ENTRIES).min(MAX_LOG_ENTRIES) }
            }
            "permission.list" => parse_without_params(call, ControlMethod::ListPermissions)?,
            "permission.respond" => {
                let RespondParams { id, response } = parse_params(call)?;
                ControlMethod::RespondToPermission { id, response: response.get().to_owned() }
            }
            "files.list" | "files.walk" | "files.read" | "files.write" | "files.remove" => {
                ControlMethod::Files(FileRequest::parse(call)?)
            }
            "snapshot" => {
                ControlMethod::Snapshot { include_skipped: parse_params::<SnapshotParams>(call)?.all }
            }
            "shutdown" => ControlMethod::Shutdown { if_idle: parse_shutdown(call)?.if_idle },
            other => {
                let other = crate::proto::json::shorten(other);
                let message = format!("there is no method {other:?}; there are {}", METHOD_NAMES.join(", "));
                return Err(RpcError::new(RpcErrorKind::Method, message));
            }
        };
        Ok(method)
    }
}

pub(super) fn parse_params<'a, T: Deserialize<'a>>(call: &'a RpcRequest) -> Result<T, RpcError> {
    let text = call.params.as_deref().unwrap_or("{}");
    if !text.starts_with('{') {
        // serde would accept an array with the values of the fields in order.
        return Err(RpcError::new(RpcErrorKind::Params, format!("{}: params is not an object", call.method)));
    }
    serde_json::from_str(text)
        .map_err(|error| RpcError::new(RpcErrorKind::Params, format!("{}: {error}", call.method)))
}

fn parse_without_params(call: &RpcRequest, method: ControlMethod) -> Result<ControlMethod, RpcError> {
    if call.params.as_deref() != Some("[]") {
        parse_params::<NoParams>(call)?;
    }
    Ok(method)
}

fn parse_shutdown(call: &RpcRequest) -> Result<ShutdownParams, RpcError> {
    // As for the methods without parameters.
    if call.params.as_deref() == Some("[]") {
        return Ok(ShutdownParams::default());
    }
    parse_params(call)
}

fn parse_signal(name: Option<SignalName>) -> Result<i32, RpcError> {
    // 0 is no signal: it would only look whether the program is there.
    let known = |text: &str| signal_name::parse(text).filter(|signal| *signal != 0);
    let unknown =
        |what: String| RpcError::new(RpcErrorKind::Params, format!("kill: there is no signal {what}"));
    match name {
        None => Ok(libc::SIGTERM),
        Some(SignalName::Number(number)) => {
            known(&number.to_string()).ok_or_else(|| unknown(number.to_string()))
        }
        Some(SignalName::Name(name)) => {
            known(&name).ok_or_else(|| unknown(format!("{:?}", crate::proto::json::shorten(&name))))
        }
    }
}

fn parse_update(
    UpdateParams { limits, resources, network, generation }: UpdateParams,
) -> Result<ControlMethod, RpcError> {
    let wrong = |why: &str| Err(RpcError::new(RpcErrorKind::Params, format!("update: {why}")));
    let text = |json: Box<RawValue>| json.get().to_owned();
    let what = match (limits, network, resources) {
        (Some(limits), None, None) => UpdateChange::Limits(text(limits)),
        (None, Some(network), None) => UpdateChange::Network(text(network)),
        (None, None, Some(resources)) => UpdateChange::Resources(text(resources)),
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
    Ok(ControlMethod::Update(UpdateRequest { change: what, generation }))
}

fn parse_exec(
    ExecParams { command, timeout, attached, limit }: ExecParams,
) -> Result<ControlMethod, RpcError> {
    let wrong = |why: &str| Err(RpcError::new(RpcErrorKind::Params, format!("exec: {why}")));
    let timeout = timeout.unwrap_or(DEFAULT_EXEC_TIMEOUT_MS);
    if command.contains('\0') {
        return wrong("the command has a NUL");
    }
    if !(1..=MAX_EXEC_TIMEOUT_MS).contains(&timeout) {
        return wrong("timeout is not between 1 and 86400000 milliseconds");
    }
    let timeout = Duration::from_millis(timeout);
    Ok(ControlMethod::Exec { command, timeout, is_attached: attached, limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn method(name: &str, params: Option<&str>) -> Result<ControlMethod, RpcError> {
        ControlMethod::parse(&RpcRequest {
            id: None,
            method: name.to_owned(),
            params: params.map(str::to_owned),
        })
    }

    #[test]
    fn every_name_is_a_method_and_no_other_is() {
        for name in METHOD_NAMES {
            let params = match name {
                "hello" => Some(r#"{"version":1}"#),
                "update" => Some(r#"{"limits":{}}"#),
                "exec" => Some(r#"{"command":"x"}"#),
                "exec.cancel" => Some(r#"{"id":7}"#),
                "files.read" | "files.remove" => Some(r#"{"path":"x"}"#),
                "files.write" => Some(r#"{"path":"x","content":""}"#),
                "permission.respond" => Some(r#"{"id":"x","response":{"behavior":"allow"}}"#),
                _ => None,
            };
            assert!(method(name, params).is_ok(), "{name}");
        }
        for name in ["", "State", "events", "__proto__"] {
            assert_eq!(method(name, None).unwrap_err().kind, RpcErrorKind::Method, "{name}");
        }
    }

    #[test]
    fn parameters_are_checked_by_name() {
        let bad = |name: &str, params: &str, word: &str| {
            let failure = method(name, Some(params)).unwrap_err();
            assert_eq!(failure.kind, RpcErrorKind::Params, "{failure:?}");
            assert!(failure.message.contains(word), "no {word:?} in {failure:?}");
        };
        bad("state", r#"{"x":1}"#, "x");
        bad("state", "3", "object");
        bad("hello", "{}", "version");
        bad("hello", "[1]", "object");
        bad("hello", r#"{"version":"1"}"#, "u64");
        bad("kill", r#"{"signal":"SIGNOPE"}"#, "SIGNOPE");
        bad("kill", r#"{"signal":99}"#, "99");
        bad("kill", r#"{"signal":0}"#, "0");
        bad("exec", r#"{"command":"a\u0000"}"#, "NUL");
        bad("exec", r#"{"command":"a","timeout":0}"#, "timeout");
        bad("exec.cancel", "{}", "id");
        bad("exec.cancel", r#"{"id":[1]}"#, "id is not a number");
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
        assert!(both.kind == RpcErrorKind::Params && both.message.contains("name one"), "{both:?}");
    }

    #[test]
    fn defaults_are_those_of_the_manual() {
        assert_eq!(method("kill", None), Ok(ControlMethod::Kill { signal: libc::SIGTERM }));
        let real_time = libc::SIGRTMIN() + 3;
        for (name, signal) in [
            (r#""kill""#, libc::SIGKILL),
            (r#""SIGKILL""#, libc::SIGKILL),
            ("9", libc::SIGKILL),
            (r#""RTMIN+3""#, real_time),
            (&real_time.to_string(), real_time),
        ] {
            let params = format!("{{\"signal\":{name}}}");
            assert_eq!(method("kill", Some(&params)), Ok(ControlMethod::Kill { signal }));
        }
        let exec = method("exec", Some(r#"{"command":"x"}"#));
        let timeout = Duration::from_secs(120);
        let expected = ControlMethod::Exec { command: "x".into(), timeout, is_attached: false, limit: None };
        assert_eq!(exec, Ok(expected));
        assert_eq!(
            method("logs", Some(r#"{"limit":100000}"#)),
            Ok(ControlMethod::Logs { after: 0, limit: 1000 })
        );
        assert_eq!(method("state", Some("[]")), Ok(ControlMethod::State));
    }
}
