//! Argument checks to instructions, by seccompiler.
//!
//! seccompiler compiles one rule (conditions that must all hold) to a run of instructions that falls off
//! its end when the rule matches and jumps one past the end when it does not. So a rule followed by its
//! `ret` and by the next rule is a chain, with an answer of its own for each rule, which seccompiler's own
//! filter, with one action for all, cannot have.

use crate::Result;
use crate::bpf::{Instruction, JA, ret};
use crate::policy::{Check, Op, Test, Verdict};
use seccompiler::{
    BpfProgram, SeccompCmpArgLen as Len, SeccompCmpOp as Cmp, SeccompCondition, SeccompRule, sock_filter,
};

/// The instructions that give `verdict`. They end in a `ret` on every path.
pub fn compile(verdict: &Verdict) -> Result<Vec<Instruction>> {
    let mut program = Vec::new();
    for rule in &verdict.rules {
        program.extend(conditions(rule)?);
        program.push(ret(rule.answer.code()));
    }
    program.push(ret(verdict.answer.code()));
    Ok(program)
}

fn conditions(rule: &Check) -> Result<Vec<Instruction>> {
    let conditions = rule.tests.iter().map(condition).collect::<Result<_>>()?;
    let program: BpfProgram = SeccompRule::new(conditions).map_err(|error| error.to_string())?.into();
    // A rule starts with two jumps: into itself, and past itself for the sake of a rule before it. All jumps
    // in it are forward and relative, so that without its head it means the same in fewer instructions.
    match program.as_slice() {
        [enter, skip, rest @ ..] if enter.code == JA && enter.k == 1 && skip.code == JA => {
            Ok(rest.iter().map(instruction).collect())
        }
        _ => Err("seccompiler's rules no longer start with two jumps".to_owned()),
    }
}

fn instruction(&sock_filter { code, jt, jf, k }: &sock_filter) -> Instruction {
    Instruction { code, jt, jf, k }
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
