//! Where the prompt of a turn comes from: a word, standard input, a file.

use std::io::Write;
use std::process::Stdio;

use super::served::{Ended, Stage};
use crate::support::process::Process;

/// One turn with this standard input.
fn turn(stage: &Stage, words: &[&str], input: &[u8]) -> Ended {
    let mut command = stage.command(&[&["--adapter", "demo"], words].concat());
    command.stdin(Stdio::piped());
    let mut process = Process::start(&stage.place, command);
    // One that does not read it may have ended.
    let _ = process.take_stdin().write_all(input);
    let stdout = String::from_utf8(process.read_stdout()).unwrap();
    let code = process.wait().code().unwrap();
    Ended { code, stdout, stderr: process.stderr() }
}

as_each_caller! {
    fn a_prompt_is_read_from_standard_input_or_a_file(caller) {
        let stage = Stage::new(caller);
        let long = format!("say \u{e4} {}\nand more\n", "x".repeat(300_000));
        let file = stage.place.make_file("prompt", &long).display().to_string();
        for (words, input) in [(&["-"][..], long.as_bytes()), (&["--prompt-file", &file], b"")] {
            let ended = turn(&stage, words, input);
            assert_eq!(ended.code, 0, "{words:?}: {}", ended.stderr);
            assert!(ended.stdout.contains("and more"), "{words:?}");
            let mut remove = stage.place.saggar();
            remove.args(["session", "remove", &stage.name()]);
            assert_eq!(stage.run(remove).code, 0);
        }
    }

    fn a_prompt_that_is_none_is_refused(caller) {
        let stage = Stage::new(caller);
        let missing = stage.place.join("missing").display().to_string();
        for (words, input, expected) in [
            (&["-"][..], &b"\n \n"[..], "the prompt of standard input is empty"),
            (&["-"], b"\xff", "is not UTF-8"),
            (&["--prompt-file", &missing], b"", "missing: No such file"),
            (&["--prompt-file", "/dev/null"], b"", "not a regular file"),
            (&["--prompt-file", "/etc/passwd", "-"], b"", "cannot be used with"),
        ] {
            let ended = turn(&stage, words, input);
            assert!(ended.code != 0 && ended.stderr.contains(expected), "{words:?}: {ended:?}");
            assert_eq!(ended.stdout, "");
        }
    }
}
