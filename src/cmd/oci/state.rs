//! `saggar state`: takes no lock, since hooks ask while it is held.

use super::Context;
use super::container::Found;
use crate::cli::oci::IdArgs;
use crate::error::Result;

pub(super) fn run(context: &Context, args: &IdArgs) -> Result<u8> {
    let found = Found::new(context.find(&args.id)?)?;
    let state = found.state(found.status());
    crate::cmd::say_exactly(&format!("{state:#}\n"))?;
    Ok(0)
}
