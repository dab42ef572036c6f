//! The hosts that a client has allowed for a session. They are allowed in each sandbox that the server attaches to: if it
//! is killed after it has started one, the hosts are not allowed there yet.

use super::{RunningSession, RunningSessions};
use crate::allowed_hosts::read_allowed_hosts;
use crate::capacity::SandboxSlot;
use crate::saggar::{SessionRecord, SessionSocket, allow_hosts};
use crate::store::{NewEvent, Session};
use saggar_sys::error::{Code, Error};
use serde_json::json;
use std::slice;
use std::sync::Arc;
use tracing::warn;

/// Maximum number of rules in an event.
const MAX_EVENT_RULES: usize = 128;

/// Maximum length of a rule in the log and of a reason, in characters.
const MAX_TEXT: usize = 500;

/// Stored rules that do not apply to a sandbox.
struct RefusedHosts {
    /// There is at least one.
    rules: Vec<String>,
    /// That of the first rule.
    reason: Error,
}

impl RunningSessions {
    /// Allows the stored hosts of a session in its sandbox, and attaches to it: no client uses the sandbox before. Returns
    /// `None` if the record has no sockets. The caller holds the lock of the session.
    pub async fn attach_with_hosts(
        &self,
        session: &Session,
        record: &SessionRecord,
        slot: SandboxSlot,
    ) -> Option<Arc<RunningSession>> {
        let control = record.control_socket.as_ref()?;
        self.allow_stored_hosts(session, control).await;
        self.attach(session, record, slot)
    }

    /// The same at the start of the server. A sandbox that does not answer holds up the clients of its session only: they
    /// wait for the lock of the session.
    pub(super) async fn attach_at_start(&self, session: Session, record: SessionRecord) {
        let slot = self.capacity.acquire_for_running(&session.tenant_id);
        if read_allowed_hosts(&self.data_dir, session.id).await.is_ok_and(|rules| rules.is_empty()) {
            self.attach(&session, &record, slot);
            return;
        }
        let session_lock = self.lock_session(session.id).await;
        let sessions = self.clone();
        tokio::spawn(async move {
            let _session_lock = session_lock;
            sessions.attach_with_hosts(&session, &record, slot).await;
        });
    }

    /// Hosts that cannot be allowed are recorded and logged: they are not allowed then.
    async fn allow_stored_hosts(&self, session: &Session, control: &SessionSocket) {
        let id = session.id;
        let rules = match read_allowed_hosts(&self.data_dir, id).await {
            Ok(rules) if rules.is_empty() => return,
            Ok(rules) => rules,
            Err(error) => return warn!("session {id}: cannot read the allowed hosts: {error}"),
        };
        let Some(RefusedHosts { rules, reason }) = allow_all_or_each(control, rules).await else { return };
        let (first, reason) = (rules.first().map_or("", String::as_str), reason.to_string());
        let (first, reason) = (shorten(first), shorten(&reason));
        warn!("session {id}: {} stored hosts are not allowed, the first is {first:?}: {reason}", rules.len());
        let shown = &rules[..rules.len().min(MAX_EVENT_RULES)];
        let data = json!({
            "action": "hosts_not_allowed", "count": rules.len(), "hosts": shown, "reason": reason,
        });
        let event = NewEvent::new("lifecycle", &data);
        if let Err(error) = self.store.insert_event(&session.tenant_id, id, &event).await {
            warn!("session {id}: cannot record that stored hosts are not allowed: {error}");
        }
    }
}

/// Allows these hosts; if one of them is refused, the others nevertheless.
async fn allow_all_or_each(control: &SessionSocket, rules: Vec<String>) -> Option<RefusedHosts> {
    let reason = allow_hosts(control, &rules).await.err()?;
    if !concerns_rule(&reason) {
        return Some(RefusedHosts { rules, reason });
    }
    let mut refused = Vec::new();
    let mut first_reason = None;
    let mut rules = rules.into_iter();
    while let Some(rule) = rules.next() {
        let Err(reason) = allow_hosts(control, slice::from_ref(&rule)).await else { continue };
        refused.push(rule);
        if !concerns_rule(&reason) {
            refused.extend(rules.by_ref());
        }
        first_reason.get_or_insert(reason);
    }
    first_reason.map(|reason| RefusedHosts { rules: refused, reason })
}

/// Whether the same call can succeed with other rules.
fn concerns_rule(error: &Error) -> bool {
    matches!(error.code(), Code::Invalid | Code::State)
}

fn shorten(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}
