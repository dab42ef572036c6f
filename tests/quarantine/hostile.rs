//! What is made to lead the look astray, or to stop it.

use std::fs;

use super::told::{Session, events, moved, names, telling};
use super::wrapped::run;
use crate::isolation::wrapped::Wrap;
use crate::support::caller::Caller;

as_each_caller! {
    fn links_fifos_and_directories_are_moved_as_they_are(caller) {
        let wrap = Wrap::new(caller);
        let _session = Session::of(&wrap.place);
        let before = fs::read("/etc/passwd").unwrap();
        let script = "ln -s /etc/passwd .bashrc; mkfifo .mcp.json; mkdir -p .profile/deep; ln -s /etc .claude; ln -s /etc .config; \
            mkdir .vscode; ln -s / .vscode/root; mkfifo .vscode/fifo; chmod 0 .vscode/fifo; ln -s . .envrc; exit 0";
        let ended = run(&wrap, &[], script);
        assert_eq!(ended.code(), 0, "{ended:?}");
        assert_eq!(names(&wrap.place), [".bashrc", ".claude", ".config", ".envrc", ".mcp.json", ".profile", ".vscode"]);
        for (path, to) in moved(&wrap.place) {
            let is_link = to.symlink_metadata().unwrap().file_type().is_symlink();
            assert_eq!(is_link, [".bashrc", ".claude", ".config", ".envrc"].contains(&&*path), "{path}");
        }
        assert_eq!(fs::read("/etc/passwd").unwrap(), before);
    }

    fn git_files_that_are_none_do_not_stop_it(caller) {
        let wrap = Wrap::new(caller);
        let _session = Session::of(&wrap.place);
        let script = "git init -q .; rm .git/config; mkfifo .git/config; rm -r .git/hooks; ln -s /etc .git/hooks; \
            git init -q a; rm a/.git/config; ln -s /dev/zero a/.git/config; git init -q b; truncate -s 1G b/.git/config; \
            mkdir -p c; mkfifo c/.git; git init -q d; chmod 0 d/.git/config; exit 0";
        let ended = run(&wrap, &[], script);
        assert_eq!(ended.code(), 0, "{ended:?}");
        let names = names(&wrap.place);
        for name in [".git/config", ".git/hooks", "a/.git/config", "b/.git/config"] {
            assert!(names.iter().any(|known| known == name), "{name}: {names:?}");
        }
    }

    /// Ten thousand files under one name go as one; ten thousand hooks too.
    fn many_entries_are_one(caller) {
        let wrap = Wrap::new(caller);
        let _session = Session::of(&wrap.place);
        let script = "mkdir .bashrc && (cd .bashrc && seq 10000 | xargs touch) && git init -q . && \
            (cd .git/hooks && seq 10000 | xargs touch && chmod +x 1 10000)";
        let ended = run(&wrap, &[], script);
        assert_eq!(ended.code(), 0, "{ended:?}");
        assert_eq!(names(&wrap.place), [".bashrc", ".git/hooks"]);
    }

    /// A directory that its owner closed: told of, or moved, and never an error.
    fn a_closed_directory_does_not_stop_it(caller) {
        let wrap = Wrap::new(caller);
        let _session = Session::of(&wrap.place);
        let script = "mkdir .claude && echo {} > .claude/settings.json && chmod 0 .claude; mkdir .vscode; chmod 0555 .vscode; echo x > .zshrc";
        let ended = run(&wrap, &[], script);
        assert_eq!(ended.code(), 0, "{ended:?}");
        let names = names(&wrap.place);
        assert!(names.contains(&".zshrc".to_owned()) && names.contains(&".vscode".to_owned()), "{names:?}");
        let told = events(&wrap.place, "reported").iter().any(|event| event["path"].as_str().unwrap().contains(".claude"));
        assert!(told || names.contains(&".claude/settings.json".to_owned()), "{names:?}");
        wrap.outside("chmod 755 .claude 2>&- || true");
    }
}

/// A work tree on another file system than the quarantine: copied, and gone. Where root's sessions are cannot be
/// chosen, so this is an ordinary user's.
#[test]
fn another_file_system_is_crossed() {
    let caller = match Caller::ordinary() {
        Ok(caller) => caller,
        Err(why) => skip!("{why}"),
    };
    let wrap = Wrap::new(caller);
    let Ok(other) = tempfile::Builder::new().prefix("saggar-quar-").tempdir_in("/dev/shm") else {
        skip!("there is no /dev/shm to write to");
    };
    caller.own(other.path());
    let script = "mkdir -p .vscode/a; echo x > .vscode/a/tasks.json; ln -s /etc/passwd .vscode/link; mkfifo .vscode/fifo; \
        ln -s /etc/passwd .bashrc; mkdir .idea; (cd .idea && seq 10001 | xargs touch)";
    let mut saggar = telling(&wrap.place, &wrap.command(&[], &["/bin/sh", "-c", script]));
    saggar.env("XDG_STATE_HOME", other.path());
    let ended = wrap.finish(saggar);
    assert_eq!(ended.code(), 0, "{ended:?}");
    assert_eq!(names(&wrap.place), [".bashrc", ".idea", ".vscode"]);
    let moved = moved(&wrap.place);
    let to = |name: &str| &moved.iter().find(|(path, _)| path == name).unwrap().1;
    for name in [".bashrc", ".vscode"] {
        assert!(to(name).starts_with(other.path()), "{}", to(name).display());
    }
    assert_eq!(fs::read_to_string(to(".vscode").join("a/tasks.json")).unwrap(), "x\n");
    assert_eq!(fs::read_link(to(".vscode").join("link")).unwrap().to_str(), Some("/etc/passwd"));
    assert_eq!(fs::read_link(to(".bashrc")).unwrap().to_str(), Some("/etc/passwd"));
    // Too much to copy: it stays, under a name that nobody obeys.
    assert!(to(".idea").starts_with(wrap.work()) && to(".idea").is_dir());
    let left: Vec<_> = fs::read_dir(wrap.work()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 1, "{left:?}");
}
