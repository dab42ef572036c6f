//! `saggar pause` and `saggar resume`.

use super::container::{Found, Status};
use super::{Context, wrong_status};
use crate::cli::oci::IdArgs;
use crate::error::Result;

pub(super) fn pause(context: &Context, args: &IdArgs) -> Result<u8> {
    let directory = context.find(&args.id)?;
    let _held = directory.must_lock()?;
    let found = Found::new(directory)?;
    match found.status() {
        Status::Running | Status::Created => found.group()?.freeze()?,
        status => return Err(wrong_status("pause", found.directory.id(), status)),
    }
    Ok(0)
}

pub(super) fn resume(context: &Context, args: &IdArgs) -> Result<u8> {
    let directory = context.find(&args.id)?;
    let _held = directory.must_lock()?;
    let found = Found::new(directory)?;
    match found.status() {
        Status::Paused => found.group()?.thaw()?,
        status => return Err(wrong_status("resume", found.directory.id(), status)),
    }
    Ok(0)
}
