//! Who decides which sessions are served: operators, users and options, and no folder.

use serde_json::json;

use super::stage::{client, command, dev, error};
use crate::session::stage::Sessions;
use crate::support::mcp_client::McpClient;

as_each_caller! {
    fn only_sessions_that_are_named_are_served(caller) {
        let sessions = dev(caller);
        sessions.create("ci-1", &[]);
        sessions.create("ci-2", &[]);
        let names = |client: &mut McpClient| -> Vec<String> {
            let listed = client.call("list_sessions", json!({})).structured;
            let rows = listed["sessions"].as_array().unwrap();
            rows.iter().map(|row| row["session"].as_str().unwrap().to_owned()).collect()
        };
        let mut one = client(&sessions, &["ci-2"]);
        assert_eq!(names(&mut one), ["ci-2"]);
        for tool in ["run_command", "read_file", "list_files", "write_file", "diff", "apply", "logs"] {
            let mut arguments = json!({ "session": "dev" });
            for (name, tools) in [("command", &["run_command"][..]), ("path", &["read_file", "write_file"]), ("content", &["write_file"])] {
                if tools.contains(&tool) {
                    arguments[name] = "x".into();
                }
            }
            let text = error(&mut one, tool, arguments);
            assert!(text.starts_with("the policy does not name the session \"dev\""), "{tool}: {text}");
        }
        assert_eq!(one.call("run_command", json!({ "command": "echo $?" })).text, "0\n[exit status 0]");
        for name in ["../ci-2", "", "CI-2", "ci-2/"] {
            assert!(error(&mut one, "diff", json!({ "session": name })).starts_with("the policy does not name"));
        }

        let mut several = client(&sessions, &["ci-*"]);
        assert_eq!(names(&mut several), ["ci-1", "ci-2"]);
        let text = error(&mut several, "diff", json!({}));
        assert!(text.starts_with("there are several sessions: ci-1, ci-2\n"), "{text}");
        assert!(!several.call("diff", json!({ "session": "ci-1" })).is_error);

        let mut none = client(&sessions, &["other"]);
        assert_eq!(none.call("list_sessions", json!({})).text, "There is no session that the policy names.");
        assert!(error(&mut none, "diff", json!({})).starts_with("there is no session that the policy names"));
        assert!(error(&mut none, "diff", json!({ "session": "other" })).contains("other"));
    }

    fn a_policy_names_them(caller) {
        let sessions = dev(caller);
        let place = &sessions.stage.place;
        place.configure_user("[mcp]\nsessions = ['de*']\n");
        let mut client = McpClient::begun(place, command(&sessions, &[]));
        assert!(!client.call("diff", json!({})).is_error);
        let explained = {
            let mut command = place.saggar();
            command.args(["explain"]);
            sessions.stage.run(command)
        };
        assert!(explained.stdout.contains("MCP clients outside"), "{explained:?}");
        assert!(explained.stdout.contains("de*"), "{explained:?}");

        let file = place.make_file("more.toml", "[mcp]\nsessions = ['x']\nlocked = ['mcp']\n");
        let refused = sessions.stage.run(command(&sessions, &["--policy", file.to_str().unwrap()]));
        refused.refused(125, &["locked"]);
        let file = place.make_file("more.toml", "locked = ['mcp']\n");
        let options = ["--policy", file.to_str().unwrap(), "--session", "other"];
        sessions.stage.run(command(&sessions, &options)).refused(125, &["mcp.sessions = other", "locks mcp"]);
        let options = ["--policy", file.to_str().unwrap(), "--session", "dev"];
        let mut client = McpClient::begun(place, command(&sessions, &options));
        assert!(!client.call("diff", json!({})).is_error);
    }

    fn no_session_is_served_unless_it_is_named(caller) {
        let sessions = dev(caller);
        let place = &sessions.stage.place;
        sessions.stage.run(command(&sessions, &[])).refused(2, &["no policy names a session", "--session NAME"]);
        for wrong in ["", "a*b", "../x", "-x"] {
            let refused = sessions.stage.run(command(&sessions, &[&format!("--session={wrong}")]));
            refused.refused(2, &["--session"]);
        }
        // The folder that the command runs in, and that of the agent, may be the agent's.
        place.make_file("work/saggar.toml", "[mcp]\nsessions = ['*']\n");
        let mut inside = command(&sessions, &[]);
        inside.current_dir(sessions.stage.work());
        sessions.stage.run(inside).refused(2, &["no policy names a session"]);
        let refused = Sessions::run(&sessions, &["create", "--adapter", "demo", sessions.stage.work().to_str().unwrap()]);
        refused.refused(125, &["mcp.sessions"]);
    }
}
