//! A program that uses saggar as a library: `examples/embed.rs`, which `cargo test` builds.

use std::path::PathBuf;
use std::process::Output;

use crate::support::place::Place;

/// An example of this build, beside the directory of the test binaries.
pub(crate) fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let example = test.parent().and_then(|deps| deps.parent()).unwrap().join("examples").join(name);
    assert!(example.exists(), "{} is missing: cargo build --examples", example.display());
    example
}

fn run(place: &Place, arguments: &[&str]) -> Output {
    let mut command = place.command(&example("embed"));
    command.args(arguments).output().unwrap()
}

fn check(place: &Place, arguments: &[&str], status: i32, output: &str) {
    let ended = run(place, arguments);
    let stderr = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(String::from_utf8_lossy(&ended.stdout), output, "{stderr}");
    assert_eq!(ended.status.code(), Some(status), "{stderr}");
}

as_each_caller! {
    /// The library starts a sandbox, and its caller gets the exit status of the program.
    fn embedding_program_gets_the_exit_status(caller) {
        let place = Place::new(caller);
        check(&place, &[], 0, "exit status 0\n");
        check(&place, &["sh", "-c", "exit 3"], 3, "exit status 3\n");
        check(&place, &["sh", "-c", "kill -TERM $$"], 143, "exit status 143\n");
        check(&place, &["no-such-program"], 127, "exit status 127\n");
    }

    /// The program finds its workspace, and nothing of the home of its caller.
    fn embedding_program_confines_its_command(caller) {
        let place = Place::new(caller);
        place.make_file("home/secret", "secret");
        place.make_file("work/own", "");
        let secret = place.join("home/secret");
        check(&place, &["ls"], 0, "own\nexit status 0\n");
        check(&place, &["test", "-e", secret.to_str().unwrap()], 1, "exit status 1\n");
    }
}
