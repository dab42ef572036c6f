//! The rules as a program of type BPF_PROG_TYPE_CGROUP_DEVICE (cgroup v2).
//!
//! ```text
//! need = what the request asks for
//! from the last rule to the first, where the device fits:
//!     allow: need -= the rule's access; nothing left: allowed
//!     deny:  something of the rule's access still needed: refused
//! what is left: as it is without rules
//! ```
//! So a request for reading and writing may be answered by two rules.

use super::{Kind, Rule, Rules};
use crate::sys::bpf::{self, Insn};
use nix::errno::Errno;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};

/// What our programs are found by.
const NAME: &CStr = c"saggar_devices";

/// Registers: the answer, the context, and what the request says.
const R0: u8 = 0;
const CONTEXT: u8 = 1;
const NEED: u8 = 2;
const KIND: u8 = 3;
const MAJOR: u8 = 4;
const MINOR: u8 = 5;

/// Operations (linux/bpf.h, linux/bpf_common.h).
const LOAD_WORD: u8 = 0x61; // BPF_LDX | BPF_MEM | BPF_W
const MOVE: u8 = 0xb4; // BPF_ALU | BPF_MOV | BPF_K
const MOVE_REGISTER: u8 = 0xbc; // BPF_ALU | BPF_MOV | BPF_X
const AND: u8 = 0x54; // BPF_ALU | BPF_AND | BPF_K
const SHIFT_RIGHT: u8 = 0x74; // BPF_ALU | BPF_RSH | BPF_K
const JUMP: u8 = 0x05; // BPF_JMP | BPF_JA
const JUMP_IF_OTHER: u8 = 0x56; // BPF_JMP32 | BPF_JNE | BPF_K
const JUMP_IF_SET: u8 = 0x46; // BPF_JMP32 | BPF_JSET | BPF_K
const EXIT: u8 = 0x95; // BPF_JMP | BPF_EXIT

fn op(code: u8, destination: u8, source: u8, offset: i16, constant: i32) -> Insn {
    Insn { code, registers: destination | source << 4, offset, constant }
}

fn answer(allowed: bool) -> [Insn; 2] {
    [op(MOVE, R0, 0, 0, i32::from(allowed)), op(EXIT, 0, 0, 0, 0)]
}

/// The program. The context is `struct bpf_cgroup_dev_ctx`: access and kind, major, minor.
pub(in crate::cgroup) fn program(rules: &Rules) -> Vec<Insn> {
    let mut program = vec![
        op(LOAD_WORD, NEED, CONTEXT, 0, 0),
        op(LOAD_WORD, MAJOR, CONTEXT, 4, 0),
        op(LOAD_WORD, MINOR, CONTEXT, 8, 0),
        op(MOVE_REGISTER, KIND, NEED, 0, 0),
        op(AND, KIND, 0, 0, 0xffff),
        op(SHIFT_RIGHT, NEED, 0, 0, 16),
    ];
    for rule in rules.list.iter().rev() {
        block(rule, &mut program);
    }
    program.extend(answer(rules.otherwise));
    program
}

/// One rule; where it does not decide, control falls out at its end.
fn block(rule: &Rule, program: &mut Vec<Insn>) {
    let devices = rule.devices;
    let kind = match devices.kind {
        Kind::Block => 1,
        Kind::Char => 2,
    };
    let numbers = [(MAJOR, devices.major), (MINOR, devices.minor)];
    let mut fits = vec![(KIND, kind)];
    fits.extend(numbers.into_iter().filter_map(|(register, n)| Some((register, n?.cast_signed()))));
    let access = i32::from(rule.access);
    let mut decide = if rule.allow {
        vec![op(AND, NEED, 0, 0, !access), op(JUMP_IF_OTHER, NEED, 0, 2, 0)]
    } else {
        vec![op(JUMP_IF_SET, NEED, 0, 1, access), op(JUMP, 0, 0, 2, 0)]
    };
    decide.extend(answer(rule.allow));
    // Out of the block: over the tests that follow, and the decision.
    for (at, (register, constant)) in fits.iter().enumerate() {
        let over = fits.len() - 1 - at + decide.len();
        // At most seven.
        let over = i16::try_from(over).unwrap_or(i16::MAX);
        program.push(op(JUMP_IF_OTHER, *register, 0, over, *constant));
    }
    program.append(&mut decide);
}

/// Puts the rules in force on a cgroup, in the place of those that we put there before: at no moment is there
/// none.
///
/// # Errors
/// Those of bpf(2).
pub(in crate::cgroup) fn put(cgroup: BorrowedFd<'_>, rules: &Rules) -> Result<(), Errno> {
    let before = bpf::attached(cgroup, NAME)?;
    if rules.is_everything() {
        return before.map_or(Ok(()), |before| bpf::detach(cgroup, before.as_fd()));
    }
    let program = bpf::load_device_filter(&program(rules), NAME)?;
    bpf::attach(cgroup, program.as_fd(), before.as_ref().map(AsFd::as_fd))?;
    // Read back.
    match bpf::attached(cgroup, NAME)? {
        Some(_) => Ok(()),
        None => Err(Errno::EIO),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ALL, Kind, tests::any_rules};
    use super::*;
    use proptest::prelude::*;

    /// An interpreter of the operations above (Documentation/bpf/standardization/instruction-set.rst).
    fn run(program: &[Insn], kind: Kind, major: u32, minor: u32, access: u8) -> u32 {
        let context = [u32::from(access) << 16 | kind as u32, major, minor];
        let mut registers = [0u32; 11];
        let mut at = 0usize;
        for _ in 0..10_000 {
            let insn = program[at];
            let (to, from) = (usize::from(insn.registers & 15), usize::from(insn.registers >> 4));
            let constant = insn.constant.cast_unsigned();
            let jump = match insn.code {
                LOAD_WORD => {
                    assert_eq!(from, usize::from(CONTEXT));
                    registers[to] = context[usize::try_from(insn.offset).unwrap() / 4];
                    false
                }
                MOVE => (registers[to] = constant, false).1,
                MOVE_REGISTER => (registers[to] = registers[from], false).1,
                AND => (registers[to] &= constant, false).1,
                SHIFT_RIGHT => (registers[to] >>= constant, false).1,
                JUMP => true,
                JUMP_IF_OTHER => registers[to] != constant,
                JUMP_IF_SET => registers[to] & constant != 0,
                EXIT => return registers[0],
                other => panic!("operation {other:#x}"),
            };
            at += 1;
            if jump {
                assert!(insn.offset >= 0, "the program has loops");
                at += usize::try_from(insn.offset).unwrap();
            }
        }
        panic!("the program does not end")
    }

    proptest! {
        #[test]
        fn the_program_says_what_the_rules_say(rules in any_rules(), major in 0u32..4, minor in 0u32..4) {
            let program = program(&rules);
            for kind in [Kind::Block, Kind::Char] {
                for access in 1..=ALL {
                    let says = run(&program, kind, major, minor, access) == 1;
                    prop_assert_eq!(says, rules.allows(kind, major, minor, access), "{:?} {}", kind, access);
                }
            }
        }
    }

    #[test]
    fn the_program_of_the_default_devices_does_not_change_by_itself() {
        let program = program(&Rules::new(&[]).unwrap());
        let text: Vec<_> = program
            .iter()
            .map(|i| format!("{:02x} {:02x} {:+} {:#x}", i.code, i.registers, i.offset, i.constant))
            .collect();
        insta::assert_snapshot!(text.join("\n"));
    }

    #[test]
    fn numbers_above_two_to_the_31_are_compared_as_they_are() {
        let rule =
            serde_json::json!([{ "allow": true, "type": "c", "major": 4_294_967_295_u64, "minor": 7 }]);
        let rules = Rules::new(&serde_json::from_value::<Vec<_>>(rule).unwrap()).unwrap();
        assert_eq!(run(&program(&rules), Kind::Char, u32::MAX, 7, ALL), 1);
        assert_eq!(run(&program(&rules), Kind::Char, u32::MAX, 8, ALL), 0);
    }
}
