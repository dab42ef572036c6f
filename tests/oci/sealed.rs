//! The copy of saggar that an ordinary user's containers run from: the kernel does not always seal it at once.

use std::fs;
use std::path::Path;

use super::bundle::{Bench, Said};
use crate::support::binary;
use crate::support::caller::Caller;
use crate::support::place::copy_program;

/// A command that seals a copy of a binary of the caller's own before it looks for its container. strace(1) reports its
/// calls of fcntl(2), and makes those that `inject` counts fail as if something held a page of the copy.
fn exec_from_a_copy(bench: &Bench, inject: Option<&str>) -> (Said, String) {
    let (own, trace) = (bench.place.join("work/saggar"), bench.place.join("work/trace"));
    if !own.exists() {
        copy_program(binary::saggar(), &own);
        bench.place.caller.own(&own);
    }
    let mut command = bench.place.command(Path::new("/usr/bin/strace"));
    command.arg("-o").arg(&trace).args(["-e", "trace=fcntl,execveat"]);
    if let Some(calls) = inject {
        command.arg("-e").arg(format!("inject=fcntl:error=EBUSY:when={calls}"));
    }
    command.arg(&own).arg("--root").arg(bench.place.join("oci")).args(["exec", "nobody", "/bin/true"]);
    let said = bench.finish(command);
    (said, fs::read_to_string(trace).unwrap())
}

#[test]
fn a_copy_is_sealed_when_what_holds_its_pages_has_let_go() {
    let caller = match Caller::ordinary() {
        Ok(caller) => caller,
        Err(why) => skip!("{why}"),
    };
    let bench = Bench::new(caller);
    let (said, trace) = exec_from_a_copy(&bench, None);
    said.fails("nobody");
    let calls: Vec<&str> = trace.lines().filter(|line| line.starts_with("fcntl(")).collect();
    let first = 1 + calls.iter().position(|call| call.contains("F_ADD_SEALS")).expect("a copy is sealed");

    let (said, trace) = exec_from_a_copy(&bench, Some(&format!("{first}..{}", first + 2)));
    said.fails("nobody");
    assert_eq!(trace.matches("F_ADD_SEALS").count(), 4, "{trace}");
    assert!(trace.contains("execveat("), "{trace}");

    // It never goes on from a copy that can be written.
    let (said, trace) = exec_from_a_copy(&bench, Some(&format!("{first}+")));
    said.fails("protect saggar's own binary (CVE-2019-5736): Device or resource busy");
    assert!(!trace.contains("execveat("), "{trace}");
}
