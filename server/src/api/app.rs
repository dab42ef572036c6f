//! What all routes share.

use crate::first_key;
use crate::live::LiveSessions;
use crate::saggar::Program;
use crate::settings::Settings;
use crate::store::Store;
use std::path::PathBuf;
use std::time::Instant;
use tokio::sync::RwLock;

/// The server.
#[derive(Debug)]
pub struct App {
    /// The data directory.
    pub data: PathBuf,
    /// The database.
    pub store: Store,
    /// The program that starts sandboxes.
    pub program: Program,
    /// The sessions that run.
    pub live: LiveSessions,
    /// Names of the server.
    pub allowed_hosts: Vec<String>,
    /// The hash of the key that is in no database.
    pub configured_key: Option<String>,
    /// Held by who reads the folders of agents; alone by who replaces one.
    pub folders: RwLock<()>,
    /// When it started.
    pub started: Instant,
}

impl App {
    /// The server with these settings.
    pub fn new(
        settings: &Settings,
        data: PathBuf,
        store: Store,
        program: Program,
        live: LiveSessions,
    ) -> Self {
        App {
            data,
            store,
            program,
            live,
            allowed_hosts: settings.allowed_hosts.clone(),
            configured_key: settings.api_key.as_deref().map(first_key::hash),
            folders: RwLock::default(),
            started: Instant::now(),
        }
    }
}
