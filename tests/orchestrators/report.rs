//! Runs the scenarios of each caller, and says what came of them in the words of cargo's harness.

use std::env;
use std::fs::OpenOptions;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use crate::callers::{Caller, Scenario};

/// The runtime that says whether this machine allows something at all.
const REFERENCE: &str = "/usr/sbin/runc";

enum Outcome {
    Passed,
    Failed,
    /// Cannot be done here, by anybody; with the reason.
    Skipped(String),
}

/// Prints all names.
pub(crate) fn list(callers: &[Caller]) {
    for caller in callers {
        for (name, _) in caller.scenarios {
            println!("{}::{name}: test", caller.name);
        }
    }
}

/// Runs what the filters name, all without any.
pub(crate) fn run(callers: &[Caller], filters: &[String]) -> ExitCode {
    let runtime = match env::var_os("SAGGAR_TEST_RUNTIME") {
        Some(path) => PathBuf::from(path),
        None => crate::binary::saggar().to_owned(),
    };
    let begun = Instant::now();
    let (mut passed, mut failures, mut left_out) = (0, Vec::new(), 0);
    for caller in callers {
        let full = |name: &str| format!("{}::{name}", caller.name);
        let chosen =
            |name: &str| filters.is_empty() || filters.iter().any(|filter| full(name).contains(filter));
        let scenarios: Vec<_> = caller.scenarios.iter().filter(|(name, _)| chosen(name)).collect();
        left_out += caller.scenarios.len() - scenarios.len();
        for (name, outcome) in run_caller(caller, &scenarios, &runtime) {
            match outcome {
                Outcome::Passed => passed += 1,
                Outcome::Failed => failures.push(full(name)),
                Outcome::Skipped(why) => {
                    passed += 1;
                    record_skip(&full(name), &why);
                }
            }
        }
    }
    if !failures.is_empty() {
        println!("\nfailures:\n    {}", failures.join("\n    "));
    }
    println!(
        "\ntest result: {}. {passed} passed; {} failed; 0 ignored; 0 measured; {left_out} filtered out; finished in {:.2}s\n",
        if failures.is_empty() { "ok" } else { "FAILED" },
        failures.len(),
        begun.elapsed().as_secs_f32(),
    );
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs these scenarios with one instance of the caller; what fails is tried with the reference runtime.
fn run_caller(
    caller: &Caller,
    scenarios: &[&'static (&'static str, Scenario)],
    runtime: &Path,
) -> Vec<(&'static str, Outcome)> {
    if scenarios.is_empty() {
        return Vec::new();
    }
    let outcomes = attempt(caller, scenarios, runtime);
    let strict =
        env::var_os("SAGGAR_GUEST").is_some() || env::var("SAGGAR_TEST_ALL").is_ok_and(|all| all == "1");
    let failed = |outcomes: &[(&str, Result<(), String>)]| -> Vec<usize> {
        (0..outcomes.len()).filter(|&at| outcomes[at].1.is_err()).collect()
    };
    let mut skipped = vec![None; outcomes.len()];
    let again = failed(&outcomes);
    if !strict && !again.is_empty() && runtime != Path::new(REFERENCE) && Path::new(REFERENCE).exists() {
        println!("== {} with {REFERENCE}: whether this machine allows what has failed", caller.name);
        let chosen: Vec<_> = again.iter().map(|&at| scenarios[at]).collect();
        for (&at, (_, outcome)) in again.iter().zip(attempt(caller, &chosen, Path::new(REFERENCE))) {
            skipped[at] = outcome.err();
        }
    }
    let judge = |(at, (name, outcome)): (usize, (&'static str, Result<(), String>))| match outcome {
        Ok(()) => (name, Outcome::Passed),
        Err(_) => match skipped[at].take() {
            Some(why) => (name, Outcome::Skipped(why)),
            None => (name, Outcome::Failed),
        },
    };
    let judged: Vec<_> = outcomes.into_iter().enumerate().map(judge).collect();
    for (name, outcome) in &judged {
        let word = if matches!(outcome, Outcome::Failed) { "FAILED" } else { "ok" };
        println!("test {}::{name} ... {word}", caller.name);
    }
    judged
}

/// Each scenario's name, and the message of its failure.
fn attempt(
    caller: &Caller,
    scenarios: &[&'static (&'static str, Scenario)],
    runtime: &Path,
) -> Vec<(&'static str, Result<(), String>)> {
    println!("== {} with {}: {} scenarios", caller.name, runtime.display(), scenarios.len());
    let engine = match caught(|| (caller.start)(runtime)) {
        Ok(engine) => engine,
        Err(why) => {
            println!("{} does not start: {why}", caller.name);
            return scenarios.iter().map(|(name, _)| (*name, Err(why.clone()))).collect();
        }
    };
    let mut outcomes = Vec::new();
    for (name, scenario) in scenarios {
        let begun = Instant::now();
        let outcome = caught(|| scenario(engine.as_ref()));
        let word = if outcome.is_ok() { "works" } else { "does not work" };
        println!("{}::{name} {word} ({:.1} s)", caller.name, begun.elapsed().as_secs_f32());
        if let Err(why) = &outcome {
            println!("{}", why.lines().map(|line| format!("    {line}\n")).collect::<String>());
        }
        outcomes.push((*name, outcome));
    }
    // What is left is as much a failure as an answer that is wrong.
    outcomes.push(("leaves_nothing", caught(|| drop(engine))));
    let ended = outcomes.pop().unwrap();
    if let (_, Err(why)) = ended {
        println!("{} leaves something behind:\n    {why}", caller.name);
        if let Some(last) = outcomes.last_mut() {
            last.1 = Err(format!("after all scenarios: {why}"));
        }
    }
    outcomes
}

/// The message of a panic as an error.
fn caught<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(body)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
    })
}

/// As tests/support/skip.rs does it.
fn record_skip(name: &str, why: &str) {
    let why: String = why.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(300).collect();
    let line = format!("SKIPPED {name}: fails with runc as well: {why}\n");
    eprint!("{line}");
    let file = env::var("SAGGAR_TEST_SKIPS")
        .unwrap_or_else(|_| concat!(env!("CARGO_TARGET_TMPDIR"), "/skipped").to_owned());
    let skipped = OpenOptions::new().create(true).append(true).open(&file);
    skipped.and_then(|mut skipped| skipped.write_all(line.as_bytes())).expect("a skip is counted");
}
