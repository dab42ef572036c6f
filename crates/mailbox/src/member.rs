//! Members of a run and what their roles permit.

use crate::error::{Error, ErrorKind, Result};
use crate::message::{Draft, MessageType, Signal, check_agent_name};
use serde::{Deserialize, Serialize};

/// The roles of a member, as a set: in a run with both reviews an agent works and reviews.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roles {
    /// The member may signal DONE.
    pub works: bool,
    /// The member may signal PASS and FAIL.
    pub reviews: bool,
    /// The member is a person, who may send tasks and chat only.
    pub is_person: bool,
}

impl Roles {
    /// An agent that works.
    pub const WORKER: Roles = Roles { works: true, reviews: false, is_person: false };
    /// An agent that reviews.
    pub const REVIEWER: Roles = Roles { works: false, reviews: true, is_person: false };
    /// An agent that works and reviews the work of others.
    pub const BOTH: Roles = Roles { works: true, reviews: true, is_person: false };
    /// A person.
    pub const PERSON: Roles = Roles { works: false, reviews: false, is_person: true };

    /// Whether the roles permit a signal.
    pub fn may_signal(self, signal: Signal) -> bool {
        !self.is_person
            && match signal {
                Signal::Done => self.works,
                Signal::Pass | Signal::Fail => self.reviews,
            }
    }
}

/// A member of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Name of the agent or person, as [`crate::message::check_agent_name`] allows it.
    pub name: String,
    /// What the member may send.
    #[serde(flatten)]
    pub roles: Roles,
}

impl Member {
    /// A member with these roles.
    pub fn new(name: &str, roles: Roles) -> Self {
        Member { name: name.to_owned(), roles }
    }
}

/// Whether a run is open: no member works or reviews, so that every agent may join it, and may send all types of messages
/// and all signals.
pub fn is_open(members: &[Member]) -> bool {
    !members.iter().any(|member| member.roles.works || member.roles.reviews)
}

/// Checks that `from` may send the draft in run `run_id`: DONE from members that work, PASS and FAIL from members that
/// review, and no more than tasks and chat from persons. A member without a role may send all but signals. In an open run
/// ([`is_open`]) every agent may send everything, also to one that has not joined yet.
///
/// # Errors
/// [`ErrorKind::Refused`]: `from` or the recipient is no member, or the roles of `from` do not permit the message. A
/// message to an unknown name, or to oneself, would be stored and never received. [`ErrorKind::Invalid`]: a name is not
/// valid.
pub fn check_permitted(members: &[Member], run_id: u64, from: &str, draft: &Draft) -> Result<()> {
    let refused =
        |message: String, hint: String| Err(Error::new(ErrorKind::Refused, message).with_hint(hint));
    let find = |name: &str| members.iter().find(|member| member.name == name);
    let names = || members.iter().map(|member| member.name.as_str()).collect::<Vec<_>>().join(", ");
    check_agent_name(from)?;
    let Some(member) = find(from) else {
        return refused(
            format!("cannot send as {from}: it is no member of run {run_id}"),
            format!("send as a member of the run: {}", names()),
        );
    };
    if draft.to == from {
        return refused(
            format!("{from} cannot send to itself: nobody would receive it"),
            "send to another member, or to all with an empty recipient".to_owned(),
        );
    }
    let is_open = is_open(members);
    if !draft.to.is_empty() && find(&draft.to).is_none() {
        check_agent_name(&draft.to)?;
        if is_open {
            return check_person(member, run_id, draft);
        }
        return refused(
            format!("{from} cannot send to {}: it is no member of run {run_id}", draft.to),
            format!("send to a member of the run ({}), or to all with an empty recipient", names()),
        );
    }
    if let Some(signal) = draft.signal
        && !(is_open || member.roles.may_signal(signal))
    {
        let role = if signal == Signal::Done { "works" } else { "reviews" };
        return refused(
            format!("{from} may not signal {signal} in run {run_id}: only a member that {role} may"),
            match permitted_signals(member.roles).as_slice() {
                [] => format!("{from} may send no signal; send a message of another type"),
                permitted => format!("{from} may signal {}", permitted.join(" and ")),
            },
        );
    }
    check_person(member, run_id, draft)
}

/// Persons send tasks and chat, and judge no work.
fn check_person(member: &Member, run_id: u64, draft: &Draft) -> Result<()> {
    let (name, kind) = (&member.name, draft.message_type);
    if member.roles.is_person && !matches!(kind, MessageType::Task | MessageType::Chat) {
        let message = format!("{name} may not send a {kind} in run {run_id}: {name} is a person");
        return Err(Error::new(ErrorKind::Refused, message).with_hint("send a task or chat"));
    }
    Ok(())
}

fn permitted_signals(roles: Roles) -> Vec<&'static str> {
    Signal::ALL.into_iter().filter(|signal| roles.may_signal(*signal)).map(Signal::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members() -> Vec<Member> {
        vec![
            Member::new("worker", Roles::WORKER),
            Member::new("reviewer", Roles::REVIEWER),
            Member::new("both", Roles::BOTH),
            Member::new("person", Roles::PERSON),
            Member::new("plain", Roles::default()),
        ]
    }

    fn permitted(from: &str, draft: &Draft) -> bool {
        check_permitted(&members(), 4, from, draft).is_ok()
    }

    #[test]
    fn signals_are_permitted_by_role_only() {
        let by_agent = |signal| {
            let draft = Draft::signal(signal, "x");
            members()
                .into_iter()
                .map(|member| member.name)
                .filter(|name| permitted(name, &draft))
                .collect::<Vec<_>>()
        };
        assert_eq!(by_agent(Signal::Done), ["worker", "both"]);
        assert_eq!(by_agent(Signal::Pass), ["reviewer", "both"]);
        assert_eq!(by_agent(Signal::Fail), ["reviewer", "both"]);
    }

    #[test]
    fn refusal_names_agent_signal_run_and_remedy() {
        let error = check_permitted(&members(), 4, "worker", &Draft::signal(Signal::Pass, "x")).unwrap_err();
        assert_eq!(error.to_string(), "worker may not signal PASS in run 4: only a member that reviews may");
        assert_eq!(error.hint(), Some("worker may signal DONE"));
    }

    #[test]
    fn other_types_are_permitted_to_agents_and_tasks_and_chat_to_persons() {
        for message_type in [MessageType::Task, MessageType::Result, MessageType::Review, MessageType::Chat] {
            let draft = Draft::to("worker", message_type, "x");
            assert!(permitted("plain", &draft) && permitted("reviewer", &draft));
            assert_eq!(
                permitted("person", &draft),
                matches!(message_type, MessageType::Task | MessageType::Chat)
            );
        }
        assert!(!permitted("stranger", &Draft::to("worker", MessageType::Chat, "x")));
        assert!(!permitted("worker", &Draft::to("stranger", MessageType::Chat, "x")));
    }

    #[test]
    fn agents_of_an_open_run_may_send_all_and_persons_may_not() {
        let members = [Member::new("one", Roles::default()), Member::new("person", Roles::PERSON)];
        let permitted = |from: &str, draft: &Draft| check_permitted(&members, 4, from, draft).is_ok();
        for signal in Signal::ALL {
            assert!(permitted("one", &Draft::signal(signal, "x")));
            assert!(!permitted("person", &Draft::signal(signal, "x")));
        }
        assert!(permitted("one", &Draft::to("later", MessageType::Review, "x")));
        assert!(!permitted("person", &Draft::to("later", MessageType::Review, "x")));
        assert!(!permitted("one", &Draft::to("no name", MessageType::Chat, "x")));
        assert!(!permitted("later", &Draft::to("one", MessageType::Chat, "x")));
    }
}
