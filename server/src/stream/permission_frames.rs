//! Frames about permission requests of an agent.

use super::{Frame, StreamEvent};
use crate::running::RunningSession;
use crate::saggar::{PermissionRequest, list_permissions};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use tracing::warn;

/// Derives the frames about permission requests for one client.
#[derive(Debug)]
pub(super) struct PermissionFrames {
    session: Arc<RunningSession>,
    /// The ids of announced requests, by the ids that the agent gave them.
    announced: HashMap<String, String>,
}

impl PermissionFrames {
    pub(super) fn new(session: Arc<RunningSession>) -> Self {
        PermissionFrames { session, announced: HashMap::new() }
    }

    /// Returns the frame that precedes a message about a permission request. A request that is closed already has none.
    pub(super) async fn frame(&mut self, message: &Value) -> Option<Frame> {
        let agent_id = message["request_id"].as_str()?;
        match message["type"].as_str()? {
            "control_request" if message["request"]["subtype"] == "can_use_tool" => {
                let request = self.find(agent_id).await?;
                self.session.permissions().announce(&request.id);
                self.announced.insert(agent_id.to_owned(), request.id.clone());
                Some(Frame::of(&StreamEvent::PermissionRequest((&request).into())))
            }
            "control_cancel_request" => {
                let id = self.announced.remove(agent_id)?;
                let (behavior, by) = match self.session.permissions().answer(&id) {
                    Some(behavior) => (behavior, "client"),
                    // No answer in time, an interrupt, or the end of the agent.
                    None => ("deny", "saggar"),
                };
                let behavior = behavior.to_owned();
                Some(Frame::of(&StreamEvent::PermissionResolved { id, behavior, by }))
            }
            _ => None,
        }
    }

    async fn find(&self, agent_id: &str) -> Option<PermissionRequest> {
        match list_permissions(&self.session.control).await {
            Ok(open) => open.into_iter().find(|request| request.agent_id == agent_id),
            Err(error) => {
                warn!("session {}: cannot list permission requests: {error}", self.session.id);
                None
            }
        }
    }
}
