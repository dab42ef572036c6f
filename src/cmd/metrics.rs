//! `saggar metrics`: counts in the text format of Prometheus, for a collector that runs it. How many sandboxes and
//! sessions there are is asked of the kernel and the directories at this moment; what has happened is in
//! [`crate::state::counters`].

mod text;

use super::oci;
use crate::cgroup::agent::live;
use crate::cli::MetricsArgs;
use crate::error::{Code, Result};
use crate::id::SandboxId;
use crate::session::record::Record;
use crate::session::states::State;
use crate::state;
use crate::state::counters::{Counter, Counters, Kind};
use nix::unistd::geteuid;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use text::{Text, Type};

pub(super) fn run(args: &MetricsArgs) -> Result<u8> {
    let now = Now::look(&args.containers)?;
    let counters = Counters::read()?;
    super::say_exactly(&print(&now, &|counter| counters.get(counter)))?;
    Ok(0)
}

/// What there is at this moment, by state.
#[derive(Debug, Default)]
struct Now {
    sandboxes: BTreeMap<&'static str, u64>,
    containers: BTreeMap<&'static str, u64>,
    sessions: BTreeMap<&'static str, u64>,
}

impl Now {
    /// Looks at all that is the caller's; of sandboxes root sees those of the whole host, by their cgroups.
    fn look(roots: &[PathBuf]) -> Result<Self> {
        let uid = geteuid();
        let with_cgroup = live::find((!uid.is_root()).then_some(uid.as_raw()));
        let named = state::live::in_directory(&state::runtime_path())?;
        let frozen: Vec<&SandboxId> =
            with_cgroup.iter().filter(|one| live::is_frozen(&one.cgroup)).map(|one| &one.id).collect();

        let bare = named.iter().filter(|one| one.holder.is_some());
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
        Ok(Now {
            sandboxes: [("paused", count(frozen.len())), ("running", count(running))].into(),
            containers,
            sessions: by_state(&sessions()?),
        })
    }
}

/// The caller's sessions as they are; without a place for them there are none.
fn sessions() -> Result<Vec<State>> {
    if state::sessions_path().is_err() {
        return Ok(Vec::new());
    }
    Ok(Record::all()?.iter().map(|record| record.state).collect())
}

/// A state that no session is in has its count, too.
fn by_state(sessions: &[State]) -> BTreeMap<&'static str, u64> {
    let of = |state: State| count(sessions.iter().filter(|one| **one == state).count());
    State::ALL.map(|state| (state.name(), of(state))).into()
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

fn print(now: &Now, counter: &dyn Fn(Counter) -> u64) -> String {
    let mut text = Text::default();
    text.family("saggar_build_info", Type::Gauge, "The version of saggar, as a label.");
    text.sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);

    text.family("saggar_sandboxes", Type::Gauge, "Sandboxes and containers at this moment.");
    for (kind, states) in [(Kind::Container, &now.containers), (Kind::Sandbox, &now.sandboxes)] {
        for (state, count) in states {
            text.sample(&[("kind", kind.name()), ("state", state)], *count);
        }
    }
    text.family("saggar_sessions", Type::Gauge, "Sessions at this moment.");
    for (state, count) in &now.sessions {
        text.sample(&[("state", state)], *count);
    }
    text.family("saggar_starts_total", Type::Counter, "Sandboxes and containers whose program ran.");
    for kind in Kind::ALL {
        text.sample(&[("kind", kind.name())], counter(Counter::Starts(kind)));
    }
    let help = "Starts that came to nothing, by the code of the error.";
    text.family("saggar_refusals_total", Type::Counter, help);
    let mut codes = Code::ALL;
    codes.sort_unstable_by_key(|code| code.name());
    for kind in Kind::ALL {
        for code in codes {
            let labels = [("kind", kind.name()), ("code", code.name())];
            text.sample(&labels, counter(Counter::Refusals(kind, code)));
        }
    }
    let help = "Programs in sandboxes that the kernel killed for want of memory.";
    text.family("saggar_oom_kills_total", Type::Counter, help);
    text.sample(&[], counter(Counter::OomKills));
    text.done()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_whole() {
        let now = Now {
            sandboxes: [("paused", 1), ("running", 2)].into(),
            containers: [("created", 3)].into(),
            sessions: [("active", 4)].into(),
        };
        let counter = |counter| match counter {
            Counter::OomKills => 5,
            Counter::Starts(Kind::Sandbox) => 6,
            Counter::Starts(Kind::Container) => 7,
            Counter::Refusals(_, code) => u64::from(code == Code::Usage),
        };
        insta::assert_snapshot!(print(&now, &counter).replace(env!("CARGO_PKG_VERSION"), "VERSION"));
    }

    #[test]
    fn every_state_has_a_count() {
        let counts = by_state(&[State::Active, State::Ended, State::Active]);
        assert_eq!(
            counts,
            [("active", 2), ("ended", 1), ("error", 0), ("paused", 0), ("starting", 0)].into()
        );
    }
}
