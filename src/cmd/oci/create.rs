//! `saggar create`.

use super::Context;
use super::make::{Mode, make};
use crate::cli::oci::CreateArgs;
use crate::error::Result;

pub(super) fn run(context: &Context, args: &CreateArgs) -> Result<u8> {
    make(context, &args.make, Mode::Detached)?;
    Ok(0)
}
