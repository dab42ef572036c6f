//! Messages to the service manager that started the server (sd_notify(3)). They are not sent if there is none.

use crate::error::Result;
use crate::mutex::lock;
use sd_notify::NotifyState;
use std::sync::Mutex;
use tracing::{error, warn};

/// Whether a service manager waits for messages: it sets `NOTIFY_SOCKET`.
pub fn is_present() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// What the service manager knows. Its messages are in this order, whatever signals arrive.
#[derive(Debug, Default)]
pub struct ServiceManager(Mutex<Phase>);

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Phase {
    #[default]
    Starting,
    Ready,
    Stopping,
}

impl ServiceManager {
    /// The server accepts connections.
    pub fn notify_ready(&self) {
        let mut phase = lock(&self.0);
        if *phase == Phase::Starting {
            *phase = Phase::Ready;
            notify(&[NotifyState::Ready]);
        }
    }

    /// Runs `reload`, which reads files again. An error is logged, and shown as the status of the service. Before the
    /// server is ready and during its shutdown, nothing is sent: the end of a reload would say that it is ready.
    pub fn reload(&self, reload: impl FnOnce() -> Result<()>) {
        let phase = lock(&self.0);
        let is_ready = *phase == Phase::Ready;
        if is_ready {
            notify_reloading();
        }
        let status = reload().err().map(|error| error.to_string()).unwrap_or_default();
        if !status.is_empty() {
            error!("{status}");
        }
        if is_ready {
            // A message has one field a line.
            notify(&[NotifyState::Ready, NotifyState::Status(&status.replace('\n', " "))]);
        }
    }

    /// The server has begun its shutdown.
    pub fn notify_stopping(&self) {
        *lock(&self.0) = Phase::Stopping;
        notify(&[NotifyState::Stopping]);
    }
}

fn notify_reloading() {
    // The time is required of services of the type `notify-reload`.
    match NotifyState::monotonic_usec_now() {
        Ok(time) => notify(&[NotifyState::Reloading, time]),
        Err(_) => notify(&[NotifyState::Reloading]),
    }
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        warn!("cannot send {states:?} to the service manager: {error}");
    }
}
