//! Files that the policy hides, in the workspaces of sessions: git leaves them alone while a sandbox runs, and what is
//! kept and applied shows nothing of that.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::stage::{Sessions, control, supervisor};
use crate::support::caller::Caller;

const GIT: &str = "git -c user.name=t -c user.email=t@t";

/// A session on a repository whose tracked `.env` is hidden.
fn hiding(caller: Caller, options: &[&str]) -> (Sessions, Value) {
    let sessions = Sessions::new(caller);
    let place = &sessions.stage.place;
    place.make_file("work/saggar.toml", "[files]\nhide = ['.env']\n");
    place.make_file("work/.env", "SECRET");
    place.make_file("work/code", "old\n");
    sessions.outside(&format!("git init -q && {GIT} add -A && {GIT} commit -qm first"));
    let session = sessions.create("dev", options);
    (sessions, session)
}

/// Runs a shell script in the sandbox; what it printed.
#[track_caller]
fn inside(session: &Value, script: &str) -> String {
    let result = control(session).call("exec", &json!({ "command": script }));
    assert_eq!((&result["exitCode"], &result["stderr"]), (&json!(0), &json!("")), "{script}: {result}");
    result["stdout"].as_str().unwrap().to_owned()
}

as_each_caller! {
    fn git_lives_with_hidden_files_in_each_start(caller) {
        if !std::path::Path::new("/usr/bin/git").exists() {
            skip!("there is no git");
        }
        for (options, place) in [(&[][..], "workspace"), (&["--workspace-overlay"], "upper/changes")] {
            let (sessions, session) = hiding(caller, options);
            let index = sessions.directory("dev").join(place).join(".git/index");
            let kept = format!("GIT_INDEX_FILE={} git ls-files -t .env", index.display());
            let before = sessions.outside("sha256sum .git/index; git ls-files -t");
            let look = "git status --porcelain; git ls-files -t .env";
            assert_eq!(inside(&session, look), "S .env\n", "{place}");
            inside(&session, &format!("echo new >code && {GIT} commit -qam second && git reset -q --hard"));
            assert_eq!(inside(&session, look), "S .env\n", "{place}");
            let watch = supervisor(&session);
            watch.signal(Signal::SIGTERM);
            watch.wait_gone("the supervisor");
            assert_eq!(sessions.outside(&kept), "H .env\n", "{place}");

            sessions.ok(&["resume", "dev"]);
            let session = sessions.show("dev");
            assert_eq!(inside(&session, look), "S .env\n", "{place}");
            assert_eq!(inside(&session, "git show HEAD:code HEAD:.env"), "new\nSECRET", "{place}");
            sessions.ok(&["end", "dev"]);
            assert_eq!(sessions.outside(&kept), "H .env\n", "{place}");
            let changes = sessions.ok(&["diff", "dev"]);
            assert!(changes.contains("M code\n") && !changes.contains(".env"), "{place}: {changes}");
            assert_eq!(sessions.outside("sha256sum .git/index; git ls-files -t"), before, "{place}");
            assert_eq!(sessions.outside("cat .env; git status --porcelain"), "SECRET", "{place}");
        }
    }

    /// A sandbox that only looked has changed nothing.
    fn an_index_of_the_overlay_is_no_change(caller) {
        if !std::path::Path::new("/usr/bin/git").exists() {
            skip!("there is no git");
        }
        let (sessions, session) = hiding(caller, &["--workspace-overlay"]);
        assert_eq!(inside(&session, "git ls-files -t .env"), "S .env\n");
        sessions.ok(&["end", "dev"]);
        assert_eq!(sessions.ok(&["diff", "dev"]), "");
    }
}
