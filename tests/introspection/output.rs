//! What saggar prints on its own, where nothing takes it.

use std::fs::OpenOptions;
use std::process::{Output, Stdio};

use super::saggar;
use crate::support::place::Place;

/// Runs saggar without a standard output.
fn closed_stdout(place: &Place, words: &[&str]) -> Output {
    let program = saggar(place, words);
    let mut shell = place.command("/bin/sh".as_ref());
    shell.args(["-c", "exec \"$@\" >&-", "sh"]).arg(program.get_program()).args(program.get_args());
    shell.output().unwrap()
}

as_each_caller! {
    /// A script that reads an empty file would take it for the answer.
    fn commands_whose_output_is_lost_fail(caller) {
        let place = Place::new(caller);
        for words in [
            &["doctor"][..], &["doctor", "--json"], &["explain"], &["explain", "--path", "/etc"], &["policy", "show"],
            &["policy", "check"], &["session", "list"], &["session", "list", "--json"], &["stats"], &["metrics"],
            &["completions", "bash"], &["features"], &["list"], &["quarantine", "list"], &["wrap", "--dry-run", "--", "true"],
        ] {
            let output = closed_stdout(&place, words);
            let said = String::from_utf8_lossy(&output.stderr);
            let whole = saggar(&place, words).output().unwrap();
            let silent = whole.stdout.is_empty();
            assert!(silent || !output.status.success(), "{words:?}: {said}");
            assert!(silent || said.contains("standard output"), "{words:?}: {said}");
        }
    }

    fn help_and_version_say_that_nothing_takes_them(caller) {
        let place = Place::new(caller);
        for words in [&["--version"][..], &["-V"], &["--help"], &["wrap", "--help"], &["session", "--help"], &["help", "agent"]] {
            let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
            let output = saggar(&place, words).stdout(Stdio::from(full)).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{words:?}: {said}");
            assert!(said.contains("standard output: No space left on device"), "{words:?}: {said}");
            let closed = closed_stdout(&place, words);
            let said = String::from_utf8_lossy(&closed.stderr);
            assert_eq!((closed.status.code(), said.lines().count()), (Some(1), 1), "{words:?}: {said}");
            assert!(said.contains("standard output: it is closed"), "{words:?}: {said}");
            let whole = saggar(&place, words).output().unwrap();
            assert!(whole.status.success() && !whole.stdout.is_empty() && whole.stderr.is_empty(), "{words:?}: {whole:?}");
        }
    }
}
