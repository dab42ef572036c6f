//! A message of the second dialect as a query: the same turn, whichever dialect asked for it.

use super::{Field, NAMES, PROMPT, Query};
use crate::bridge::proto::json::quote;

impl Query {
    /// The query that asks the agent for `content`, the JSON of a `user` message's content. `settings` are the
    /// JSON of fields that say how the agent is to work; without a `uuid` the agent is given a fresh one.
    pub fn of_user(
        content: &str,
        uuid: Option<&str>,
        session: &str,
        partials: bool,
        settings: &[(Field, &str)],
    ) -> Query {
        let mut fields = [const { None }; NAMES.len()];
        let mut line = String::with_capacity(content.len() + 256);
        line.push_str("{\"cmd\":\"query\"");
        let own = [(PROMPT, content)].into_iter();
        for (at, json) in own.chain(settings.iter().map(|(field, json)| (*field as usize, *json))) {
            line.push_str(&format!(",\"{}\":", NAMES[at]));
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
        Query { line, session, partials, fields, unknown: Vec::new(), uuid }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Command, Request};
    use super::*;

    #[test]
    fn a_message_is_the_query_that_a_server_of_the_first_dialect_would_send() {
        let content = r#"[{"type":"text","n":2.50}]"#;
        let settings = [(Field::Model, "\"m\""), (Field::Thinking, "{\"budgetTokens\":7}")];
        let query = Query::of_user(content, Some("u1"), "s\"1", true, &settings);
        assert_eq!((query.prompt(), query.session(), query.uuid()), (content, "s\"1", Some("u1")));
        assert_eq!(query.field(Field::Model), Some("\"m\""));
        assert_eq!(query.field(Field::Thinking), Some("{\"budgetTokens\":7}"));
        assert_eq!(query.field(Field::PermissionMode), None);
        let read = Command::parse(query.line().as_bytes().into()).unwrap().unwrap();
        let Request::Query(read) = read.request else { panic!() };
        assert_eq!((read.prompt(), read.partials(), read.session()), (content, true, "s\"1"));
        assert_eq!(read.field(Field::Thinking), query.field(Field::Thinking));
    }
}
