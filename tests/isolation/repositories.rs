//! Repositories as they are: a subdirectory, a linked worktree, a submodule, a bare repository beside its
//! worktrees. Git works in each, and what the host's git runs is not the sandbox's to write.

use std::fs;
use std::path::Path;

use nix::sys::signal::Signal;

use super::wrapped::{Ended, Wrap};
use crate::support::caller::Caller;
use crate::support::process::Process;

/// Prefix of every script outside: a repository is `one` with a commit, and worktrees and submodules follow.
const SETUP: &str = "set -e
make() { git init -q -b main $1; git -C $1 config user.name t; git -C $1 config user.email t@t; }
make one; mkdir -p one/src/deep; echo 1 > one/src/deep/file; git -C one add .; git -C one commit -qm first
";

/// What proves that git works: where it is, a clean tree, a commit, and the number of commits.
const WORK: &str = "set -e
pwd; git status --porcelain; echo more > more; git add more; git commit -qm more; git rev-list --count HEAD";

/// A place with a repository and what `script` adds; the work folder is `work`.
fn place(caller: Caller, script: &str) -> Wrap {
    let wrap = Wrap::new(caller);
    wrap.outside(&format!("{SETUP}{script}"));
    wrap
}

/// Runs a script in a sandbox that is started in a directory below the work folder.
fn run_in(wrap: &Wrap, directory: &str, options: &[&str], script: &str) -> Ended {
    let mut command = wrap.command(options, &["/bin/sh", "-c", script]);
    command.current_dir(wrap.work().join(directory));
    wrap.finish(command)
}

fn works_in(wrap: &Wrap, directory: &str, commits: u32) {
    let said = run_in(wrap, directory, &[], WORK).success();
    assert_eq!(said, format!("{}\n{commits}\n", wrap.work().join(directory).display()));
}

/// Each line fails inside, and the files of the host are as before.
fn all_fail(wrap: &Wrap, directory: &str, attempts: &str) {
    let shown = |attempt: &str| attempt.replace('\'', "\"");
    let tries =
        attempts.lines().map(|attempt| format!("( {attempt} ) >&- 2>&- && echo '{}'\n", shown(attempt)));
    let script: String = tries.collect();
    assert_eq!(run_in(wrap, directory, &[], &format!("{script}exit 0")).success(), "", "each is refused");
}

fn exists(wrap: &Wrap, path: &str) -> bool {
    wrap.work().join(path).exists()
}

as_each_caller! {
    fn a_subdirectory_is_part_of_its_work_tree(caller) {
        let wrap = place(caller, "");
        works_in(&wrap, "one/src/deep", 2);
        assert!(exists(&wrap, "one/src/deep/more"));
        all_fail(&wrap, "one/src", "echo x > ../.git/hooks/post-commit
echo x >> ../.git/config");
        let narrow = run_in(&wrap, "one/src", &["--workspace", "."], "pwd; ls ..; git status").stdout;
        assert_eq!(narrow, format!("{}\nsrc\n", wrap.work().join("one/src").display()), "the option is exact");
    }

    /// Its policy was made for it, and for no more.
    fn a_directory_with_a_policy_is_a_workspace(caller) {
        let wrap = place(caller, "echo 'files.hide = [\"secret\"]' > one/src/saggar.toml; echo s > one/src/secret; echo up > one/up");
        let said = run_in(&wrap, "one/src/deep", &[], "pwd; cat ../secret; cat ../../up; echo $?");
        assert_eq!(said.stdout, format!("{}\n1\n", wrap.work().join("one/src/deep").display()), "{said:?}");
    }

    fn the_caller_chooses_where_programs_start(caller) {
        let wrap = place(caller, "");
        let one = wrap.work().join("one");
        for (directory, options, start) in [
            ("one/src", &["--cwd", "deep"][..], one.join("src/deep")),
            ("one/src", &["--cwd", ".."], one.clone()),
            ("one", &["--cwd", "/tmp"], "/tmp".into()),
            ("one/src", &["--workspace", ".."], one.join("src")),
            (".", &["--workspace", "one"], one.clone()),
            (".", &["--workspace", "one", "--cwd", "src"], one.join("src")),
        ] {
            let said = run_in(&wrap, directory, options, "/bin/pwd -P").success();
            assert_eq!(said.trim_end(), start.display().to_string(), "{directory} {options:?}");
        }
        let said = run_in(&wrap, "one", &["--cwd", "nowhere"], "pwd");
        said.refused(&[&one.join("nowhere").display().to_string(), "--cwd"]);
        let said = run_in(&wrap, "one", &["--cwd", wrap.place.join("home").to_str().unwrap()], "pwd");
        said.refused(&["No such file or directory"]);
    }

    fn git_works_in_a_linked_worktree(caller) {
        let wrap = place(caller, "git -C one worktree add -q ../linked -b side; git -C one worktree add -q ../other");
        works_in(&wrap, "linked/src", 2);
        assert_eq!(wrap.outside("git -C one rev-list --count side").trim(), "2", "the host's git sees the work");
        let said = run_in(&wrap, "linked", &[], "git branch -q new && git stash list && git log --oneline --all | wc -l && ls ..; ls ../one");
        assert_eq!(said.stdout, "2\nlinked\none\n", "of the repository, the git directory is there alone: {said:?}");
        all_fail(&wrap, "linked", "echo x > ../one/.git/hooks/post-commit
mv ../one/.git/hooks ../one/.git/h
echo x >> ../one/.git/config
echo x > ../one/.git/info/attributes
echo x > ../one/.git/commondir
echo x > ../one/.git/worktrees/linked/commondir
echo x > ../one/.git/worktrees/linked/gitdir
echo x > ../one/.git/worktrees/linked/config.worktree && git config extensions.worktreeConfig true
rm -r ../one/.git/worktrees/other
mkdir ../one/.git/worktrees/new
perl -e 'rename(\"../one/.git/worktrees\", \"../one/.git/w\") or exit 1'
perl -e 'rename(\"../one/.git/worktrees/linked\", \"../one/.git/w\") or exit 1'
perl -e 'rename(\"../one/.git\", \"../one/g\") or exit 1'
echo 'gitdir: /tmp' > .git");
        // A worktree that is not visible inside is not gone.
        run_in(&wrap, "linked", &[], "git worktree prune");
        assert_eq!(wrap.outside("git -C one worktree list | wc -l").trim(), "3");
        wrap.outside("git -C linked status && git -C other status && git -C one commit -q --allow-empty -m more");
    }

    fn git_works_in_a_submodule(caller) {
        let wrap = place(caller, "make super; git -C super -c protocol.file.allow=always submodule -q add $PWD/one sub
            git -C super commit -qm sub; git -C super/sub config user.name t; git -C super/sub config user.email t@t");
        works_in(&wrap, "super/sub/src", 2);
        all_fail(&wrap, "super/sub", "echo x > ../.git/modules/sub/hooks/post-commit
echo x >> ../.git/modules/sub/config
perl -e 'rename(\"../.git/modules/sub\", \"../.git/modules/other\") or exit 1'
ls ../.gitmodules");
        assert_eq!(wrap.outside("git -C super/sub rev-list --count HEAD"), "2\n", "the host sees the commit");
    }

    fn git_works_beside_a_bare_repository(caller) {
        let wrap = place(caller, "mkdir many; git clone -q --bare one many/.bare; echo 'gitdir: ./.bare' > many/.git; cd many
            git config user.name t; git config user.email t@t; git worktree add -q main; git worktree add -q side");
        works_in(&wrap, "many/main", 2);
        works_in(&wrap, "many/side", 2);
        all_fail(&wrap, "many/main", "echo x > ../.bare/hooks/post-commit
echo x >> ../.bare/config
ls ../side");
    }

    /// The worktrees of a bare repository may be in it: of those the sandbox has its own.
    fn git_works_in_a_worktree_in_a_bare_repository(caller) {
        let wrap = place(caller, "git clone -q --bare one bare.git; cd bare.git; git config user.name t; git config user.email t@t
            git worktree add -q trees/main main; git worktree add -q trees/side -b side");
        works_in(&wrap, "bare.git/trees/main", 2);
        all_fail(&wrap, "bare.git/trees/main", "echo x > ../side/evil
mv ../side ../moved
mv ../../trees ../../moved
echo x > ../../hooks/post-commit");
        assert!(exists(&wrap, "bare.git/trees/side/src"));
    }

    /// Hooks and configuration outside name files of the work tree.
    fn what_the_git_directory_names_in_the_worktree_is_protected(caller) {
        let wrap = place(caller, "mkdir one/hk one/tools; echo '#!/bin/sh' > one/hk/pre-commit; echo '#!/bin/sh' > one/tools/check; chmod +x one/hk/pre-commit one/tools/check
            git -C one add .; git -C one commit -qm hooks; git -C one worktree add -q ../linked
            git -C one config core.hooksPath hk; printf '#!/bin/sh\\nexec ./tools/check\\n' > one/.git/hooks/pre-push; chmod +x one/.git/hooks/pre-push");
        all_fail(&wrap, "linked", "echo evil >> hk/pre-commit
echo evil > hk/post-commit
echo evil >> tools/check");
    }

    /// Names that do not exist at the start cannot be protected: they are looked for at the end, as in the workspace.
    fn what_appears_in_the_git_directory_is_quarantined(caller) {
        let wrap = place(caller, "git -C one config extensions.worktreeConfig true
            git -C one worktree add -q ../linked; git -C one worktree add -q ../other; mkdir -p one/.git/worktrees/other/rebase-merge
            echo 'exec true' > one/.git/worktrees/other/rebase-merge/git-rebase-todo; sleep 0.1");
        let script = "cd ../one/.git; echo /tmp > objects/info/alternates; mkdir modules/evil && exit 1
            echo evil > extra; mkdir deploy; ln -s /etc/passwd logs/refs/heads/evil 2>/dev/null; mkdir .vscode; echo evil > .envrc
            cd worktrees/linked; printf '[core]\nfsmonitor = evil\n' > config.worktree; mkdir rebase-merge; echo 'exec evil' > rebase-merge/git-rebase-todo";
        let ended = run_in(&wrap, "linked", &[], script);
        assert_eq!(ended.code(), 0, "{ended:?}");
        let read = |path: &str| fs::read_to_string(wrap.work().join("one/.git").join(path)).unwrap_or_default();
        for (path, evil) in [
            ("objects/info/alternates", "/tmp"),
            (".envrc", "evil"),
            ("logs/refs/heads/evil", "root"),
            ("worktrees/linked/config.worktree", "evil"),
            ("worktrees/linked/rebase-merge/git-rebase-todo", "evil"),
        ] {
            assert!(!read(path).contains(evil), "{path}: {}; {}", read(path), ended.stderr);
        }
        assert!(ended.stderr.contains("one/.git/deploy: is no part of a git directory"), "it is told: {}", ended.stderr);
        assert!(exists(&wrap, "one/.git/deploy") && !exists(&wrap, "one/.git/.vscode") && exists(&wrap, "one/.git/modules"));
        assert_eq!(read("worktrees/other/rebase-merge/git-rebase-todo"), "exec true\n", "the sandbox could not write it");
        assert!(ended.stderr.contains("in quarantine"), "{}", ended.stderr);
        wrap.outside("git -C linked status; git -C other status; git -C one status");
    }

    /// Git, on the host too, writes through a link: at once in a worktree, whose repository others use meanwhile.
    fn no_link_is_left_in_a_git_directory(caller) {
        let wrap = place(caller, "git -C one worktree add -q ../linked; echo safe > victim");
        all_fail(&wrap, "linked", "ln -s ../../../victim ../one/.git/logs/evil
ln -s ../../victim ../one/.git/COMMIT_EDITMSG
mkfifo ../one/.git/FETCH_HEAD
ln -s ../../../../victim ../one/.git/worktrees/linked/evil");
        let links = [
            "logs/HEAD", "COMMIT_EDITMSG", "logs/refs/heads/x", "refs/heads/x", "objects/info/commit-graph",
            "rebase-merge/done", "index.lock", "sequencer/head",
        ];
        let script: String = links.iter().map(|link| format!("mkdir -p .git/$(dirname {link}); ln -sf refs/../../../victim .git/{link}\n")).collect();
        let ended = run_in(&wrap, "one", &[], &script);
        assert_eq!(ended.code(), 0, "{ended:?}");
        for link in links {
            let found = wrap.work().join("one/.git").join(link).symlink_metadata();
            assert!(!found.is_ok_and(|meta| meta.is_symlink()), "{link}: {}", ended.stderr);
        }
        // One that is found nowhere, because there is too much beside it, is spoken of.
        let script = "ln -sf ../../../victim .git/logs/HEAD; cd .git; seq -f MERGE_%.0f 140000 | xargs touch; ln -s ../../victim ORIG_HEAD";
        let ended = run_in(&wrap, "one", &[], script);
        assert!(!wrap.work().join("one/.git/logs/HEAD").is_symlink() && ended.stderr.contains("cannot be searched for links"), "{}", ended.stderr);
    }

    /// Without the files by which git knows a git directory, it is still one.
    fn a_git_directory_without_its_marks_is_searched(caller) {
        let wrap = place(caller, "make super; git -C super -c protocol.file.allow=always submodule -q add $PWD/one sub; git -C super commit -qm sub");
        let script = "cd ../.git/modules/sub; mkdir rebase-merge; echo 'exec evil' > rebase-merge/git-rebase-todo; mv HEAD H; mv refs R";
        let ended = run_in(&wrap, "super/sub", &[], script);
        let todo = fs::read_to_string(wrap.work().join("super/.git/modules/sub/rebase-merge/git-rebase-todo"));
        assert!(!todo.unwrap_or_default().contains("evil"), "{ended:?}");
    }

    /// A configuration can name files of the git directory, and others by way of those.
    fn what_the_configuration_names_by_way_of_other_files_is_protected(caller) {
        let wrap = place(caller, "mkdir one/hk; touch one/hk/pre-commit; git -C one add .; git -C one commit -qm hooks; git -C one worktree add -q ../linked
            git -C one config include.path inc; git config --file one/.git/inc core.hooksPath hk; git -C one config extensions.worktreeConfig true
            git -C linked config --worktree include.path ../../../../linked/inc.cfg; touch linked/inc.cfg
            mkdir one/.git/tools; echo > one/.git/tools/x; printf 'exec .git/tools/x\n' > one/.git/hooks/post-commit; git -C one config --add include.path missing");
        all_fail(&wrap, "linked", "echo evil >> hk/pre-commit
echo evil > hk/post-commit
echo evil >> inc.cfg
echo evil >> ../one/.git/inc
echo evil >> ../one/.git/tools/x");
        let ended = run_in(&wrap, "linked", &[], "echo evil > ../one/.git/missing");
        assert!(!exists(&wrap, "one/.git/missing"), "{ended:?}");
    }

    /// A bare repository can be a directory with files of the user.
    fn files_beside_a_bare_repository_are_hidden(caller) {
        let wrap = place(caller, "git clone -q --bare one proj; cd proj; git config user.name t; git config user.email t@t; git worktree add -q wt main
            echo secret > .env; mkdir deploy; echo run > deploy/run.sh");
        works_in(&wrap, "proj/wt", 2);
        let said = run_in(&wrap, "proj/wt", &[], "cat ../.env ../deploy/run.sh; ls ../deploy; echo x > ../.env; echo x > ../deploy/new; true");
        assert_eq!(said.stdout, "", "{said:?}");
        assert_eq!(fs::read_to_string(wrap.work().join("proj/.env")).unwrap(), "secret\n");
        // A home directory with all that is in it.
        wrap.outside("git clone -q --bare one $PWD/bare; cp -r bare/. $HOME; echo secret > $HOME/secret; git --git-dir=$HOME worktree add -q $HOME/wt main");
        let home = wrap.place.join("home").display().to_string();
        let mut command = wrap.command(&[], &["/bin/sh", "-c", &format!("ls {home}/secret {home}/HEAD")]);
        command.current_dir(wrap.place.join("home/wt"));
        let said = wrap.finish(command);
        assert!(said.stdout.is_empty() && said.stderr.contains("home directory"), "{said:?}");
    }

    /// The order of a layer stands, for each part.
    fn a_part_that_a_layer_mounts_is_as_the_layer_says(caller) {
        let wrap = place(caller, "git -C one worktree add -q ../linked");
        let parts = wrap.work().join("one/.git/worktrees").display().to_string();
        let said = run_in(&wrap, "linked", &["--ro", &parts], &format!("touch {parts}/linked/x || echo refused"));
        assert_eq!(said.success(), "refused\n");
    }

    fn a_git_directory_that_is_read_only_does_not_prevent_a_start(caller) {
        let wrap = place(caller, "git -C one worktree add -q ../linked; chmod 555 one/.git");
        let said = run_in(&wrap, "linked", &["--quiet-degraded"], "git log --oneline | wc -l");
        wrap.outside("chmod 755 one/.git");
        assert_eq!(said.success(), "1\n");
    }

    fn leftovers_of_a_killed_sandbox_are_found_by_a_start_in_another_work_tree(caller) {
        let wrap = place(caller, "git -C one worktree add -q ../linked");
        let script = "mkdir ../one/.git/rebase-merge; echo 'exec evil' > ../one/.git/rebase-merge/git-rebase-todo; printf R; read end";
        let mut command = wrap.command(&[], &["/bin/sh", "-c", script]);
        command.current_dir(wrap.work().join("linked"));
        let mut process = Process::start(&wrap.place, command);
        let output = process.take_ready_stdout();
        let launcher = process.launcher();
        process.signal(Signal::SIGKILL);
        process.wait();
        launcher.wait_gone("the launcher");
        drop(output);
        let todo = || fs::read_to_string(wrap.work().join("one/.git/rebase-merge/git-rebase-todo")).unwrap_or_default();
        assert!(todo().contains("evil"));
        let ended = run_in(&wrap, "one", &[], "exit 0");
        assert!(!todo().contains("evil"), "{ended:?}");
    }

    /// What the host's git does meanwhile, in places that the sandbox cannot write, stays.
    fn the_users_work_meanwhile_stays(caller) {
        let wrap = place(caller, "make lib; git -C lib commit -q --allow-empty -m l; git -C one worktree add -q ../linked; mkdir one/.git/modules");
        let mut command = wrap.command(&[], &["/bin/sh", "-c", "printf R; read end"]);
        command.current_dir(wrap.work().join("linked"));
        let mut process = Process::start(&wrap.place, command);
        let output = process.take_ready_stdout();
        wrap.outside("git clone -q --separate-git-dir $PWD/one/.git/modules/lib lib one/lib; git --git-dir one/.git/modules/lib config core.worktree ../../../lib
            git -C one worktree add -q ../third; git -C third commit -q --allow-empty -m more; git -C one tag t");
        drop((process.take_stdin(), output));
        process.wait();
        assert!(!process.stderr().contains("quarantine"), "{}", process.stderr());
        wrap.outside("git -C one/lib status && test \"$(git --git-dir one/.git/modules/lib config core.worktree)\" = ../../../lib && git -C third status");
    }

    fn a_search_for_a_work_tree_ends_where_that_of_git_does(caller) {
        let wrap = place(caller, "git init -q --bare one/vendor.git; mkdir -p one/vendor.git/x one/a/b; ln -s nowhere one/a/.git");
        let work = wrap.work();
        for (directory, ceiling, workspace) in [
            ("one/vendor.git/x", "", "one/vendor.git/x"),
            ("one/a/b", "", "one"),
            ("one/a/b", "one", "one/a/b"),
            ("one/.git/hooks", "", "one"),
        ] {
            let mut command = wrap.place.saggar();
            command.args(["explain", "--json"]).current_dir(work.join(directory));
            if !ceiling.is_empty() {
                command.env("GIT_CEILING_DIRECTORIES", work.join(ceiling));
            }
            let json: serde_json::Value = serde_json::from_str(&wrap.finish(command).success()).unwrap();
            assert_eq!(json["workspace"], work.join(workspace).display().to_string(), "{directory} {ceiling}");
        }
        wrap.outside("mkdir -p $HOME/.config/nvim; git init -q $HOME/.config; touch one/.netrc");
        for (directory, workspace) in [(wrap.place.join("home/.config/nvim"), wrap.place.join("home/.config/nvim")), (work.join("one/src"), work.join("one/src"))] {
            let mut command = wrap.place.saggar();
            command.args(["explain", "--json"]).current_dir(&directory);
            let json: serde_json::Value = serde_json::from_str(&wrap.finish(command).success()).unwrap();
            assert_eq!(json["workspace"], workspace.display().to_string());
        }
    }

    /// `.git` is a file that programs can write: a directory that does not name the work tree in turn stays outside.
    fn a_file_cannot_bring_another_repository_in(caller) {
        let wrap = place(caller, "git -C one worktree add -q ../linked; mkdir thief forged; make sub
            mkdir -p forged/worktrees/x; printf '%s\\n' $PWD/thief/.git > forged/worktrees/x/gitdir; printf '%s\\n' $PWD/one/.git > forged/worktrees/x/commondir
            ln -s one/.git/worktrees/linked way");
        let work = wrap.work();
        let one = work.join("one/.git");
        let other = work.join("one/.git/worktrees/linked");
        for (target, why) in [
            (one.clone(), "does not name this work tree"),
            (other, "git worktree repair"),
            (work.join("forged/worktrees/x"), "commondir names another repository"),
            (work.join("way"), "symbolic link"),
            (work.join("sub/.git"), "does not name this work tree"),
        ] {
            fs::write(work.join("thief/.git"), format!("gitdir: {}\n", target.display())).unwrap();
            let said = run_in(&wrap, "thief", &[], "ls ..");
            assert_eq!(said.stdout, "thief\n", "{}: {said:?}", target.display());
            assert!(said.stderr.contains("git does not work in") && said.stderr.contains(why), "{said:?}");
            let quiet = run_in(&wrap, "thief", &["--quiet-degraded"], "exit 0");
            assert_eq!(quiet.stderr, "");
        }
        fs::remove_file(work.join("thief/.git")).unwrap();
        std::os::unix::fs::symlink(&one, work.join("thief/.git")).unwrap();
        let said = run_in(&wrap, "thief", &[], "ls ..");
        assert_eq!(said.stdout, "thief\n", "{said:?}");
        let explained = explain(&wrap, "thief", &[]);
        assert!(explained.contains(".git is a symbolic link"), "{explained}");
    }

    /// A git directory that only the caller can vouch for is named, and protected then.
    fn a_separate_git_directory_is_named(caller) {
        let wrap = place(caller, "git init -q -b main --separate-git-dir apart tree; git -C tree config user.name t; git -C tree config user.email t@t");
        let apart = wrap.work().join("apart").display().to_string();
        let said = run_in(&wrap, "tree", &[], "git status");
        assert_ne!(said.code(), 0);
        assert!(said.stderr.contains(&format!("--rw {apart}")), "{said:?}");
        let said = run_in(&wrap, "tree", &["--rw", &apart], &format!("{WORK}; echo x > ../apart/hooks/post-commit || echo refused"));
        assert!(said.stdout.ends_with("1\nrefused\n"), "{said:?}");
        let script = "mkdir ../apart/rebase-merge; echo 'exec evil' > ../apart/rebase-merge/git-rebase-todo";
        let said = run_in(&wrap, "tree", &["--rw", &apart], script);
        let todo = fs::read_to_string(wrap.work().join("apart/rebase-merge/git-rebase-todo")).unwrap_or_default();
        assert!(!todo.contains("evil"), "it is searched as one that is found: {said:?}");
        wrap.outside("mkdir keys; echo k > keys/k; echo \"gitdir: $PWD/keys\" > tree/.git");
        let said = run_in(&wrap, "tree", &[], "exit 0");
        assert!(!said.stderr.contains("--rw"), "nobody is told to show what is no git directory: {said:?}");
    }

    /// A layer decides about the git directory as about any path.
    fn a_layer_decides_about_the_git_directory(caller) {
        let wrap = place(caller, "git -C one worktree add -q ../linked");
        let git = wrap.work().join("one/.git").display().to_string();
        let said = run_in(&wrap, "linked", &["--ro", &git], "git status --porcelain && git log --oneline | wc -l; touch ../one/.git/x");
        assert_eq!(said.stdout, "1\n", "{said:?}");
        assert!(!exists(&wrap, "one/.git/x"));
        let said = run_in(&wrap, "linked", &["--workspace-overlay"], "git status --porcelain && git log --oneline | wc -l; touch ../one/.git/x");
        assert_eq!(said.stdout, "1\n", "{said:?}");
        assert!(!exists(&wrap, "one/.git/x"), "nothing reaches the host from an overlay");
        wrap.place.configure_user("locked = [\"files\"]\n");
        let said = run_in(&wrap, "linked", &[], "ls ..");
        assert_eq!(said.stdout, "linked\n", "{said:?}");
        assert!(said.stderr.contains("locks files"), "{said:?}");
    }

    /// What decides about the host's git, in whatever part of a git directory a layer makes writable.
    fn a_writable_part_of_a_git_directory_is_protected(caller) {
        let wrap = place(caller, "git -C one worktree add -q ../linked; make super; git -C super -c protocol.file.allow=always submodule -q add $PWD/one sub; mkdir free");
        let work = wrap.work();
        let options: Vec<String> = ["one/.git/objects", "one/.git/worktrees", "super/.git/modules", "one/.git/hooks"]
            .iter().flat_map(|part| ["--rw".to_owned(), work.join(part).display().to_string()]).collect();
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let script = "cd ..; for file in one/.git/worktrees/linked/commondir one/.git/worktrees/linked/gitdir \
            super/.git/modules/sub/config super/.git/modules/sub/hooks/evil one/.git/hooks/evil; do ( echo x > $file ) 2>/dev/null && echo $file; done
            touch one/.git/objects/free && rm one/.git/objects/free && echo free";
        assert_eq!(run_in(&wrap, "free", &options, script).success(), "free\n");
    }

    /// Git itself does not work on what another user owns, and a `.git` above may be planted.
    fn a_repository_of_another_user_is_no_workspace(caller) {
        let wrap = place(caller, "mkdir one/mine");
        if !nix::unistd::geteuid().is_root() {
            // Only root gives files away; the tests run as root too.
            return;
        }
        let other = if caller.is_root() { 65534 } else { 0 };
        std::os::unix::fs::chown(wrap.work().join("one"), Some(other), None).unwrap();
        let said = run_in(&wrap, "one/mine", &[], "pwd; ls ..").success();
        assert_eq!(said, format!("{}\nmine\n", wrap.work().join("one/mine").display()));
    }

    fn explain_shows_the_repository(caller) {
        let wrap = place(caller, "git -C one worktree add -q ../linked");
        let work = wrap.work();
        let text = explain(&wrap, "linked/src", &[]);
        let start = format!("workspace {0}/linked, programs start in {0}/linked/src\n", work.display());
        assert!(text.contains(&start) && text.contains("the git directory of the repository"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&explain(&wrap, "linked", &["--json"])).unwrap();
        assert_eq!(json["start_directory"], work.join("linked").display().to_string());
        assert!(!exists(&wrap, "one/.git/commondir"), "nothing is made");
    }

    /// An agent works on a worktree that is named.
    fn an_agent_has_the_git_directory_of_its_worktree(caller) {
        let wrap = place(caller, "git -C one worktree add -q ../linked; mkdir folder; echo 'agent_cmd = \"/bin/sh\"' > folder/saggar.toml");
        let explained = explain(&wrap, ".", &["folder", "--workspace", "linked", "--cwd", "src"]);
        assert!(explained.contains("linked/src\n") && explained.contains("the part of this worktree"), "{explained}");
    }
}

fn explain(wrap: &Wrap, directory: &str, options: &[&str]) -> String {
    let mut command = wrap.place.saggar();
    command.arg("explain").args(options).current_dir(wrap.work().join(Path::new(directory)));
    wrap.finish(command).success()
}
