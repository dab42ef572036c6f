//! The HTTP server of saggar: agents, sessions and messages (saggar-server(8)).
//!
//! The server contains no sandbox code. It runs the program `saggar` to start and end sessions, and connects to the two
//! sockets of each session: the bridge for the conversation, and the control socket for everything else. Sessions
//! outlive the server.
//!
//! ```text
//! settings      command line, environment and settings file
//! store         the database: the same statements for SQLite and PostgreSQL
//! saggar        the program `saggar`, and clients of the sockets of its sessions
//! capacity      the maximum number of running sandboxes
//! kubernetes    sessions in pods
//! relay         access to the sockets of the pods of a node
//! running       sessions with a running sandbox; a recorder for each writes its events into the database
//! persisted     copies of sessions in a directory or an S3 API, for other machines
//! stream        conversion of agent messages to server-sent events and database rows
//! mutex         mutexes after a panic
//! open_files    the limit on open files
//! data_lock     the lock of the data directory
//! machine_id    the id of the data directory
//! agent_folder  agent folders on disk
//! folder_archive  folders and events as compressed files
//! agent_base    which folder of an agent this machine uses
//! durable_file  small files that survive a crash of the machine
//! agent_files   files in an agent folder
//! allowed_hosts  hosts that clients have allowed for sessions
//! cipher        encryption of credentials in the database
//! attachment_files  files of attachments on disk
//! api_key       generation and hashing of API keys
//! http_client   requests to the S3 API and the Kubernetes API
//! tls           the certificate of the server
//! hangup        what SIGHUP does
//! service_manager  messages to systemd
//! traces        spans for OpenTelemetry, and their export
//! api           the routes, and the files of the web page, which are in server/page
//! ```

pub mod agent_base;
pub mod agent_files;
pub mod agent_folder;
pub mod allowed_hosts;
pub mod api;
pub mod api_key;
pub mod ash_variables;
pub mod attachment_files;
pub mod body_limits;
pub mod capacity;
pub mod cipher;
pub mod clock;
pub mod data_lock;
pub mod digest;
pub mod durable_file;
pub mod error;
pub(crate) mod folder_archive;
pub mod hangup;
pub(crate) mod http_client;
pub mod http_server;
pub mod keyed_locks;
pub mod kubernetes;
pub mod machine_id;
pub mod model_apis;
mod mutex;
pub mod open_files;
pub mod permission_mode;
pub mod persisted;
pub mod relay;
pub mod running;
pub mod saggar;
pub mod service_manager;
pub mod session_directory;
pub mod session_policy;
pub mod settings;
pub mod skipped_names;
pub mod store;
pub mod stream;
pub mod tasks;
pub mod tls;
pub mod traces;

use crate::api::App;
use crate::capacity::Capacity;
use crate::cipher::CredentialCipher;
use crate::data_lock::lock_data_directory;
use crate::error::Result;
use crate::http_server::ConnectionLimits;
use crate::kubernetes::Pods;
use crate::machine_id::machine_id;
use crate::open_files::raise_open_file_limit;
use crate::persisted::{ChangeQueue, Persisted};
use crate::running::RunningSessions;
use crate::saggar::{Program, Sandboxes};
use crate::service_manager::ServiceManager;
use crate::settings::Settings;
use crate::store::{DatabaseLock, Store};
use crate::tasks::Tasks;
use crate::tls::ServerCertificate;
use crate::traces::TraceExport;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use tracing::{info, warn};

/// How long requests may continue after a signal to exit. Streams end at once.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves requests until SIGTERM or SIGINT, then finishes the export of traces. Sessions continue after the server has
/// exited.
///
/// # Errors
/// Fails if the data directory, the database or the listening address cannot be used.
pub async fn serve(settings: Settings, traces: Option<TraceExport>) -> Result<()> {
    let open_files = raise_open_file_limit();
    let data_dir = settings.create_data_directory()?;
    // Both locks are held until the process exits.
    let _data_lock = lock_data_directory(&data_dir)?;
    let database_url = settings.database_url(&data_dir);
    if let Some(lock) = DatabaseLock::acquire(&database_url).await? {
        tokio::spawn(lock.maintain());
    }
    let machine = machine_id(&data_dir)?;
    let store = Store::open(&database_url).await?.for_machine(&machine);
    let pods = settings.kubernetes.clone().map(|kubernetes| Pods::new(kubernetes, machine)).transpose()?;
    let sandboxes = Sandboxes::new(Program::find(&settings, &data_dir), pods);
    let certificate = settings.tls.clone().map(ServerCertificate::load).transpose()?.map(Arc::new);
    let (listener, address) = http_server::listen(settings.listen).await?;
    let initial_key = api_key::create_initial_key(&store, &settings, &data_dir).await?;
    let cipher = CredentialCipher::load(&settings, &data_dir)?;
    api::seal_stored_variables(&store, &cipher).await?;
    let capacity = Capacity::new(settings.sandbox_limits.max);
    let changes = ChangeQueue::new(settings.snapshot_url.is_some());
    let running = RunningSessions::new(store.clone(), sandboxes.clone(), data_dir.clone(), capacity, changes);
    let open = |url| {
        let parts = (store.clone(), sandboxes.program().clone(), running.clone());
        Persisted::open(url, parts, cipher.clone(), data_dir.clone())
    };
    let persisted = settings.snapshot_url.as_ref().map(open).transpose()?;
    running.reattach().await?;
    let copy_workers = match &persisted {
        Some(persisted) => Some(persisted.start().await?),
        None => None,
    };
    let app = Arc::new(App::new(&settings, data_dir, store, cipher, sandboxes, running, persisted));

    if let Some(persisted) = app.persisted.clone() {
        tokio::spawn(async move { persisted.restore_agents().await });
    }
    let tasks = app.tasks.clone();
    // Counted, so that the exit waits until no item of the queue is between its claim and its turn, no session between two
    // states, and no warm sandbox left.
    spawn_counted(&tasks, api::run_queue(Arc::clone(&app)));
    spawn_counted(&tasks, api::evict_idle_sessions(Arc::clone(&app)));
    spawn_counted(&tasks, api::maintain_warm_pool(Arc::clone(&app)));
    let scheme = settings.scheme();
    let manager = Arc::new(ServiceManager::default());
    hangup::reload_at_hangup(certificate.clone(), Arc::clone(&manager))?;
    let tls = certificate.map(ServerCertificate::acceptor).transpose()?;
    if tls.is_none() && !address.ip().is_loopback() {
        warn!(
            "connections from other hosts are not encrypted, and API keys can be read: see --tls-certificate"
        );
    }
    let shutdown = shutdown_signal(tasks.clone(), Arc::clone(&manager))?;
    // Only now: a client that has read the address may send a signal at once. The server is of use without this
    // output, since the caller chose the address and the key is in its file.
    if let Err(error) = print_address(scheme, address, initial_key.as_ref()) {
        warn!("cannot print the address {scheme}://{address} to standard output: {error}");
    }
    manager.notify_ready();
    let limits = ConnectionLimits::for_server(open_files, SHUTDOWN_TIMEOUT);
    http_server::serve(listener, tls, api::router(Arc::clone(&app)), shutdown, limits).await;
    // A sandbox that does not answer is not waited for.
    if timeout(SHUTDOWN_TIMEOUT, tasks.wait_until_idle()).await.is_err() {
        warn!("exiting although requests are in progress");
    }
    if let Some(workers) = copy_workers {
        // A turn that runs will have changed its session before another machine resumes it.
        app.running.add_running_turns();
        workers.close().await;
    }
    if let Some(traces) = traces {
        app.running.leave_turn_spans();
        traces.finish().await;
    }
    Ok(())
}

/// Starts work of the server itself.
fn spawn_counted(tasks: &Tasks, work: impl Future<Output = ()> + Send + 'static) {
    let tasks = tasks.clone();
    tokio::spawn(async move { tasks.run(work).await });
}

/// Prints the address, and the initial API key if this start created one.
fn print_address(
    scheme: &str,
    address: SocketAddr,
    initial_key: Option<&api_key::InitialKey>,
) -> io::Result<()> {
    let mut output = io::stdout().lock();
    writeln!(output, "saggar-server listens on {scheme}://{address}")?;
    if let Some(initial_key) = initial_key {
        writeln!(
            output,
            "API key (shown once; kept in {}): {}",
            initial_key.file.display(),
            initial_key.key
        )?;
    }
    Ok(())
}

/// Returns a future that completes at the first SIGTERM or SIGINT, and begins the shutdown.
fn shutdown_signal(
    tasks: Tasks,
    manager: Arc<ServiceManager>,
) -> Result<impl Future<Output = ()> + Send + 'static> {
    let requested = http_server::end_requested()?;
    Ok(async move {
        requested.await;
        info!("shutting down; sessions continue");
        manager.notify_stopping();
        tasks.begin_shutdown();
    })
}
