//! The copies in the snapshot store that the deployed folder of an agent on this machine is based on: the file `NAME.copy`
//! beside the folder, with one SHA-256 in each line.
//!
//! Another machine can have deployed the agent since. Then the copy of the row is none of these: the folder is not used and
//! not copied, but replaced by that copy.

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

/// Whether the folder of an agent on this machine is the one that its row means. So is a folder that the operator has
/// placed outside of the data directory, and any folder without a copy.
///
/// # Errors
/// Fails if the file cannot be read: then it is unknown.
pub fn is_current(data_dir: &Path, agent: &Agent) -> Result<bool> {
    let Some(copy) = copy_of(agent) else { return Ok(true) };
    if !is_agent_folder(Path::new(&agent.path)) {
        return Ok(false);
    }
    Ok(!is_deployed_here(data_dir, agent) || bases(data_dir, agent)?.contains(&copy.sha256))
}

/// Whether the folder of an agent is that of its deployed files in this data directory.
pub fn is_deployed_here(data_dir: &Path, agent: &Agent) -> bool {
    Path::new(&agent.path) == deployed_folder(data_dir, &agent.tenant_id, &agent.name)
}

/// Declares the folder on this machine the one that follows the current copy, as after a deployment.
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
