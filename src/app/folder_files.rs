//! What a start reads of an agent's folder on the host: nothing but beneath its descriptor ([`crate::sys::untrusted_directory::UntrustedDirectory`]).
//!
//! A folder that is not the workspace is not found by the agent itself: its prompt, its servers and its settings are
//! handed over (DECISIONS 23). Servers and settings the agent reads inside, with its own rights. The prompt is an
//! argument, which every version of the agent takes, and beside which it takes one of the options; so it is read
//! here, as the owner of the folder could, and no more of it than an argument holds.

use crate::error::{Code, Error, Result};
use crate::spec::policy::provenance::AGENT_FOLDER;
use crate::sys::read::ReadFileError;
use crate::sys::untrusted_directory::UntrustedDirectory;
use std::ffi::OsString;
use std::path::Path;

/// The system prompt: what makes a folder an agent's.
const PROMPT_FILE: &str = "CLAUDE.md";
/// The MCP servers.
const SERVERS_FILE: &str = ".mcp.json";

/// How long one argument may be: MAX_ARG_STRLEN (linux/binfmts.h) of 128 KiB, less some room; a multiple of KiB.
pub(crate) const MAX_ARGUMENT: u64 = 127 << 10;

/// What is handed over.
#[derive(Debug, Default)]
pub(crate) struct FolderFiles {
    /// The text of the prompt.
    pub(crate) prompt: Option<String>,
    /// Where the file of MCP servers stands inside.
    pub(crate) servers: Option<OsString>,
    /// Where the settings stand inside.
    pub(crate) settings: Option<OsString>,
}

impl FolderFiles {
    /// Drops the prompt if the workspace has one, which the agent finds by itself, and names the servers of the workspace
    /// instead of those of the folder: a server has written them for this session (DECISIONS 36).
    ///
    /// # Errors
    /// As [`read`], for the files of the workspace.
    pub(crate) fn prefer_workspace(&mut self, workspace: &UntrustedDirectory) -> Result<()> {
        let has =
            |file: &str| workspace.has_file(file.as_ref()).map_err(|why| read_error(workspace, file, &why));
        if has(PROMPT_FILE)? {
            self.prompt = None;
        }
        if has(SERVERS_FILE)? {
            self.servers = Some(workspace.path().join(SERVERS_FILE).into());
        }
        Ok(())
    }
}

/// Opens the folder that the caller named.
///
/// # Errors
/// [`Code::Invalid`] when it is no directory that can be opened.
pub(crate) fn open(path: &Path) -> Result<UntrustedDirectory> {
    UntrustedDirectory::open(path).map_err(|e| Error::new(Code::Invalid, format!("{}: {e}", path.display())))
}

/// Refuses a directory that is no agent's folder.
///
/// # Errors
/// [`Code::Invalid`] without a prompt in it.
pub(crate) fn check(folder: &UntrustedDirectory) -> Result<()> {
    match folder.has_file(PROMPT_FILE.as_ref()) {
        Ok(true) => Ok(()),
        Ok(false) => {
            let folder = folder.path().display();
            let message = format!("{folder} is not an agent's folder: it has no {PROMPT_FILE}");
            Err(Error::new(Code::Invalid, message).hint("a CLAUDE.md, the system prompt, is all it needs"))
        }
        Err(why) => Err(read_error(folder, PROMPT_FILE, &why)),
    }
}

/// What an agent that speaks stream-json is handed over of a folder beside its workspace.
///
/// # Errors
/// [`Code::Invalid`] naming the file that leads out of the folder, is no regular file, is too long, or could not be
/// read by the owner of the folder.
pub(crate) fn read(folder: &UntrustedDirectory) -> Result<FolderFiles> {
    let bytes = folder
        .read(PROMPT_FILE.as_ref(), MAX_ARGUMENT)
        .map_err(|why| read_error(folder, PROMPT_FILE, &why))?;
    let prompt = bytes.map(|bytes| text(folder, bytes)).transpose()?;
    let inside = |file: &str| match folder.has_file(file.as_ref()) {
        Ok(is_there) => Ok(is_there.then(|| Path::new(AGENT_FOLDER).join(file).into())),
        Err(why) => Err(read_error(folder, file, &why)),
    };
    Ok(FolderFiles { prompt, servers: inside(SERVERS_FILE)?, settings: inside(".claude/settings.json")? })
}

fn text(folder: &UntrustedDirectory, bytes: Vec<u8>) -> Result<String> {
    let wrong = |why: &str| {
        let path = folder.path().join(PROMPT_FILE);
        Error::new(Code::Invalid, format!("read {}: {why}", path.display())).hint("a prompt is text in UTF-8")
    };
    let text = String::from_utf8(bytes).map_err(|_| wrong("it is not UTF-8"))?;
    if text.contains('\0') { Err(wrong("it has a NUL")) } else { Ok(text) }
}

fn read_error(folder: &UntrustedDirectory, name: &str, why: &ReadFileError) -> Error {
    let path = folder.path().join(name);
    let hint = match why {
        ReadFileError::TooLarge(_) => {
            "shorten it, and have it name files of the folder that the agent is to read"
        }
        ReadFileError::ForeignOwner { .. } => {
            "give the file to the owner of the folder (chown), or let all read it (chmod o+r)"
        }
        _ => "make it a file of the folder, or a link to one in the folder",
    };
    Error::new(Code::Invalid, format!("read {}: {why}", path.display())).hint(hint)
}
