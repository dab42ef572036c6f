//! How the agents of a pair run are started; kept in the record of the run.

use crate::error::{Code, Error, Result};
use saggar_mailbox::runs::RunRecord;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::PathBuf;

/// What both agents are started with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairLaunch {
    /// The resolved path of the work tree, which is the repository of the run.
    #[serde(with = "crate::exact_name")]
    pub workspace: PathBuf,
    /// The agent's folder of the worker.
    #[serde(with = "crate::exact_name")]
    pub worker: PathBuf,
    /// The agent's folder of the reviewer.
    #[serde(with = "crate::exact_name")]
    pub reviewer: PathBuf,
    /// Whether the reviewer may write to the work tree.
    pub reviewer_writes: bool,
    /// Options of `saggar session create` for both agents.
    #[serde(with = "crate::exact_name::list")]
    pub options: Vec<OsString>,
    /// The directory to which relative paths among the options refer.
    #[serde(with = "crate::exact_name")]
    pub directory: PathBuf,
}

impl PairLaunch {
    /// As the record of a run has it.
    ///
    /// # Errors
    /// [`Code::State`]: the run was not created by `saggar pair run`.
    pub fn of_record(record: &RunRecord) -> Result<Self> {
        let launch = record.launch.clone().and_then(|launch| serde_json::from_value(launch).ok());
        launch.ok_or_else(|| {
            Error::new(Code::State, format!("run {} was not begun by saggar pair run", record.run_id))
                .hint("saggar pair list shows the pair runs")
        })
    }
}
