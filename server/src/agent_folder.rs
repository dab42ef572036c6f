//! The folders of agents: `agents/NAME` in the data directory, or `tenants/TENANT/agents/NAME`; and the folder of a session
//! that has a prompt or MCP servers of its own.

use crate::first_key::DEFAULT_TENANT;
use serde_json::{Map, Value};
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};
use uuid::Uuid;

/// What an agent is told when nobody tells it anything.
const DEFAULT_PROMPT: &str = "You are a helpful agent.\n";
const PROMPT_FILE: &str = "CLAUDE.md";
const MCP_FILE: &str = ".mcp.json";

/// A file of an agent.
#[derive(Debug)]
pub struct NewFile {
    /// Its path in the folder.
    pub path: PathBuf,
    /// Its content.
    pub content: Vec<u8>,
}

/// The folder of an agent that is deployed with its files.
pub fn folder_of(data: &Path, tenant: &str, name: &str) -> PathBuf {
    directory_of(data, tenant).join(name)
}

fn directory_of(data: &Path, tenant: &str) -> PathBuf {
    match tenant {
        DEFAULT_TENANT => data.join("agents"),
        tenant => data.join("tenants").join(tenant).join("agents"),
    }
}

/// The path of a file in a folder, if it can only be there: relative, without `..`, and not empty.
pub fn safe_path(path: &str) -> Option<PathBuf> {
    let path = Path::new(path);
    let is_plain = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    if path.as_os_str().as_encoded_bytes().contains(&0) || !path.components().all(is_plain) {
        return None;
    }
    let path: PathBuf = path.components().filter(|part| *part != Component::CurDir).collect();
    (!path.as_os_str().is_empty()).then_some(path)
}

/// Replaces the folder of an agent as a whole by one with these files. `CLAUDE.md` is among them, or has the prompt.
///
/// # Errors
/// A file cannot be written; then the folder is what it was.
pub fn deploy(
    data: &Path,
    tenant: &str,
    name: &str,
    files: &[NewFile],
    prompt: Option<&str>,
) -> io::Result<PathBuf> {
    let directory = directory_of(data, tenant);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
    // No name of an agent has a dot.
    let new = directory.join(format!(".{}", Uuid::new_v4()));
    let done = write_folder(&new, files, prompt).and_then(|()| put_in_place(&new, &directory.join(name)));
    if new.exists() {
        // The former folder after a success, else what was begun.
        fs::remove_dir_all(&new)?;
    }
    done?;
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

/// Gives a folder its name; one that had it gets the name of the new one.
fn put_in_place(new: &Path, folder: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let flags = if folder.exists() { RenameFlags::EXCHANGE } else { RenameFlags::NOREPLACE };
    Ok(renameat_with(CWD, new, CWD, folder, flags)?)
}

/// Removes the folder of an agent that was deployed with its files, if there is one.
///
/// # Errors
/// It cannot be removed.
pub fn remove(data: &Path, tenant: &str, name: &str) -> io::Result<()> {
    match fs::remove_dir_all(folder_of(data, tenant, name)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The folder that a client names, absolute or below the data directory, if it is one of an agent.
pub fn named_folder(data: &Path, path: &str) -> Option<PathBuf> {
    let folder = data.join(path);
    is_agent(&folder).then_some(folder)
}

/// Whether a folder is one of an agent.
pub fn is_agent(folder: &Path) -> bool {
    folder.join(PROMPT_FILE).is_file()
}

/// What a session has beyond the folder of its agent.
#[derive(Debug, Default)]
pub struct Additions<'a> {
    /// In place of its prompt.
    pub prompt: Option<&'a str>,
    /// MCP servers by name, beside and before those of the folder.
    pub mcp_servers: Option<&'a Map<String, Value>>,
}

/// Makes the folder of a session: that of the agent, and what the session adds. Links are copied as links.
///
/// # Errors
/// A file cannot be read or written, or `.mcp.json` of the agent is no JSON object.
pub fn make_for_session(agent: &Path, folder: &Path, additions: &Additions<'_>) -> io::Result<()> {
    copy_directory(agent, folder)?;
    if let Some(prompt) = additions.prompt {
        replace(&folder.join(PROMPT_FILE), prompt.as_bytes())?;
    }
    if let Some(servers) = additions.mcp_servers {
        let file = folder.join(MCP_FILE);
        let mut settings = read_object(&file)?;
        let known = settings.entry("mcpServers").or_insert_with(|| Value::Object(Map::new()));
        let Value::Object(known) = known else {
            return Err(io::Error::other(format!("mcpServers in {MCP_FILE} of the agent is no object")));
        };
        known.extend(servers.clone());
        replace(&file, Value::Object(settings).to_string().as_bytes())?;
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

/// Replaces a name by a file, and never writes through a link.
fn replace(file: &Path, content: &[u8]) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::write(file, content)
}

fn read_object(file: &Path) -> io::Result<Map<String, Value>> {
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
    fn a_path_that_could_be_elsewhere_is_none() {
        for bad in ["", ".", "./", "..", "../a", "a/../b", "a/..", "/a", "/", "a\0b"] {
            assert_eq!(safe_path(bad), None, "{bad:?}");
        }
        assert_eq!(safe_path("./a//b/").unwrap(), Path::new("a/b"));
        assert_eq!(safe_path("..a").unwrap(), Path::new("..a"));
    }

    #[test]
    fn a_deployment_replaces_the_whole_folder() {
        let data = tempfile::tempdir().unwrap();
        let first =
            deploy(data.path(), "default", "a", &[file("x/y", "1"), file("CLAUDE.md", "p")], None).unwrap();
        assert_eq!(first, data.path().join("agents/a"));
        assert_eq!(fs::read_to_string(first.join("x/y")).unwrap(), "1");
        deploy(data.path(), "default", "a", &[file("z", "2")], Some("prompt")).unwrap();
        assert!(!first.join("x").exists());
        assert_eq!(fs::read_to_string(first.join("CLAUDE.md")).unwrap(), "prompt");
        let other = deploy(data.path(), "other", "a", &[], None).unwrap();
        assert_eq!(other, data.path().join("tenants/other/agents/a"));
        assert_eq!(fs::read_to_string(other.join("CLAUDE.md")).unwrap(), DEFAULT_PROMPT);
        assert_eq!(fs::read_dir(data.path().join("agents")).unwrap().count(), 1);
        remove(data.path(), "default", "a").unwrap();
        remove(data.path(), "default", "a").unwrap();
        assert!(!first.exists());
    }

    #[test]
    fn a_deployment_that_fails_changes_nothing() {
        let data = tempfile::tempdir().unwrap();
        let folder = deploy(data.path(), "default", "a", &[file("x", "1")], None).unwrap();
        // A file and a directory of one name.
        deploy(data.path(), "default", "a", &[file("x", "1"), file("x/y", "2")], None).unwrap_err();
        assert_eq!(fs::read_to_string(folder.join("x")).unwrap(), "1");
        assert_eq!(fs::read_dir(data.path().join("agents")).unwrap().count(), 1);
    }

    #[test]
    fn a_session_adds_to_its_own_copy_alone() {
        let data = tempfile::tempdir().unwrap();
        let (agent, folder) = (data.path().join("agent"), data.path().join("session"));
        fs::create_dir_all(agent.join("sub")).unwrap();
        fs::write(agent.join("sub/f"), "f").unwrap();
        fs::write(agent.join("real.md"), "real").unwrap();
        std::os::unix::fs::symlink("real.md", agent.join("CLAUDE.md")).unwrap();
        fs::write(agent.join(".mcp.json"), r#"{"mcpServers":{"a":{"n":1},"b":{"n":1}},"x":1}"#).unwrap();
        let servers = json!({ "b": { "n": 2 }, "c": { "n": 2 } });
        let additions = Additions { prompt: Some("own"), mcp_servers: servers.as_object() };
        make_for_session(&agent, &folder, &additions).unwrap();
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
