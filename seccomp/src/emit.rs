//! What the build script makes as Rust: the compiled profiles for `crates/sys/src/seccomp/tables.rs` to include, and the
//! names of calls for `crates/sandbox/src/plan/container/seccomp/names.rs`.

use crate::bpf::Instruction;
use crate::hash::{PLACES, place};
use crate::policy::Policy;
use crate::profile::{Answer, Group, Profile};
use crate::table::Row;
use std::fmt::Write;

/// The Rust text of one profile: its program, and what `explain` says of it.
pub fn profile(name: &str, profile: &Profile, policy: &Policy, program: &[Instruction]) -> String {
    let upper = name.to_uppercase();
    let mut text = format!("pub(super) static {upper}_PROGRAM: [SockFilter; {}] = [\n", program.len());
    for instruction in program {
        let Instruction { code, jt, jf, k } = instruction;
        put(&mut text, format_args!("    insn({code:#04x}, {jt}, {jf}, {k:#x}),\n"));
    }
    put(&mut text, format_args!("];\n\npub(super) static {upper}: Description = Description {{\n"));
    put(&mut text, format_args!("    name: {name:?},\n    comment: {:?},\n", profile.comment));
    put(&mut text, format_args!("    allowed: {},\n    refusals: &[\n", policy.allowed()));
    for group in profile.groups.iter().filter(|group| refuses(group)) {
        put(
            &mut text,
            format_args!("        Refusal {{ group: {:?}, comment: {:?}, ", group.name, group.comment),
        );
        put(&mut text, format_args!("calls: &{:?}, in_part: {} }},\n", group.calls, allows(group)));
    }
    text.push_str("    ],\n};\n\n");
    text
}

/// The Rust text of the table of calls: each with its numbers, and where to find it by name.
pub fn names(rows: &[Row]) -> String {
    let mut text = format!("static CALLS: [Call; {}] = [\n", rows.len());
    let mut places = [0; PLACES];
    for (Row { name, numbers }, index) in rows.iter().zip(1..) {
        let numbers = numbers.map(|number| number.unwrap_or(u32::MAX));
        put(&mut text, format_args!("    Call {{ name: {name:?}, numbers: {numbers:?} }},\n"));
        let mut at = place(name);
        while places[at] != 0 {
            at = (at + 1) % PLACES;
        }
        places[at] = index;
    }
    put(&mut text, format_args!("];\n\nstatic PLACES: [u16; {PLACES}] = {places:?};\n"));
    text
}

fn answers(group: &Group) -> impl Iterator<Item = Answer> {
    group.rules.iter().map(|rule| rule.answer).chain([group.answer])
}

fn allows(group: &Group) -> bool {
    answers(group).any(|answer| answer == Answer::Allow)
}

fn refuses(group: &Group) -> bool {
    answers(group).any(|answer| answer != Answer::Allow)
}

fn put(text: &mut String, arguments: std::fmt::Arguments) {
    // Writing to a string cannot fail.
    let _ = text.write_fmt(arguments);
}
