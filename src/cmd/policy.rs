//! `saggar policy`: checks files, prints the schema.

use crate::cli::{PolicyArgs, PolicyCommand};
use crate::error::{Error, Result};
use crate::spec::policy::{check, schema};

/// Exit status 1 when a file cannot be used.
pub(super) fn run(args: &PolicyArgs) -> Result<u8> {
    match &args.command {
        PolicyCommand::Check { files } => {
            let report = check(files);
            super::say(&report.to_string())?;
            Ok(u8::from(!report.is_good()))
        }
        PolicyCommand::Schema => {
            let text =
                serde_json::to_string_pretty(&schema()).map_err(|e| Error::system("write the schema", e))?;
            super::say_exactly(&(text + "\n"))?;
            Ok(0)
        }
    }
}
