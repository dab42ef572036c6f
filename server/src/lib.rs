//! The server of saggar: agents, sessions and messages over HTTP (saggar-server(8)).
//!
//! It holds no sandbox code. A session is started and ended by the program `saggar` as a process of its own, and spoken to
//! on its two sockets: the conversation on the bridge, everything else on the control socket. Sessions outlive the server.
//!
//! ```text
//! settings   flags, file, environment
//! store      the database: SQLite or PostgreSQL through the same statements
//! saggar     the program, and connections to the sockets of its sessions
//! live       the sessions that run: each has a recorder, which writes what the agent said into the database
//! stream     the messages of an agent as server-sent events and as rows
//! api        the routes
//! ```

pub mod agent_folder;
pub mod api;
pub mod clock;
pub mod error;
pub mod first_key;
pub mod live;
pub mod saggar;
pub mod settings;
pub mod store;
pub mod stream;

use crate::api::{App, Connection};
use crate::error::{Context, Result};
use crate::live::LiveSessions;
use crate::saggar::Program;
use crate::settings::Settings;
use crate::store::Store;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tracing::info;

/// Serves until SIGTERM or SIGINT. The sessions continue without the server.
///
/// # Errors
/// The data directory, the database or the address cannot be used.
pub async fn serve(settings: Settings) -> Result<()> {
    let data = settings.prepare_data()?;
    let store = Store::open(&settings.database_url(&data)).await?;
    let program = Program::find(&settings, &data);
    let listener = TcpListener::bind(settings.listen)
        .await
        .context(|| format!("listen on {}: choose another address with --listen", settings.listen))?;
    let address = listener.local_addr().context(|| "find the address of the listener")?;
    let first_key = first_key::ensure(&store, &settings, &data).await?;
    let live = LiveSessions::new(store.clone(), program.clone());
    live.find_running().await?;
    let app = Arc::new(App::new(&settings, data, store, program, live));

    print_start(address, first_key.as_ref());
    axum::serve(listener, api::router(app).into_make_service_with_connect_info::<Connection>())
        .with_graceful_shutdown(end_of_service()?)
        .await
        .context(|| "serve")
}

/// For a person: where the server is, and how to use it.
#[allow(clippy::print_stdout)]
fn print_start(address: std::net::SocketAddr, first_key: Option<&first_key::FirstKey>) {
    println!("saggar-server listens on http://{address}");
    if let Some(first_key) = first_key {
        println!("API key (shown once; kept in {}): {}", first_key.file.display(), first_key.key);
    }
}

/// Completes at the first SIGTERM or SIGINT.
fn end_of_service() -> Result<impl Future<Output = ()> + Send + 'static> {
    let mut terminate = signal(SignalKind::terminate()).context(|| "handle SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context(|| "handle SIGINT")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        info!("ending; the sessions continue");
    })
}
