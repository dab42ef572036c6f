//! From the command line of a pair run to its agents.

use crate::app::pair::{PairAgent, PairLaunch};
use crate::cli::session::SessionCreateParser;
use crate::cmd::session::create_request;
use crate::error::{Code, Error, Result};
use crate::session::record::SessionOptions;
use clap::Parser;
use saggar_mailbox::pair::{PairSettings, Party};
use saggar_mailbox::runs::repo_id;
use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Options that the run itself gives to its agents.
const OWN_OPTIONS: [&str; 7] =
    ["--workspace", "--worktree", "--mailbox", "--as", "--mailbox-root", "--mailbox-repo", "--session"];

/// The agents of a run, as sessions.
///
/// # Errors
/// [`Code::Usage`]: an option is none of `session create`, or is one that the run itself gives.
pub(super) fn agents(
    launch: &PairLaunch,
    settings: &PairSettings,
    root: &Path,
    run: u64,
) -> Result<[PairAgent; 2]> {
    Ok([
        agent(launch, settings, Party::Worker, (root, run))?,
        agent(launch, settings, Party::Reviewer, (root, run))?,
    ])
}

fn agent(
    launch: &PairLaunch,
    settings: &PairSettings,
    party: Party,
    (root, run): (&Path, u64),
) -> Result<PairAgent> {
    let (role, folder) = match party {
        Party::Worker => ("worker", &launch.worker),
        Party::Reviewer => ("reviewer", &launch.reviewer),
    };
    // Runs of another root, or of another repository, have sessions of their own.
    let place: String = repo_id(&root.join(repo_id(&launch.workspace))).chars().take(8).collect();
    let session = format!("pair-{place}-{run}-{role}");
    let mut arguments = launch.options.clone();
    let mut add = |option: &str, value: &OsStr| arguments.extend([option.into(), value.to_owned()]);
    add("--session", session.as_ref());
    add("--workspace", launch.workspace.as_ref());
    if party == Party::Reviewer && !launch.reviewer_writes {
        add("--ro", &escape_bind(&launch.workspace));
    }
    // An agent that could write the folder of the other would write its system prompt.
    for folder in [&launch.worker, &launch.reviewer] {
        if folder.starts_with(&launch.workspace) && *folder != launch.workspace {
            add("--ro", &escape_bind(folder));
        }
    }
    add("--mailbox", run.to_string().as_ref());
    add("--as", settings.name(party).as_ref());
    add("--mailbox-root", root.as_ref());
    add("--mailbox-repo", launch.workspace.as_ref());
    arguments.extend(["--".into(), folder.into()]);
    let words = std::iter::once(OsString::from("create")).chain(arguments.iter().cloned());
    let refuse = |why: &dyn Display| {
        Error::new(Code::Usage, format!("options of the {role}: {why}"))
            .hint(format!("use options of saggar session create, except {}", OWN_OPTIONS.join(", ")))
    };
    let parsed = SessionCreateParser::try_parse_from(words).map_err(|error| refuse(&error.kind()))?;
    if parsed.create.worktree.is_some() {
        return Err(refuse(&"both agents work on one workspace"));
    }
    let mut request = create_request(parsed.create);
    request.sandbox.id = None;
    let options = SessionOptions { arguments, directory: launch.directory.clone() };
    Ok(PairAgent { name: settings.name(party).to_owned(), session, request, options })
}

/// A path as an option `PATH[:DEST]` has it.
fn escape_bind(path: &Path) -> OsString {
    let escape = |byte: &u8| match byte {
        b':' | b'\\' => vec![b'\\', *byte],
        byte => vec![*byte],
    };
    OsString::from_vec(path.as_os_str().as_bytes().iter().flat_map(escape).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_any_bytes_is_one_bind() {
        assert_eq!(escape_bind(Path::new("/a:b\\c d")), "/a\\:b\\\\c d");
    }
}
