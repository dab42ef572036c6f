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
    agent.machine.is_empty() && !is_deployed_here(data_dir, agent)
}

/// Whether this machine may store a copy of the folder: it is the operator's, or its last change was made here.
pub fn may_copy(data_dir: &Path, machine: &str, agent: &Agent) -> bool {
    let is_here = is_agent_folder(Path::new(&agent.path));
    is_here && (agent.machine.is_empty() || agent.machine == machine && is_deployed_here(data_dir, agent))
}

/// Whether the row means the folder of deployed files in this data directory.
pub fn is_deployed_here(data_dir: &Path, agent: &Agent) -> bool {
    Path::new(&agent.path) == deployed_folder(data_dir, &agent.tenant_id, &agent.name)
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
