//! Compiles `tests/probe/probe.c` once, and compares its answers with a table.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::wrapped::Wrap;
use crate::support::place::copy_program;

/// The static probe, or why there is none.
pub(super) fn compiled() -> Result<&'static Path, &'static str> {
    static PROBE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    PROBE.get_or_init(compile).as_deref().map_err(String::as_str)
}

fn compile() -> Result<PathBuf, String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/probe/probe.c");
    // One for each user: in a directory where anybody may write, nobody replaces another's.
    let name = format!("probe-{}", nix::unistd::geteuid());
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    // Another test binary may run at the same time: the name appears with a whole program behind it.
    let fresh = target.with_extension(std::process::id().to_string());
    let gcc = Command::new("gcc").args(["-static", "-O1", "-Wall", "-o"]).arg(&fresh).arg(&source).output();
    let gcc = gcc.map_err(|error| format!("gcc cannot be run: {error}"))?;
    assert!(gcc.status.success(), "the probe does not compile:\n{}", String::from_utf8_lossy(&gcc.stderr));
    fs::rename(&fresh, &target).expect("the probe can be renamed");
    Ok(target)
}

/// The probe, or the end of the test as skipped.
macro_rules! probe {
    () => {
        match $crate::isolation::probe::compiled() {
            Ok(probe) => probe,
            Err(why) => skip!("{why}"),
        }
    };
}
pub(super) use probe;

/// Runs attempts in a sandbox and compares each answer with the table's; every difference is told at once.
pub(super) fn expect(wrap: &Wrap, probe: &Path, options: &[&str], table: &[(&str, &str)]) {
    let attempts: Vec<&str> = table.iter().map(|(attempt, _)| *attempt).collect();
    let answers = answers(wrap, probe, options, &attempts);
    let wrong: Vec<String> = table
        .iter()
        .filter(|(attempt, answer)| answers.get(*attempt).is_none_or(|got| got != answer))
        .map(|(attempt, answer)| format!("{attempt}: {:?} instead of {answer}", answers.get(*attempt)))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// As [`expect`], with one answer for all.
pub(super) fn expect_all(wrap: &Wrap, probe: &Path, answer: &str, attempts: &[&str]) {
    let table: Vec<(&str, &str)> = attempts.iter().map(|attempt| (*attempt, answer)).collect();
    expect(wrap, probe, &[], &table);
}

fn answers(wrap: &Wrap, probe: &Path, options: &[&str], attempts: &[&str]) -> BTreeMap<String, String> {
    let program = install(wrap, probe);
    let mut words = vec![program.to_str().expect("a plain path")];
    words.extend(attempts);
    let output = wrap.run(options, &words).success();
    output
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(attempt, answer)| (attempt.to_owned(), answer.to_owned()))
        .collect()
}

/// Puts the probe in the workspace.
pub(super) fn install(wrap: &Wrap, probe: &Path) -> PathBuf {
    let program = wrap.work().join("probe");
    copy_program(probe, &program);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("its mode can be set");
    program
}
