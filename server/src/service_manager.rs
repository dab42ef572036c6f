//! Messages to the service manager that started the server (sd_notify(3)). They are not sent if there is none.

use sd_notify::NotifyState;
use tracing::warn;

/// Whether a service manager waits for messages: it sets `NOTIFY_SOCKET`.
pub fn is_present() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// The server accepts connections.
pub fn notify_ready() {
    notify(&[NotifyState::Ready]);
}

/// The server reads files again; [`notify_ready`] follows.
pub fn notify_reloading() {
    // The time is required of services of the type `notify-reload`.
    match NotifyState::monotonic_usec_now() {
        Ok(time) => notify(&[NotifyState::Reloading, time]),
        Err(_) => notify(&[NotifyState::Reloading]),
    }
}

/// The server has begun its shutdown.
pub fn notify_stopping() {
    notify(&[NotifyState::Stopping]);
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        warn!("cannot send {states:?} to the service manager: {error}");
    }
}
