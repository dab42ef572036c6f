//! What saggar prints on its own, where nothing takes it.

use std::fs::OpenOptions;
use std::process::Stdio;

use super::saggar;
use crate::support::place::Place;

as_each_caller! {
    fn help_and_version_say_that_nothing_takes_them(caller) {
        let place = Place::new(caller);
        for words in [&["--version"][..], &["-V"], &["--help"], &["wrap", "--help"], &["session", "--help"], &["help", "agent"]] {
            let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
            let output = saggar(&place, words).stdout(Stdio::from(full)).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{words:?}: {said}");
            assert!(said.contains("standard output: No space left on device"), "{words:?}: {said}");
            let whole = saggar(&place, words).output().unwrap();
            assert!(whole.status.success() && !whole.stdout.is_empty() && whole.stderr.is_empty(), "{words:?}: {whole:?}");
        }
    }
}
