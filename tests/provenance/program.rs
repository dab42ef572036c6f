//! What a folder or a link in it names as a program shows nothing of the host.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bridge::served::{Ended, Stage};
use crate::support::caller::Caller;

/// What lies beside the program that is named, and that only the caller can read.
const SECRET: &str = "only-for-the-caller";

/// A program that keeps what it can see of the directory that it is in.
const TOOL: &str = "#!/bin/sh\ncat \"$(dirname \"$0\")/secret\" > seen 2>&1\nread -r line\necho '{\"type\":\"result\"}'\nread -r line\nexit 0\n";

/// A directory of the host, closed to others, with a program and a secret.
struct Attack {
    stage: Stage,
    host: PathBuf,
}

impl Attack {
    fn new(caller: Caller) -> Self {
        let stage = Stage::new(caller);
        let host = stage.place.make_dir("host", 0o755);
        let tool = stage.place.make_file("host/tool", TOOL);
        fs::set_permissions(tool, fs::Permissions::from_mode(0o755)).unwrap();
        stage.place.make_file("host/secret", SECRET);
        fs::set_permissions(&host, fs::Permissions::from_mode(0o700)).unwrap();
        Attack { stage, host }
    }

    fn tool(&self) -> PathBuf {
        self.host.join("tool")
    }

    /// The folder's policy names this program.
    fn named(&self, program: &str) {
        let text = format!("adapter = \"stream-json\"\nagent_cmd = [\"{program}\"]\n");
        self.stage.place.make_file("work/saggar.toml", &text);
    }

    fn run(&self, mut command: Command) -> Ended {
        command.current_dir(self.stage.work());
        self.stage.run(command)
    }

    fn agent(&self, more: &[&str]) -> Ended {
        self.run(self.stage.command(&[more, &["go"]].concat()))
    }

    fn wrap(&self, more: &[&str]) -> Ended {
        let mut command = self.stage.place.saggar();
        command.arg("wrap").args(more);
        self.run(command)
    }

    /// Asserts that nothing ran, and that the error has all of these words.
    fn refused(&self, ended: &Ended, words: &[&str]) {
        ended.refused(125, words);
        assert!(!self.stage.work().join("seen").exists(), "{ended:?}");
    }
}

as_each_caller! {
    /// By key and file, however it is written, in every command that reads it.
    fn folder_cannot_name_a_program_of_the_host(caller) {
        let attack = Attack::new(caller);
        let tool = attack.tool();
        let up = Path::new("/usr/..").join(tool.strip_prefix("/").unwrap());
        for program in [tool.to_str().unwrap(), up.to_str().unwrap(), "../host/tool", "./../host/tool"] {
            attack.named(program);
            attack.refused(&attack.agent(&[]), &["saggar.toml in the agent folder", "agent_cmd", "line 2", "hint: "]);
            let locked = attack.stage.place.make_file("lock.toml", "locked = [\"files\"]\n");
            let home = attack.stage.place.join("home/.config/saggar");
            fs::create_dir_all(&home).unwrap();
            fs::copy(&locked, home.join("config.toml")).unwrap();
            attack.stage.place.caller.own(&home);
            attack.stage.place.caller.own(&home.join("config.toml"));
            attack.refused(&attack.agent(&[]), &["saggar.toml in the agent folder", "agent_cmd"]);
            fs::remove_file(home.join("config.toml")).unwrap();
            for words in [vec!["policy", "check", "saggar.toml"], vec!["explain", "."]] {
                let mut command = attack.stage.place.saggar();
                command.args(words);
                let ended = attack.run(command);
                let said = format!("{}{}", ended.stdout, ended.stderr);
                assert!(ended.code != 0 && said.contains("agent_cmd") && said.contains("saggar.toml"), "{ended:?}");
            }
        }
    }

    /// A link in the folder, or a directory of it that is one.
    fn link_of_a_folder_does_not_choose_what_is_shown(caller) {
        let attack = || {
            let attack = Attack::new(caller);
            symlink(attack.tool(), attack.stage.work().join("tool")).unwrap();
            symlink(&attack.host, attack.stage.work().join("bin")).unwrap();
            attack
        };
        for program in ["./tool", "bin/tool", "/tool in full"] {
            let attack = attack();
            let absolute = attack.stage.work().join("tool");
            let program = if program.starts_with('/') { absolute.to_str().unwrap() } else { program };
            attack.named(program);
            attack.refused(&attack.agent(&[]), &["agent folder saggar.toml", "agent_cmd", "is not available inside"]);
            fs::remove_file(attack.stage.work().join("saggar.toml")).unwrap();
            attack.refused(&attack.wrap(&[program]), &["the link", "is not available inside", "hint: "]);
        }
        let attack = attack();
        let path = format!("{}:/usr/bin:/bin", attack.stage.work().display());
        let mut command = attack.stage.place.saggar();
        command.args(["wrap", "tool"]).env("PATH", path);
        attack.refused(&attack.run(command), &["the link", "is not available inside"]);
    }

    /// What a folder may name.
    fn folder_policy_may_name_programs_inside_the_folder(caller) {
        for program in ["./own", "./link", "own in full"] {
            let attack = Attack::new(caller);
            attack.stage.script("own", "#!/bin/sh\nread -r line\necho ran > seen\necho '{\"type\":\"result\"}'\nread -r line\n");
            symlink("own", attack.stage.work().join("link")).unwrap();
            let absolute = attack.stage.work().join("own");
            attack.named(if program.starts_with('.') { program } else { absolute.to_str().unwrap() });
            let ended = attack.agent(&[]);
            assert_eq!(ended.code, 0, "{program}: {ended:?}");
            assert_eq!(fs::read_to_string(attack.stage.work().join("seen")).unwrap(), "ran\n", "{program}");
        }
    }

    /// A bare name is the caller's PATH to look up, and `explain` says who asked. Files that are locked stay as they are.
    fn bare_name_of_a_folder_is_shown_as_the_folders(caller) {
        let attack = Attack::new(caller);
        attack.named("tool");
        let path = format!("{}:/usr/bin:/bin", attack.host.display());
        let explain = |more: &[&str]| {
            let mut command = attack.stage.place.saggar();
            command.args(["explain", "--json"]).args(more).arg(".").env("PATH", &path);
            attack.run(command)
        };
        let ended = explain(&[]);
        assert_eq!(ended.code, 0, "{ended:?}");
        let report: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
        let mounts = report["files"]["mounts"].as_array().unwrap();
        let shown = mounts.iter().find(|mount| mount["path"] == attack.host.to_str().unwrap()).unwrap();
        assert_eq!(shown["layer"], "agent folder saggar.toml", "{shown}");
        let locked = attack.stage.place.make_file("lock.toml", "locked = [\"files\"]\n");
        let home = attack.stage.place.join("home/.config/saggar");
        fs::create_dir_all(&home).unwrap();
        fs::copy(&locked, home.join("config.toml")).unwrap();
        attack.stage.place.caller.own(&home.join("config.toml"));
        let ended = explain(&[]);
        assert!(ended.code != 0 && ended.stderr.contains("locks files"), "{ended:?}");
    }

    /// The caller names it: that is the operator, and it is shown as the caller's.
    fn caller_may_name_a_program_of_the_host(caller) {
        let attack = Attack::new(caller);
        let ended = attack.wrap(&[attack.tool().to_str().unwrap()]);
        assert_eq!(ended.code, 0, "{ended:?}");
        assert_eq!(fs::read_to_string(attack.stage.work().join("seen")).unwrap(), SECRET);
    }
}
