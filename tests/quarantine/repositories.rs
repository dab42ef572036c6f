//! Ten kinds of repositories: each starts, git works inside, and no place from which the host's git, or a program
//! beside it, starts something can be written.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;

use crate::isolation::wrapped::{Wrap, finish};
use crate::support::caller::Caller;
use crate::support::process::Process;
use crate::support::wait;

/// One kind.
pub(super) struct Repository {
    pub(super) name: &'static str,
    /// Makes it in the workspace.
    setup: &'static str,
    /// Where git works, below the workspace.
    pub(super) top: &'static str,
    /// Other work trees.
    pub(super) others: &'static [&'static str],
    /// Files from which something is started, which exist.
    started: &'static [&'static str],
    /// Directories in which a new file would be started.
    holders: &'static [&'static str],
}

const COMMIT: &str =
    "git config user.name t; git config user.email t@t; echo one > a; git add .; git commit -qm one";

/// The kinds that the issue of this module names.
pub(super) const ALL: [Repository; 10] = [
    Repository {
        name: "plain",
        setup: "git init -q -b main .; COMMIT; mkdir tools; echo true > tools/h; chmod +x tools/h
            ln -s ../../tools/h .git/hooks/post-commit",
        top: ".",
        others: &[],
        started: &[".git/config", "tools/h"],
        holders: &[".git/hooks", ".git/info"],
    },
    Repository {
        name: "bare and worktrees",
        setup: "git init -q --bare -b main .bare; echo 'gitdir: ./.bare' > .git
            git -C .bare config core.bare true; git -C .bare worktree add -q --orphan -b main ../main; cd main; COMMIT",
        top: "main",
        others: &[],
        started: &[".git", ".bare/config", "main/.git", ".bare/worktrees/main/commondir"],
        holders: &[".bare/hooks", ".bare/info"],
    },
    Repository {
        name: "submodules",
        setup: "git init -q -b main ../lib; (cd ../lib; COMMIT); git init -q -b main .; COMMIT
            git -c protocol.file.allow=always submodule --quiet add ../lib deep/lib; git commit -qm sub",
        top: ".",
        others: &["deep/lib"],
        started: &[".git/config", ".gitmodules", "deep/lib/.git", ".git/modules/deep/lib/config"],
        holders: &[".git/hooks", ".git/modules/deep/lib/hooks"],
    },
    Repository {
        name: "husky",
        setup: "git init -q -b main .; mkdir -p .husky/_ scripts; echo 'sh ./scripts/check' > .husky/pre-commit
            echo true > scripts/check; echo '. .husky/pre-commit' > .husky/_/pre-commit; chmod +x .husky/_/pre-commit
            COMMIT; git config core.hooksPath .husky/_",
        top: ".",
        others: &[],
        started: &[".git/config", ".husky/pre-commit", ".husky/_/pre-commit", "scripts/check"],
        holders: &[".husky", ".husky/_"],
    },
    Repository {
        name: "includes",
        setup: "git init -q -b main .; mkdir conf; echo '[user]' > conf/one; echo '[alias]' > conf/two
            echo '[core]' > conf/three; COMMIT; git config include.path ../conf/one
            git config includeIf.gitdir:/.path \"$PWD/conf/two\"; git config -f conf/one include.path three",
        top: ".",
        others: &[],
        started: &[".git/config", "conf/one", "conf/two", "conf/three"],
        holders: &[".git/hooks"],
    },
    Repository {
        name: "filters",
        setup: "git init -q -b main .; mkdir tools; for f in clean smudge diff watch; do echo cat > tools/$f; done
            chmod +x tools/*; echo '*.bin filter=x' > .gitattributes; COMMIT
            git config filter.x.clean 'sh tools/clean'; git config filter.x.smudge 'tools/smudge %f'
            git config diff.x.textconv ./tools/diff; git config merge.x.driver 'sh -c \"tools/watch\" %A'",
        top: ".",
        others: &[],
        started: &[".git/config", "tools/clean", "tools/smudge", "tools/diff", "tools/watch"],
        holders: &[".git/hooks"],
    },
    Repository {
        name: "nested",
        setup: "git init -q -b main .; COMMIT; for d in sub sub/deeper; do git init -q -b main $d; done
            mkdir sub/.vscode; echo {} > sub/.vscode/tasks.json; echo true > sub/.envrc",
        top: ".",
        others: &["sub", "sub/deeper"],
        started: &["sub/.git/config", "sub/deeper/.git/config", "sub/.vscode/tasks.json", "sub/.envrc"],
        holders: &["sub/.git/hooks", "sub/deeper/.git/hooks", "sub/.vscode"],
    },
    Repository {
        name: "absorbed",
        setup: "git init -q -b main .; COMMIT; git init -q -b main inner; (cd inner; COMMIT)
            git -c protocol.file.allow=always submodule --quiet add ./inner inner; git submodule --quiet absorbgitdirs
            git commit -qm inner",
        top: ".",
        others: &["inner"],
        started: &["inner/.git", ".git/modules/inner/config"],
        holders: &[".git/modules/inner/hooks"],
    },
    Repository {
        name: "jj-like",
        setup: "git init -q -b main .; COMMIT; mkdir -p .jj/repo/store; echo '[ui]' > .jj/repo/config.toml
            printf ../../../.git > .jj/repo/store/git_target; echo .jj > .git/info/exclude",
        top: ".",
        others: &[],
        started: &[".git/config", ".jj/repo/config.toml", ".jj/repo/store/git_target"],
        holders: &[".git/hooks"],
    },
    Repository {
        name: "shallow",
        setup: "git init -q -b main ../far; (cd ../far; COMMIT; git commit -q --allow-empty -m two)
            git clone -q --depth 1 \"file://$PWD/../far\" .; git config user.name t; git config user.email t@t",
        top: ".",
        others: &[],
        started: &[".git/config"],
        holders: &[".git/hooks", ".git/info"],
    },
];

impl Repository {
    /// Makes it as the caller, outside of any sandbox.
    pub(super) fn make(&self, caller: Caller) -> Wrap {
        let wrap = Wrap::new(caller);
        self.make_in(&wrap);
        wrap
    }

    /// Makes it in a workspace that has none.
    pub(super) fn make_in(&self, wrap: &Wrap) {
        wrap.outside(&format!("set -e; {}", self.setup.replace("COMMIT", COMMIT)));
    }

    /// The work trees, the workspace itself first.
    pub(super) fn trees(&self) -> impl Iterator<Item = &'static str> {
        [".", self.top]
            .into_iter()
            .take(if self.top == "." { 1 } else { 2 })
            .chain(self.others.iter().copied())
    }
}

as_each_caller! {
    fn git_works_in_every_kind(caller) {
        for repository in ALL {
            let wrap = repository.make(caller);
            let script = format!("set -e; cd {}; git status --porcelain >&2; git log --oneline > /dev/null
                git worktree list > /dev/null; echo new > new; git add new; git commit -qm new; git log --oneline | head -1", repository.top);
            let said = wrap.sh(&script).success();
            assert!(said.trim().ends_with("new"), "{}: {said}", repository.name);
        }
    }

    fn nothing_that_is_started_can_be_written(caller) {
        for repository in ALL {
            let wrap = repository.make(caller);
            let read = |path: &&str| fs::read(wrap.work().join(path)).unwrap_or_else(|e| panic!("{}: {path}: {e}", repository.name));
            let before: Vec<_> = repository.started.iter().map(read).collect();
            let mut script = String::new();
            for path in repository.started {
                for attempt in ["echo evil >> P", "rm -f P", "mv P moved", "ln P linked", "echo evil > new; mv -f new P", "chmod 777 P"] {
                    script += &format!("( {} ) > /dev/null 2>&1 && [ '{path}' ] && echo 'worked: {path}: {attempt}'\n", attempt.replace('P', path));
                }
            }
            for holder in repository.holders {
                script += &format!("echo evil 2> /dev/null > {holder}/post-checkout && echo 'worked: {holder}'\n\
                    mv {holder} moved 2> /dev/null && echo 'worked: mv {holder}'\n");
            }
            let said = wrap.sh(&format!("{script}exit 0")).success();
            assert_eq!(said, "", "{}", repository.name);
            let after: Vec<_> = repository.started.iter().map(read).collect();
            assert_eq!(before, after, "{}", repository.name);
        }
    }

    /// G3: a file that has another name is written by that one, whatever lies over the first.
    fn another_name_of_a_protected_file_does_not_lead_to_it(caller) {
        let wrap = ALL[0].make(caller);
        wrap.outside("ln .git/config notes; echo true > .git/hooks/pre-commit; chmod 755 .git/hooks/pre-commit
            ln .git/hooks/pre-commit other; touch -d 2001-01-01 .git/config");
        let before = fs::read(wrap.work().join(".git/config")).unwrap();
        wrap.sh("echo '[alias]' >> notes; echo evil >> other").success();
        assert_eq!(fs::read(wrap.work().join(".git/config")).unwrap(), before);
        assert_eq!(fs::read_to_string(wrap.work().join(".git/hooks/pre-commit")).unwrap(), "true\n");
        assert_eq!(wrap.outside("cat notes | tail -1").trim(), "[alias]");
        let meta = |name: &str| fs::metadata(wrap.work().join(name)).unwrap();
        assert_eq!((meta(".git/config").nlink(), meta(".git/config").mtime()), (1, 978_307_200));
        assert_eq!(meta(".git/hooks/pre-commit").mode() & 0o777, 0o755);
        assert_eq!(meta(".git/config").uid(), meta("a").uid());
    }

    /// G6: a start pins a bounded number of paths, and what it does not pin one by one it closes as a whole.
    fn thousands_of_submodules_do_not_stop_a_start(caller) {
        let wrap = ALL[0].make(caller);
        wrap.outside("cd .git; mkdir modules; cd modules; for i in $(seq 3000); do mkdir $i; : > $i/HEAD; : > $i/config; done");
        let said = wrap.sh("wc -l < /proc/self/mountinfo; echo evil > .git/modules/7/config; echo evil > .git/modules/new; git status --porcelain").success();
        let mounts: usize = said.lines().next().unwrap().trim().parse().unwrap();
        assert!(mounts < 150, "{mounts} mounts");
        assert_eq!(fs::read(wrap.work().join(".git/modules/7/config")).unwrap(), b"");
        assert!(!wrap.work().join(".git/modules/new").exists());
    }

    /// A repository beside the workspace that the operator makes writable keeps its hooks and its configuration.
    fn a_repository_that_is_named_read_write_is_protected(caller) {
        let wrap = ALL[0].make(caller);
        wrap.outside("mkdir ../beside; cd ../beside; git init -q -b main .");
        let beside = wrap.place.join("beside");
        let git = beside.join(".git");
        for named in [&beside, &git] {
            let script = format!("cd {}; touch made; echo evil >> config; echo evil >> .git/config; echo evil > hooks/pre-commit
                echo evil > .git/hooks/pre-commit; exit 0", named.display());
            let ended = wrap.run(&["--rw", named.to_str().unwrap()], &["/bin/sh", "-c", &script]);
            ended.success();
            assert!(!git.join("hooks/pre-commit").exists());
            assert!(!fs::read_to_string(git.join("config")).unwrap().contains("evil"));
            assert!(named.join("made").exists());
        }
    }

    /// G7: with a home directory as the workspace.
    fn startup_files_of_a_home_workspace_are_protected(caller) {
        let wrap = Wrap::new(caller);
        wrap.outside("cd ../home; mkdir -p .ssh .config/git .config/systemd/user .config/autostart .config/saggar .local/bin; \
            echo x > .ssh/config; echo x > .ssh/authorized_keys; echo x > .config/git/config; echo x > .local/bin/x");
        let home = wrap.place.join("home");
        let mut command = wrap.place.saggar();
        command.env("HOME", &home).current_dir(&home);
        command.args(["wrap", "--allow-home", "--", "/bin/sh", "-c", "cd \"$1\" || exit 9
            for f in .ssh/config .ssh/authorized_keys .config/git/config .local/bin/x .ssh/new .config/systemd/user/x .config/autostart/x \
                .config/saggar/config.toml; do echo evil 2> /dev/null > $f && echo $f; done; touch fine", "sh"]).arg(&home);
        assert_eq!(wrap.finish(command).success(), "");
        assert!(home.join("fine").exists());
    }

    /// G4: the mask over a hidden file goes with the file that the host replaces, and the sandbox with it.
    fn a_hidden_file_that_the_host_replaces_ends_the_sandbox(caller) {
        let wrap = Wrap::new(caller);
        wrap.place.make_file("own.toml", "[files]\nhide = [\".env\"]\n");
        wrap.place.make_file("work/.env", "secret one\n");
        let command = wrap.command(&["--policy", "../own.toml"], &["/bin/sh", "-c", "cat .env; : > up; exec sleep 1000"]);
        let process = Process::start(&wrap.place, command);
        wait::until_exists(&wrap.work().join("up"));
        wrap.outside("echo secret two > new; mv new .env");
        let ended = finish(process);
        assert_eq!(ended.code(), 125, "{ended:?}");
        assert!(ended.stderr.contains(".env was replaced"), "{}", ended.stderr);
        assert_eq!(ended.stdout, "");
    }

    /// G4 without a window: under an overlay the mounts lie over names that only the sandbox has.
    fn under_an_overlay_a_replaced_file_stays_hidden_and_protected(caller) {
        let wrap = ALL[0].make(caller);
        wrap.place.make_file("own.toml", "[files]\nhide = [\".env\"]\n");
        wrap.place.make_file("work/.env", "secret one\n");
        let script = "echo up; read go; cat .env; echo evil 2> /dev/null >> .git/config; grep -c evil .git/config; exit 0";
        let options = ["--workspace-overlay", "--policy", "../own.toml"];
        let mut process = Process::start(&wrap.place, wrap.command(&options, &["/bin/sh", "-c", script]));
        let mut stdout = BufReader::new(process.take_stdout());
        let mut said = String::new();
        stdout.read_line(&mut said).unwrap();
        assert_eq!(said, "up\n", "{}", process.stderr());
        wrap.outside("echo secret two > new; mv new .env; git config x.y z");
        process.take_stdin().write_all(b"go\n").unwrap();
        stdout.read_to_string(&mut said).unwrap();
        assert_eq!(said, "up\n0\n");
        assert!(process.wait().success());
    }
}
