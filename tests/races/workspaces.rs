//! Sandboxes that work on a tree itself: their start, which pins names of it, the last look at it, and what comes back out
//! of quarantine. What the host has mounted in the tree is a part of it.

use std::io::Read;
use std::os::unix::fs::symlink;

use super::*;
use crate::support::process::Process;
use crate::support::wait;

/// Where things in quarantine come from, and go to.
const KINDS: [State; 2] = [State::Beside, State::Elsewhere];

/// Where the state is.
#[derive(Debug, Clone, Copy)]
enum State {
    /// On the file system of the tree, to where things are moved.
    Beside,
    /// On another one, to where they are copied.
    Elsewhere,
}

/// The last file that [`plant`] makes.
const PLANTED: &str = "work/planted";

/// What a sandbox leaves for the host to run.
fn plant() -> String {
    let repository = "mkdir -p at/.git/objects at/.git/refs at/.git/hooks; echo 'ref: refs/heads/main' > at/.git/HEAD; \
        printf '[core]\\n\\tfsmonitor = evil\\n[user]\\n\\tname = t\\n' > at/.git/config; echo x > at/.git/hooks/pre-commit; \
        chmod +x at/.git/hooks/pre-commit";
    let repositories: Vec<String> =
        ["a", "src/b"].iter().map(|at| repository.replace("at/", &format!("{at}/"))).collect();
    format!(
        "echo evil > .bashrc; mkdir -p old/.vscode; echo x > old/.vscode/tasks.json; {}; ln -s /etc/passwd src/.envrc; echo > planted",
        repositories.join("; ")
    )
}

/// Reads everything that can be read inside into a file of the workspace.
const READ_ALL: &str = "timeout 5 find . -type f ! -name seen -exec cat {} + > seen 2> /dev/null; exit 0";

impl Raced {
    /// The name of the sandbox: those of root have one directory for all tests.
    fn id(&self) -> String {
        format!("raced-{}", self.place.path().file_name().unwrap().display())
    }

    fn with_state(caller: Caller, state: State) -> Self {
        let mut raced = Raced::new(caller);
        if let State::Elsewhere = state {
            let other = tempfile::Builder::new().prefix("saggar-").tempdir_in("/dev/shm").unwrap();
            caller.own(other.path());
            raced.elsewhere = Some(other);
        }
        raced
    }

    /// With things in the work tree that a start pins.
    fn with_pins(caller: Caller) -> Self {
        let raced = Raced::new(caller);
        let work = raced.place.work();
        let own = |path: &Path| {
            let owner = if caller.is_root() { OWNER } else { caller.uid().as_raw() };
            lchown(path, Some(owner), Some(owner)).unwrap();
        };
        for name in [".git", ".git/hooks", ".git/objects", ".git/refs", ".vscode", "tools"] {
            fs::create_dir(work.join(name)).unwrap();
            own(&work.join(name));
        }
        let files = [
            (".git/HEAD", "ref: refs/heads/main\n"),
            (".git/config", "[core]\n\thooksPath = tools\n[include]\n\tpath = ../src/main\n"),
            (".git/hooks/pre-commit", "true\n"),
            (".vscode/tasks.json", "{}\n"),
            (".bashrc", "true\n"),
            ("tools/pre-commit", "true\n"),
        ];
        for (name, content) in files {
            fs::write(work.join(name), content).unwrap();
            own(&work.join(name));
        }
        symlink("old/a", work.join(".envrc")).unwrap();
        own(&work.join(".envrc"));
        raced
    }

    /// `saggar wrap` with a script, in the work folder.
    fn wrap(&self, script: &str) -> Command {
        self.command(&["wrap", "--id", &self.id(), "--", "/bin/sh", "-c", script])
    }

    /// A sandbox that has planted, and whose last look is still to be made.
    fn planted_and_killed(&self) {
        let script = format!("{}; echo up; exec sleep 1000", plant());
        let mut process = Process::start(&self.place, self.wrap(&script));
        process.take_stdout().read_exact(&mut [0; 3]).unwrap();
        process.signal(nix::sys::signal::Signal::SIGKILL);
        process.wait();
        // The launcher has the record as long as it cleans up.
        for record in self.records() {
            wait::until_unlocked(&record);
        }
    }

    /// Those of looks that are still to be made.
    fn records(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.state().join("saggar/unfinished")).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    }
}

as_each_caller! {
    fn the_start_of_wrap_shows_nothing_but_the_tree(caller) {
        race_for_a_while(&[()], Sweeps::without_mounts, |(), sweeps| {
            let raced = Raced::with_pins(caller);
            raced.race(&raced.wrap(READ_ALL), &[raced.place.work()], sweeps);
        });
    }

    fn the_start_of_an_agent_shows_nothing_but_the_tree(caller) {
        race_for_a_while(&[()], Sweeps::without_mounts, |(), sweeps| {
            let raced = Raced::with_pins(caller);
            let prompt = format!("run: {READ_ALL}");
            let agent = ["agent", "--adapter", "demo", "--session", "raced", "--workspace", ".", "../agent", &prompt];
            raced.race(&raced.command(&agent), &[raced.place.work(), raced.place.join("agent")], sweeps);
        });
    }

    fn the_last_look_moves_nothing_but_what_is_in_the_tree(caller) {
        race_for_a_while(&KINDS, Sweeps::without_mounts, |state, sweeps| {
            let mut raced = Raced::with_state(caller, state);
            raced.begins = Some(raced.place.join(PLANTED));
            raced.race(&raced.wrap(&plant()), &[raced.place.work()], sweeps);
        });
    }

    fn the_last_look_of_gc_moves_nothing_but_what_is_in_the_tree(caller) {
        race_for_a_while(&KINDS, Sweeps::without_mounts, |state, sweeps| {
            let raced = Raced::with_state(caller, state);
            raced.planted_and_killed();
            raced.race(&raced.command(&["gc"]), &[raced.place.work()], sweeps);
            let again = raced.run(&["gc"]);
            assert_eq!(again.code(), 0, "{again:?}");
            assert_eq!(raced.records().len(), 0);
        });
    }

    fn quarantine_restore_writes_only_inside_the_tree(caller) {
        race_for_a_while(&KINDS, Sweeps::without_mounts, |state, sweeps| {
            let raced = Raced::with_state(caller, state);
            let ended = finish(Process::start(&raced.place, raced.wrap(&plant())));
            assert_eq!(ended.code(), 0, "{ended:?}");
            let restore = ["quarantine", "restore", "--force", &raced.id()];
            raced.race(&raced.command(&restore), &[raced.place.work()], sweeps);
        });
    }
}
