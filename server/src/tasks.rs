//! Work that completes even if the client that requested it disconnects, and the shutdown of the server.

use opentelemetry::trace::FutureExt;
use std::future::Future;
use tokio::sync::watch;
use tracing::Instrument;

/// The running tasks of the server, and whether it is shutting down.
#[derive(Debug, Clone)]
pub struct Tasks {
    running: watch::Sender<usize>,
    shutting_down: watch::Sender<bool>,
}

impl Default for Tasks {
    fn default() -> Self {
        Tasks { running: watch::Sender::new(0), shutting_down: watch::Sender::new(false) }
    }
}

/// Counts a task until it is dropped.
struct RunningTask(watch::Sender<usize>);

impl Drop for RunningTask {
    fn drop(&mut self) {
        self.0.send_modify(|running| *running -= 1);
    }
}

impl Tasks {
    /// Runs `work` to its end, below the current span, even if the returned future is dropped. Returns `None` if it
    /// panics.
    pub async fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
        self.running.send_modify(|running| *running += 1);
        let task = RunningTask(self.running.clone());
        let work = async move {
            let _task = task;
            work.await
        };
        tokio::spawn(work.with_current_context().in_current_span()).await.ok()
    }

    /// Waits until no task is running.
    pub async fn wait_until_idle(&self) {
        // The wait cannot fail: `self` owns the sender.
        let _ = self.running.subscribe().wait_for(|running| *running == 0).await;
    }

    /// Begins the shutdown of the server.
    pub fn begin_shutdown(&self) {
        self.shutting_down.send_replace(true);
    }

    /// Whether the shutdown has begun.
    pub fn is_shutting_down(&self) -> bool {
        *self.shutting_down.borrow()
    }

    /// Waits until the shutdown begins.
    pub async fn wait_for_shutdown(&self) {
        let _ = self.shutting_down.subscribe().wait_for(|shutting_down| *shutting_down).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn dropped_request_does_not_stop_its_work() {
        let tasks = Tasks::default();
        let (sender, receiver) = oneshot::channel::<()>();
        let (done, is_done) = oneshot::channel();
        let work = async move {
            receiver.await.unwrap();
            done.send(7).unwrap();
        };
        assert!(tasks.run(work).now_or_never().is_none());
        assert!(tasks.wait_until_idle().now_or_never().is_none());
        sender.send(()).unwrap();
        assert_eq!(is_done.await, Ok(7));
        tasks.wait_until_idle().await;
    }

    #[tokio::test]
    async fn shutdown_is_seen_by_all() {
        let tasks = Tasks::default();
        assert!(tasks.wait_for_shutdown().now_or_never().is_none());
        assert!(!tasks.is_shutting_down());
        tasks.begin_shutdown();
        assert!(tasks.clone().is_shutting_down());
        tasks.wait_for_shutdown().await;
        tasks.clone().wait_for_shutdown().await;
    }
}
