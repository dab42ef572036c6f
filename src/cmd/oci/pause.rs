//! `saggar pause` and `saggar resume`: freeze and thaw a container.

use super::container::{ContainerStatus, LoadedContainer};
use super::{OciContext, wrong_status_error};
use crate::cli::oci::ContainerIdArgs;
use crate::error::Result;

pub(super) fn pause(context: &OciContext, args: &ContainerIdArgs) -> Result<u8> {
    let directory = context.find(&args.id)?;
    let _held = directory.lock_or_fail()?;
    let found = LoadedContainer::load(directory)?;
    match found.status() {
        ContainerStatus::Running | ContainerStatus::Created => found.group()?.freeze()?,
        status => return Err(wrong_status_error("pause", found.directory.id(), status)),
    }
    Ok(0)
}

pub(super) fn resume(context: &OciContext, args: &ContainerIdArgs) -> Result<u8> {
    let directory = context.find(&args.id)?;
    let _held = directory.lock_or_fail()?;
    let found = LoadedContainer::load(directory)?;
    match found.status() {
        ContainerStatus::Paused => found.group()?.thaw()?,
        status => return Err(wrong_status_error("resume", found.directory.id(), status)),
    }
    Ok(0)
}
