//! Agent folders. Deployed files are in `agents/NAME` of the data directory, or in `tenants/TENANT/agents/NAME`. A
//! session with its own system prompt or MCP servers starts with a modified copy of the folder.

use crate::api_key::DEFAULT_TENANT;
use serde_json::{Map, Value};
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};
use uuid::Uuid;

/// The content of `CLAUDE.md` if a deployment contains neither this file nor a system prompt.
const DEFAULT_PROMPT: &str = "You are a helpful agent.\n";
const PROMPT_FILE: &str = "CLAUDE.md";
const MCP_FILE: &str = ".mcp.json";

/// A file of a deployment.
#[derive(Debug)]
pub struct NewFile {
    /// The path relative to the agent folder, as [`safe_path`] returns it.
    pub path: PathBuf,
    /// The content, byte for byte.
    pub content: Vec<u8>,
}

/// Returns the folder to which the files of an agent are deployed.
pub fn deployed_folder(data_dir: &Path, tenant: &str, name: &str) -> PathBuf {
    agents_directory(data_dir, tenant).join(name)
}

/// Returns the directory of the folders to which the files of agents are deployed.
pub fn agents_directory(data_dir: &Path, tenant: &str) -> PathBuf {
    match tenant {
        DEFAULT_TENANT => data_dir.join("agents"),
        tenant => data_dir.join("tenants").join(tenant).join("agents"),
    }
}

/// Normalizes a relative path. Returns `None` if it is empty, is absolute, or contains `..` or a NUL byte.
pub fn safe_path(path: &str) -> Option<PathBuf> {
    let path = Path::new(path);
    let is_plain = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    if path.as_os_str().as_encoded_bytes().contains(&0) || !path.components().all(is_plain) {
        return None;
    }
    let path: PathBuf = path.components().filter(|part| *part != Component::CurDir).collect();
    (!path.as_os_str().is_empty()).then_some(path)
}

/// Replaces the agent folder by one with these files. `prompt`, if given, replaces `CLAUDE.md` among them. Returns the
/// folder.
///
/// # Errors
/// Fails if a file cannot be written; the previous folder then remains in place.
pub fn deploy(
    data_dir: &Path,
    tenant: &str,
    name: &str,
    files: &[NewFile],
    prompt: Option<&str>,
) -> io::Result<PathBuf> {
    install(data_dir, tenant, name, |folder| write_folder(folder, files, prompt))
}

/// Replaces the agent folder by one that `write` creates. Returns the folder.
///
/// # Errors
/// Those of `write`; fails if the folder cannot be renamed. The previous folder then remains in place.
pub fn install(
    data_dir: &Path,
    tenant: &str,
    name: &str,
    write: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<PathBuf> {
    let directory = agents_directory(data_dir, tenant);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
    // Agent names contain no dot, so the temporary name cannot collide with one.
    let new = directory.join(format!(".{}", Uuid::new_v4()));
    let result = write(&new).and_then(|()| install_folder(&new, &directory.join(name)));
    if new.exists() {
        // After an exchange, this is the previous folder; after a failure, the incomplete new one.
        fs::remove_dir_all(&new)?;
    }
    result?;
    Ok(directory.join(name))
}

fn write_folder(folder: &Path, files: &[NewFile], prompt: Option<&str>) -> io::Result<()> {
    fs::create_dir(folder)?;
    for file in files {
        let path = folder.join(&file.path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, &file.content)?;
    }
    let prompt_file = folder.join(PROMPT_FILE);
    match prompt {
        Some(prompt) => fs::write(prompt_file, prompt),
        None if prompt_file.exists() => Ok(()),
        None => fs::write(prompt_file, DEFAULT_PROMPT),
    }
}

/// Renames `new` to `folder`. If `folder` exists, the two are exchanged atomically.
fn install_folder(new: &Path, folder: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let flags = if folder.exists() { RenameFlags::EXCHANGE } else { RenameFlags::NOREPLACE };
    Ok(renameat_with(CWD, new, CWD, folder, flags)?)
}

/// Removes the folder to which the files of an agent were deployed. It is not an error if there is none.
///
/// # Errors
/// Fails if the folder cannot be removed.
pub fn remove(data_dir: &Path, tenant: &str, name: &str) -> io::Result<()> {
    match fs::remove_dir_all(deployed_folder(data_dir, tenant, name)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Resolves a path that a client names, absolute or relative to the data directory. Returns `None` if it is not an
/// agent folder, or if it contains or belongs to the data of another tenant, of a session or of the server itself. Only
/// the tenant `default`, which is the operator's, may name folders outside of the data directory.
pub fn resolve_folder(data_dir: &Path, tenant: &str, path: &str) -> Option<PathBuf> {
    let folder = data_dir.join(path);
    let (actual, data_dir) = (folder.canonicalize().ok()?, data_dir.canonicalize().ok()?);
    let is_apart = !actual.starts_with(&data_dir) && !data_dir.starts_with(&actual);
    let is_allowed =
        actual.starts_with(agents_directory(&data_dir, tenant)) || is_apart && tenant == DEFAULT_TENANT;
    (is_allowed && is_agent_folder(&actual)).then_some(folder)
}

/// Whether a folder is an agent folder: it must contain `CLAUDE.md`.
pub fn is_agent_folder(folder: &Path) -> bool {
    folder.join(PROMPT_FILE).is_file()
}

/// Changes that a session makes to its copy of the agent folder.
#[derive(Debug, Default)]
pub struct SessionOverrides<'a> {
    /// Replaces the content of `CLAUDE.md`.
    pub prompt: Option<&'a str>,
    /// MCP servers by name, added to `.mcp.json`. They take precedence over those of the agent.
    pub mcp_servers: Option<&'a Map<String, Value>>,
}

/// Copies the agent folder and applies the overrides to the copy. Symbolic links are copied as links.
///
/// # Errors
/// Fails if a file cannot be read or written, or if the agent's `.mcp.json` is not a JSON object.
pub fn create_session_folder(
    agent: &Path,
    folder: &Path,
    overrides: &SessionOverrides<'_>,
) -> io::Result<()> {
    copy_directory(agent, folder)?;
    if let Some(prompt) = overrides.prompt {
        replace_file(&folder.join(PROMPT_FILE), prompt.as_bytes())?;
    }
    if let Some(servers) = overrides.mcp_servers {
        let file = folder.join(MCP_FILE);
        let mut settings = read_json_object(&file)?;
        let entries = settings.entry("mcpServers").or_insert_with(|| Value::Object(Map::new()));
        let Value::Object(entries) = entries else {
            return Err(io::Error::other(format!(
                "mcpServers in the agent's {MCP_FILE} must be a JSON object"
            )));
        };
        entries.extend(servers.clone());
        replace_file(&file, Value::Object(settings).to_string().as_bytes())?;
    }
    Ok(())
}

fn copy_directory(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            copy_directory(&entry.path(), &target)?;
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(entry.path())?, target)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// Replaces a file. A symbolic link is removed, never followed: its target can be outside of the folder.
fn replace_file(file: &Path, content: &[u8]) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::write(file, content)
}

fn read_json_object(file: &Path) -> io::Result<Map<String, Value>> {
    match fs::read(file) {
        Ok(text) => Ok(serde_json::from_slice(&text)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Map::new()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn file(path: &str, content: &str) -> NewFile {
        NewFile { path: safe_path(path).unwrap(), content: content.into() }
    }

    #[test]
    fn folders_of_sessions_and_other_tenants_are_not_resolved() {
        let data_dir = tempfile::tempdir().unwrap();
        let data_dir = data_dir.path();
        let own = deploy(data_dir, "default", "a", &[], None).unwrap();
        let other = deploy(data_dir, "other", "a", &[], None).unwrap();
        let workspace = data_dir.join("saggar/sessions/1/workspace");
        fs::create_dir_all(&workspace).unwrap();
        fs::write(workspace.join(PROMPT_FILE), "x").unwrap();
        std::os::unix::fs::symlink(&workspace, data_dir.join("agents/link")).unwrap();
        assert_eq!(resolve_folder(data_dir, "default", "agents/a"), Some(own));
        assert_eq!(resolve_folder(data_dir, "other", "tenants/other/agents/a"), Some(other));
        for path in
            ["tenants/other/agents/a", "saggar/sessions/1/workspace", "agents/link", "agents/../agents", "."]
        {
            assert_eq!(resolve_folder(data_dir, "default", path), None, "{path}");
        }
    }

    #[test]
    fn paths_outside_folder_are_rejected() {
        for bad in ["", ".", "./", "..", "../a", "a/../b", "a/..", "/a", "/", "a\0b"] {
            assert_eq!(safe_path(bad), None, "{bad:?}");
        }
        assert_eq!(safe_path("./a//b/").unwrap(), Path::new("a/b"));
        assert_eq!(safe_path("..a").unwrap(), Path::new("..a"));
    }

    #[test]
    fn deployment_replaces_whole_folder() {
        let data_dir = tempfile::tempdir().unwrap();
        let first =
            deploy(data_dir.path(), "default", "a", &[file("x/y", "1"), file("CLAUDE.md", "p")], None)
                .unwrap();
        assert_eq!(first, data_dir.path().join("agents/a"));
        assert_eq!(fs::read_to_string(first.join("x/y")).unwrap(), "1");
        deploy(data_dir.path(), "default", "a", &[file("z", "2")], Some("prompt")).unwrap();
        assert!(!first.join("x").exists());
        assert_eq!(fs::read_to_string(first.join("CLAUDE.md")).unwrap(), "prompt");
        let other = deploy(data_dir.path(), "other", "a", &[], None).unwrap();
        assert_eq!(other, data_dir.path().join("tenants/other/agents/a"));
        assert_eq!(fs::read_to_string(other.join("CLAUDE.md")).unwrap(), DEFAULT_PROMPT);
        assert_eq!(fs::read_dir(data_dir.path().join("agents")).unwrap().count(), 1);
        remove(data_dir.path(), "default", "a").unwrap();
        remove(data_dir.path(), "default", "a").unwrap();
        assert!(!first.exists());
    }

    #[test]
    fn failed_deployment_changes_nothing() {
        let data_dir = tempfile::tempdir().unwrap();
        let folder = deploy(data_dir.path(), "default", "a", &[file("x", "1")], None).unwrap();
        // The same path as a file and as a directory.
        deploy(data_dir.path(), "default", "a", &[file("x", "1"), file("x/y", "2")], None).unwrap_err();
        assert_eq!(fs::read_to_string(folder.join("x")).unwrap(), "1");
        assert_eq!(fs::read_dir(data_dir.path().join("agents")).unwrap().count(), 1);
    }

    #[test]
    fn session_overrides_change_only_its_copy() {
        let data_dir = tempfile::tempdir().unwrap();
        let (agent, folder) = (data_dir.path().join("agent"), data_dir.path().join("session"));
        fs::create_dir_all(agent.join("sub")).unwrap();
        fs::write(agent.join("sub/f"), "f").unwrap();
        fs::write(agent.join("real.md"), "real").unwrap();
        std::os::unix::fs::symlink("real.md", agent.join("CLAUDE.md")).unwrap();
        fs::write(agent.join(".mcp.json"), r#"{"mcpServers":{"a":{"n":1},"b":{"n":1}},"x":1}"#).unwrap();
        let servers = json!({ "b": { "n": 2 }, "c": { "n": 2 } });
        let overrides = SessionOverrides { prompt: Some("own"), mcp_servers: servers.as_object() };
        create_session_folder(&agent, &folder, &overrides).unwrap();
        assert_eq!(fs::read_to_string(folder.join("CLAUDE.md")).unwrap(), "own");
        assert_eq!(fs::read_to_string(folder.join("real.md")).unwrap(), "real");
        assert_eq!(fs::read_to_string(folder.join("sub/f")).unwrap(), "f");
        let written: Value = serde_json::from_slice(&fs::read(folder.join(".mcp.json")).unwrap()).unwrap();
        assert_eq!(
            written,
            json!({ "mcpServers": { "a": { "n": 1 }, "b": { "n": 2 }, "c": { "n": 2 } }, "x": 1 })
        );
        assert_eq!(fs::read_to_string(agent.join("CLAUDE.md")).unwrap(), "real");
    }
}
