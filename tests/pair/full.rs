//! A run whose disk has no more room.

use serde_json::json;

use super::place::{Pairs, fields};
use crate::support::own_mounts::on_small_disk;

as_each_caller! {
    /// What was acknowledged stays, and the run goes on when there is room again.
    fn a_run_on_a_full_disk_goes_on_when_there_is_room(caller) {
        let pairs = Pairs::new(caller);
        let long = "x".repeat(100_000);
        let message = |to: &str, kind: &str, content: &str, signal: &str| {
            json!({ "to": to, "message_type": kind, "content": content, "signal": signal })
        };
        let worker = json!([[message("claude", "result", "first", "")], [message("claude", "result", &long, ""), message("", "signal", "over", "DONE")]]);
        let reviewer = json!([[message("codex", "review", "more", "")], [message("", "signal", "good", "PASS")]]);
        pairs.stage.place.make_file("codex/demo.json", &worker.to_string());
        pairs.stage.place.make_file("claude/demo.json", &reviewer.to_string());
        let root = pairs.stage.place.make_dir("small", 0o700);
        let run = pairs.run_command(&["--root", root.to_str().unwrap()]);
        let script = "\"$@\"; echo \"status $?\"; rm \"$0/filler\"; \"$1\" pair resume --root \"$0\" 1; echo \"status $?\"; cat \"$0\"/runs/*/1/bridge.jsonl";
        let ended = pairs.stage.run(on_small_disk((&pairs.stage.place, caller), &root, 64, script, &run));
        assert_eq!(ended.code, 0, "{ended:?}");
        let lines: Vec<&str> = ended.stdout.lines().collect();
        let at = |status: &str| lines.iter().position(|line| *line == status);
        let (failed, approved) = (at("status 1").or(at("status 125")), at("status 0"));
        let (Some(failed), Some(approved)) = (failed, approved) else { panic!("{ended:?}") };
        assert!(failed < approved && !lines[..failed].iter().any(|line| line.contains(&long)), "{ended:?}");
        let messages: Vec<_> = lines[approved + 1..].iter().map(|line| fields(&serde_json::from_str(line).unwrap())).collect();
        let said: Vec<(&str, &str)> = messages.iter().map(|[from, .., content, _]| (from.as_str(), content.as_str())).collect();
        let task = crate::mailbox::tools::CONVERSATION[0].3;
        assert_eq!(said, [("claude", task), ("codex", "first"), ("claude", "more"), ("codex", long.as_str()), ("codex", "over"), ("claude", "good")]);
    }
}
