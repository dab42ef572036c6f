//! The layers of the policy.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// One layer of the policy, from the first to the last.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyLayer {
    /// The defaults that are compiled into saggar.
    BuiltIn,
    /// A file of the distribution, the administrator or the user.
    Operator(Arc<Path>),
    /// The policy file of this name in the agent's own folder. It may only tighten.
    AgentFolder(&'static str),
    /// The policy file of this name in the workspace. It may only tighten.
    Workspace(&'static str),
    /// A file that a `--policy` option names.
    PolicyOption(Arc<Path>),
    /// The other options of this command.
    CommandLine,
    /// A request on the control socket, while the sandbox runs.
    ControlSocket,
}

impl PolicyLayer {
    /// Whether the agent can write this layer. Such a layer may only tighten.
    pub fn is_agent_writable(&self) -> bool {
        matches!(self, PolicyLayer::AgentFolder(_) | PolicyLayer::Workspace(_))
    }

    /// The policy file of a folder, as the subject of an error message; `None` for the other layers.
    pub(super) fn folder_file_name(&self) -> Option<String> {
        match self {
            PolicyLayer::AgentFolder(name) => Some(format!("{name} in the agent folder")),
            PolicyLayer::Workspace(name) => Some(format!("{name} in the workspace")),
            _ => None,
        }
    }
}

impl fmt::Display for PolicyLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyLayer::BuiltIn => f.write_str("built-in"),
            PolicyLayer::Operator(path) => write!(f, "{}", path.display()),
            PolicyLayer::AgentFolder(name) => write!(f, "agent folder {name}"),
            PolicyLayer::Workspace(name) => write!(f, "workspace {name}"),
            PolicyLayer::PolicyOption(path) => write!(f, "--policy {}", path.display()),
            PolicyLayer::CommandLine => f.write_str("command line"),
            PolicyLayer::ControlSocket => f.write_str("control socket"),
        }
    }
}

/// A value and the layer that set it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting<T> {
    /// The value.
    pub value: T,
    /// The layer that set it.
    pub layer: PolicyLayer,
}

impl<T> Setting<T> {
    /// Creates a setting from a value and its layer.
    pub fn new(value: T, layer: &PolicyLayer) -> Self {
        Setting { value, layer: layer.clone() }
    }

    /// Whether a file or the command line set this value. A limit that a layer sets is required; a built-in
    /// limit is preferred (DECISIONS 1).
    pub fn is_named(&self) -> bool {
        self.layer != PolicyLayer::BuiltIn
    }
}
