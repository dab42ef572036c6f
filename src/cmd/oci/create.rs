//! `saggar create`: creates a container.

use super::OciContext;
use super::creation::{CreationMode, create_container};
use crate::cli::oci::ContainerCreateArgs;
use crate::error::Result;

pub(super) fn run(context: &OciContext, args: &ContainerCreateArgs) -> Result<u8> {
    create_container(context, &args.container, CreationMode::Detached)?;
    Ok(0)
}
