//! Sessions of an ordinary user where `/proc` hides processes that it may not trace (hidepid): its supervisors among them.

use std::process::Command;

use super::stage::Sessions;
use crate::support::caller::Caller;

/// In a pid namespace whose `/proc` is mounted so, which ends with the command.
#[test]
fn a_session_is_served_and_ends() {
    let caller = match (Caller::current().is_root(), Caller::ordinary()) {
        (true, Ok(caller)) => caller,
        (false, _) => skip!("this test needs to be started as root"),
        (_, Err(why)) => skip!("{why}"),
    };
    let sessions = Sessions::new(caller);
    let as_user = sessions.command(&[]);
    let work = sessions.stage.work();
    let script = "\"$0\" session create --adapter demo --session hidden \"$1\" && \
        \"$0\" session list --json | grep -o '\"state\":\"[a-z]*\"' && \
        \"$0\" session send --json hidden 'my name is Ann' | grep -c Ann && \
        \"$0\" session exec hidden echo beside && \
        \"$0\" session end hidden && \
        \"$0\" session list --json | grep -o '\"state\":\"[a-z]*\"'";
    // What starts the program of the stage as its user is in the command already.
    let mut command = Command::new("/usr/bin/unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "/bin/sh", "-c"]);
    command.arg("mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid \"$1\" --regid \"$1\" --clear-groups sh -c \"$2\" \"$3\" \"$4\"");
    command.arg("sh").arg(caller.uid().to_string()).arg(script).arg(as_user.get_program()).arg(&work);
    command.env_clear().current_dir(&work);
    command.envs(as_user.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = command.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines[..2], ["hidden", "\"state\":\"active\""], "{stdout}{stderr}");
    assert_eq!(lines[3..], ["beside", "\"state\":\"ended\""], "{stdout}{stderr}");
}
