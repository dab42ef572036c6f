//! `saggar features`: prints the supported features (features.md).

use crate::error::Result;
use crate::spec::oci;
use crate::sys::seccomp::knows_flag;

pub(super) fn run() -> Result<u8> {
    let commit = Some(env!("SAGGAR_COMMIT")).filter(|commit| *commit != "unknown");
    let features = oci::features(env!("CARGO_PKG_VERSION"), commit, knows_flag);
    crate::cmd::print_raw(&format!("{features:#}\n"))?;
    Ok(0)
}
