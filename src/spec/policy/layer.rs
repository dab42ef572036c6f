//! Which layer set a value.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// One layer of the policy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layer {
    /// What saggar does when nobody says anything.
    BuiltIn,
    /// A file of the distribution, the administrator or the user.
    Operator(Arc<Path>),
    /// This file in the agent's own folder. It may only tighten.
    AgentFolder(&'static str),
    /// This file in the workspace. It may only tighten.
    Workspace(&'static str),
    /// A file named by `--policy`.
    Policy(Arc<Path>),
    /// The options of this command.
    CommandLine,
    /// A call on the control socket, while the sandbox runs.
    Control,
}

impl Layer {
    /// Whether the agent can write this layer, so that it may only tighten.
    pub fn is_folder(&self) -> bool {
        matches!(self, Layer::AgentFolder(_) | Layer::Workspace(_))
    }

    /// The file of a folder, as the subject of a sentence.
    pub(super) fn folder_file(&self) -> Option<String> {
        match self {
            Layer::AgentFolder(name) => Some(format!("{name} in the agent folder")),
            Layer::Workspace(name) => Some(format!("{name} in the workspace")),
            _ => None,
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Layer::BuiltIn => f.write_str("built-in"),
            Layer::Operator(path) => write!(f, "{}", path.display()),
            Layer::AgentFolder(name) => write!(f, "agent folder {name}"),
            Layer::Workspace(name) => write!(f, "workspace {name}"),
            Layer::Policy(path) => write!(f, "--policy {}", path.display()),
            Layer::CommandLine => f.write_str("command line"),
            Layer::Control => f.write_str("control socket"),
        }
    }
}

/// A value and the layer that set it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting<T> {
    /// The value.
    pub value: T,
    /// Who set it.
    pub layer: Layer,
}

impl<T> Setting<T> {
    /// This value, set by this layer.
    pub fn new(value: T, layer: &Layer) -> Self {
        Setting { value, layer: layer.clone() }
    }

    /// Whether a file or the command line named this value. A limit that is named is required; one that
    /// is not is preferred (DECISIONS 1).
    pub fn is_named(&self) -> bool {
        self.layer != Layer::BuiltIn
    }
}
