//! Converts a message of the SDK dialect to a query, so that both dialects start the same turn.

use super::{FIELD_NAMES, PROMPT, QueryCommand, QueryField};
use crate::proto::json::quote;

impl QueryCommand {
    /// The query that sends the agent `content`, the JSON of a `user` message's content. `settings` are the JSON
    /// values of fields that configure the agent. Without a `uuid` the message gets a random one.
    pub(crate) fn from_user_message(
        content: &str,
        uuid: Option<&str>,
        session: &str,
        partials: bool,
        settings: &[(QueryField, &str)],
    ) -> QueryCommand {
        let mut fields = [const { None }; FIELD_NAMES.len()];
        let mut line = String::with_capacity(content.len() + 256);
        line.push_str("{\"cmd\":\"query\"");
        let own = [(PROMPT, content)].into_iter();
        for (at, json) in own.chain(settings.iter().map(|(field, json)| (*field as usize, *json))) {
            line.push_str(&format!(",\"{}\":", FIELD_NAMES[at]));
            fields[at] = Some(line.len()..line.len() + json.len());
            line.push_str(json);
        }
        line.push_str(&format!(",\"sessionId\":{}", quote(session)));
        if partials {
            line.push_str(",\"includePartialMessages\":true");
        }
        if let Some(uuid) = uuid {
            line.push_str(&format!(",\"uuid\":{}", quote(uuid)));
        }
        line.push('}');
        let (session, uuid) = (session.to_owned(), uuid.map(str::to_owned));
        let unknown_fields = Vec::new();
        QueryCommand { line, session, wants_partials: partials, fields, unknown_fields, uuid, delivery: None }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{BridgeCommand, CommandBody};
    use super::*;

    #[test]
    fn a_message_is_the_query_that_a_server_of_the_first_dialect_would_send() {
        let content = r#"[{"type":"text","n":2.50}]"#;
        let settings = [(QueryField::Model, "\"m\""), (QueryField::Thinking, "{\"budgetTokens\":7}")];
        let query = QueryCommand::from_user_message(content, Some("u1"), "s\"1", true, &settings);
        assert_eq!((query.prompt(), query.session(), query.uuid()), (content, "s\"1", Some("u1")));
        assert_eq!(query.field(QueryField::Model), Some("\"m\""));
        assert_eq!(query.field(QueryField::Thinking), Some("{\"budgetTokens\":7}"));
        assert_eq!(query.field(QueryField::PermissionMode), None);
        let read = BridgeCommand::parse(query.line().as_bytes().into()).unwrap().unwrap();
        let CommandBody::Query(read) = read.body else { panic!() };
        assert_eq!((read.prompt(), read.wants_partials(), read.session()), (content, true, "s\"1"));
        assert_eq!(read.field(QueryField::Thinking), query.field(QueryField::Thinking));
    }
}
