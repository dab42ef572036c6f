//! Compiles the device rules to a program of type BPF_PROG_TYPE_CGROUP_DEVICE (cgroup v2).
//!
//! ```text
//! need = the requested access
//! from the last rule to the first, if the device matches:
//!     allow: need -= the rule's access; nothing left: allowed
//!     deny:  part of the rule's access still needed: denied
//! the rest of need: the default
//! ```
//! So two rules together may allow a request for reading and writing.

use super::{DeviceKind, DeviceRule, DeviceRules};
use nix::errno::Errno;
use saggar_sys::bpf::{self, BpfInsn};
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};

/// The name by which our programs are found.
const PROGRAM_NAME: &CStr = c"saggar_devices";

/// Registers: the result, the context, and the fields of the request.
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

fn op(code: u8, destination: u8, source: u8, offset: i16, constant: i32) -> BpfInsn {
    BpfInsn { code, registers: destination | source << 4, offset, constant }
}

fn return_verdict(allowed: bool) -> [BpfInsn; 2] {
    [op(MOVE, R0, 0, 0, i32::from(allowed)), op(EXIT, 0, 0, 0, 0)]
}

/// Compiles the rules. The program's context is `struct bpf_cgroup_dev_ctx`: access and kind, major, minor.
pub(in crate::cgroup) fn program(rules: &DeviceRules) -> Vec<BpfInsn> {
    let mut program = vec![
        op(LOAD_WORD, NEED, CONTEXT, 0, 0),
        op(LOAD_WORD, MAJOR, CONTEXT, 4, 0),
        op(LOAD_WORD, MINOR, CONTEXT, 8, 0),
        op(MOVE_REGISTER, KIND, NEED, 0, 0),
        op(AND, KIND, 0, 0, 0xffff),
        op(SHIFT_RIGHT, NEED, 0, 0, 16),
    ];
    for rule in rules.list.iter().rev() {
        rule_block(rule, &mut program);
    }
    program.extend(return_verdict(rules.default_allow));
    program
}

/// Emits one rule; if it does not decide, execution continues after it.
fn rule_block(rule: &DeviceRule, program: &mut Vec<BpfInsn>) {
    let devices = rule.devices;
    let kind = match devices.kind {
        DeviceKind::Block => 1,
        DeviceKind::Char => 2,
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
    decide.extend(return_verdict(rule.allow));
    // Jumps out of the block, over the tests that follow and the decision.
    for (at, (register, constant)) in fits.iter().enumerate() {
        let over = fits.len() - 1 - at + decide.len();
        // The distance is at most seven instructions.
        let over = i16::try_from(over).unwrap_or(i16::MAX);
        program.push(op(JUMP_IF_OTHER, *register, 0, over, *constant));
    }
    program.append(&mut decide);
}

/// Attaches the rules to a cgroup, atomically in place of a program that saggar attached before.
///
/// # Errors
/// Those of bpf(2).
pub(in crate::cgroup) fn attach(cgroup: BorrowedFd<'_>, rules: &DeviceRules) -> Result<(), Errno> {
    let before = bpf::find_attached(cgroup, PROGRAM_NAME)?;
    if rules.allows_everything() {
        return before.map_or(Ok(()), |before| bpf::detach(cgroup, before.as_fd()));
    }
    let program = bpf::load_device_filter(&program(rules), PROGRAM_NAME)?;
    bpf::attach(cgroup, program.as_fd(), before.as_ref().map(AsFd::as_fd))?;
    // Reads back that the program is attached.
    match bpf::find_attached(cgroup, PROGRAM_NAME)? {
        Some(_) => Ok(()),
        None => Err(Errno::EIO),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ALL, DeviceKind, tests::any_rules};
    use super::*;
    use proptest::prelude::*;

    /// An interpreter of the instructions above (Documentation/bpf/standardization/instruction-set.rst).
    fn run(program: &[BpfInsn], kind: DeviceKind, major: u32, minor: u32, access: u8) -> u32 {
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
            for kind in [DeviceKind::Block, DeviceKind::Char] {
                for access in 1..=ALL {
                    let says = run(&program, kind, major, minor, access) == 1;
                    prop_assert_eq!(says, rules.allows(kind, major, minor, access), "{:?} {}", kind, access);
                }
            }
        }
    }

    #[test]
    fn the_program_of_the_default_devices_does_not_change_by_itself() {
        let program = program(&DeviceRules::new(&[]).unwrap());
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
        let rules = DeviceRules::new(&serde_json::from_value::<Vec<_>>(rule).unwrap()).unwrap();
        assert_eq!(run(&program(&rules), DeviceKind::Char, u32::MAX, 7, ALL), 1);
        assert_eq!(run(&program(&rules), DeviceKind::Char, u32::MAX, 8, ALL), 0);
    }
}
