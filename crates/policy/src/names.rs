//! The keywords of a policy (profiles, adapters, protections) and names of variables.
//!
//! Where a set is ordered by strictness, it is declared from the tightest to the widest, so that `<` means
//! tighter.

use super::value::{BadValue, keywords, text_value};
use std::fmt;
use std::str::FromStr;

keywords! {
    /// How strictly the sandbox confines programs.
    "profile" SandboxProfile {
        /// The default: an allow-list of system calls, landlock file rules, masked /proc.
        Strict = "strict",
        /// For a container whose `/proc` is masked: as strict, with that `/proc` if the kernel mounts no new one.
        Container = "container",
        /// For an agent that brings its own sandbox or runs containers: no landlock file rules.
        Nesting = "nesting",
    }
}

keywords! {
    /// The protocol that the agent uses on its standard streams or its socket.
    "adapter" AdapterKind {
        /// One JSON object per line, as Claude Code writes.
        StreamJson = "stream-json",
        /// The bridge protocol, on a socket in the sandbox.
        Bridge = "bridge",
        /// The built-in demo agent, which needs no installation.
        Demo = "demo",
    }
}

keywords! {
    /// The network that the sandbox sees.
    "network mode" NetworkMode {
        /// A network namespace with only a loopback interface.
        None = "none",
        /// A network namespace from which programs can reach the hosts that the policy names.
        Policy = "policy",
        /// The network namespace of the host.
        Host = "host",
    }
}

keywords! {
    /// What to do about protected names of the work tree that do not exist.
    "treatment of missing protected paths" MissingPathAction {
        /// Create an empty, read-only placeholder.
        Placeholder = "placeholder",
        /// Create nothing; a scan looks for names that appear.
        None = "none",
    }
}

keywords! {
    /// What to do with a session at its wall-clock limit (DECISIONS 13).
    "end of a session's time" TimeoutAction {
        /// Kill all its processes. The session can be started again.
        Kill = "kill",
        /// Freeze its processes, if the host supports it.
        Pause = "pause",
    }
}

keywords! {
    /// Who makes the cgroups of the sandboxes that root starts.
    "driver of cgroups" SandboxCgroupDriver {
        /// saggar itself.
        Cgroupfs = "cgroupfs",
        /// systemd, asked for a scope.
        Systemd = "systemd",
    }
}

keywords! {
    /// A protection that a host may or may not support (DECISIONS 1).
    "protection" Protection {
        /// Separate namespaces: user, mount, pid, ipc, uts, cgroup.
        Namespaces = "namespaces",
        /// A private root that contains only what the policy lists.
        Root = "root",
        /// Empty capability sets.
        Capabilities = "capabilities",
        /// The no_new_privs attribute.
        NoNewPrivs = "no-new-privs",
        /// The system call filter.
        Seccomp = "seccomp",
        /// Landlock file rules, ABI 1.
        Landlock = "landlock",
        /// Landlock features beyond ABI 1: scopes of signals and abstract sockets, later access rights.
        LandlockScope = "landlock-scope",
        /// Network isolation.
        Network = "network",
        /// A separate cgroup.
        Cgroup = "cgroup",
        /// Every limit that a cgroup holds. In a list it stands for `memory`, `cpu`, `pids` and `disk` too.
        Limits = "limits",
        /// The memory limit.
        Memory = "memory",
        /// The CPU limit.
        Cpu = "cpu",
        /// The limit on processes and threads.
        Pids = "pids",
        /// The disk limit.
        Disk = "disk",
        /// A separate session keyring.
        Keyring = "keyring",
    }
}

keywords! {
    /// A part of a policy that a layer can lock.
    "part of a policy" PolicyPart {
        /// The keys `agent_cmd` and `adapter`, and the agent options of a single start.
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
        /// The table `mailbox`.
        Mailbox = "mailbox",
        /// The table `mcp`.
        Mcp = "mcp",
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
    /// What to do when the host does not support a protection.
    "strength" ProtectionStrength {
        /// Refuse to start.
        Require = "require",
        /// Start the sandbox and report it as degraded.
        Prefer = "prefer",
    }
}

impl Protection {
    /// Whether a sandbox can start without the protection. The others are essential: `prefer` has no effect
    /// on them.
    pub(crate) fn is_optional(self) -> bool {
        !matches!(
            self,
            Protection::Namespaces
                | Protection::Root
                | Protection::Capabilities
                | Protection::NoNewPrivs
                | Protection::Seccomp
        )
    }

    /// What its name stands for in a list: itself, or the members of a group, itself first.
    pub fn members(&self) -> &[Protection] {
        const LIMITS: [Protection; 5] =
            [Protection::Limits, Protection::Memory, Protection::Cpu, Protection::Pids, Protection::Disk];
        match self {
            Protection::Limits => &LIMITS,
            one => std::slice::from_ref(one),
        }
    }

    /// The strength that applies when no layer sets one. Of `limits` it is that of a limit that a layer sets and that has
    /// no built-in value.
    pub fn default_strength(self) -> ProtectionStrength {
        match self {
            Protection::Namespaces
            | Protection::Root
            | Protection::Capabilities
            | Protection::NoNewPrivs
            | Protection::Seccomp
            | Protection::Landlock
            | Protection::Network
            | Protection::Limits => ProtectionStrength::Require,
            Protection::LandlockScope
            | Protection::Cgroup
            | Protection::Memory
            | Protection::Cpu
            | Protection::Pids
            | Protection::Disk
            | Protection::Keyring => ProtectionStrength::Prefer,
        }
    }
}

/// The name of an environment variable: not empty, without `=`, spaces and unprintable characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EnvName(String);

impl EnvName {
    /// The name as a string.
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
