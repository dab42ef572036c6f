//! Sessions and folders of `saggar agent`: what lasts, who may serve it, what is refused.

use std::fs;

use serde_json::Value;

use super::served::Stage;

/// The text of the last message of a turn.
fn answer(stdout: &str) -> String {
    let last: Value = serde_json::from_str(stdout.lines().last().unwrap()).unwrap();
    last["result"].as_str().unwrap_or_default().to_owned()
}

as_each_caller! {
    /// BP-08: a conversation goes on in another process; one that is new knows nothing of it.
    fn bp_08_a_session_remembers(caller) {
        let stage = Stage::new(caller);
        let first = stage.run(stage.command(&["--adapter", "demo", "my name is Ann"]));
        assert_eq!(first.code, 0, "{first:?}");
        let second = stage.run(stage.command(&["--adapter", "demo", "--resume", "recall"]));
        assert_eq!(second.code, 0, "{second:?}");
        assert!(answer(&second.stdout).contains("my name is Ann"), "{second:?}");
        stage.run(stage.command(&["--adapter", "demo", "recall"])).refused(125, &["exists", "--resume"]);
    }

    /// The agent has no lock of its own, so the session has one.
    fn a_session_has_one_server(caller) {
        let stage = Stage::new(caller);
        let served = stage.demo();
        let mut command = stage.place.saggar();
        command.arg("agent").arg(stage.work()).args(["--session", &stage.name(), "--resume", "--adapter", "demo", "hi"]);
        stage.run(command).refused(125, &["is being served"]);
        let mut other = stage.place.saggar();
        other.arg("agent").arg(stage.work()).args(["--id", &stage.name(), "--adapter", "demo", "hi"]);
        let ended = stage.run(other);
        assert_eq!(ended.code, 125, "{ended:?}");
        let mut client = served.connect();
        assert!(client.turn("hi").is_done());
        served.shut_down(&mut client);
    }

    /// DECISIONS 23: a folder that is not the workspace is at /run/agent, read-only, and is handed over.
    fn another_folder_is_handed_over(caller) {
        let stage = Stage::new(caller);
        stage.place.make_file("work/.mcp.json", "{}");
        let workspace = stage.place.make_dir("space", 0o755);
        let script = stage.script("agent", "#!/bin/sh\nread -r line\nprintf '%s\\n' \"$@\" > args\npwd >> args\n\
            cat /run/agent/CLAUDE.md >> args\necho > /run/agent/x || echo read-only >> args\n\
            echo '{\"type\":\"result\"}'\nread -r line\n");
        let mut command = stage.place.saggar();
        command.arg("agent").arg(stage.work()).arg("--workspace").arg(&workspace).args(["--ro", &script]);
        command.args(["--adapter", "stream-json", "--agent-cmd", &script, "go"]);
        let ended = stage.run(command);
        assert_eq!(ended.code, 0, "{ended:?}");
        let args = fs::read_to_string(workspace.join("args")).unwrap();
        let expected = "--append-system-prompt\nThe folder of a test.\n\n--mcp-config\n/run/agent/.mcp.json";
        assert!(args.contains(expected), "{args}");
        let rest = format!("{}\nThe folder of a test.\nread-only\n", workspace.display());
        assert!(args.ends_with(&rest), "{args}");
    }

    /// What is no agent's folder, or cannot work, is refused before anything is started.
    fn agent_start_that_cannot_work_is_refused(caller) {
        let stage = Stage::new(caller);
        let empty = stage.place.make_dir("empty", 0o755);
        let mut command = stage.place.saggar();
        command.arg("agent").arg(&empty).args(["--adapter", "demo", "hi"]);
        stage.run(command).refused(125, &["CLAUDE.md"]);
        let mut command = stage.place.saggar();
        command.arg("agent").args(["--adapter", "demo"]);
        let ended = stage.run(command);
        assert_eq!(ended.code, 2, "{ended:?}");
        // DECISIONS 26: claude without a way to its API would retry for ever.
        let script = stage.script("claude", "#!/bin/sh\nexit 9\n");
        let command = stage.command(&["--adapter", "stream-json", "--agent-cmd", &script, "hi"]);
        stage.run(command).refused(125, &["no way to the model API", "--net host", "--api-socket"]);
        let command = stage.command(&["--adapter", "demo", "--resume", "hi"]);
        stage.run(command).refused(125, &["does not exist"]);
        let mut command = stage.command(&["--adapter", "demo", "hi"]);
        command.env("SAGGAR_STATE_DIR", "here");
        stage.run(command).refused(125, &["SAGGAR_STATE_DIR=here", "absolute"]);
    }

    /// DECISIONS 39: without claude, a start is an error and no turn of the demo agent; `explain` says so.
    fn the_demo_agent_runs_only_by_name(caller) {
        let stage = Stage::new(caller);
        let programs = stage.place.make_dir("programs", 0o755);
        let start = |options: &[&str]| {
            let mut command = stage.command(options);
            command.env("PATH", &programs);
            stage.run(command)
        };
        let explain = || {
            let mut command = stage.place.saggar();
            command.arg("explain").arg(stage.work()).env("PATH", &programs);
            let ended = stage.run(command);
            assert_eq!(ended.code, 0, "{ended:?}");
            ended.stdout
        };
        let cure = ["claude is not on PATH", "npm install -g", "--agent-cmd", "--adapter demo"];
        start(&["hi"]).refused(127, &cure);
        assert!(!stage.place.join("state/saggar/sessions").join(stage.name()).exists(), "no session was made");
        let text = explain();
        assert!(text.contains("\nagent the start is refused: there is no agent: claude is not on PATH"), "{text}");
        assert_eq!(start(&["--adapter", "demo", "hi"]).code, 0);
        stage.place.make_file("work/saggar.toml", "adapter = 'demo'\n");
        assert_eq!(start(&["--resume", "hi"]).code, 0);
        assert!(explain().contains("\nagent built in (demo)\n"));
        stage.place.make_file("work/saggar.toml", "agent_cmd = './own -p'\nadapter = 'bridge'\n");
        assert!(explain().contains("\nagent ./own -p (bridge)\n"));
    }

    /// What lasts of a session is where SAGGAR_STATE_DIR says, and nowhere else.
    fn the_directory_of_sessions_can_be_chosen(caller) {
        let stage = Stage::new(caller);
        let chosen = stage.place.make_dir("chosen", 0o755);
        let mut command = stage.command(&["--adapter", "demo", "hi"]);
        command.env("SAGGAR_STATE_DIR", chosen.join("deep"));
        assert_eq!(stage.run(command).code, 0);
        assert!(chosen.join("deep/sessions").join(stage.name()).join("home").is_dir());
        assert!(!stage.place.join("state/saggar").exists());
    }
}
