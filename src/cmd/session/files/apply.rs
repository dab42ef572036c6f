//! `saggar session apply`.

use crate::cli::session::files::ApplyArgs;
use crate::error::Result;
use crate::session::apply::Allowed;
use crate::session::{choose, trees};

pub(super) fn run(args: &ApplyArgs) -> Result<u8> {
    let paths = choose::relative(&args.paths)?;
    let (session, _held) = super::held(&args.id)?;
    let allowed = Allowed { protected: args.allow_protected, conflicts: args.force, links: args.allow_links };
    let lines = match super::trees(&session)? {
        Some(trees) => trees::apply(&session, &trees, &paths, &allowed, args.dry_run)?,
        None => Vec::new(),
    };
    super::show(&lines)?;
    Ok(0)
}
