//! The only I/O of `spec`: finds the files of the layers and reads them.
//!
//! This is on the path of every start. Where no file exists, as is usual, it costs one failed open(2) for
//! each place, and nothing is parsed. Whatever exists is opened without waiting, is a regular file of at
//! most 1 MiB, and counts: a file that cannot be read is an error, never a default.

use super::command_line::CommandLine;
use super::document::Document;
use super::effective::{Effective, Lock};
use super::hosts::MOST_PORTS;
use super::layer::{Layer, Setting};
use super::names::{Network, Part};
use super::parse::{self, Fault, Format, MAX_BYTES};
use super::paths::Home;
use super::provenance::Admitted;
use super::tighten::{FOLDERS_TIGHTEN, keep_locked, leave_out_the_agents};
use super::validate::validate;
use crate::error::{Code, Error, Result};
use crate::sys::folder::{Folder, Links};
use crate::sys::read::Unread;
use crate::text::summary;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The names of a policy in a folder; two of them in one folder are an error.
pub(super) const FOLDER_NAMES: [&str; 2] = ["saggar.toml", ".saggar.toml"];
/// The way out for somebody whose folder asks for more.
const TO_PERMIT_MORE: &str = "to permit more, use an option of the command line, --policy FILE, or the configuration of the user or the host";

/// The same for somebody whom a lock stops.
const TO_UNLOCK: &str = "ask for less, or have whoever wrote that file permit more in it";

/// Where the layers are looked for.
#[derive(Debug, Clone)]
pub struct Places {
    /// Holds `defaults.toml`: /usr/share/saggar.
    pub vendor: PathBuf,
    /// Holds `config.toml` and `conf.d`: /etc/saggar.
    pub system: PathBuf,
    /// Holds `config.toml`: $XDG_CONFIG_HOME/saggar.
    pub user: Option<PathBuf>,
    /// The agent's own folder.
    pub agent_folder: Option<PathBuf>,
    /// The workspace; it may be the agent's folder.
    pub workspace: Option<PathBuf>,
    /// The files named by `--policy`, in order. Each must exist.
    pub policies: Vec<PathBuf>,
    /// The directory that relative paths of the command line are below.
    pub current: PathBuf,
    /// The user who runs this: beside root, the only one whose files the operator layers take.
    pub owner: u32,
}

impl Places {
    /// The places of this host and of the user with the effective id `owner`, without folders and `--policy`.
    pub fn of_this_host(current: PathBuf, owner: u32) -> Places {
        // A relative XDG_CONFIG_HOME is to be ignored (XDG Base Directory Specification).
        let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let user = absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")));
        Places {
            vendor: "/usr/share/saggar".into(),
            system: "/etc/saggar".into(),
            user: user.map(|directory| directory.join("saggar")),
            agent_folder: None,
            workspace: None,
            policies: Vec::new(),
            current,
            owner,
        }
    }
}

/// The policy that holds, and the files that it came from.
#[derive(Debug)]
pub struct Policy {
    /// What holds.
    pub effective: Effective,
    /// The files that were read, in the order of their layers. One that lies in the workspace is to be
    /// protected there: the agent must not write its next policy.
    pub files: Vec<PolicyFile>,
}

/// A file that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyFile {
    /// Its path.
    pub path: PathBuf,
    /// Its layer.
    pub layer: Layer,
}

/// Loads every layer. `home` is the built-in home: `tmp` for `wrap`, `session` for `agent`.
///
/// # Errors
/// [`Code::Invalid`] for a file that cannot be read or understood, [`Code::Refused`] for one that may not
/// say what it says, or that somebody else could have written; [`Code::Usage`] for a wrong option.
pub fn load(places: &Places, home: Home, command_line: CommandLine) -> Result<Policy> {
    let mut policy = Policy { effective: Effective::built_in(home), files: Vec::new() };
    policy.take_operator(places.vendor.join("defaults.toml"), places.owner)?;
    policy.take_operator(places.system.join("config.toml"), places.owner)?;
    for path in listed(&places.system.join("conf.d"))? {
        policy.take_operator(path, places.owner)?;
    }
    if let Some(user) = &places.user {
        policy.take_operator(user.join("config.toml"), places.owner)?;
    }
    policy.take_folders(places)?;
    for path in &places.policies {
        let layer = Layer::Policy(path.as_path().into());
        policy.take_file(named(path)?, path.clone(), &layer)?;
    }
    policy.take_command_line(command_line, &places.current)?;
    reaches_something(&policy.effective)?;
    Ok(policy)
}

/// Reads one file by itself, as `saggar policy check` does.
///
/// # Errors
/// As [`load`].
pub(super) fn read_document(path: &Path) -> Result<Document> {
    let opened = match folder_name(path) {
        Some((folder, name)) => match opened_folder(folder)? {
            Some(folder) => beneath(&folder, name)?.ok_or_else(|| absent(path))?,
            None => return Err(absent(path)),
        },
        None => named(path)?,
    };
    understood(path, &opened.bytes)
}

/// The folder of a file whose name says that it is the policy of one, and that name: it is read as a start reads it.
fn folder_name(path: &Path) -> Option<(&Path, &'static str)> {
    let name = FOLDER_NAMES.into_iter().find(|name| path.file_name().is_some_and(|file| file == *name))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    Some((folder.unwrap_or(Path::new(".")), name))
}

/// As [`folder_name`], with the path of the folder without links.
pub(super) fn folder_of(path: &Path) -> Option<(PathBuf, &'static str)> {
    let (folder, name) = folder_name(path)?;
    Some((folder.canonicalize().unwrap_or_else(|_| folder.to_owned()), name))
}

fn opened_folder(folder: &Path) -> Result<Option<Folder>> {
    match Folder::open(folder) {
        Ok(folder) => Ok(Some(folder)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(failure("open", folder, &error)),
    }
}

impl Policy {
    fn take_operator(&mut self, path: PathBuf, owner: u32) -> Result<()> {
        let Some(opened) = read(&path)? else { return Ok(()) };
        trusted(&path, &opened.metadata, owner)?;
        let layer = Layer::Operator(path.as_path().into());
        self.take_file(opened, path, &layer)
    }

    fn take_folders(&mut self, places: &Places) -> Result<()> {
        let agent_folder = places.agent_folder.as_deref();
        let workspace = places.workspace.as_deref().filter(|workspace| Some(*workspace) != agent_folder);
        let trees: Vec<&Path> = agent_folder.into_iter().chain(workspace).collect();
        let mut taken = None;
        for (folder, layer) in
            [(agent_folder, Layer::AgentFolder as fn(&'static str) -> Layer), (workspace, Layer::Workspace)]
        {
            let Some(folder) = folder else { continue };
            let Some((name, opened)) = in_folder(folder)? else { continue };
            // The workspace may be the agent's folder by another spelling: then this was taken already.
            let identity = Some((opened.metadata.dev(), opened.metadata.ino()));
            if identity != taken {
                taken = identity;
                let path = folder.join(name);
                let mut document = understood(&path, &opened.bytes)?;
                if agent_folder.is_none() {
                    for key in leave_out_the_agents(&mut document) {
                        log::debug!("{}: {key} is for agents, and none is started", path.display());
                    }
                }
                self.take_document(document, &opened, path, &layer(name), &trees)?;
            }
        }
        Ok(())
    }

    fn take_file(&mut self, opened: Opened, path: PathBuf, layer: &Layer) -> Result<()> {
        let document = understood(&path, &opened.bytes)?;
        self.take_document(document, &opened, path, layer, &[])
    }

    fn take_document(
        &mut self,
        document: Document,
        opened: &Opened,
        path: PathBuf,
        layer: &Layer,
        trees: &[&Path],
    ) -> Result<()> {
        let admitted = Admitted::of(&self.effective, document, layer, trees).map_err(|widening| {
            let subject = layer.folder_file().unwrap_or_default();
            let line = line_of(&opened.bytes, widening.key);
            let line = line.map_or_else(String::new, |line| format!(" (line {line})"));
            let message = summary(&format!("{subject}{line} {widening}; {FOLDERS_TIGHTEN}"));
            Error::new(Code::Refused, message).hint(TO_PERMIT_MORE)
        })?;
        self.keep_locked(&admitted.document, &path.display().to_string())?;
        self.effective.take(admitted);
        self.files.push(PolicyFile { path, layer: layer.clone() });
        Ok(())
    }

    fn take_command_line(&mut self, command_line: CommandLine, current: &Path) -> Result<()> {
        let layer = Layer::CommandLine;
        let wrong = |what: String| Error::new(Code::Usage, summary(&format!("command line: {what}")));
        if command_line.allow_home {
            if let Some(by) = self.effective.locked_by(Part::Files) {
                let message = format!("command line asks for --allow-home; {by} locks files");
                return Err(Error::new(Code::Refused, message).hint(TO_UNLOCK));
            }
            self.effective.allow_home = Setting::new(true, &layer);
        }
        let document = command_line.into_document(current).map_err(|why| wrong(why.to_string()))?;
        validate(&document).map_err(|invalid| wrong(format!("{}: {}", invalid.key, invalid.why)))?;
        self.keep_locked(&document, "command line")?;
        let admitted =
            Admitted::of(&self.effective, document, &layer, &[]).map_err(|e| wrong(e.to_string()))?;
        self.effective.take(admitted);
        Ok(())
    }

    /// Refuses a document that widens what an earlier layer has locked.
    fn keep_locked(&self, document: &Document, source: &str) -> Result<()> {
        keep_locked(&self.effective, document).map_err(|(widening, Lock { part, layer, .. })| {
            let end = format!("{layer} locks {part}, which may only be tightened after it");
            let message = summary(&format!("{source} {widening}; {end}"));
            Error::new(Code::Refused, message).hint(TO_UNLOCK)
        })
    }
}

/// Refuses a network by policy that reaches nothing, since that is a slip, and one that needs too many sockets.
fn reaches_something(policy: &Effective) -> Result<()> {
    let Effective { network, hosts, .. } = policy;
    if network.value != Network::Policy {
        return Ok(());
    }
    let rules = hosts.rules();
    let invalid = |message: String| Error::new(Code::Invalid, summary(&message));
    if rules.is_nothing() {
        let message = format!("network.mode is policy ({}), and its rules allow nothing", network.layer);
        let hint = "name a host in network.allow or with --allow-host, or say network.mode none";
        return Err(invalid(message).hint(hint));
    }
    let ports = rules.ports().len();
    if ports > MOST_PORTS {
        let message =
            format!("network.allow and ask of all layers name {ports} ports, and {MOST_PORTS} are the most");
        return Err(invalid(message).hint("name single ports: each is a listening socket inside"));
    }
    Ok(())
}

/// The bytes as a document that is right by itself.
fn understood(path: &Path, bytes: &[u8]) -> Result<Document> {
    let source = path.display().to_string();
    let document = parse::parse(&source, Format::of(path, bytes), bytes)?;
    validate(&document).map_err(|invalid| {
        let what = format!("{}: {}", invalid.key, invalid.why);
        parse::error(&source, Fault { line: line_of(bytes, invalid.key), what })
    })?;
    Ok(document)
}

fn line_of(bytes: &[u8], key: &str) -> Option<usize> {
    std::str::from_utf8(bytes).ok().and_then(|text| parse::line_of(text, key))
}

/// Reads a file that somebody named: so it must be there.
fn named(path: &Path) -> Result<Opened> {
    read(path)?.ok_or_else(|| absent(path))
}

fn absent(path: &Path) -> Error {
    Error::new(Code::Invalid, format!("open policy {}: no such file", path.display()))
}

/// The policy of a folder, if it has one.
fn in_folder(folder: &Path) -> Result<Option<(&'static str, Opened)>> {
    let mut found: Option<(&'static str, Opened)> = None;
    let Some(folder) = opened_folder(folder)? else { return Ok(None) };
    for name in FOLDER_NAMES {
        let Some(opened) = beneath(&folder, name)? else { continue };
        if let Some((other, _)) = found {
            let message = format!("{}: holds both {other} and {name}", folder.path().display());
            return Err(Error::new(Code::Invalid, message).hint("keep one of them"));
        }
        found = Some((name, opened));
    }
    Ok(found)
}

/// The `*.toml` files of a directory by name; none when there is no directory.
fn listed(directory: &Path) -> Result<Vec<PathBuf>> {
    let failed = |error: io::Error| failure("list", directory, &error);
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if is_absent(&error) => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !hidden && path.extension().is_some_and(|extension| extension == "toml") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// A file's content, and what it is.
struct Opened {
    bytes: Vec<u8>,
    metadata: Metadata,
}

/// Reads the policy of this name in a folder, over no link: the name in an error message is that of the file.
fn beneath(folder: &Folder, name: &str) -> Result<Option<Opened>> {
    const A_FILE: &str = "a folder's policy is a file of that folder, which its owner can read";
    let path = folder.path().join(name);
    let (file, metadata) = match folder.open_file(name.as_ref(), Links::Refused) {
        Ok(Some(opened)) => opened,
        Ok(None) => return Ok(None),
        Err(Unread::Link) => return Err(refused(&path, "is a symbolic link", A_FILE)),
        Err(Unread::Kind(_)) => {
            return Err(refused(&path, "is not a regular file", "a policy is read from files alone"));
        }
        Err(Unread::Io(error)) => return Err(failure("open", &path, &error)),
        Err(why) => return Err(refused(&path, &format!("cannot be read: {why}"), A_FILE)),
    };
    let bytes = content(&file).map_err(|error| failure("read", &path, &error))?;
    Ok(Some(Opened { bytes, metadata }))
}

/// Reads a small regular file that the operator names; `None` when there is nothing of that name.
fn read(path: &Path) -> Result<Option<Opened>> {
    // Without O_NONBLOCK a FIFO would hold us until somebody writes; without O_NOCTTY a terminal would
    // become ours.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(failure("open", path, &error)),
    };
    let metadata = file.metadata().map_err(|error| failure("stat", path, &error))?;
    if !metadata.is_file() {
        return Err(refused(path, "is not a regular file", "a policy is read from files alone"));
    }
    let bytes = content(&file).map_err(|error| failure("read", path, &error))?;
    Ok(Some(Opened { bytes, metadata }))
}

/// The content, up to one byte more than a policy may have: the parser says that it is too large.
fn content(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Refuses an operator's file that somebody else could have written.
fn trusted(path: &Path, metadata: &Metadata, owner: u32) -> Result<()> {
    if metadata.uid() != 0 && metadata.uid() != owner {
        let why = format!("belongs to uid {}, who could change it", metadata.uid());
        return Err(refused(path, &why, &format!("chown {owner} {}", path.display())));
    }
    if metadata.mode() & 0o022 != 0 {
        let why = format!("can be written by others (mode {:04o})", metadata.mode() & 0o7777);
        return Err(refused(path, &why, &format!("chmod go-w {}", path.display())));
    }
    Ok(())
}

/// A path whose last component cannot be there is as absent as one that is not (HOME=/dev/null).
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn refused(path: &Path, why: &str, hint: &str) -> Error {
    Error::new(Code::Refused, format!("policy {}: {why}", path.display())).hint(hint)
}

fn failure(what: &str, path: &Path, error: &io::Error) -> Error {
    let cause = error.to_string();
    let cause = cause.split(" (os error").next().unwrap_or(&cause);
    Error::new(Code::Invalid, format!("{what} policy {}: {cause}", path.display()))
        .hint("a policy that exists must be readable: it is never skipped")
}
