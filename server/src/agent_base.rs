//! Which folder of an agent a server uses that shares its database with servers on other machines.
//!
//! A folder that the operator has placed outside of the data directory is used on each machine that has it. Deployed files
//! are those of the machine that has changed them last, or of the copy in the snapshot store: the file `NAME.copy` beside a
//! deployed folder has the SHA-256 of the copies that it is based on, one in each line. If the copy of the row is none of
//! these, another machine has changed the agent since: the folder is not used, but replaced by that copy.

use crate::agent_folder::{agents_directory, deployed_folder, is_agent_folder};
use crate::durable_file::replace;
use crate::error::{Context, Result};
use crate::persisted::StoredObject;
use crate::store::Agent;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The copy of the folder of an agent; `None` if there is none.
pub fn copy_of(agent: &Agent) -> Option<StoredObject> {
    serde_json::from_str(agent.copy.as_deref()?).ok()
}

/// Returns the folder of an agent on this machine, whose id is `machine`. `None` if the copy is to be restored first.
///
/// # Errors
/// Fails if it is unknown which copies the folder is based on.
pub fn current_folder(data_dir: &Path, machine: &str, agent: &Agent) -> Result<Option<PathBuf>> {
    let path = PathBuf::from(&agent.path);
    let Some(copy) = copy_of(agent) else { return Ok(Some(path)) };
    let is_placed = is_placed(data_dir, agent);
    if is_placed && is_agent_folder(&path) {
        return Ok(Some(path));
    }
    let deployed = deployed_folder(data_dir, &agent.tenant_id, &agent.name);
    if !is_agent_folder(&deployed) {
        return Ok(None);
    }
    let is_current = !is_placed && agent.machine == machine || bases(data_dir, agent)?.contains(&copy.sha256);
    Ok(is_current.then_some(deployed))
}

/// Whether the operator has placed the folder of an agent.
pub fn is_placed(data_dir: &Path, agent: &Agent) -> bool {
    agent.machine.is_empty()
        && Path::new(&agent.path) != deployed_folder(data_dir, &agent.tenant_id, &agent.name)
}

/// Returns the folder of which this machine may store a copy: that of the operator, or deployed files whose last change was
/// made here. The row can have the path of another machine, which has restored an earlier copy meanwhile.
pub fn folder_to_copy(data_dir: &Path, machine: &str, agent: &Agent) -> Option<PathBuf> {
    let folder = if agent.machine == machine {
        deployed_folder(data_dir, &agent.tenant_id, &agent.name)
    } else if agent.machine.is_empty() {
        PathBuf::from(&agent.path)
    } else {
        return None;
    };
    is_agent_folder(&folder).then_some(folder)
}

/// Declares the deployed folder on this machine the one that follows the current copy, as after a deployment.
///
/// # Errors
/// Fails if the file cannot be written.
pub fn adopt(data_dir: &Path, agent: &Agent) -> Result<()> {
    copy_of(agent).map_or(Ok(()), |copy| write_bases(data_dir, agent, &[&copy.sha256]))
}

/// Stores the hashes of the copies that the folder is based on.
///
/// # Errors
/// Fails if the file cannot be written.
pub fn write_bases(data_dir: &Path, agent: &Agent, hashes: &[&str]) -> Result<()> {
    let file = base_file(data_dir, &agent.tenant_id, &agent.name);
    replace(&file, hashes.join("\n").as_bytes()).context(|| format!("cannot write {}", file.display()))
}

/// Removes the file of an agent that was deleted.
pub fn remove(data_dir: &Path, tenant: &str, name: &str) {
    let _ = fs::remove_file(base_file(data_dir, tenant, name));
}

fn bases(data_dir: &Path, agent: &Agent) -> Result<Vec<String>> {
    let file = base_file(data_dir, &agent.tenant_id, &agent.name);
    match fs::read_to_string(&file) {
        Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).context(|| format!("cannot read {}", file.display())),
    }
}

/// Names of agents contain no dot.
fn base_file(data_dir: &Path, tenant: &str, name: &str) -> PathBuf {
    agents_directory(data_dir, tenant).join(format!("{name}.copy"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_of_the_last_change_copies_its_folder_after_another_has_restored_an_earlier_one() {
        let data_dir = tempfile::tempdir().unwrap();
        let own = crate::agent_folder::deploy(data_dir.path(), "default", "a", &[], None).unwrap();
        let agent = Agent {
            id: String::new(),
            tenant_id: "default".into(),
            name: "a".into(),
            version: 1,
            path: "/other/agents/a".into(),
            env: "{}".into(),
            config: "{}".into(),
            copy: None,
            changes: 2,
            machine: "one".into(),
            created_at: String::new(),
            updated_at: String::new(),
        };
        assert_eq!(folder_to_copy(data_dir.path(), "one", &agent), Some(own));
        assert_eq!(folder_to_copy(data_dir.path(), "two", &agent), None);
        // A folder of the operator, which is not here.
        assert_eq!(folder_to_copy(data_dir.path(), "one", &Agent { machine: String::new(), ..agent }), None);
    }
}
