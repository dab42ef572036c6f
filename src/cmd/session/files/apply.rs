//! `saggar session apply`: applies a session's changes.

use crate::app::session::files;
use crate::cli::session::files::ApplyArgs;
use crate::error::Result;
use crate::session::apply::ApplyOptions;

pub(super) fn run(args: &ApplyArgs) -> Result<u8> {
    let options = ApplyOptions {
        allow_protected: args.allow_protected,
        allow_conflicts: args.force,
        allow_links: args.allow_links,
    };
    super::print_changes(&files::apply(&args.id, &args.paths, &options, args.dry_run)?)?;
    Ok(0)
}
