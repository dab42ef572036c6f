//! The resources that a running sandbox uses, on the control socket (saggar-control(7), `stats`).

use super::SessionSocket;
use super::control::{CONTROL_TIMEOUT, call_control};
use super::network::{HostTraffic, parse};
use saggar_sys::error::{Code, Result};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

/// Limits from this number on are none: cgroup v1 rounds the largest number down to a page.
const UNLIMITED: u64 = 1 << 62;

/// Resources that a sandbox uses, and its limits. What the host does not count is null.
#[derive(Debug, Serialize, ToSchema)]
pub struct SandboxUse {
    #[schema(required)]
    cpu: Option<CpuUse>,
    /// In bytes.
    #[schema(required)]
    memory: Option<LimitedUse>,
    /// Processes and threads.
    #[schema(required)]
    pids: Option<LimitedUse>,
    exceeded: ExceededLimits,
    /// The hosts that programs have connected to since the sandbox started, in the network mode `policy`.
    hosts: Vec<HostTraffic>,
}

/// Processor time, in microseconds.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct CpuUse {
    usage_usec: u64,
    /// The time for which the limit has stopped programs.
    #[schema(required)]
    throttled_usec: Option<u64>,
    /// The limit for each second; null without one.
    #[schema(required)]
    max_usec: Option<u64>,
}

/// The use of a resource that has a limit.
#[derive(Debug, Serialize, ToSchema)]
struct LimitedUse {
    current: u64,
    #[schema(required)]
    peak: Option<u64>,
    /// The limit; null without one.
    #[schema(required)]
    max: Option<u64>,
}

/// How often programs have reached each limit.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ExceededLimits {
    /// Processes that were killed because memory ran out.
    #[schema(required)]
    oom_kills: Option<u64>,
    #[schema(required)]
    memory: Option<u64>,
    #[schema(required)]
    pids: Option<u64>,
    #[schema(required)]
    cpu: Option<u64>,
}

impl SandboxUse {
    /// Converts the result of `stats` for a container, which has the form of runc (saggar-oci(8), `events`): numbers that
    /// are 0 are left out, and times are in nanoseconds.
    fn of_container(stats: &Value) -> Self {
        let number = |path: &str| stats.pointer(path).and_then(Value::as_u64).unwrap_or(0);
        let some = |path: &str| Some(number(path)).filter(|number| *number > 0);
        SandboxUse {
            cpu: Some(CpuUse {
                usage_usec: number("/cpu/usage/total") / 1000,
                throttled_usec: Some(number("/cpu/throttling/throttledTime") / 1000),
                max_usec: None,
            }),
            memory: Some(LimitedUse {
                current: number("/memory/usage/usage"),
                peak: some("/memory/usage/max"),
                max: some("/memory/usage/limit").filter(|limit| *limit < UNLIMITED),
            }),
            pids: Some(LimitedUse {
                current: number("/pids/current"),
                peak: None,
                max: some("/pids/limit").filter(|limit| *limit < UNLIMITED),
            }),
            exceeded: ExceededLimits { oom_kills: None, memory: None, pids: None, cpu: None },
            hosts: Vec::new(),
        }
    }

    /// Converts the result of `stats`.
    fn parse(mut stats: Value) -> Result<Self> {
        if stats["cpu"]["usage"].is_object() {
            return Ok(SandboxUse::of_container(&stats));
        }
        let hosts = match stats["network"]["hosts"].take() {
            Value::Null => Vec::new(),
            hosts => parse(hosts)?,
        };
        let number = |resource: &str, name: &str| stats[resource][name].as_u64();
        let limited = |resource: &str| {
            Some(LimitedUse {
                current: number(resource, "current")?,
                peak: number(resource, "peak"),
                max: number(resource, "max"),
            })
        };
        Ok(SandboxUse {
            cpu: number("cpu", "usage_usec").map(|usage_usec| CpuUse {
                usage_usec,
                throttled_usec: number("cpu", "throttled_usec"),
                max_usec: number("cpu", "max_usec"),
            }),
            memory: limited("memory"),
            pids: limited("pids"),
            exceeded: ExceededLimits {
                oom_kills: number("exceeded", "oom_kills"),
                memory: number("exceeded", "memory"),
                pids: number("exceeded", "pids"),
                cpu: number("exceeded", "cpu"),
            },
            hosts,
        })
    }
}

/// Returns the resources that a sandbox uses.
///
/// # Errors
/// As [`call_control`].
pub async fn read_sandbox_use(control: &SessionSocket) -> Result<SandboxUse> {
    match call_control(control, "stats", &json!({}), CONTROL_TIMEOUT).await {
        // Without a cgroup nothing is counted.
        Err(error) if error.code() == Code::Unsupported => SandboxUse::parse(json!({})),
        stats => SandboxUse::parse(stats?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_of_a_container_is_that_of_its_cgroups() {
        let stats = json!({
            "cpu": { "usage": { "total": 5_000_000, "kernel": 1, "user": 2 }, "throttling": {} },
            "memory": { "usage": { "limit": 9_223_372_036_854_771_712_u64, "usage": 4096, "max": 8192 } },
            "pids": { "current": 3, "limit": 64 },
        });
        let shown = serde_json::to_value(SandboxUse::parse(stats).unwrap()).unwrap();
        assert_eq!(shown["cpu"], json!({ "usageUsec": 5000, "throttledUsec": 0, "maxUsec": null }));
        assert_eq!(shown["memory"], json!({ "current": 4096, "peak": 8192, "max": null }));
        assert_eq!(shown["pids"], json!({ "current": 3, "peak": null, "max": 64 }));
    }

    #[test]
    fn what_is_not_counted_is_null() {
        let shown = |stats| serde_json::to_value(SandboxUse::parse(stats).unwrap()).unwrap();
        let none = json!({ "oomKills": null, "memory": null, "pids": null, "cpu": null });
        let empty = json!({ "cpu": null, "memory": null, "pids": null, "exceeded": none, "hosts": [] });
        assert_eq!(shown(json!({})), empty);
        let counted = shown(json!({
            "cpu": { "usage_usec": 7, "user_usec": 5 }, "memory": { "current": 1, "max": 2 }, "exceeded": { "pids": 3 },
        }));
        assert_eq!(counted["cpu"], json!({ "usageUsec": 7, "throttledUsec": null, "maxUsec": null }));
        assert_eq!(counted["memory"], json!({ "current": 1, "peak": null, "max": 2 }));
        assert_eq!(counted["exceeded"]["pids"], 3);
    }
}
