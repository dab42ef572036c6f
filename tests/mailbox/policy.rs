//! Who decides about the mailbox of a sandbox: operators, users and options, and no folder.

use std::fs;
use std::os::unix::fs::symlink;

use nix::sys::signal::Signal;
use serde_json::json;

use super::inside::lines;
use super::mcp_client::{McpClient, SERVER, run_directory, script};
use crate::bridge::served::Stage;
use crate::isolation::wrapped::Wrap;
use crate::session::stage::{Sessions, control, supervisor};

/// Writes down its arguments, then one result.
const AGENT: &str =
    "#!/bin/sh\nread -r line\nprintf '<%s>\\n' \"$@\" > args\necho '{\"type\":\"result\"}'\nread -r line\n";
/// The server as an agent gets it.
const REGISTERED: &str = "<--mcp-config>\n<{\"mcpServers\":{\"mailbox\":{\"args\":[\"mcp\",\"mailbox\"],\"command\":\"/run/saggar/saggar\"}}}>\n";

fn args(stage: &Stage) -> String {
    fs::read_to_string(stage.work().join("args")).unwrap_or_default()
}

as_each_caller! {
    fn a_policy_gives_a_mailbox(caller) {
        let wrap = Wrap::new(caller);
        wrap.place.configure_user("[mailbox]\nrun = 1\nname = 'claude'\nroot = '~/boxes'\n");
        let mut command = wrap.place.saggar();
        command.args(["wrap", "--"]).args(SERVER);
        let mut client = McpClient::begun(&wrap.place, command);
        client.send("", "chat", "x", "");
        client.end();
        let runs = fs::read_dir(wrap.place.join("home/boxes/runs")).unwrap();
        assert_eq!(runs.count(), 1);
        let explained = wrap.finish({
            let mut command = wrap.place.saggar();
            command.args(["explain", "--as", "codex"]);
            command
        });
        let explained = explained.success();
        for row in ["mailbox, at /run/mailbox.sock", "name      codex", "root      ~/boxes", "mailbox process"] {
            assert!(explained.contains(row), "no {row:?} in {explained}");
        }
    }

    fn explain_begins_no_run(caller) {
        let wrap = Wrap::new(caller);
        let mut command = wrap.place.saggar();
        command.args(["explain", "--mailbox", "1", "--as", "claude"]);
        assert!(wrap.finish(command).success().contains("mailbox, at /run/mailbox.sock"));
        assert!(!wrap.place.join("home/.agentpair").exists());
    }

    fn a_folder_gives_none(caller) {
        let wrap = Wrap::new(caller);
        for (policy, key) in [
            ("mailbox.run = 1", "mailbox.run = 1"),
            ("mailbox.name = 'claude'", "mailbox.name = claude"),
            ("mailbox.root = '/var/tmp'", "mailbox.root = /var/tmp"),
            ("mailbox.repo = '/'", "mailbox.repo = /"),
        ] {
            wrap.place.make_file("work/.saggar.toml", policy);
            wrap.sh("true").refused(&[key, "may only tighten"]);
        }
        // It may take the registration away, and name what holds already.
        wrap.place.make_file("work/.saggar.toml", "mailbox.register = false\nmailbox.run = 1\n");
        wrap.place.configure_user("mailbox.run = 1\nmailbox.name = 'claude'\n");
        wrap.sh("true").success();
    }

    fn a_lock_holds_against_options(caller) {
        let wrap = Wrap::new(caller);
        wrap.place.configure_user("locked = ['mailbox']\nmailbox.run = 1\nmailbox.name = 'claude'\n");
        for option in [["--as", "codex"], ["--mailbox", "2"], ["--mailbox-root", "/var/tmp"], ["--mailbox-repo", "/"]] {
            wrap.run(&option, &["true"]).refused(&["locks mailbox"]);
        }
        wrap.run(&["--as", "claude", "--mailbox", "1"], &["true"]).success();
    }

    fn what_is_missing_or_wrong_is_named(caller) {
        let wrap = Wrap::new(caller);
        let fails = |code: i32, options: &[&str], words: &[&str]| {
            let ended = wrap.run(options, &["true"]);
            assert!(ended.code() == code && words.iter().all(|word| ended.stderr.contains(word)), "{ended:?}");
        };
        fails(2, &["--as", "claude"], &["--as claude names no run", "use --mailbox RUN"]);
        fails(2, &["--mailbox", "1"], &["mailbox.run = 1", "has no name", "use --as NAME"]);
        fails(2, &["--mailbox", "0", "--as", "a"], &["the first run is 1"]);
        fails(2, &["--mailbox", "1", "--as", "a b"], &["invalid agent name"]);
        fails(125, &["--mailbox", "1", "--as", "a", "--mailbox-repo", "nowhere"], &["mailbox.repo", "nowhere"]);
        fails(125, &["--mailbox", "1", "--as", "a", "--mailbox-root", "/nonexistent/root"], &["/nonexistent/root"]);
        // Roles come from a pair run: whoever is no member of it does not get in.
        let place = &wrap.place;
        McpClient::start(place, "claude").end();
        let record = run_directory(place).join("run.json");
        let mut json: serde_json::Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
        json["members"][0]["works"] = json!(true);
        fs::write(&record, json.to_string()).unwrap();
        fails(125, &["--mailbox", "1", "--as", "mallory"], &["mallory"]);
    }

    /// A program that could write the files could send as another.
    fn files_that_programs_would_see_are_refused(caller) {
        let wrap = Wrap::new(caller);
        let home = wrap.place.join("home");
        let link = wrap.place.join("link");
        symlink(&home, &link).unwrap();
        let inner = wrap.place.make_dir("work/inner", 0o700);
        let mailbox = ["--mailbox", "1", "--as", "a"];
        for more in [
            ["--ro", home.to_str().unwrap()],
            ["--rw", home.to_str().unwrap()],
            ["--mailbox-root", inner.to_str().unwrap()],
            ["--mailbox-root", wrap.work().to_str().unwrap()],
            ["--mailbox-root", "/usr/lib"],
        ] {
            wrap.run(&[&mailbox[..], &more].concat(), &["true"]).refused(&["which programs see at", "--mailbox-root DIR"]);
        }
        // Nor one that is not there yet, behind a link.
        let inward = wrap.place.join("inward");
        symlink(wrap.work(), &inward).unwrap();
        let new = inward.join("new");
        wrap.run(&[&mailbox[..], &["--mailbox-root", new.to_str().unwrap()]].concat(), &["true"])
            .refused(&["which programs see at"]);
        let through = [&mailbox[..], &["--rw", home.to_str().unwrap(), "--mailbox-root", link.to_str().unwrap()]].concat();
        wrap.run(&through, &["true"]).refused(&["which programs see at"]);
    }

    /// The agent has the server in its configuration, unless the policy says otherwise.
    fn an_agent_gets_the_server(caller) {
        let stage = Stage::new(caller);
        let script = stage.script("agent", AGENT);
        let agent = ["--adapter", "stream-json", "--agent-cmd", &script, "--mailbox", "1", "--as", "claude"];
        let ended = stage.run(stage.command(&[&agent[..], &["go"]].concat()));
        assert_eq!(ended.code, 0, "{ended:?}");
        assert!(args(&stage).contains(REGISTERED), "{}", args(&stage));
        stage.place.configure_user("mailbox.register = false\n");
        let ended = stage.run(stage.command(&[&agent[..], &["--resume", "go"]].concat()));
        assert_eq!(ended.code, 0, "{ended:?}");
        assert!(!args(&stage).contains("mcp"), "{}", args(&stage));
    }

    /// A session has its mailbox again when it is resumed; its repository is the folder, and not its copy.
    fn a_session_keeps_its_mailbox(caller) {
        let sessions = Sessions::new(caller);
        let send = |session: &serde_json::Value, content: &str| {
            let arguments = json!({ "to": "", "message_type": "chat", "content": content });
            let answer = control(session).call("exec", &json!({ "command": script("send_to_agent", &arguments) }));
            assert!(answer["stdout"].as_str().unwrap().contains("Message sent"), "{answer}");
        };
        send(&sessions.create("mail", &["--mailbox", "1", "--as", "claude"]), "first");
        let running = supervisor(&sessions.show("mail"));
        running.signal(Signal::SIGKILL);
        running.wait_gone("the supervisor");
        sessions.ok(&["resume", "mail"]);
        send(&sessions.show("mail"), "second");
        let place = &sessions.stage.place;
        let mut outside = McpClient::start(place, "codex");
        let received = outside.call("receive_messages", json!({ "agent": "codex" }));
        assert_eq!(received.structured["messages"].as_array().unwrap().len(), 2, "{received:?}");
        assert_eq!(lines(place).len(), 2);
    }
}
