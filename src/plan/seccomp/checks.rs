//! Checks of arguments as instructions.
//!
//! The machine compares words of 32 bits. On a 64-bit ABI a check is one of the high word and one of the low;
//! on a 32-bit ABI the low word of the argument is compared with the low word of the value.

use super::shared::Result;
use super::shared::bpf::{AND, IF_AT_LEAST, IF_EQUAL, IF_GREATER, Instruction, LOAD};
use oci_spec::runtime::LinuxSeccompOperator as Operator;

/// A check of one argument.
#[derive(Debug, Clone, Copy)]
pub(super) struct Check {
    /// Which argument, from 0 to 5.
    pub(super) arg: u32,
    /// How it is compared.
    pub(super) operator: Operator,
    /// The bits that are compared: all, except for [`Operator::ScmpCmpMaskedEq`].
    pub(super) mask: u64,
    /// With what.
    pub(super) value: u64,
}

/// Where a comparison of a word leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum To {
    /// The comparison after it.
    Next,
    /// Past the check: it holds.
    Holds,
    /// To the next rule: it does not hold.
    Fails,
}

/// A comparison of a word.
#[derive(Debug, Clone, Copy)]
struct Compare {
    high: bool,
    code: u16,
    yes: To,
    no: To,
}

const fn compare(high: bool, code: u16, yes: To, no: To) -> Compare {
    Compare { high, code, yes, no }
}

/// The comparisons of `operator` on a 64-bit ABI; its last one alone makes up the check on a 32-bit ABI.
fn compares(operator: Operator) -> &'static [Compare] {
    use To::{Fails, Holds, Next};
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

/// Adds instructions that fall off the end when all `checks` hold, and jump over `after` more instructions
/// when one does not.
pub(super) fn emit(program: &mut Vec<Instruction>, checks: &[Check], wide: bool, after: usize) -> Result<()> {
    let mut jumps: Vec<Jump> = Vec::new();
    for check in checks {
        let first = jumps.len();
        for compare in compares(check.operator).iter().filter(|compare| wide || !compare.high) {
            let (offset, mask, value) = word(check, compare.high);
            // Nothing of this word is compared.
            if mask == 0 {
                continue;
            }
            program.push(Instruction { code: LOAD, jt: 0, jf: 0, k: offset });
            if mask != u32::MAX {
                program.push(Instruction { code: AND, jt: 0, jf: 0, k: mask });
            }
            jumps.push(Jump { at: program.len(), yes: compare.yes, no: compare.no, holds: 0 });
            program.push(Instruction { code: compare.code, jt: 0, jf: 0, k: value & mask });
        }
        jumps[first..].iter_mut().for_each(|jump| jump.holds = program.len());
    }
    let fails = program.len() + after;
    for Jump { at, yes, no, holds } in jumps {
        let skip = |to| {
            let target = match to {
                To::Next => at + 1,
                To::Holds => holds,
                To::Fails => fails,
            };
            u8::try_from(target - at - 1).map_err(|_| "a rule is too long".to_owned())
        };
        (program[at].jt, program[at].jf) = (skip(yes)?, skip(no)?);
    }
    Ok(())
}

/// A comparison that does not know yet how far it is to where it leads.
struct Jump {
    at: usize,
    yes: To,
    no: To,
    /// The end of its check.
    holds: usize,
}

/// One word of a check: its offset in `struct seccomp_data` on a little-endian machine, mask and value.
fn word(check: &Check, high: bool) -> (u32, u32, u32) {
    let offset = 16 + 8 * check.arg + if high { 4 } else { 0 };
    (offset, half(check.mask, high), half(check.value, high))
}

/// The high or the low word of `whole`.
pub(super) fn half(whole: u64, high: bool) -> u32 {
    let [a, b, c, d, e, f, g, h] = whole.to_le_bytes();
    u32::from_le_bytes(if high { [e, f, g, h] } else { [a, b, c, d] })
}
