//! The only I/O of `spec`: finds and reads the files of the layers.
//!
//! Every start runs this code. A file that does not exist, the usual case, costs one failed open(2), and
//! nothing is parsed. A file that exists is opened without blocking and must be a regular file of at most 1
//! MiB. A file that cannot be read is an error; it is never replaced by a default. The text of a folder's
//! policy is parsed by a separate process ([`FolderParser`]), which is started only if there is one.

use super::command_line::PolicyOptions;
use super::document::PolicyDocument;
use super::effective::{EffectivePolicy, PolicyLock};
use super::folder::{self, FolderParser, FolderText};
use super::hosts::MAX_PORTS;
use super::layer::{PolicyLayer, Setting};
use super::names::{NetworkMode, PolicyPart};
use super::parse::{MAX_BYTES, parse_validated};
use super::paths::HomeSource;
use super::provenance::AdmittedDocument;
use super::tighten::{FOLDER_MAY_ONLY_TIGHTEN, check_locks, remove_agent_keys};
use super::validate::validate;
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::read::ReadFileError;
use saggar_sys::text::summary;
use saggar_sys::untrusted_directory::{LinkPolicy, UntrustedDirectory};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The file names of a folder's policy. A folder that has both is an error.
pub const FOLDER_FILE_NAMES: [&str; 2] = ["saggar.toml", ".saggar.toml"];
/// The hint for a folder's policy that asks for more than it may.
const WIDEN_HINT: &str = "to permit more, use an option of the command line, --policy FILE, or the configuration of the user or the host";

/// The hint for a layer that asks for more than a lock permits.
const UNLOCK_HINT: &str = "request less, or ask the owner of that file to permit more in it";

/// The directory of the user's own configuration: $XDG_CONFIG_HOME/saggar. `None` without a home directory.
pub fn user_directory() -> Option<PathBuf> {
    // A relative XDG_CONFIG_HOME must be ignored (XDG Base Directory Specification).
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let user = absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")));
    user.map(|directory| directory.join("saggar"))
}

/// The directories and files that the layers are read from.
#[derive(Debug, Clone)]
pub struct PolicySources {
    /// The directory of `defaults.toml`: /usr/share/saggar.
    pub vendor_directory: PathBuf,
    /// The directory of `config.toml` and `conf.d`: /etc/saggar.
    pub system_directory: PathBuf,
    /// The directory of `config.toml`: $XDG_CONFIG_HOME/saggar.
    pub user_directory: Option<PathBuf>,
    /// The agent's own folder.
    pub agent_folder: Option<PathBuf>,
    /// The workspace; it can be the agent's folder.
    pub workspace: Option<PathBuf>,
    /// The files that `--policy` options name, in order. Each must exist.
    pub policy_files: Vec<PathBuf>,
    /// The directory that relative paths of the command line are resolved against.
    pub current_directory: PathBuf,
    /// The effective uid of the caller. Files of the operator layers must be owned by this user or root.
    pub operator_uid: u32,
    /// The parser for the policies of folders.
    pub parser: &'static dyn FolderParser,
}

impl PolicySources {
    /// The sources of this host and of the user with the effective uid `owner`, without folders and
    /// `--policy` files.
    pub fn of_this_host(current: PathBuf, owner: u32, parser: &'static dyn FolderParser) -> PolicySources {
        PolicySources {
            vendor_directory: "/usr/share/saggar".into(),
            system_directory: "/etc/saggar".into(),
            user_directory: user_directory(),
            agent_folder: None,
            workspace: None,
            policy_files: Vec::new(),
            current_directory: current,
            operator_uid: owner,
            parser,
        }
    }
}

/// The effective policy, and the files that it was read from.
#[derive(Debug)]
pub struct LoadedPolicy {
    /// The effective policy.
    pub effective: EffectivePolicy,
    /// The files that were read, in the order of their layers. A file that is in the workspace must be
    /// protected there, so that the agent cannot write its next policy.
    pub files: Vec<PolicyFile>,
}

/// A policy file that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyFile {
    /// The path it was read from.
    pub path: PathBuf,
    /// The layer that it forms.
    pub layer: PolicyLayer,
}

/// Loads and merges every layer. `home` is the built-in home: `tmp` for `wrap`, `session` for `agent`.
///
/// # Errors
/// [`Code::Invalid`] for a file that cannot be read or parsed, [`Code::Refused`] for a file that asks for
/// more than its layer may or that another user could have written, [`Code::Usage`] for an invalid option.
pub fn load_policy(
    sources: &PolicySources,
    home: HomeSource,
    command_line: PolicyOptions,
) -> Result<LoadedPolicy> {
    let mut policy = LoadedPolicy { effective: EffectivePolicy::built_in(home), files: Vec::new() };
    policy.merge_operator_file(sources.vendor_directory.join("defaults.toml"), sources.operator_uid)?;
    policy.merge_operator_file(sources.system_directory.join("config.toml"), sources.operator_uid)?;
    for path in list_toml_files(&sources.system_directory.join("conf.d"))? {
        policy.merge_operator_file(path, sources.operator_uid)?;
    }
    if let Some(user) = &sources.user_directory {
        policy.merge_operator_file(user.join("config.toml"), sources.operator_uid)?;
    }
    policy.merge_folders(sources)?;
    for path in &sources.policy_files {
        let layer = PolicyLayer::PolicyOption(path.as_path().into());
        policy.merge_file(read_required(path)?, path.clone(), &layer)?;
    }
    policy.merge_command_line(command_line, &sources.current_directory)?;
    check_network_reach(&policy.effective)?;
    Ok(policy)
}

/// Reads one file without the other layers, for `saggar policy check`.
///
/// # Errors
/// As for [`load_policy`].
pub(super) fn read_document(path: &Path, parser: &dyn FolderParser) -> Result<PolicyDocument> {
    let Some((folder, name)) = split_folder_file(path) else {
        return parse_validated(path, &read_required(path)?.bytes);
    };
    let folder = open_folder(folder)?.ok_or_else(|| missing_file_error(path))?;
    let opened = open_beneath(&folder, name)?.ok_or_else(|| missing_file_error(path))?;
    folder::parse_document(&opened.text(path), parser)
}

/// Splits a path whose file name is that of a folder's policy into folder and name. Such a file is read as
/// at a start.
fn split_folder_file(path: &Path) -> Option<(&Path, &'static str)> {
    let name =
        FOLDER_FILE_NAMES.into_iter().find(|name| path.file_name().is_some_and(|file| file == *name))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    Some((folder.unwrap_or(Path::new(".")), name))
}

/// As [`split_folder_file`], with the path of the folder canonicalized.
pub(super) fn folder_of(path: &Path) -> Option<(PathBuf, &'static str)> {
    let (folder, name) = split_folder_file(path)?;
    Some((folder.canonicalize().unwrap_or_else(|_| folder.to_owned()), name))
}

fn open_folder(folder: &Path) -> Result<Option<UntrustedDirectory>> {
    match UntrustedDirectory::open(folder) {
        Ok(folder) => Ok(Some(folder)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(io_error("open", folder, &error)),
    }
}

impl LoadedPolicy {
    fn merge_operator_file(&mut self, path: PathBuf, owner: u32) -> Result<()> {
        let Some(opened) = read(&path)? else { return Ok(()) };
        check_operator_file(&path, &opened.metadata, owner)?;
        let layer = PolicyLayer::Operator(path.as_path().into());
        self.merge_file(opened, path, &layer)
    }

    fn merge_folders(&mut self, sources: &PolicySources) -> Result<()> {
        let agent_folder = sources.agent_folder.as_deref();
        let workspace = sources.workspace.as_deref().filter(|workspace| Some(*workspace) != agent_folder);
        let trees: Vec<&Path> = agent_folder.into_iter().chain(workspace).collect();
        let mut merged_identity = None;
        for (folder, layer) in [
            (agent_folder, PolicyLayer::AgentFolder as fn(&'static str) -> PolicyLayer),
            (workspace, PolicyLayer::Workspace),
        ] {
            let Some(folder) = folder else { continue };
            let Some((name, opened)) = read_folder_policy(folder)? else { continue };
            // The workspace can be the agent's folder by another path. Its file is then merged already.
            let identity = Some((opened.metadata.dev(), opened.metadata.ino()));
            if identity != merged_identity {
                merged_identity = identity;
                let path = folder.join(name);
                let text = opened.text(&path);
                let mut document = folder::parse_document(&text, sources.parser)?;
                if agent_folder.is_none() {
                    for key in remove_agent_keys(&mut document) {
                        log::debug!("{}: {key} is for agents, and none is started", path.display());
                    }
                }
                let line_of = |key: &str| sources.parser.line_of(&text, key).ok().flatten();
                self.merge_document(document, &path, &layer(name), &trees, line_of)?;
            }
        }
        Ok(())
    }

    fn merge_file(&mut self, opened: OpenedFile, path: PathBuf, layer: &PolicyLayer) -> Result<()> {
        let document = parse_validated(&path, &opened.bytes)?;
        // Only the policy of a folder can be refused for what it asks for, so no trees and no line numbers
        // are needed.
        self.merge_document(document, &path, layer, &[], |_| None)
    }

    fn merge_document(
        &mut self,
        document: PolicyDocument,
        path: &Path,
        layer: &PolicyLayer,
        visible_trees: &[&Path],
        line_of: impl Fn(&str) -> Option<usize>,
    ) -> Result<()> {
        let admitted =
            AdmittedDocument::admit(&self.effective, document, layer, visible_trees).map_err(|widening| {
                let subject = layer.folder_file_name().unwrap_or_default();
                let line = line_of(widening.key).map_or_else(String::new, |line| format!(" (line {line})"));
                let message = summary(&format!("{subject}{line} {widening}; {FOLDER_MAY_ONLY_TIGHTEN}"));
                Error::new(Code::Refused, message).hint(WIDEN_HINT)
            })?;
        self.check_locks(&admitted.document, &path.display().to_string())?;
        self.effective.merge_admitted(admitted);
        self.files.push(PolicyFile { path: path.to_owned(), layer: layer.clone() });
        Ok(())
    }

    fn merge_command_line(&mut self, command_line: PolicyOptions, current: &Path) -> Result<()> {
        let layer = PolicyLayer::CommandLine;
        let wrong = |what: String| Error::new(Code::Usage, summary(&format!("command line: {what}")));
        if command_line.allow_home {
            if let Some(by) = self.effective.locked_by(PolicyPart::Files) {
                let message = format!("command line asks for --allow-home; {by} locks files");
                return Err(Error::new(Code::Refused, message).hint(UNLOCK_HINT));
            }
            self.effective.allow_home = Setting::new(true, &layer);
        }
        let document = command_line.into_document(current).map_err(|why| wrong(why.to_string()))?;
        validate(&document).map_err(|invalid| wrong(format!("{}: {}", invalid.key, invalid.reason)))?;
        self.check_locks(&document, "command line")?;
        let admitted = AdmittedDocument::admit(&self.effective, document, &layer, &[])
            .map_err(|e| wrong(e.to_string()))?;
        self.effective.merge_admitted(admitted);
        Ok(())
    }

    /// Refuses a document that widens a part that an earlier layer locked.
    fn check_locks(&self, document: &PolicyDocument, source: &str) -> Result<()> {
        check_locks(&self.effective, document).map_err(|(widening, PolicyLock { part, layer, .. })| {
            let end = format!("{layer} locks {part}, which may only be tightened after it");
            let message = summary(&format!("{source} {widening}; {end}"));
            Error::new(Code::Refused, message).hint(UNLOCK_HINT)
        })
    }
}

/// Refuses the network mode `policy` if its rules allow nothing, which is a mistake, or need too many
/// sockets.
fn check_network_reach(policy: &EffectivePolicy) -> Result<()> {
    let EffectivePolicy { network, hosts, .. } = policy;
    if network.value != NetworkMode::Policy {
        return Ok(());
    }
    let rules = hosts.rules();
    let invalid = |message: String| Error::new(Code::Invalid, summary(&message));
    if rules.allows_nothing() {
        let message = format!("network.mode is policy ({}), and its rules allow nothing", network.layer);
        let hint = "name a host in network.allow or with --allow-host, or set network.mode to none";
        return Err(invalid(message).hint(hint));
    }
    let ports = rules.reachable_ports().len();
    if ports > MAX_PORTS {
        let message =
            format!("network.allow and ask of all layers name {ports} ports, and {MAX_PORTS} are the most");
        return Err(invalid(message).hint("name single ports: each is a listening socket inside"));
    }
    Ok(())
}

/// Reads a file that an option names, which must exist.
fn read_required(path: &Path) -> Result<OpenedFile> {
    read(path)?.ok_or_else(|| missing_file_error(path))
}

fn missing_file_error(path: &Path) -> Error {
    Error::new(Code::Invalid, format!("open policy {}: no such file", path.display()))
}

/// Reads the policy of a folder, if it has one.
fn read_folder_policy(folder: &Path) -> Result<Option<(&'static str, OpenedFile)>> {
    let mut found: Option<(&'static str, OpenedFile)> = None;
    let Some(folder) = open_folder(folder)? else { return Ok(None) };
    for name in FOLDER_FILE_NAMES {
        let Some(opened) = open_beneath(&folder, name)? else { continue };
        if let Some((other, _)) = found {
            let message = format!("{}: holds both {other} and {name}", folder.path().display());
            return Err(Error::new(Code::Invalid, message).hint("keep one of them"));
        }
        found = Some((name, opened));
    }
    Ok(found)
}

/// Lists the `*.toml` files of a directory, sorted by name; none if the directory does not exist.
fn list_toml_files(directory: &Path) -> Result<Vec<PathBuf>> {
    let failed = |error: io::Error| io_error("list", directory, &error);
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

/// The content and metadata of a file.
struct OpenedFile {
    bytes: Vec<u8>,
    metadata: Metadata,
}

impl OpenedFile {
    /// The content as the policy of a folder.
    fn text<'a>(&'a self, path: &'a Path) -> FolderText<'a> {
        FolderText { path, bytes: &self.bytes, owner: (self.metadata.uid(), self.metadata.gid()) }
    }
}

/// Reads the file `name` of a folder and follows no symbolic link. Error messages have the path of the
/// file.
fn open_beneath(folder: &UntrustedDirectory, name: &str) -> Result<Option<OpenedFile>> {
    const REGULAR_FILE_HINT: &str = "a folder's policy is a file of that folder, which its owner can read";
    let path = folder.path().join(name);
    let (file, metadata) = match folder.open_file(name.as_ref(), LinkPolicy::Refused) {
        Ok(Some(opened)) => opened,
        Ok(None) => return Ok(None),
        Err(ReadFileError::Link) => {
            return Err(refused_error(&path, "is a symbolic link", REGULAR_FILE_HINT));
        }
        Err(ReadFileError::NotRegular(_)) => {
            return Err(refused_error(&path, "is not a regular file", "a policy is read from files alone"));
        }
        Err(ReadFileError::Io(error)) => return Err(io_error("open", &path, &error)),
        Err(why) => return Err(refused_error(&path, &format!("cannot be read: {why}"), REGULAR_FILE_HINT)),
    };
    let bytes = read_content(&file).map_err(|error| io_error("read", &path, &error))?;
    Ok(Some(OpenedFile { bytes, metadata }))
}

/// Reads a small regular file of the operator; `None` if it does not exist.
fn read(path: &Path) -> Result<Option<OpenedFile>> {
    // Without O_NONBLOCK, open(2) of a FIFO would block until a writer opens it. Without O_NOCTTY, a
    // terminal could become the controlling terminal.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(io_error("open", path, &error)),
    };
    let metadata = file.metadata().map_err(|error| io_error("stat", path, &error))?;
    if !metadata.is_file() {
        return Err(refused_error(path, "is not a regular file", "a policy is read from files alone"));
    }
    let bytes = read_content(&file).map_err(|error| io_error("read", path, &error))?;
    Ok(Some(OpenedFile { bytes, metadata }))
}

/// Reads at most one byte more than the maximum size of a policy; the parser reports a file that is too
/// large.
fn read_content(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Refuses a file of the operator that another user could have written.
fn check_operator_file(path: &Path, metadata: &Metadata, owner: u32) -> Result<()> {
    if metadata.uid() != 0 && metadata.uid() != owner {
        let why = format!("belongs to uid {}, who could change it", metadata.uid());
        return Err(refused_error(path, &why, &format!("chown {owner} {}", path.display())));
    }
    if metadata.mode() & 0o022 != 0 {
        let why = format!("can be written by others (mode {:04o})", metadata.mode() & 0o7777);
        return Err(refused_error(path, &why, &format!("chmod go-w {}", path.display())));
    }
    Ok(())
}

/// Whether the error means that the file does not exist. ENOTDIR counts too (HOME=/dev/null).
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn refused_error(path: &Path, why: &str, hint: &str) -> Error {
    Error::new(Code::Refused, format!("policy {}: {why}", path.display())).hint(hint)
}

fn io_error(what: &str, path: &Path, error: &io::Error) -> Error {
    let cause = error.to_string();
    let cause = cause.split(" (os error").next().unwrap_or(&cause);
    Error::new(Code::Invalid, format!("{what} policy {}: {cause}", path.display()))
        .hint("a policy that exists must be readable: it is never skipped")
}
