//! The messages of the relay: each is one JSON value of bounded size on a seqpacket socket, with at most one descriptor
//! passed (SCM_RIGHTS).

use crate::io::publish::{PortForward, UnreachablePort};
use crate::io::{CallingProgram, HostCountsRow, NetworkDenial, ResolverFile, Whose};
use saggar_policy::hosts::{HostRule, HostRules};
use saggar_sys::error::Error;
use saggar_sys::net::IpFamily;
use saggar_sys::redirect;
use saggar_sys::reject_sniffer::RejectKind;
use saggar_sys::seccomp::listener::SyscallNotification;
use serde::{Deserialize, Serialize};

/// Longest message in bytes.
pub const MAX_MESSAGE_SIZE: usize = 64 << 10;
/// Most rules, or rows of an account, in one message, such that they always fit.
pub(crate) const MAX_ITEMS: usize = 48;

/// The first message of a supervisor. It passes a pidfd of the sandbox's pid 1.
#[derive(Debug, Serialize, Deserialize)]
pub struct RelayStart {
    /// Pid of the supervisor; the relay ends with it.
    pub supervisor: i32,
    /// Pid of the sandbox's pid 1 on the host.
    pub init: i32,
    /// The user and group id that the relay changes to if it is root.
    pub id: u32,
    /// The user and group of the sandbox's programs, if they are not those of the caller.
    pub owner: Option<(u32, u32)>,
    /// The network of the sandbox goes by policy.
    pub network_by_policy: bool,
    /// The sandbox publishes ports.
    pub publishes_ports: bool,
}

/// A message from the supervisor to the relay.
#[derive(Debug, Serialize, Deserialize)]
pub enum RelayCommand {
    /// Passes a listening socket of the host, whose connections go to a port in the sandbox.
    Publish(PortForward),
    /// One chunk of the rules that apply from now on.
    Rules(RuleChunk),
    /// Passes a socket that accepts redirected connections to this port of the sandbox.
    AddListener(redirect::SocketProtocol, u16),
    /// Passes a socket that sees the kernel's rejections of connections that no socket accepts.
    AddSniffer(IpFamily, RejectKind),
    /// Passes the seccomp listener of pid 1.
    SetSeccompListener,
    /// Passes a socket of the sandbox that the relay requested, or the error number why there is none.
    ProvideSocket(IpFamily, Option<i32>),
    /// A user or client can answer questions about hosts.
    EnableQuestions,
    /// This host, HOST:PORT, is allowed for the life of the sandbox.
    AllowHost(String),
    /// The answer to a question.
    AnswerQuestion {
        /// Number of the question.
        number: u64,
        /// The reason of a denial; `None` allows the host.
        denial: Option<String>,
        /// The answer applies for the life of the sandbox.
        keep: bool,
    },
    /// Requests [`RelayEvent::Account`].
    SendAccount,
    /// No program is left: requests [`RelayEvent::Drained`] when all their data has been sent to its destination.
    Drain,
}

/// A part of a rule set, which may be too large for one message.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct RuleChunk {
    allow: Vec<String>,
    deny: Vec<String>,
    ask: Vec<String>,
    /// This is the last chunk.
    last: bool,
}

/// A message from the relay to the supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub enum RelayEvent {
    /// The relay could not drop its rights, and exits.
    Failed(Error),
    /// Asks whether programs may reach this host, HOST:PORT.
    HostQuestion {
        /// Number of the question.
        number: u64,
        /// One port of one host.
        to: String,
        /// The program that connects first.
        program: Option<CallingProgram>,
    },
    /// No program waits for the answer to this question any more.
    QuestionWithdrawn(u64),
    /// The policy denied a program access to the network.
    Denied(DeniedAccess),
    /// A program waits for the mode of a directory, for which pid 1's filter has sent this notification.
    ModeRequested(SyscallNotification),
    /// A published port got a connection, and no server in the sandbox accepted it.
    PortUnreachable(UnreachablePort),
    /// Requests a socket of the sandbox.
    SocketRequested(IpFamily),
    /// Number of open connections, and some rows of the account; true in the last message of an account.
    Account(usize, Vec<HostCountsRow>, bool),
    /// All data of the programs has been sent to its destination, or its destination takes no more.
    Drained,
}

/// A message from the attribution to the relay that is no response.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum AttributionReport {
    /// The filter of pid 1 denied a program access to the network.
    Denied(DeniedAccess),
    /// A program waits for the mode of a directory.
    ModeRequested(SyscallNotification),
}

/// A denial, with the fields that events do not have.
#[derive(Debug, Serialize, Deserialize)]
pub struct DeniedAccess {
    refusal: NetworkDenial,
    is_usual: bool,
}

/// A message from the relay to the attribution; the response has the number of its request.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum AttributionRequest {
    /// Asks which program owns this socket.
    Program(u64, Whose),
    /// Asks for this file, open for reading.
    File(u64, ResolverFile),
    /// Reports that the relay listens on this port.
    ListeningPort(u16),
    /// Passes the seccomp listener of pid 1.
    SetSeccompListener,
}

/// A response of the attribution; a requested file is passed with it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct AttributionResponse {
    pub(super) number: u64,
    pub(super) program: Option<CallingProgram>,
}

impl From<NetworkDenial> for DeniedAccess {
    fn from(refusal: NetworkDenial) -> Self {
        DeniedAccess { is_usual: refusal.is_usual, refusal }
    }
}

impl From<DeniedAccess> for NetworkDenial {
    fn from(DeniedAccess { refusal, is_usual }: DeniedAccess) -> Self {
        NetworkDenial { is_usual, ..refusal }
    }
}

impl RuleChunk {
    /// Splits the rules into messages.
    pub fn split(rules: &HostRules) -> Vec<Self> {
        let mut all = vec![RuleChunk::default()];
        for (list, rules) in [(0, &rules.allow), (1, &rules.deny), (2, &rules.ask)] {
            for some in rules.chunks(MAX_ITEMS) {
                let texts = some.iter().map(ToString::to_string).collect();
                let empty = RuleChunk::default();
                all.push(match list {
                    0 => RuleChunk { allow: texts, ..empty },
                    1 => RuleChunk { deny: texts, ..empty },
                    _ => RuleChunk { ask: texts, ..empty },
                });
            }
        }
        if let Some(last) = all.last_mut() {
            last.last = true;
        }
        all
    }

    /// Adds the chunk to `rules`; true when the rules are complete. `None` when a rule is not valid.
    pub(crate) fn add_to(&self, rules: &mut HostRules) -> Option<bool> {
        let HostRules { allow, deny, ask } = rules;
        for (texts, rules) in [(&self.allow, allow), (&self.deny, deny), (&self.ask, ask)] {
            let parsed: Result<Vec<HostRule>, _> = texts.iter().map(|text| text.parse()).collect();
            rules.extend(parsed.ok()?);
        }
        Some(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_any_number_survive_the_wire() {
        let rule = |number: usize| format!("{}{number}.example:{}", "a.".repeat(100), 1 + number % 60_000);
        for count in [0, 1, MAX_ITEMS, 500] {
            let list =
                |from: usize| (from..from + count).map(|number| rule(number).parse().unwrap()).collect();
            let rules = HostRules { allow: list(0), deny: list(1000), ask: list(2000) };
            let mut got = HostRules::default();
            let mut messages = RuleChunk::split(&rules).into_iter().peekable();
            while let Some(some) = messages.next() {
                let bytes = serde_json::to_vec(&RelayCommand::Rules(some)).unwrap();
                assert!(bytes.len() <= MAX_MESSAGE_SIZE, "{}", bytes.len());
                let Ok(RelayCommand::Rules(some)) = serde_json::from_slice(&bytes) else { panic!("rules") };
                assert_eq!(some.add_to(&mut got), Some(messages.peek().is_none()));
            }
            assert_eq!(got, rules);
        }
    }

    #[test]
    fn a_refusal_is_whole_behind_the_wire() {
        let refusal = NetworkDenial {
            name: Some("a.example".into()),
            socket: Some("a raw socket".into()),
            port: Some(443),
            is_usual: true,
            times: 3,
            program: Some(CallingProgram { pid: 7, name: "\u{202e}\n".into() }),
            ..NetworkDenial::default()
        };
        let bytes = serde_json::to_vec(&RelayEvent::Denied(refusal.clone().into())).unwrap();
        let Ok(RelayEvent::Denied(refused)) = serde_json::from_slice(&bytes) else { panic!("a refusal") };
        assert_eq!(NetworkDenial::from(refused), refusal);
    }
}
