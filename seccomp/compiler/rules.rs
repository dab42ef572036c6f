//! Argument checks to instructions, by seccompiler.
//!
//! seccompiler compiles one rule (conditions that must all hold) to a run of instructions that falls off
//! its end when the rule matches and jumps one past the end when it does not. So a rule followed by its
//! `ret` and by the next rule is a chain, with an answer of its own for each rule, which seccompiler's own
//! filter, with one action for all, cannot have.

use super::Result;
use super::policy::{Check, Op, Test, Verdict};
use super::profile::Answer;
use seccompiler::{
    BpfProgram, SeccompCmpArgLen as Len, SeccompCmpOp as Cmp, SeccompCondition, SeccompRule, sock_filter,
};

// The instructions that there are in our programs (linux/bpf_common.h).
/// `A = word at k of seccomp_data`: BPF_LD | BPF_W | BPF_ABS.
pub(crate) const LOAD: u16 = 0x20;
/// `A &= k`: BPF_ALU | BPF_AND | BPF_K.
pub(crate) const AND: u16 = 0x54;
/// `goto +k`: BPF_JMP | BPF_JA.
pub(crate) const JA: u16 = 0x05;
/// `if A == k`: BPF_JMP | BPF_JEQ | BPF_K.
pub(crate) const IF_EQUAL: u16 = 0x15;
/// `if A > k`: BPF_JMP | BPF_JGT | BPF_K.
pub(crate) const IF_GREATER: u16 = 0x25;
/// `if A >= k`: BPF_JMP | BPF_JGE | BPF_K.
pub(crate) const IF_AT_LEAST: u16 = 0x35;
/// `return k`: BPF_RET | BPF_K.
pub(crate) const RET: u16 = 0x06;

/// The instructions that give `verdict`. They end in a `ret` on every path.
pub(crate) fn compile(verdict: &Verdict) -> Result<BpfProgram> {
    let mut program = Vec::new();
    for rule in &verdict.rules {
        program.extend(conditions(rule)?);
        program.push(ret(rule.answer));
    }
    program.push(ret(verdict.answer));
    Ok(program)
}

fn ret(answer: Answer) -> sock_filter {
    sock_filter { code: RET, jt: 0, jf: 0, k: answer.code() }
}

fn conditions(rule: &Check) -> Result<BpfProgram> {
    let conditions = rule.tests.iter().map(condition).collect::<Result<_>>()?;
    let program: BpfProgram = SeccompRule::new(conditions).map_err(|error| error.to_string())?.into();
    // A rule starts with two jumps: into itself, and past itself for the sake of a rule before it. All jumps
    // in it are forward and relative, so that without its head it means the same in fewer instructions.
    match program.as_slice() {
        [enter, skip, rest @ ..] if enter.code == JA && enter.k == 1 && skip.code == JA => Ok(rest.to_vec()),
        _ => Err("seccompiler's rules no longer start with two jumps".to_owned()),
    }
}

fn condition(test: &Test) -> Result<SeccompCondition> {
    let length = if test.wide { Len::Qword } else { Len::Dword };
    let (op, value) = match test.op {
        Op::Masked { mask, value } => (Cmp::MaskedEq(mask), value),
        Op::Is(value) => (Cmp::Eq, value),
        Op::Not(value) => (Cmp::Ne, value),
        Op::Above(value) => (Cmp::Gt, value),
    };
    SeccompCondition::new(test.arg, length, op, value).map_err(|error| error.to_string())
}
