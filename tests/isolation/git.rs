//! DECISIONS 34: what the host's git runs is not the agent's to write, and git goes on working.

use std::fs;

use super::wrapped::Wrap;
use crate::support::caller::Caller;

const SETUP: &str = "set -e
git init -q -b main .; git config user.name t; git config user.email t@t
echo one > a; git add a; git commit -qm one; git branch side";

/// A workspace with a repository of one commit, made by the caller outside.
fn repository(caller: Caller) -> Wrap {
    let wrap = Wrap::new(caller);
    wrap.outside(SETUP);
    wrap
}

/// Runs attempts, a line each, each of which must fail; and the host's files must be as before.
fn all_fail(wrap: &Wrap, attempts: &str) {
    let script: String = attempts
        .lines()
        .map(|attempt| format!("( {attempt} ) >&- 2>&- && echo 'worked: {}'\n", attempt.replace('\'', "\"")))
        .collect();
    assert_eq!(wrap.sh(&format!("{script}exit 0")).success(), "");
}

as_each_caller! {
    fn git_works(caller) {
        let wrap = repository(caller);
        let script = "set -e
            echo two > b; git add .; git commit -qm two; git checkout -q -b work; echo three >> a; git stash -q; git stash pop -q
            git worktree add -q ../wt side 2>/dev/null || git worktree add -q /tmp/wt side
            git gc -q; git fsck; git clone -q . /tmp/clone; git merge -q side; git reset -q --hard; git tag v1; git log --oneline | wc -l
            git status --porcelain";
        let said = wrap.sh(script).success();
        assert_eq!(said.lines().last(), Some("2"), "two commits, and a clean tree: {said}");
        assert_eq!(wrap.outside("git log --oneline work | wc -l").trim(), "2", "the host's git sees the work");
        // What git was run on is not spoilt for the host.
        wrap.outside("git status && git config x.y z && git commit -q --allow-empty -m three");
    }

    fn gits_configuration_fails_clearly(caller) {
        let wrap = repository(caller);
        let refused = wrap.sh("git config core.pager evil");
        assert_ne!(refused.code(), 0);
        assert!(refused.stderr.contains(".git/config"), "{}", refused.stderr);
        assert!(!wrap.outside("git config -l").contains("evil"));
    }

    /// DECISIONS 34: renames from inside, and a `commondir` that leads elsewhere.
    fn hooks_and_configuration_are_not_written(caller) {
        let wrap = repository(caller);
        let before = fs::read(wrap.work().join(".git/config")).unwrap();
        all_fail(&wrap, "mv .git x
rm -rf .git/hooks
mv .git/hooks .git/h
rmdir .git/hooks
echo evil >> .git/config
echo evil > .git/hooks/pre-commit
mv .git/config .git/c
rm .git/config
ln .git/config hard
ln -f a .git/config
ln -sf ../a .git/config
ln -sfn ../evil .git/hooks
cp a .git/config
echo .. > .git/commondir
rm .git/commondir
mv .git/commondir .git/c
echo evil > .git/info/attributes
mv .git/info .git/i
truncate -s0 .git/config
chmod 600 .git/config
touch -d yesterday .git/config
setfattr -n user.x -v y .git/config
dd if=/dev/zero of=.git/config conv=notrunc count=1
git config core.hooksPath evil
git remote add evil evil
perl -e 'rename(\".git\", \"x\") or exit 1'");
        assert_eq!(fs::read(wrap.work().join(".git/config")).unwrap(), before);
        assert!(!wrap.work().join(".git/hooks/pre-commit").exists());
        assert_eq!(fs::read_to_string(wrap.work().join(".git/commondir")).unwrap(), ".\n");
    }

    /// Two renames that exchange: renameat2 with RENAME_EXCHANGE and RENAME_NOREPLACE.
    fn parents_are_not_exchanged(caller) {
        let wrap = repository(caller);
        let script = "import ctypes, os
os.mkdir('evil')
libc = ctypes.CDLL(None, use_errno=True)
for flags in (0, 1, 2):
    for old, new in ((b'.git', b'evil'), (b'evil', b'.git'), (b'.git/hooks', b'evil'), (b'evil', b'.git/hooks')):
        if libc.renameat2(-100, old, -100, new, flags) == 0: print('exchanged', old, new, flags)
";
        wrap.place.make_file("work/exchange.py", script);
        assert_eq!(wrap.sh("/usr/bin/python3 exchange.py").success(), "");
    }

    /// A protected path that is a link: neither the link nor what it leads to.
    fn links_and_what_they_lead_to_are_protected(caller) {
        let wrap = repository(caller);
        wrap.outside("mv .git .real; ln -s .real .git; mkdir hk; rm -rf .real/hooks; ln -s ../hk .real/hooks; echo > rc; ln -s rc .bashrc; \
            mkdir cfg; echo {} > cfg/settings.json; ln -s cfg .claude; ln -s /nonexistent .envrc");
        all_fail(&wrap, "rm .git
mv .git x
mv .real x
ln -sfn evil .git
echo evil >> .git/config
echo evil > hk/pre-commit
rm .real/hooks
mv hk x
rm .bashrc
echo evil > rc
mv rc x
rm .claude
mv cfg x
echo evil > cfg/settings.json
rm .envrc");
        wrap.sh("git status && echo x > a && git commit -qam x").success();
    }

    /// Submodules: their own directories, whose names may have slashes, and theirs in turn.
    fn submodules_are_protected(caller) {
        let wrap = repository(caller);
        wrap.outside("set -e; git init -q -b main ../lib; cd ../lib; git config user.name t; git config user.email t@t; git commit -qm x --allow-empty; \
            cd ../work; git -c protocol.file.allow=always submodule --quiet add ../lib deep/er/lib; git commit -qm sub; \
            mkdir -p .git/modules/deep/er/lib/modules/in; git init -q --bare .git/modules/deep/er/lib/modules/in");
        all_fail(&wrap, "echo evil >> .git/modules/deep/er/lib/config
echo evil > .git/modules/deep/er/lib/hooks/post-checkout
echo ../evil > .git/modules/deep/er/lib/commondir
mv .git/modules .git/m
perl -e 'rename(\".git/modules/deep\", \".git/m\") or exit 1'
perl -e 'rename(\".git/modules/deep\", \".git/modules/m\") or exit 1'
perl -e 'rename(\".git/modules/deep/er\", \".git/modules/deep/m\") or exit 1'
perl -e 'rename(\".git/modules/deep/er/lib\", \".git/modules/deep/er/m\") or exit 1'
echo evil >> .git/modules/deep/er/lib/modules/in/config
git config -f .git/modules/deep/er/lib/config core.fsmonitor evil
echo gitdir: ../../../evil > deep/er/lib/.git
rm deep/er/lib/.git
perl -e 'rename(\"deep/er/lib\", \"deep/er/m\") or exit 1'
perl -e 'rename(\"deep\", \"m\") or exit 1'");
        let status = wrap.sh("git status --porcelain; cd deep/er/lib && git status --porcelain && touch f && git add f").success();
        assert_eq!(status, "");
    }

    /// A linked worktree as the workspace: its `.git` decides where git's directory is.
    fn a_pointer_to_gits_directory_is_protected(caller) {
        let wrap = Wrap::new(caller);
        wrap.outside("git init -q ../elsewhere; echo \"gitdir: $PWD/../elsewhere/.git\" > .git");
        all_fail(&wrap, "echo gitdir: evil > .git
rm .git
mv .git x
ln -sf evil .git
mkdir -p .git/hooks");
    }

    /// DECISIONS 34: the operator's way out.
    fn the_operator_may_leave_the_configuration_to_the_agent(caller) {
        let wrap = repository(caller);
        wrap.place.make_file("own.toml", "[protect]\ngit_config = false\n");
        wrap.run(&["--policy", "../own.toml"], &["git", "config", "x.y", "z"]).success();
        let refused = wrap.run(&["--policy", "../own.toml"], &["/bin/sh", "-c", "echo x > .git/hooks/pre-commit"]);
        assert_ne!(refused.code(), 0);
    }
}

/// A repository of somebody else, which the caller cannot write: nobody inside can either, so nothing is made.
#[test]
fn a_repository_that_is_not_the_callers_starts() {
    if Caller::root().is_err() {
        skip!("this test needs to be started as root");
    }
    let Ok(user) = Caller::ordinary() else { skip!("there is no ordinary user") };
    let wrap = Wrap::new(user);
    let setup = format!("cd {} && git init -q . && chown -R 0:0 .git", wrap.work().display());
    let made = std::process::Command::new("/bin/sh").args(["-c", &setup]).status().unwrap();
    assert!(made.success());
    assert_eq!(wrap.sh("echo evil > .git/commondir; test -e .git/commondir").code(), 1);
}
