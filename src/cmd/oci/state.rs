//! `saggar state`: prints the state of a container, without the lock, because hooks call it while it is held.

use super::OciContext;
use super::container::LoadedContainer;
use crate::cli::oci::ContainerIdArgs;
use crate::error::Result;

pub(super) fn run(context: &OciContext, args: &ContainerIdArgs) -> Result<u8> {
    let found = LoadedContainer::load(context.find(&args.id)?)?;
    let state = found.oci_state(found.status());
    crate::cmd::print_raw(&format!("{state:#}\n"))?;
    Ok(0)
}
