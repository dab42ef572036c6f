//! Compiles checks of arguments to instructions.
//!
//! The machine compares words of 32 bits. On a 64-bit ABI a check is one of the high word and one of the low;
//! on a 32-bit ABI the low word of the argument is compared with the low word of the value.

use oci_spec::runtime::LinuxSeccompOperator as Operator;
use saggar_seccomp::Result;
use saggar_seccomp::bpf::{AND, IF_AT_LEAST, IF_EQUAL, IF_GREATER, Instruction, LOAD};

/// A check of one argument.
#[derive(Debug, Clone, Copy)]
pub(super) struct ArgCheck {
    /// Index of the argument, 0 to 5.
    pub(super) arg: u32,
    /// The comparison operator.
    pub(super) operator: Operator,
    /// The bits that are compared: all, except for [`Operator::ScmpCmpMaskedEq`].
    pub(super) mask: u64,
    /// The value to compare with.
    pub(super) value: u64,
}

/// The target of a jump after a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JumpTarget {
    /// The next comparison.
    Next,
    /// The end of the check, which holds.
    Holds,
    /// The next rule, because the check fails.
    Fails,
}

/// A comparison of one 32-bit word.
#[derive(Debug, Clone, Copy)]
struct WordComparison {
    high: bool,
    code: u16,
    yes: JumpTarget,
    no: JumpTarget,
}

const fn compare(high: bool, code: u16, yes: JumpTarget, no: JumpTarget) -> WordComparison {
    WordComparison { high, code, yes, no }
}

/// Returns the comparisons of `operator` on a 64-bit ABI; the last one alone is the check on a 32-bit ABI.
fn compares(operator: Operator) -> &'static [WordComparison] {
    use JumpTarget::{Fails, Holds, Next};
    match operator {
        Operator::ScmpCmpEq | Operator::ScmpCmpMaskedEq => {
            const { &[compare(true, IF_EQUAL, Next, Fails), compare(false, IF_EQUAL, Holds, Fails)] }
        }
        Operator::ScmpCmpNe => {
            const { &[compare(true, IF_EQUAL, Next, Holds), compare(false, IF_EQUAL, Fails, Holds)] }
        }
        Operator::ScmpCmpGt => {
            const {
                &[
                    compare(true, IF_GREATER, Holds, Next),
                    compare(true, IF_EQUAL, Next, Fails),
                    compare(false, IF_GREATER, Holds, Fails),
                ]
            }
        }
        Operator::ScmpCmpGe => {
            const {
                &[
                    compare(true, IF_GREATER, Holds, Next),
                    compare(true, IF_EQUAL, Next, Fails),
                    compare(false, IF_AT_LEAST, Holds, Fails),
                ]
            }
        }
        Operator::ScmpCmpLt => {
            const {
                &[
                    compare(true, IF_GREATER, Fails, Next),
                    compare(true, IF_EQUAL, Next, Holds),
                    compare(false, IF_AT_LEAST, Fails, Holds),
                ]
            }
        }
        Operator::ScmpCmpLe => {
            const {
                &[
                    compare(true, IF_GREATER, Fails, Next),
                    compare(true, IF_EQUAL, Next, Holds),
                    compare(false, IF_GREATER, Fails, Holds),
                ]
            }
        }
    }
}

/// Adds instructions that fall through at the end when all `checks` hold, and jump over `after` more instructions when
/// one fails.
pub(super) fn emit_checks(
    program: &mut Vec<Instruction>,
    checks: &[ArgCheck],
    wide: bool,
    after: usize,
) -> Result<()> {
    let mut jumps: Vec<PendingJump> = Vec::new();
    for check in checks {
        let first = jumps.len();
        for compare in compares(check.operator).iter().filter(|compare| wide || !compare.high) {
            let (offset, mask, value) = word(check, compare.high);
            // No bit of this word is compared.
            if mask == 0 {
                continue;
            }
            program.push(Instruction { code: LOAD, jt: 0, jf: 0, k: offset });
            if mask != u32::MAX {
                program.push(Instruction { code: AND, jt: 0, jf: 0, k: mask });
            }
            jumps.push(PendingJump { at: program.len(), yes: compare.yes, no: compare.no, holds: 0 });
            program.push(Instruction { code: compare.code, jt: 0, jf: 0, k: value & mask });
        }
        jumps[first..].iter_mut().for_each(|jump| jump.holds = program.len());
    }
    let fails = program.len() + after;
    for PendingJump { at, yes, no, holds } in jumps {
        let skip = |to| {
            let target = match to {
                JumpTarget::Next => at + 1,
                JumpTarget::Holds => holds,
                JumpTarget::Fails => fails,
            };
            u8::try_from(target - at - 1).map_err(|_| "a rule is too long".to_owned())
        };
        (program[at].jt, program[at].jf) = (skip(yes)?, skip(no)?);
    }
    Ok(())
}

/// A comparison whose jump distances are not known yet.
struct PendingJump {
    at: usize,
    yes: JumpTarget,
    no: JumpTarget,
    /// The end of its check.
    holds: usize,
}

/// Returns one word of a check: its offset in `struct seccomp_data` on a little-endian machine, mask and value.
fn word(check: &ArgCheck, high: bool) -> (u32, u32, u32) {
    let offset = 16 + 8 * check.arg + if high { 4 } else { 0 };
    (offset, half(check.mask, high), half(check.value, high))
}

/// The high or the low word of `whole`.
pub(super) fn half(whole: u64, high: bool) -> u32 {
    let [a, b, c, d, e, f, g, h] = whole.to_le_bytes();
    u32::from_le_bytes(if high { [e, f, g, h] } else { [a, b, c, d] })
}
