//! `saggar agent DIR PROMPT`: one turn, its messages on stdout, its outcome as exit status.

use std::process::Stdio;

use serde_json::Value;

use super::served::Stage;
use crate::kill::alive_in;
use crate::support::process::Process;

const INIT: &str = r#"{"type":"system","subtype":"init","session_id":"c"}"#;
const ODD: &str =
    r#"{"z":2.50,"type":"assistant","a":1e400,"a":12345678901234567890,"t":"\u0000\ud834\udd1e"}"#;
const RESULT: &str = r#"{"subtype":"success","type":"result"}"#;

/// Clock ticks of 10 ms that say nothing about a cost.
const COST_FLOOR: u64 = 30;

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

as_each_caller! {
    /// BP-11, BP-33: on a pipe, the agent's own lines and nothing else.
    fn messages_on_a_pipe_are_the_agents_own_lines(caller) {
        let stage = Stage::new(caller);
        let script = stage.script(
            "agent", &format!("#!/bin/sh\nread -r line\nprintf '%s\\n' '{INIT}' '{ODD}' '{RESULT}'\nread -r line\n"),
        );
        let command = stage.command(&["--adapter", "stream-json", "--agent-cmd", &script, "go"]);
        let ended = stage.run(command);
        assert_eq!((ended.code, ended.stdout.as_str()), (0, format!("{INIT}\n{ODD}\n{RESULT}\n").as_str()), "{}", ended.stderr);
    }

    /// The first run of the README: a folder, a prompt, an answer; a fresh copy of the folder, named on stderr.
    fn a_prompt_is_answered_in_a_copy_of_the_folder(caller) {
        let stage = Stage::new(caller);
        let mut command = stage.place.saggar();
        command.arg("agent").arg(stage.work()).args(["--adapter", "demo", "run: echo made > made; cat CLAUDE.md"]);
        let ended = stage.run(command);
        assert_eq!(ended.code, 0, "{ended:?}");
        let result = lines(&ended.stdout).pop().unwrap();
        assert_eq!((&result["type"], &result["subtype"]), (&"result".into(), &"success".into()));
        assert!(ended.stdout.contains("The folder of a test."), "{}", ended.stdout);
        assert!(!stage.work().join("made").exists(), "the folder itself is left alone");
        let copy = ended.stderr.lines().find_map(|line| line.strip_prefix("workspace: ")).expect("it is named");
        assert_eq!(std::fs::read_to_string(format!("{copy}/made")).unwrap(), "made\n");
    }

    /// The turn is complete all the same. A reader that has closed its pipe wants no more, as `head`.
    fn lost_output_is_a_failure(caller) {
        let stage = Stage::new(caller);
        let mut command = stage.command(&["--adapter", "demo", "run: echo made > made"]);
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let ended = command.stdin(Stdio::null()).stdout(full).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{said}");
        assert!(said.contains("write to standard output: No space left on device"), "{said}");
        assert!(stage.work().join("made").exists());

        let stage = Stage::new(caller);
        let command = stage.command(&["--adapter", "demo", "run: echo made > made"]);
        let mut shell = stage.place.command("/bin/sh".as_ref());
        shell.args(["-c", "exec \"$@\" >&-", "sh"]).arg(command.get_program()).args(command.get_args());
        let ended = shell.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{said}");
        assert!(said.contains("write to standard output: Bad file number") && stage.work().join("made").exists(), "{said}");

        let stage = Stage::new(caller);
        let mut command = stage.command(&["--adapter", "demo", "hi"]);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = command.stdin(Stdio::null()).stdout(writer).output().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    }

    /// A turn that fails says so by the agent's own code.
    fn a_crash_is_the_exit_status(caller) {
        let stage = Stage::new(caller);
        let ended = stage.run(stage.command(&["--adapter", "demo", "crash"]));
        assert_eq!(ended.code, 3, "{ended:?}");
        assert!(ended.stderr.contains("the agent exited with code 3"), "{ended:?}");
    }

    /// DECISIONS 13: 124, and nothing lives, though nothing ends by itself.
    fn the_time_limit_ends_everything(caller) {
        let stage = Stage::new(caller);
        let command = stage.command(&[
            "--adapter", "demo", "--timeout", "1s", "run: setsid sleep 1000 & (setsid sleep 1000 &); sleep 1000",
        ]);
        let ended = stage.run(command);
        assert_eq!(ended.code, 124, "{ended:?}");
        assert_eq!(alive_in(&stage.work()), [0; 0]);
    }

    /// The same when nobody reads stdout, and the agent has much to say.
    fn time_limit_applies_while_stdout_is_not_read(caller) {
        let stage = Stage::new(caller);
        let script = stage.script("agent", "#!/bin/sh\nread -r line\nexec yes '{\"type\":\"assistant\"}'\n");
        let command = stage.command(&[
            "--adapter", "stream-json", "--agent-cmd", &script, "--timeout", "1s", "go",
        ]);
        let mut process = Process::start(&stage.place, command);
        let stdout = process.take_stdout();
        assert_eq!(process.wait().code(), Some(124));
        drop(stdout);
        assert_eq!(alive_in(&stage.work()), [0; 0]);
    }

    /// The processor time of the supervisor: eight times the size, against sixty-four times if it were quadratic.
    fn a_large_message_is_printed_in_linear_time(caller) {
        let cost = |size: usize| {
            let stage = Stage::new(caller);
            let script = stage.script("agent", &format!(
                "#!/usr/bin/python3\nimport sys\nsys.stdin.readline()\nprint('{{\"type\":\"assistant\",\"t\":\"' + 'x' * {size} + '\"}}')\n\
                 print('{RESULT}')\nsys.stdout.flush()\nsys.stdin.readline()\n"
            ));
            let command = stage.command(&["--adapter", "stream-json", "--agent-cmd", &script, "go"]);
            let mut process = Process::start(&stage.place, command);
            drop(process.take_stdin());
            let stdout = process.read_stdout();
            let ticks = process.ticks_at_the_end();
            let (status, lines) = (process.wait(), stdout.split(|&byte| byte == b'\n').count() - 1);
            assert_eq!((status.code(), lines), (Some(0), 2), "{}", process.stderr());
            assert!(stdout.len() > size, "all of it");
            ticks
        };
        // What a start costs is no cost of a message.
        let start = cost(0);
        let (small, large) = (cost(5 << 20).saturating_sub(start), cost(40 << 20).saturating_sub(start));
        assert!(large <= 32 * small + COST_FLOOR, "{small} and {large} ticks");
    }

    /// Nobody is there to ask: the answer is no, and the command does not run.
    fn permission_request_without_a_user_is_denied(caller) {
        let stage = Stage::new(caller);
        let ended = stage.run(stage.command(&["--adapter", "demo", "ask: echo > ran"]));
        assert_eq!(ended.code, 0, "{ended:?}");
        assert!(ended.stdout.contains("I was not allowed"), "{ended:?}");
        assert!(!stage.work().join("ran").exists());
    }

    /// What happened, on a descriptor of its own.
    fn status_descriptor_reports_start_and_exit(caller) {
        let stage = Stage::new(caller);
        // A shell opens it: what this process opened for one child, all its children would have.
        let mut command = stage.place.command("/bin/sh".as_ref());
        let saggar = stage.place.saggar();
        command.args(["-c", "exec \"$0\" \"$@\" 3>status"]).arg(saggar.get_program()).arg("agent").arg(stage.work());
        command.args(["--id", &stage.name(), "--adapter", "demo", "--status-fd", "3", "crash"]);
        let ended = stage.run(command);
        assert_eq!(ended.code, 3, "{ended:?}");
        let text = std::fs::read_to_string(stage.work().join("status")).unwrap();
        let events = lines(&text);
        let [started, exited] = &events[..] else { panic!("{text}") };
        assert_eq!((&started["event"], &exited["event"]), (&"started".into(), &"exited".into()), "{text}");
        assert_eq!((&started["id"], &exited["exit_code"]), (&stage.name().into(), &3.into()), "{text}");
    }
}
