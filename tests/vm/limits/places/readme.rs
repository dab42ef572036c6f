//! What the README says about limits, line by line as it is written there.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use super::way::Way;
use super::{LIMITS, callers, machine, share_machine};
use crate::support::place::Place;

/// The commands of the README that name a limit.
fn commands() -> Vec<String> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let is_limited = |line: &&str| {
        line.starts_with("saggar ")
            && LIMITS.iter().any(|limit| line.split(' ').any(|word| word == limit.option[0]))
    };
    text.lines().filter(is_limited).map(str::to_owned).collect()
}

#[test]
fn places_of_a_log_in_run_the_commands_of_the_readme() {
    let Some(callers) = callers() else { skip!("this test needs to be started as root") };
    let _turn = share_machine();
    let commands = commands();
    assert!(
        LIMITS.iter().all(|limit| commands.iter().any(|line| line.contains(limit.option[0]))),
        "{commands:?}"
    );
    for caller in callers.into_iter().filter(|caller| Way::Login.must_hold(*caller, machine())) {
        let place = Place::new(caller);
        place.make_file("work/Makefile", "test:\n\t@echo tested\n");
        let saggar = place.saggar();
        symlink(saggar.get_program(), place.join("saggar")).unwrap();
        for (number, line) in commands.iter().enumerate() {
            let inner = format!(
                "cd {} && export PATH=$PATH:{place} HOME={home} SAGGAR_STATE_DIR={home}\n{line}\n",
                place.work().display(),
                place = place.path().display(),
                home = place.join("home").display(),
            );
            let inner = place.make_file("inner.sh", &inner);
            let name = format!("{}-{number}", place.path().file_name().unwrap().to_str().unwrap());
            let script = Way::Login.script(caller, machine(), &name, inner.to_str().unwrap());
            let output = Command::new("/bin/sh").args(["-c", &script]).stdin(Stdio::null()).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{line}: {}: {said}", output.status);
            assert_eq!(String::from_utf8_lossy(&output.stdout), "tested\n", "{line}");
        }
    }
}
