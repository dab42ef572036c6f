//! Many sessions at once, each with an answer of its own.

use std::time::Instant;

use super::stage::{Sessions, bridge, text};
use crate::support::rounds;

as_each_caller! {
    /// 200 with SAGGAR_TEST_LONG=1.
    fn many_sessions_answer_at_once(caller) {
        let sessions = Sessions::new(caller);
        let count = rounds(16, 200);
        let begun = Instant::now();
        let all: Vec<_> = (0..count).map(|number| sessions.create(&format!("many-{number}"), &[])).collect();
        eprintln!("{count} created in {:?}", begun.elapsed());
        let mut clients: Vec<_> = all.iter().map(bridge).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            client.query(&format!("this is {number}"));
        }
        for (number, client) in clients.iter_mut().enumerate() {
            let outcome = client.outcome();
            assert!(outcome.is_done(), "{outcome:?}");
            let said = outcome.messages.last().unwrap()["result"].as_str().unwrap_or_default().to_owned();
            assert!(said.contains(&format!("this is {number}")), "{number}: {said}");
        }
        let listed = sessions.list();
        assert_eq!(listed.len(), count);
        assert!(listed.iter().all(|session| session["state"] == "active"));
        // Each has a sandbox of its own.
        let own: std::collections::BTreeSet<_> = listed.iter().map(|session| text(session, "sandbox")).collect();
        assert_eq!(own.len(), count);
    }
}
