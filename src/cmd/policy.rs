//! `saggar policy`: checks policy files, and prints the schema.

use crate::cli::{PolicyArgs, PolicyCommand};
use crate::error::{Error, Result};
use crate::session::named_paths::folder_notes;
use crate::session::policy_parser::WorkerPolicyParser;
use crate::spec::policy::{check_policy_files, schema};

/// Returns exit status 1 if a file is not valid.
pub(super) fn run(args: &PolicyArgs) -> Result<u8> {
    match &args.command {
        PolicyCommand::Check { files } => {
            let report = check_policy_files(files, &WorkerPolicyParser, &folder_notes);
            super::print_text(&report.to_string())?;
            Ok(u8::from(!report.is_valid()))
        }
        PolicyCommand::Schema => {
            let text =
                serde_json::to_string_pretty(&schema()).map_err(|e| Error::system("write the schema", e))?;
            super::print_raw(&(text + "\n"))?;
            Ok(0)
        }
    }
}
