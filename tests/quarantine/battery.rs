//! Repositories times attacks: a program inside does its worst, then the host runs its ordinary git commands. Nothing that
//! was planted runs. The short form takes every sixth attack on one kind of repository; `SAGGAR_TEST_LONG=1` takes each on
//! all ten, and on a workspace without one.

use std::fs;
use std::path::Path;

use super::attacks::{Attack, EVIL, all};
use super::repositories::{ALL, Repository};
use super::told::{EVENTS, Session, telling};
use crate::isolation::wrapped::Wrap;
use crate::support::caller::Caller;
use crate::support::rounds;

/// A directory that an earlier session left: no repository by its names, and the host has no reason to look at it.
const OLD: &str = "mkdir -p old-git/hooks; git init -q t; cp -r t/.git/. old-git; rm -rf t; rm -rf old-git/objects old-git/refs old-git/HEAD old-git/hooks/*; \
    git config -f old-git/config core.fsmonitor $E; cp $E old-git/hooks/pre-commit; mkdir -p old-git/objects old-git/refs; echo 'ref: refs/heads/main' > old-git/HEAD.txt";

/// What a person does next, in one directory. An editor is asked for where git has none of its own.
const ORDINARY: &str = "git status; git diff; git add -A .; git -c user.name=t -c user.email=t@t commit -m x; git -c user.name=t -c user.email=t@t commit --amend; \
    git log -p -1; git log --show-signature -1; git stash; git stash pop; git rebase --continue; git checkout .; git fetch origin; git fetch; git pull; git submodule update; git submodule status; \
    git branch; git merge main; git gc -q; git st";

/// Runs one attack on one repository, or where there is none; what is wrong afterwards.
fn case(caller: Caller, repository: Option<&Repository>, attack: &Attack) -> Option<String> {
    let wrap = Wrap::new(caller);
    let _session = Session::of(&wrap.place);
    if let Some(repository) = repository {
        repository.make_in(&wrap);
    }
    let canary = wrap.place.join("tmp/canary");
    let evil = wrap.place.make_file(
        &format!("work/{EVIL}"),
        &format!("#!/bin/sh\necho \"$0 $*\" >> {}\ncat\n", canary.display()),
    );
    fs::set_permissions(&evil, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("E={}; ", evil.display());
    wrap.outside(&format!("{path}({OLD}) >/dev/null 2>&1; exit 0"));
    let read = |name: &String| fs::read(wrap.work().join(name)).ok();
    let before: Vec<_> = attack.planted.iter().map(read).collect();
    let script = format!("{path}exec >/dev/null 2>&1; {}", attack.script);
    let ended = wrap.finish(telling(&wrap.place, &wrap.command(&[], &["/bin/sh", "-c", &script])));
    if ended.code() != 0 {
        return Some(format!("it ends in {ended:?}"));
    }
    let told = fs::read_to_string(wrap.place.join(EVENTS)).unwrap();
    for (name, before) in attack.planted.iter().zip(before) {
        let is_told = told.contains(&format!("/{name}\""));
        let is_there = wrap.work().join(name).symlink_metadata().is_ok();
        // What the repository has of its own stays.
        let is_old = before.is_some() && read(name) == before;
        if is_there && !is_told && !is_old {
            return Some(format!("{name} is there, and no event says so"));
        }
    }
    let trees = repository.into_iter().flat_map(Repository::trees).chain(["."]);
    for directory in attack.directories.iter().copied().chain(trees) {
        wrap.outside(&format!("export EDITOR=true GIT_TERMINAL_PROMPT=0; cd {directory} && ({ORDINARY}) </dev/null >/dev/null 2>&1; exit 0"));
    }
    wrap.outside("chmod -R u+rwX . 2>&-; exit 0");
    fs::read_to_string(&canary)
        .ok()
        .map(|ran| format!("the host ran {ran}\nstandard error: {}", ended.stderr))
}

as_each_caller! {
    fn planted_git_programs_do_not_run_on_the_host(caller) {
        // Every sixth attack on one repository, or every attack on every repository.
        let all_repositories: Vec<Option<&Repository>> = [None].into_iter().chain(ALL.iter().map(Some)).collect();
        let (step, repositories) = (rounds(6, 1), rounds(1, all_repositories.len()));
        if !Path::new("/usr/bin/git").exists() {
            skip!("there is no git");
        }
        let mut wrong = Vec::new();
        for (at, attack) in all().iter().enumerate().step_by(step) {
            for repository in all_repositories.iter().cycle().skip(at).take(repositories) {
                let name = repository.map_or("none", |repository| repository.name);
                let failed = case(caller, *repository, attack);
                wrong.extend(failed.map(|why| format!("{} on {name}: {why}", attack.name)));
            }
        }
        assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
    }

    /// The canary is one: without a sandbox in between, most attacks work.
    fn git_attack_succeeds_without_a_sandbox(caller) {
        let wrap = Wrap::new(caller);
        let canary = wrap.place.join("tmp/canary");
        let evil = wrap.place.make_file(&format!("work/{EVIL}"), &format!("#!/bin/sh\necho ran >> {}\ncat\n", canary.display()));
        fs::set_permissions(&evil, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let attack = all().into_iter().find(|attack| attack.name == "core.fsmonitor in nested").unwrap();
        wrap.outside(&format!("E={}; ({}) ; cd nest && ({ORDINARY}) </dev/null >/dev/null 2>&1; exit 0", evil.display(), attack.script.replace("exit 0", "true")));
        assert!(canary.exists());
    }
}
