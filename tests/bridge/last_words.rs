//! What an agent and its scripts said last: in the error, and in the log of the session.

use super::served::{Ended, Stage};
use serde_json::Value;

/// The log of the session.
fn log(stage: &Stage) -> String {
    let mut command = stage.place.saggar();
    command.args(["session", "logs", &stage.name()]);
    let ended = stage.run(command);
    assert_eq!(ended.code, 0, "{ended:?}");
    ended.stdout
}

/// One turn of a script.
fn turn(stage: &Stage, script: &str) -> Ended {
    let script = stage.script("agent", script);
    stage.run(stage.command(&["--adapter", "stream-json", "--agent-cmd", &script, "hi"]))
}

as_each_caller! {
    fn an_agents_last_lines_are_in_the_error_and_in_the_log(caller) {
        let stage = Stage::new(caller);
        let agent = "#!/bin/sh\necho 'no message'\nread -r line\nfor n in 1 2 3 4 5 6; do echo \"error $n\" >&2; done\nprintf 'the \\033[31mkey is wrong' >&2\nexit 3\n";
        let ended = turn(&stage, agent);
        assert_eq!(ended.code, 3, "{ended:?}");
        let expected = "the agent exited with code 3; its last lines: error 3 | error 4 | error 5 | error 6 | the  [31mkey is wrong";
        assert!(ended.stderr.contains(expected), "{ended:?}");
        let log = log(&stage);
        for line in ["no message", "error 1", "error 6", "key is wrong", "the agent exited with code 3"] {
            assert!(log.contains(line), "{line}: {log}");
        }
        let mut show = stage.place.saggar();
        show.args(["session", "show", "--json", &stage.name()]);
        let shown: Value = serde_json::from_str(&stage.run(show).stdout).unwrap();
        assert_eq!((&shown["state"], &shown["cause"]), (&"error".into(), &expected.into()), "{shown}");
    }

    fn scripts_are_in_the_log_and_their_error_is_printed_once(caller) {
        let stage = Stage::new(caller);
        stage.script("install.sh", "#!/bin/sh\necho installs\necho fails >&2\nexit 4\n");
        let ended = turn(&stage, "#!/bin/sh\n");
        ended.refused(125, &["install.sh of the agent's folder ended with exit status 4; its last lines: installs | fails"]);
        assert_eq!(ended.stderr.matches("ended with exit status 4").count(), 1, "{}", ended.stderr);
        let log = log(&stage);
        assert!(log.contains("install.sh: installs") && log.contains("ended with exit status 4"), "{log}");
    }
}
