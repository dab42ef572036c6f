//! The mailbox of a sandbox: from the policy and the options to the run, and what must not be visible inside.

use super::prepare::{OWN_PROGRAM, PlannedDirectory, canonical, resolve_user_path, visible_source};
use crate::error::{Code, Error, Result};
use crate::spec::policy::{EffectivePolicy, PolicyLayer};
use crate::spec::{MailboxSpec, SandboxSpec};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The default directory of runs, below the home directory (AM-09).
const ROOT: &str = ".agentpair";

/// The mailbox that the policy names, if it names one. `repository` is the repository of the run, if no layer names
/// another.
///
/// # Errors
/// [`Code::Usage`] for a run without a name, and for a name on the command line without a run; [`Code::Invalid`] for a
/// directory that does not exist.
pub(crate) fn configure(policy: &EffectivePolicy, repository: &Path) -> Result<Option<MailboxSpec>> {
    let mailbox = &policy.mailbox;
    let Some(run) = &mailbox.run else {
        return match &mailbox.name {
            Some(name) if name.layer == PolicyLayer::CommandLine => {
                Err(Error::new(Code::Usage, format!("--as {} names no run", name.value))
                    .hint("use --mailbox RUN, or set mailbox.run"))
            }
            _ => Ok(None),
        };
    };
    let Some(name) = &mailbox.name else {
        let message = format!("mailbox.run = {} ({}) has no name of the sandbox", run.value, run.layer);
        return Err(Error::new(Code::Usage, message).hint("use --as NAME, or set mailbox.name"));
    };
    let root = match &mailbox.root {
        Some(root) => resolve_user_path("mailbox.root", &root.value)?,
        None => default_root("--mailbox-root DIR")?,
    };
    let repo = match &mailbox.repo {
        Some(repo) => canonical(&resolve_user_path("mailbox.repo", &repo.value)?)
            .map_err(|error| error.context(format_args!("mailbox.repo ({})", repo.layer)))?,
        None => repository.to_owned(),
    };
    Ok(Some(MailboxSpec { root, repo, run: run.value.get(), name: name.value.as_str().to_owned() }))
}

/// The mailbox as a value of `--mcp-config` of Claude Code, if the policy registers it. It has no secret, so it may be
/// an argument, which other users of the host can read.
pub(crate) fn registration(spec: &SandboxSpec, policy: &EffectivePolicy) -> Option<OsString> {
    let is_wanted = spec.mailbox.is_some() && policy.mailbox.register.value;
    is_wanted.then(|| {
        let server = serde_json::json!({ "command": OWN_PROGRAM, "args": ["mcp", "mailbox"] });
        serde_json::json!({ "mcpServers": { "mailbox": server } }).to_string().into()
    })
}

/// The directory of runs in the caller's home; `option` names another one.
///
/// # Errors
/// [`Code::Invalid`]: HOME is not set.
pub(crate) fn default_root(option: &str) -> Result<PathBuf> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
    home.map(|home| home.join(ROOT)).ok_or_else(|| {
        Error::new(Code::Invalid, "HOME is not set")
            .hint(format!("name the directory of the runs with {option}"))
    })
}

/// Refuses a mailbox whose files programs could read or change by another way: then names could be forged.
///
/// # Errors
/// [`Code::Refused`], naming what shows it.
pub(crate) fn check_files_hidden(spec: &SandboxSpec, planned: &[PlannedDirectory]) -> Result<()> {
    let Some(mailbox) = &spec.mailbox else { return Ok(()) };
    let root = resolve_links(&mailbox.root);
    let Some((source, at)) = visible_source(spec, planned, &root) else { return Ok(()) };
    let message = format!(
        "the mailbox in {} lies in {}, which programs see at {}",
        root.display(),
        source.display(),
        at.display()
    );
    Err(Error::new(Code::Refused, message)
        .hint("name a directory that no sandbox sees with --mailbox-root DIR"))
}

/// The path without links. The start creates the last part if it is missing, and nothing else.
pub(crate) fn resolve_links(root: &Path) -> PathBuf {
    let new = || Some(root.parent()?.canonicalize().ok()?.join(root.file_name()?));
    root.canonicalize().ok().or_else(new).unwrap_or_else(|| root.to_owned())
}
