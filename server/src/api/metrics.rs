//! `GET /metrics`: numbers for Prometheus (text format 0.0.4), named as in Ash.

use super::App;
use super::error::ApiError;
use super::health::PoolStats;
use crate::persisted::Persisted;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A metric with its samples: labels and values.
struct Metric<'a> {
    name: &'a str,
    help: &'a str,
    kind: &'a str,
    samples: Vec<(String, u64)>,
}

/// Returns numbers of the server for Prometheus.
///
/// They contain no data of a tenant.
#[utoipa::path(
    get,
    path = "/metrics",
    operation_id = "getMetrics",
    tag = "Server",
    responses((status = 200, description = "The text format 0.0.4", body = String, content_type = "text/plain")),
)]
pub(super) async fn metrics(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let pool = PoolStats::read(&app);
    let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let gauge =
        |name, help, value| Metric { name, help, kind: "gauge", samples: vec![(String::new(), value)] };
    let states = [
        ("cold", 0),
        ("warming", pool.warming),
        ("warm", pool.warm),
        ("waiting", pool.waiting),
        ("running", pool.running),
    ];
    let sandboxes = states.map(|(state, count)| (format!("state=\"{state}\""), number(count)));
    let resumes =
        [("warm", pool.resume_warm_hits), ("cold", pool.resume_cold_hits), ("prewarm", pool.pre_warm_hits)];
    let resumes = resumes.map(|(path, count)| (format!("path=\"{path}\""), count));
    let sessions = app.store.count_sessions_by_status().await?;
    let by_status = sessions.into_iter().map(|(status, count)| (format!("status=\"{status}\""), count));
    let by_status: Vec<(String, u64)> = by_status.collect();
    let active =
        by_status.iter().find(|(label, _)| label == "status=\"active\"").map_or(0, |(_, count)| *count);
    let metrics = [
        Metric {
            name: "ash_up",
            help: "Whether the server works.",
            kind: "gauge",
            samples: vec![(format!("coordinator=\"{}\"", super::health::coordinator_id()), 1)],
        },
        gauge(
            "ash_uptime_seconds",
            "Seconds since the start of the server.",
            app.started.elapsed().as_secs(),
        ),
        gauge("ash_active_sessions", "Sessions that accept messages.", active),
        gauge(
            "ash_active_sandboxes",
            "Sandboxes of sessions that are running.",
            number(pool.waiting + pool.running),
        ),
        Metric { name: "ash_sessions", help: "Sessions in the database.", kind: "gauge", samples: by_status },
        Metric {
            name: "ash_pool_sandboxes",
            help: "Sandboxes by state.",
            kind: "gauge",
            samples: sandboxes.into(),
        },
        gauge("ash_pool_max_capacity", "Maximum number of sandboxes.", number(pool.max_capacity)),
        Metric {
            name: "ash_resume_total",
            help: "Sessions that got a sandbox, by its origin: the same one, a new one, or a warm one.",
            kind: "counter",
            samples: resumes.into(),
        },
        Metric {
            name: "ash_resume_cold_total",
            help: "Sessions that were resumed in a new sandbox, by the origin of their files: this machine, or the snapshot store.",
            kind: "counter",
            samples: vec![
                ("source=\"local\"".to_owned(), app.resumes.cold.load(Ordering::Relaxed)),
                ("source=\"cloud\"".to_owned(), app.resumes.restored.load(Ordering::Relaxed)),
            ],
        },
    ];
    let text = encode(&metrics) + &app.persisted.as_ref().map(encode_copies).unwrap_or_default();
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response())
}

/// The numbers of copies in the snapshot store.
fn encode_copies(persisted: &Persisted) -> String {
    let counts = persisted.counts();
    let results = [("ok", &counts.copied), ("unchanged", &counts.unchanged), ("error", &counts.failed)];
    let samples =
        results.map(|(result, count)| (format!("result=\"{result}\""), count.load(Ordering::Relaxed))).into();
    encode(&[
        Metric {
            name: "saggar_snapshot_uploads_total",
            help: "Attempts to store a snapshot of a session in the snapshot store.",
            kind: "counter",
            samples,
        },
        Metric {
            name: "saggar_snapshot_uploads_pending",
            help: "Sessions that have changed since their stored snapshots.",
            kind: "gauge",
            samples: vec![(String::new(), u64::try_from(persisted.pending()).unwrap_or(u64::MAX))],
        },
    ])
}

fn encode(metrics: &[Metric<'_>]) -> String {
    let mut text = String::new();
    for Metric { name, help, kind, samples } in metrics {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in samples {
            let _ = match labels.as_str() {
                "" => writeln!(text, "{name} {value}"),
                labels => writeln!(text, "{name}{{{labels}}} {value}"),
            };
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_have_labels_if_there_are_any() {
        let samples = vec![(String::new(), 1), ("a=\"b\"".to_owned(), 2)];
        let text = encode(&[Metric { name: "n", help: "Help.", kind: "gauge", samples }]);
        assert_eq!(text, "# HELP n Help.\n# TYPE n gauge\nn 1\nn{a=\"b\"} 2\n");
    }
}
