//! `saggar metrics`: prints metrics in the text format of Prometheus, for a collector that runs it. Current
//! numbers of sandboxes and sessions come from the kernel and the directories, totals from
//! [`crate::state::counters`].

mod text;

use super::oci;
use crate::cgroup::agent::live;
use crate::cli::MetricsArgs;
use crate::error::{Code, Result};
use crate::id::SandboxId;
use crate::session::record::SessionRecord;
use crate::session::session_state::SessionState;
use crate::state;
use crate::state::counters::{Counter, CounterPage, StartKind};
use nix::unistd::geteuid;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use text::{MetricType, MetricsPage};

pub(super) fn run(args: &MetricsArgs) -> Result<u8> {
    let now = CurrentCounts::collect(&args.containers)?;
    let counters = CounterPage::read()?;
    super::print_raw(&render(&now, &|counter| counters.get(counter)))?;
    Ok(0)
}

/// Current numbers by state.
#[derive(Debug, Default)]
struct CurrentCounts {
    sandboxes: BTreeMap<&'static str, u64>,
    containers: BTreeMap<&'static str, u64>,
    sessions: BTreeMap<&'static str, u64>,
}

impl CurrentCounts {
    /// Counts what belongs to the caller. Root counts the sandboxes of the whole host, by their cgroups.
    fn collect(roots: &[PathBuf]) -> Result<Self> {
        let uid = geteuid();
        let with_cgroup = live::find_sandboxes((!uid.is_root()).then_some(uid.as_raw()));
        let named = state::running::list_locked(&state::runtime_path())?;
        let frozen: Vec<&SandboxId> =
            with_cgroup.iter().filter(|one| one.is_frozen()).map(|one| &one.id).collect();

        let bare = named.iter().filter(|one| one.holder_pid.is_some());
        let bare = bare.filter(|one| !with_cgroup.iter().any(|live| live.id == one.id)).count();
        let running = with_cgroup.len() - frozen.len() + bare;
        let mut containers = BTreeMap::new();
        let default: [Option<&Path>; 1] = [None];
        let roots: Vec<Option<&Path>> = roots.iter().map(|root| Some(root.as_path())).collect();
        for root in if roots.is_empty() { &default[..] } else { &roots } {
            for (status, count) in oci::count(*root)? {
                *containers.entry(status).or_default() += count;
            }
        }
        Ok(CurrentCounts {
            sandboxes: [("paused", count(frozen.len())), ("running", count(running))].into(),
            containers,
            sessions: by_state(&sessions()?),
        })
    }
}

/// Returns the states of the caller's sessions; none without a session directory.
fn sessions() -> Result<Vec<SessionState>> {
    if state::sessions_path().is_err() {
        return Ok(Vec::new());
    }
    Ok(SessionRecord::list()?.iter().map(|record| record.state).collect())
}

/// Counts sessions by state. States without a session are included.
fn by_state(sessions: &[SessionState]) -> BTreeMap<&'static str, u64> {
    let of = |state: SessionState| count(sessions.iter().filter(|one| **one == state).count());
    SessionState::ALL.map(|state| (state.name(), of(state))).into()
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

fn render(now: &CurrentCounts, counter: &dyn Fn(Counter) -> u64) -> String {
    let mut text = MetricsPage::default();
    text.family("saggar_build_info", MetricType::Gauge, "The version of saggar, as a label.");
    text.sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);

    text.family("saggar_sandboxes", MetricType::Gauge, "Sandboxes and containers at this moment.");
    for (kind, states) in [(StartKind::Container, &now.containers), (StartKind::Sandbox, &now.sandboxes)] {
        for (state, count) in states {
            text.sample(&[("kind", kind.name()), ("state", state)], *count);
        }
    }
    text.family("saggar_sessions", MetricType::Gauge, "Sessions at this moment.");
    for (state, count) in &now.sessions {
        text.sample(&[("state", state)], *count);
    }
    text.family("saggar_starts_total", MetricType::Counter, "Sandboxes and containers whose program ran.");
    for kind in StartKind::ALL {
        text.sample(&[("kind", kind.name())], counter(Counter::Starts(kind)));
    }
    let help = "Starts that came to nothing, by the code of the error.";
    text.family("saggar_refusals_total", MetricType::Counter, help);
    let mut codes = Code::ALL;
    codes.sort_unstable_by_key(|code| code.name());
    for kind in StartKind::ALL {
        for code in codes {
            let labels = [("kind", kind.name()), ("code", code.name())];
            text.sample(&labels, counter(Counter::StartFailures(kind, code)));
        }
    }
    let help = "Programs in sandboxes that the kernel killed for want of memory.";
    text.family("saggar_oom_kills_total", MetricType::Counter, help);
    text.sample(&[], counter(Counter::OomKills));
    text.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_whole() {
        let now = CurrentCounts {
            sandboxes: [("paused", 1), ("running", 2)].into(),
            containers: [("created", 3)].into(),
            sessions: [("active", 4)].into(),
        };
        let counter = |counter| match counter {
            Counter::OomKills => 5,
            Counter::Starts(StartKind::Sandbox) => 6,
            Counter::Starts(StartKind::Container) => 7,
            Counter::StartFailures(_, code) => u64::from(code == Code::Usage),
        };
        insta::assert_snapshot!(render(&now, &counter).replace(env!("CARGO_PKG_VERSION"), "VERSION"));
    }

    #[test]
    fn every_state_has_a_count() {
        let counts = by_state(&[SessionState::Active, SessionState::Ended, SessionState::Active]);
        assert_eq!(
            counts,
            [("active", 2), ("ended", 1), ("error", 0), ("paused", 0), ("starting", 0)].into()
        );
    }
}
