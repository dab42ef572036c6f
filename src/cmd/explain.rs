//! `saggar explain`, and the plan as `--dry-run` prints it.

use super::prepare::Prepared;
use crate::error::Result;

/// Prints the steps of a plan, numbered as errors number them.
#[allow(clippy::print_stdout)]
pub(super) fn print_steps(prepared: &Prepared) -> Result<u8> {
    for (index, step) in prepared.plan.steps.as_slice().iter().enumerate() {
        println!("{:3} {step}", index + 1);
    }
    Ok(0)
}
