//! What one start of an agent is given beside its folder, and what an operator's policy lets nobody widen.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::json;

use super::served::{Ended, Stage};
use crate::control::client::{ControlClient, socket};

/// Writes down how it was started and what it was given, then one result.
const AGENT: &str = "#!/bin/sh\nread -r line\nprintf '<%s>\\n' \"$@\" > args\ncat /run/saggar/mcp.json > servers 2>&1\n\
    echo x 2>/dev/null > /run/saggar/mcp.json || echo read-only >> servers\nenv > environment\n\
    echo '{\"type\":\"result\"}'\nread -r line\n";

/// A start of that agent with these options.
fn run(stage: &Stage, options: &[&str]) -> Ended {
    let script = stage.script("agent", AGENT);
    let agent = ["--adapter", "stream-json", "--agent-cmd", &script];
    stage.run(stage.command(&[&agent[..], options, &["go"]].concat()))
}

/// What the agent wrote down.
fn wrote(stage: &Stage, name: &str) -> String {
    fs::read_to_string(stage.work().join(name)).unwrap_or_default()
}

as_each_caller! {
    /// A prompt and servers reach the agent; what may be secret is in a file that only it and we can read.
    fn a_start_is_given_a_prompt_and_servers(caller) {
        let stage = Stage::new(caller);
        let servers = r#"{"mcpServers":{"sums":{"command":"true","env":{"TOKEN":"s3cret"}}}}"#;
        let file = stage.place.make_file("servers.json", servers);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let given = ["--system-prompt", "Be brief.\nBe kind.", "--mcp-config", file.to_str().unwrap(), "--env", "COLOUR=red"];
        let ended = run(&stage, &given);
        assert_eq!(ended.code, 0, "{ended:?}");
        let args = wrote(&stage, "args");
        assert!(args.contains("<--append-system-prompt>\n<Be brief.\nBe kind.>\n<--mcp-config>\n</run/saggar/mcp.json>\n"), "{args}");
        assert_eq!(wrote(&stage, "servers"), format!("{servers}read-only\n"));
        assert!(wrote(&stage, "environment").contains("COLOUR=red\n"));
        let kept: PathBuf = stage.place.join("state/saggar/sessions").join(stage.name());
        assert_eq!(fs::read_to_string(kept.join("mcp.json")).unwrap(), servers);
        assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o077, 0, "nobody else gets there");
        assert!(!kept.join("mcp.json.new").exists());

        // They hold for one start.
        let ended = run(&stage, &["--resume"]);
        assert_eq!(ended.code, 0, "{ended:?}");
        let args = wrote(&stage, "args");
        assert!(!args.contains("append-system-prompt") && !args.contains("mcp-config"), "{args}");
        assert!(wrote(&stage, "servers").contains("No such file") && !wrote(&stage, "environment").contains("COLOUR"));
    }

    /// Beside those of a folder that is not the workspace, none is lost.
    fn a_folder_keeps_its_own_prompt_and_servers(caller) {
        let stage = Stage::new(caller);
        stage.place.make_file("work/.mcp.json", "{\"mcpServers\":{}}");
        let space = stage.place.make_dir("space", 0o755);
        let (script, servers) = (stage.script("agent", AGENT), stage.place.make_file("s.json", "{\"mcpServers\":{}}"));
        let prompt = stage.place.make_file("prompt", "Be brief.");
        let mut command = stage.place.saggar();
        command.arg("agent").arg(stage.work()).arg("--workspace").arg(&space).args(["--ro", &script]);
        command.arg("--mcp-config").arg(&servers).arg("--system-prompt-file").arg(&prompt);
        command.args(["--adapter", "stream-json", "--agent-cmd", &script, "go"]);
        let ended = stage.run(command);
        assert_eq!(ended.code, 0, "{ended:?}");
        let args = fs::read_to_string(space.join("args")).unwrap();
        let expected = "<--append-system-prompt>\n<The folder of a test.\n\n\nBe brief.>\n\
                        <--mcp-config>\n</run/agent/.mcp.json>\n</run/saggar/mcp.json>\n";
        assert!(args.contains(expected), "{args}");
    }

    /// What is not what it is to be, and what an agent cannot be given, is refused before anything starts.
    fn options_that_an_agent_does_not_support_are_refused_by_name(caller) {
        let stage = Stage::new(caller);
        let file = |name: &str, text: &str| stage.place.make_file(name, text).to_str().unwrap().to_owned();
        let (good, bad) = (file("good.json", "{\"mcpServers\":{}}"), file("bad.json", "{"));
        let other = file("other.json", "{\"servers\":{}}");
        let long = file("long", &"x".repeat((64 << 10) + 1));
        for (options, words) in [
            (["--mcp-config", bad.as_str()], &["--mcp-config", "bad.json: it is no JSON"][..]),
            (["--mcp-config", other.as_str()], &["other.json: it has no object mcpServers", "hint: "]),
            (["--mcp-config", "/nowhere.json"], &["read /nowhere.json: No such file"]),
            (["--mcp-config", "/dev/zero"], &["/dev/zero", "not a regular file"]),
            (["--system-prompt-file", long.as_str()], &["long", "64 KiB"]),
        ] {
            run(&stage, &options).refused(125, words);
        }
        assert_eq!(run(&stage, &["--system-prompt", "x", "--system-prompt-file", &good]).code, 2);
        for (options, adapter) in [(["--mcp-config", good.as_str()], "demo"), (["--system-prompt", "x"], "bridge")] {
            let options = [&options[..], &["--adapter", adapter, "--agent-cmd", "/bin/cat", "hi"]].concat();
            stage.run(stage.command(&options)).refused(125, &[options[0], &format!("not supported by the {adapter} adapter"), "--adapter stream-json"]);
        }
        assert!(!stage.place.join("state/saggar/sessions").join(stage.name()).exists(), "no session was made");
    }

    /// What an operator locks can be tightened by whoever comes after, and widened by nobody.
    fn a_locked_part_is_only_tightened(caller) {
        let stage = Stage::new(caller);
        stage.place.configure_user("locked = ['limits', 'network', 'agent']\nadapter = 'demo'\n[limits]\ntimeout = '1h'\n");
        let demo = |options: &[&str]| stage.run(stage.command(&[options, &["hi"]].concat()));
        let by = "config.toml locks limits, which may only be tightened after it";
        demo(&["--timeout", "2h"]).refused(125, &["command line asks for limits.timeout = 2h, above the 1h of ", by, "hint: request less"]);
        demo(&["--pids", "600"]).refused(125, &["limits.pids = 600, above the 512 of built-in", by]);
        demo(&["--net", "host"]).refused(125, &["network.mode = host", "locks network"]);
        demo(&["--adapter", "bridge"]).refused(125, &["adapter = bridge", "locks agent"]);
        let policy = stage.place.make_file("more.toml", "limits.cpus = 2");
        demo(&["--policy", policy.to_str().unwrap()]).refused(125, &["more.toml asks for limits.cpus = 2", by]);
        let ended = demo(&["--system-prompt", "x"]);
        ended.refused(125, &["--system-prompt: ", "locks the agent"]);
        let mut explain = stage.place.saggar();
        explain.args(["explain", "--json"]);
        let told: serde_json::Value = serde_json::from_str(&stage.run(explain).stdout).unwrap();
        let locked: Vec<&str> = told["locked"].as_array().unwrap().iter().map(|row| row["value"].as_str().unwrap()).collect();
        assert_eq!(locked, ["limits", "network", "agent"]);
        // wrap is no way around it, and neither is what is not locked a way in.
        let mut wrap = stage.place.saggar();
        wrap.args(["wrap", "--timeout", "2h", "--", "true"]);
        stage.run(wrap).refused(125, &["limits.timeout = 2h", by]);

        stage.place.configure_user("adapter = 'demo'\nlocked = ['limits', 'agent']\n[limits]\ntimeout = '1h'\n");
        let control = socket(&stage);
        let served = stage.serve(&["--timeout", "30m", "--control-socket", control.to_str().unwrap()]);
        let mut client = ControlClient::connect(&control);
        let (name, said) = client.refused("update", &json!({ "limits": { "timeout": "2h" } }));
        assert_eq!(name, "unsupported", "{said}");
        assert!(said.contains("limits.timeout = 2h") && said.contains(by), "{said}");
        // What was locked binds, and not what the command line said.
        assert_eq!(client.call("update", &json!({ "limits": { "timeout": "40m" } })), json!({ "generation": 2 }));
        let mut server = served.connect();
        assert!(server.turn("hi").is_done());
        served.shut_down(&mut server);
    }
}
