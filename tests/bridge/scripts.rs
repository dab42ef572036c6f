//! install.sh and startup.sh of an agent's folder (KC-28), and what else of the folder comes along (KC-27).

use std::fs;
use std::path::Path;
use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::json;

use super::served::{Served, Stage};
use crate::control::client::{ControlClient, socket};
use crate::support::bridge_client::BridgeClient;
use crate::support::process::{Process, any_with_argument};
use crate::support::wait;

/// A policy file of this stage with this limit for scripts.
fn policy(stage: &Stage, limit: &str) -> String {
    let path = stage.place.make_file("policy.toml", &format!("[limits]\nscript = '{limit}'\n"));
    path.to_str().unwrap().to_owned()
}

/// The demo agent with a control socket, as a first start or a later one.
fn serve(stage: &Stage, more: &[&str]) -> Served {
    let control = socket(stage);
    stage.serve(&[&["--adapter", "demo", "--control-socket", control.to_str().unwrap()], more].concat())
}

/// The same, not waited for.
fn start(stage: &Stage, more: &[&str]) -> Process {
    let mut command: Command = stage.command(&[&["--adapter", "demo"], more].concat());
    command.arg("--bridge-socket").arg(stage.socket());
    Process::start(&stage.place, command)
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

as_each_caller! {
    /// Once in a session, and at each start; each is done when somebody is told that the agent is ready.
    fn kc_28_scripts_run_before_the_agent_is_ready(caller) {
        let stage = Stage::new(caller);
        // One that is executable is its own program, any other is the shell's.
        stage.script("install.sh", "#!/usr/bin/python3\nprint('installs')\nopen('done', 'a').write('install\\n')\n");
        stage.place.make_file(
            "work/startup.sh",
            "echo starts in $(pwd) as $ASH_SESSION_ID >&2\necho startup >> done\nsleep 1000 &\necho $! > left",
        );
        let served = serve(&stage, &[]);
        assert_eq!(read(&stage.work().join("done")), "install\nstartup\n");
        let mut client = ControlClient::connect(&socket(&stage));
        let logs = client.get("logs");
        let texts: Vec<&str> = logs["entries"].as_array().unwrap().iter().map(|entry| entry["text"].as_str().unwrap()).collect();
        for line in ["install.sh: installs".to_owned(), format!("startup.sh: starts in {} as {}", stage.work().display(), stage.name())] {
            assert!(texts.contains(&line.as_str()), "no {line:?} in {texts:?}");
        }
        // What it left running goes on beside the agent.
        let left = client.call("exec", &json!({ "command": "kill -0 $(cat left)" }));
        assert_eq!(left["exitCode"], 0, "{left}");
        let mut server = served.connect();
        assert!(server.turn("hi").is_done());
        served.shut_down(&mut server);

        let served = serve(&stage, &["--resume"]);
        assert_eq!(read(&stage.work().join("done")), "install\nstartup\nstartup\n");
        let mut server = served.connect();
        served.shut_down(&mut server);
    }

    /// `explain` tells of them, and runs none.
    fn kc_28_explain_lists_scripts_and_runs_none(caller) {
        let stage = Stage::new(caller);
        stage.place.make_file("work/startup.sh", ": > ran");
        let explain = |more: &[&str]| {
            let mut command = stage.place.saggar();
            command.arg("explain").args(more).arg(stage.work());
            let ended = stage.run(command);
            assert_eq!(ended.code, 0, "{ended:?}");
            ended.stdout
        };
        let told = explain(&[]);
        assert!(told.contains("startup.sh  at each start  2m (built-in)") && !told.contains("install.sh"), "{told}");
        let json: serde_json::Value = serde_json::from_str(&explain(&["--json"])).unwrap();
        assert_eq!(json["scripts"][0]["name"], "startup.sh");
        assert!(!stage.work().join("ran").exists());
    }

    /// A script has what the agent has, and no more: its walls, its files, its environment, its limits.
    fn kc_28_a_script_cannot_leave_the_sandbox(caller) {
        let stage = Stage::new(caller);
        let outside = stage.place.join("outside");
        stage.place.make_file(
            "work/install.sh",
            &format!(
                "echo x > {0} && echo wrote > wrote\ntouch {0} /usr/x /etc/x 2>/dev/null && echo wrote > wrote\n\
                 ls {1} > seen 2>&1\ngrep -E 'CapEff|NoNewPrivs|Seccomp:' /proc/self/status > status\n\
                 ulimit -Hn > files\nenv > environment\nls /sys/class/net /proc/sys/net/ipv4/conf > net 2>&1\n: > ran\n",
                outside.display(),
                stage.place.join("state").display(),
            ),
        );
        let mut command = stage.command(&["--adapter", "demo", "run: true"]);
        command.env("AWS_SECRET_ACCESS_KEY", "secret");
        let ended = stage.run(command);
        assert_eq!(ended.code, 0, "{ended:?}");
        let file = |name: &str| read(&stage.work().join(name));
        assert!(stage.work().join("ran").exists() && !stage.work().join("wrote").exists(), "{ended:?}");
        assert!(!outside.exists());
        assert!(file("seen").contains("No such file"), "{}", file("seen"));
        let status: Vec<String> = file("status").lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(status, ["CapEff: 0000000000000000", "NoNewPrivs: 1", "Seccomp: 2"]);
        assert!(!file("environment").contains("secret") && file("environment").contains("IS_SANDBOX=1"));
        assert!(!file("net").contains("eth0"), "{}", file("net"));
    }

    /// A script that fails stops the start, and says why; the next start of the session tries again.
    fn kc_28_a_script_that_fails_stops_the_start(caller) {
        let stage = Stage::new(caller);
        stage.place.make_file("work/install.sh", "echo one\necho two >&2\nls /nowhere\n[ -e mended ] || exit 3\n");
        stage.place.make_file("work/startup.sh", ": > started\n");
        let said = |more: &[&str]| stage.run(stage.command(&[&["--adapter", "demo"], more, &["hi"]].concat()));
        let ended = said(&[]);
        ended.refused(125, &["install.sh of the agent's folder ended with exit status 3", "one | two | ", "/nowhere", "hint: "]);
        assert!(!stage.work().join("started").exists());
        let runtime = if caller.is_root() { "/run/saggar".into() } else { stage.place.join("run/saggar") };
        assert!(!runtime.join(stage.name()).exists());
        fs::write(stage.work().join("mended"), "").unwrap();
        let ended = said(&["--resume"]);
        assert_eq!(ended.code, 0, "{ended:?}");
        assert!(stage.work().join("started").exists());
        // It has done its work now.
        fs::remove_file(stage.work().join("mended")).unwrap();
        assert_eq!(said(&["--resume"]).code, 0);
    }

    /// A script that hangs is killed at its limit with all it started, and nothing is left.
    fn kc_28_a_script_that_hangs_is_killed_with_its_tree(caller) {
        let stage = Stage::new(caller);
        let sleeper = format!("1{}0{}", caller.uid(), std::process::id());
        let text = format!("echo begins\nsetsid sleep {sleeper} & (sleep {sleeper} &) \nsleep {sleeper}\n");
        stage.place.make_file("work/startup.sh", &text);
        let ended = stage.run(stage.command(&["--adapter", "demo", "--policy", &policy(&stage, "700ms")]));
        ended.refused(125, &["startup.sh of the agent's folder ran for more than 700ms", "killed", "its last lines: begins"]);
        assert!(!any_with_argument(&sleeper), "a sleeper is left");
    }

    /// Who speaks early is heard when the scripts are done; who ends it early is heard at once.
    fn kc_28_a_query_waits_for_the_scripts_and_an_end_does_not(caller) {
        let stage = Stage::new(caller);
        stage.place.make_file("work/startup.sh", ": > up\nwhile [ ! -e go ]; do sleep 0.01; done\n");
        let mut process = start(&stage, &[]);
        wait::until_exists(&stage.work().join("up"));
        let mut client = BridgeClient::connect_only(&stage.socket());
        client.query("hi");
        fs::write(stage.work().join("go"), "").unwrap();
        client.events_until(|event| event["ev"] == "ready");
        assert!(client.outcome().is_done());
        client.send(&json!({ "cmd": "shutdown" }));
        assert!(process.wait().success());

        for name in ["up", "go"] {
            fs::remove_file(stage.work().join(name)).unwrap();
        }
        let mut process = start(&stage, &["--resume"]);
        wait::until_exists(&stage.work().join("up"));
        let mut client = BridgeClient::connect_only(&stage.socket());
        client.query("hi");
        process.signal(Signal::SIGTERM);
        process.wait();
        assert!(!stage.socket().exists());
    }

    /// KC-27: a CLAUDE.md is enough, and what else there is comes along as it is.
    fn kc_27_a_folder_is_copied_as_it_is(caller) {
        let stage = Stage::new(caller);
        for directory in ["work/.claude", "work/.claude/skills", "work/.claude/skills/sums"] {
            stage.place.make_dir(directory, 0o755);
        }
        let files = [
            (".claude/settings.json", "{ \"model\" : \"x\" }\n"),
            (".claude/skills/sums/SKILL.md", "---\nname: sums\n---\n"),
            (".mcp.json", "{\"mcpServers\": {}}"),
            ("install.sh", "cat .mcp.json > copied; echo more >> CLAUDE.md"),
        ];
        files.iter().for_each(|(name, text)| drop(stage.place.make_file(&format!("work/{name}"), text)));
        let mut command = stage.place.saggar();
        command.arg("agent").arg(stage.work()).args(["--adapter", "demo", "--id", &stage.name(), "hi"]);
        let ended = stage.run(command);
        assert_eq!(ended.code, 0, "{ended:?}");
        let copy = stage.place.join("state/saggar/sessions").join(stage.name()).join("workspace");
        files.iter().for_each(|(name, text)| assert_eq!(read(&copy.join(name)), *text, "{name}"));
        assert_eq!(read(&copy.join("copied")), files[2].1);
        assert_eq!(read(&copy.join("CLAUDE.md")), "The folder of a test.\nmore\n");
        // The folder itself is nobody's to write.
        assert_eq!(read(&stage.work().join("CLAUDE.md")), "The folder of a test.\n");
        assert!(!stage.work().join("copied").exists());
    }
}
