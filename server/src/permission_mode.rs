//! Who answers the permission requests of agents.

use crate::error::{Error, Result};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::str::FromStr;
use utoipa::ToSchema;

/// Who answers the permission requests of a session, named as in Ash.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum PermissionMode {
    /// saggar allows each call of a tool that no rule of a policy denies or asks about.
    BypassPermissions,
    /// A client, for what the settings in the agent's folder do not decide.
    #[default]
    PermissionsByAgent,
    /// As `permissionsByAgent`, in the agent's own default mode.
    Default,
}

const MODES: [PermissionMode; 3] =
    [PermissionMode::BypassPermissions, PermissionMode::PermissionsByAgent, PermissionMode::Default];

/// The key of the mode in the options of a session.
pub const PERMISSION_MODE: &str = "permissionMode";

impl PermissionMode {
    /// The mode in the options of a session.
    pub fn of_options(options: &Map<String, Value>) -> Self {
        let name = options.get(PERMISSION_MODE).and_then(Value::as_str);
        name.and_then(|name| name.parse().ok()).unwrap_or_default()
    }

    /// The name in the API.
    pub fn name(self) -> &'static str {
        match self {
            PermissionMode::BypassPermissions => "bypassPermissions",
            PermissionMode::PermissionsByAgent => "permissionsByAgent",
            PermissionMode::Default => "default",
        }
    }

    /// The mode that each query sets in the agent, if it sets one. It is not the agent that bypasses permissions: rules of a
    /// policy hold.
    pub fn agent_mode(self) -> Option<&'static str> {
        match self {
            PermissionMode::BypassPermissions | PermissionMode::PermissionsByAgent => None,
            PermissionMode::Default => Some(self.name()),
        }
    }

    /// Whether saggar allows all calls.
    pub fn allows_all_tools(self) -> bool {
        self == PermissionMode::BypassPermissions
    }
}

/// The value of `ASH_PERMISSION_MODE`.
impl FromStr for PermissionMode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        MODES.into_iter().find(|mode| mode.name() == text).ok_or_else(|| {
            Error::new(format!(
                "invalid ASH_PERMISSION_MODE={text}: use bypassPermissions, permissionsByAgent or default"
            ))
        })
    }
}
