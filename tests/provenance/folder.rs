//! Files of an agent's folder are read beneath it alone, whoever calls.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bridge::served::{Ended, Stage};
use crate::support::caller::Caller;

/// What must not come inside, nor into any message.
const SECRET: &str = "only-for-the-caller";

/// An agent that keeps what it was started with in the workspace.
const AGENT: &str =
    "#!/bin/sh\nread -r line\nprintf '<%s>\\n' \"$@\" > args\necho '{\"type\":\"result\"}'\nread -r line\n";

/// An agent's folder beside a workspace, and a file that only the caller can read.
struct Attack {
    stage: Stage,
    space: PathBuf,
    secret: PathBuf,
    agent: String,
}

impl Attack {
    fn new(caller: Caller) -> Self {
        let stage = Stage::new(caller);
        let space = stage.place.make_dir("space", 0o755);
        let secret = stage.place.make_file("secret", SECRET);
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        let agent = stage.script("agent", AGENT);
        Attack { stage, space, secret, agent }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.stage.work().join(name)
    }

    /// Puts a link in the place of a file of the folder.
    fn link(&self, name: &str, target: &Path) {
        let _ = fs::remove_file(self.file(name));
        symlink(target, self.file(name)).unwrap();
    }

    fn command(&self) -> Command {
        let mut command = self.stage.place.saggar();
        command.arg("agent").arg(self.stage.work()).arg("--workspace").arg(&self.space);
        command.args(["--ro", &self.agent, "--adapter", "stream-json", "--agent-cmd", &self.agent, "go"]);
        command
    }

    fn run(&self) -> Ended {
        self.stage.run(self.command())
    }

    /// The agent's arguments.
    fn args(&self) -> String {
        fs::read_to_string(self.space.join("args")).unwrap_or_default()
    }

    /// Asserts that the start is refused for this file of the folder, and that nothing of the secret is anywhere.
    fn refused(&self, name: &str, why: &str) {
        let ended = self.run();
        ended.refused(125, &[name, why, "hint: "]);
        assert!(!ended.stderr.contains(SECRET) && self.args().is_empty(), "{ended:?}");
    }
}

as_each_caller! {
    /// However it leads out, by whatever file.
    fn file_that_leads_out_of_the_folder_is_not_read(caller) {
        for name in ["CLAUDE.md", ".mcp.json", ".claude/settings.json"] {
            let attack = Attack::new(caller);
            attack.stage.place.make_dir("work/.claude", 0o755);
            let up = if name.contains('/') { "../../secret" } else { "../secret" };
            let magic = Path::new("/proc/self/root").join(attack.secret.strip_prefix("/").unwrap());
            for target in [attack.secret.as_path(), Path::new(up), &magic] {
                attack.link(name, target);
                attack.refused(name, "out of the folder");
            }
        }
    }

    /// A directory on the way that is a link.
    fn directory_that_leads_out_of_the_folder_is_not_entered(caller) {
        let attack = Attack::new(caller);
        let outside = attack.stage.place.make_dir("outside", 0o700);
        attack.stage.place.make_file("outside/settings.json", SECRET);
        attack.link(".claude", &outside);
        attack.refused(".claude/settings.json", "out of the folder");
    }

    /// Nothing is waited for, and nothing without end is read.
    fn file_that_is_none_or_too_large_is_not_read(caller) {
        let attack = Attack::new(caller);
        for name in ["CLAUDE.md", ".mcp.json"] {
            let _ = fs::remove_file(attack.file(name));
            nix::unistd::mkfifo(&attack.file(name), nix::sys::stat::Mode::from_bits_truncate(0o644)).unwrap();
            attack.refused(name, "it is a FIFO, not a regular file");
            fs::remove_file(attack.file(name)).unwrap();
            attack.stage.place.make_file("work/CLAUDE.md", "The folder of a test.\n");
        }
        let sparse = fs::File::create(attack.file("CLAUDE.md")).unwrap();
        sparse.set_len(3 << 29).unwrap();
        attack.refused("CLAUDE.md", "it is larger than 127 KiB");
        sparse.set_len(0).unwrap();
        fs::write(attack.file("CLAUDE.md"), b"\xff\xfe").unwrap();
        attack.refused("CLAUDE.md", "not UTF-8");
    }

    /// As of CLAUDE.md to AGENTS.md, which many folders have.
    fn link_that_stays_in_the_folder_is_followed(caller) {
        let attack = Attack::new(caller);
        attack.stage.place.make_dir("work/docs", 0o755);
        attack.stage.place.make_file("work/docs/AGENTS.md", "Be kind.");
        attack.stage.place.make_file("work/servers.json", "{\"mcpServers\":{}}");
        attack.link("CLAUDE.md", Path::new("docs/AGENTS.md"));
        attack.link(".mcp.json", Path::new("servers.json"));
        let ended = attack.run();
        assert_eq!(ended.code, 0, "{ended:?}");
        let expected = "<--append-system-prompt>\n<Be kind.>\n<--mcp-config>\n</run/agent/.mcp.json>\n";
        assert!(attack.args().contains(expected), "{}", attack.args());
    }

    /// A copy of the folder is worked on: what CLAUDE.md is is looked at all the same.
    fn copied_folder_without_a_prompt_of_its_own_is_refused(caller) {
        let attack = Attack::new(caller);
        attack.link("CLAUDE.md", &attack.secret);
        let mut command = attack.stage.place.saggar();
        command.arg("agent").arg(attack.stage.work()).args(["--adapter", "demo", "hi"]);
        attack.stage.run(command).refused(125, &["CLAUDE.md", "out of the folder"]);
    }

    /// A server names the folder in the environment.
    fn folder_of_a_server_is_read_the_same_way(caller) {
        let attack = Attack::new(caller);
        attack.link("CLAUDE.md", &attack.secret);
        let mut command = attack.stage.place.saggar();
        command.args(["agent", "--ro", &attack.agent, "--adapter", "stream-json", "--agent-cmd", &attack.agent]);
        command.env("ASH_BRIDGE_SOCKET", attack.stage.socket()).env("ASH_AGENT_DIR", attack.stage.work());
        command.env("ASH_WORKSPACE_DIR", &attack.space).env("ASH_SESSION_ID", attack.stage.name());
        let ended = attack.stage.run(command);
        ended.refused(125, &["CLAUDE.md", "out of the folder"]);
        assert!(!ended.stderr.contains(SECRET), "{ended:?}");
    }

    /// An error quotes the line that it is about.
    fn policy_of_a_folder_quotes_no_file_from_elsewhere(caller) {
        let attack = Attack::new(caller);
        attack.link("saggar.toml", &attack.secret);
        let policy = attack.file("saggar.toml");
        attack.refused("saggar.toml", "symbolic link");
        for words in [vec!["explain".into(), attack.stage.work()], vec!["policy".into(), "check".into(), policy]] {
            let mut command = attack.stage.place.saggar();
            command.args(words);
            let ended = attack.stage.run(command);
            assert_ne!(ended.code, 0, "{ended:?}");
            let said = format!("{}{}", ended.stdout, ended.stderr);
            assert!(said.contains("symbolic link") && !said.contains(SECRET), "{said}");
        }
    }
}

/// Links of files as their owner cannot read them need no right over them (link(2)), where the host does not forbid it.
#[test]
fn hard_link_is_not_read_for_an_owner_who_could_not() {
    let Ok(caller) = Caller::root() else { skip!("this test needs to be started as root") };
    let attack = Attack::new(caller);
    chown(attack.stage.work(), Some(4321), Some(4321)).unwrap();
    for name in ["CLAUDE.md", "saggar.toml"] {
        let _ = fs::remove_file(attack.file(name));
        fs::hard_link(&attack.secret, attack.file(name)).unwrap();
        attack.refused(name, "it belongs to uid 0");
        fs::remove_file(attack.file(name)).unwrap();
        attack.stage.place.make_file("work/CLAUDE.md", "The folder of a test.\n");
    }
    chown(attack.file("CLAUDE.md"), Some(4321), Some(4321)).unwrap();
    fs::set_permissions(attack.file("CLAUDE.md"), fs::Permissions::from_mode(0o600)).unwrap();
    let ended = attack.run();
    assert_eq!(ended.code, 0, "the owner of the folder can read it: {ended:?}");
}
