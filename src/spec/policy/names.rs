//! The words of a policy: profiles, adapters, protections, and names of variables.
//!
//! Where a set has an order of strength, it is declared from the tightest to the widest, so that `<`
//! means tighter.

use super::value::{BadValue, keywords, text_value};
use std::fmt;
use std::str::FromStr;

keywords! {
    /// How the walls are built.
    "profile" Profile {
        /// The default: an allow-list of system calls, landlock file rules, masked /proc.
        Strict = "strict",
        /// For an agent that brings its own sandbox or runs containers: no landlock file rules.
        Nesting = "nesting",
    }
}

keywords! {
    /// What the agent speaks on its standard streams or its socket.
    "adapter" Adapter {
        /// One JSON object a line, as Claude Code does.
        StreamJson = "stream-json",
        /// The bridge protocol itself, on a socket inside.
        Bridge = "bridge",
        /// The built-in agent that needs nothing installed.
        Demo = "demo",
    }
}

keywords! {
    /// Which network the sandbox sees.
    "network mode" Network {
        /// A namespace of its own with nothing but `lo`.
        None = "none",
        /// A namespace of its own, and the hosts that the policy names.
        Policy = "policy",
        /// The network of the host.
        Host = "host",
    }
}

keywords! {
    /// What happens for a protected name of the work tree that does not exist.
    "treatment of missing protected paths" Missing {
        /// An empty, read-only placeholder is made.
        Placeholder = "placeholder",
        /// Nothing is made; what appears is looked for afterwards.
        None = "none",
    }
}

keywords! {
    /// What becomes of a session at its limit by the clock (DECISIONS 13).
    "end of a session's time" AtTimeout {
        /// Nothing of it is left running; it can be started again.
        Kill = "kill",
        /// It stands still, where the host can freeze it.
        Pause = "pause",
    }
}

keywords! {
    /// A protection that a host may or may not be able to give (DECISIONS 1).
    "protection" Protection {
        /// Namespaces of its own: user, mount, pid, ipc, uts, cgroup.
        Namespaces = "namespaces",
        /// A private root, made of nothing but what the policy lists.
        Root = "root",
        /// Empty capability sets.
        Capabilities = "capabilities",
        /// The no_new_privs attribute.
        NoNewPrivs = "no-new-privs",
        /// The system call filter.
        Seccomp = "seccomp",
        /// Landlock file rules, ABI 1.
        Landlock = "landlock",
        /// What landlock gives beyond ABI 1: scopes of signals and abstract sockets, later rights.
        LandlockScope = "landlock-scope",
        /// The network wall.
        Network = "network",
        /// A cgroup of its own.
        Cgroup = "cgroup",
        /// The memory limit.
        Memory = "memory",
        /// The CPU limit.
        Cpu = "cpu",
        /// The limit on processes and threads.
        Pids = "pids",
        /// The disk limit.
        Disk = "disk",
        /// A session keyring of its own.
        Keyring = "keyring",
    }
}

keywords! {
    /// A part of a policy, which a layer can lock.
    "part of a policy" Part {
        /// `agent_cmd` and `adapter`, and what one start gives an agent beside its folder.
        Agent = "agent",
        /// The table `api`.
        Api = "api",
        /// The table `bridge`.
        Bridge = "bridge",
        /// The table `env`.
        Env = "env",
        /// The table `files`.
        Files = "files",
        /// The table `limits`.
        Limits = "limits",
        /// The table `network`.
        Network = "network",
        /// The table `permissions`.
        Permissions = "permissions",
        /// The key `profile`.
        Profile = "profile",
        /// The table `protect`.
        Protect = "protect",
        /// The table `protections`.
        Protections = "protections",
        /// The table `sandbox`.
        Sandbox = "sandbox",
    }
}

keywords! {
    /// What a protection that the host cannot give does to the start.
    "strength" Strength {
        /// The start is refused.
        Require = "require",
        /// The sandbox starts, and says that it is degraded.
        Prefer = "prefer",
    }
}

impl Protection {
    /// Whether a sandbox can be without it at all. The others are what a sandbox is made of: where one cannot be had, no
    /// preference helps.
    pub fn can_be_missing(self) -> bool {
        !matches!(
            self,
            Protection::Namespaces
                | Protection::Root
                | Protection::Capabilities
                | Protection::NoNewPrivs
                | Protection::Seccomp
        )
    }

    /// What holds when nobody says otherwise.
    pub fn default_strength(self) -> Strength {
        match self {
            Protection::Namespaces
            | Protection::Root
            | Protection::Capabilities
            | Protection::NoNewPrivs
            | Protection::Seccomp
            | Protection::Landlock
            | Protection::Network => Strength::Require,
            Protection::LandlockScope
            | Protection::Cgroup
            | Protection::Memory
            | Protection::Cpu
            | Protection::Pids
            | Protection::Disk
            | Protection::Keyring => Strength::Prefer,
        }
    }
}

/// The name of an environment variable: not empty, no `=`, no space, nothing that is not printable.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EnvName(String);

impl EnvName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for EnvName {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = |why: &str| Err(BadValue(format!("name of a variable {text:?} {why}")));
        if text.is_empty() {
            return bad("is empty");
        }
        match text.chars().find(|c| !c.is_ascii_graphic() || matches!(c, '=' | '*' | '?')) {
            Some('*' | '?') => bad("is a pattern; name each variable"),
            Some(c) => bad(&format!("has the character {c:?}")),
            None => Ok(EnvName(text.to_owned())),
        }
    }
}

impl fmt::Display for EnvName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

text_value!(EnvName, { "type": "string", "description": "the name of a variable, no pattern", "pattern": "^[!-)+-<>@-~]+$" });

impl std::borrow::Borrow<str> for EnvName {
    fn borrow(&self) -> &str {
        &self.0
    }
}
