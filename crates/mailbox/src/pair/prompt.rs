//! The texts for agents.
//!
//! Messages are verbatim, between two lines with a part of their hash. A message cannot contain its own hash, so that
//! its text cannot end the message and begin another.

use super::{PairSettings, Party};
use crate::message::{Message, MessageType, message_id};

/// Most bytes of messages in a prompt: one of the size that a message may have is read only on request.
const MAX_SHOWN: usize = 1 << 20;

/// What a prompt is for.
#[derive(Debug, Clone, Copy)]
pub(super) struct PromptContext {
    pub(super) party: Party,
    pub(super) iteration: u32,
    /// Whether it is the first prompt of the party in this process, so that the agent may not know the task.
    pub(super) is_first: bool,
}

/// The prompt for a turn.
pub(super) fn prompt<'a>(
    settings: &PairSettings,
    context: PromptContext,
    messages: impl Iterator<Item = &'a Message>,
) -> String {
    let PromptContext { party, iteration, is_first } = context;
    let (name, other) = (settings.name(party), settings.name(party.other()));
    let role = match (settings.both_review, party) {
        (true, _) => "a worker and a reviewer",
        (false, Party::Worker) => "the worker",
        (false, Party::Reviewer) => "the reviewer",
    };
    let mut sections = vec![format!(
        "You are {name}, {role}, and work with {other}. Iteration {iteration} of {}.",
        settings.max_iterations
    )];
    let messages: Vec<&Message> = messages.collect();
    let mut room = MAX_SHOWN;
    let is_task_among = messages.iter().any(|message| super::progress::is_task(settings, message));
    if is_first && !is_task_among {
        let task = settings.task_draft();
        let id = message_id(task.message_type, &settings.reviewer, &task.to, &task.content);
        sections.push(delimited(&mut room, "The task", &id, "task", &settings.task));
    }
    for message in messages {
        sections.push(shown_message(&mut room, message));
    }
    sections.push(instructions(settings, party));
    sections.join("\n\n")
}

/// The prompt after a turn without a message.
pub(super) fn reminder(settings: &PairSettings, party: Party) -> String {
    format!(
        "Your turn ended and the mailbox has no new message from you. The run ends if this turn has no message either.\n\n{}",
        instructions(settings, party)
    )
}

/// The prompt for a turn that was cut off after its agent had sent messages.
pub(super) fn continued(prompt: &str) -> String {
    format!(
        "{prompt}\n\nYour turn was cut off, and the mailbox has the messages that you sent in it. Send what is missing, and \
         nothing twice."
    )
}

fn shown_message(room: &mut usize, message: &Message) -> String {
    // The id in the message may be another program's.
    let id = message_id(message.message_type, &message.from, &message.to, &message.content);
    let title = match message.effective_signal() {
        Some(signal) => format!("New message from {}, signal {signal}", message.from),
        None => format!("New message from {}", message.from),
    };
    delimited(room, &title, &id, message.message_type.as_str(), &message.content)
}

/// A section with the content, if there is room for it, and else with its size.
fn delimited(room: &mut usize, title: &str, id: &str, message_type: &str, content: &str) -> String {
    let Some(left) = room.checked_sub(content.len()) else {
        return format!(
            "{title}: a {message_type} of {} bytes, which is too long for this prompt. Read it with the tool \
             receive_messages.",
            content.len()
        );
    };
    *room = left;
    let mark: String = id.chars().take(16).collect();
    format!("{title}:\n<<<{message_type} {mark}\n{content}\n{mark}>>>")
}

fn instructions(settings: &PairSettings, party: Party) -> String {
    let other = settings.name(party.other());
    let roles = settings.roles(party);
    let mut lines = vec!["Answer with the tool send_to_agent before your turn ends:".to_owned()];
    if roles.works {
        lines.push(format!("- your work: message_type \"{}\", to \"{other}\";", MessageType::Result));
        lines.push(
            "- when the task is complete: message_type \"signal\", signal \"DONE\", to \"\";".to_owned(),
        );
    }
    if roles.reviews {
        lines.push(format!("- feedback: message_type \"{}\", to \"{other}\";", MessageType::Review));
        lines.push(
            "- your verdict: message_type \"signal\", signal \"PASS\" or \"FAIL\", to \"\", with the reason as content;"
                .to_owned(),
        );
    }
    lines.push(format!("- a question: message_type \"{}\", to \"{other}\".", MessageType::Chat));
    lines.push(
        "Only these messages count; the text of your answer is not read. A message that repeats an earlier one of yours, a \
         verdict too, is a duplicate and does not count: change its text."
            .to_owned(),
    );
    lines.join("\n")
}
