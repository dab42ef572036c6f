//! `saggar metrics`: counts in the text format of Prometheus, for a collector that runs it. How many sandboxes and
//! sessions there are is asked of the kernel and the directories at this moment; what has happened is in
//! [`crate::state::counters`].

mod text;

use super::oci;
use crate::cgroup::agent::live;
use crate::cli::MetricsArgs;
use crate::error::{Code, Result};
use crate::id::SandboxId;
use crate::state;
use crate::state::counters::{Counter, Counters, Kind};
use crate::state::live::Locked;
use nix::unistd::geteuid;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use text::{Text, Type};

pub(super) fn run(args: &MetricsArgs) -> Result<u8> {
    let now = Now::look(&args.containers)?;
    let counters = Counters::read()?;
    super::say(&print(&now, &|counter| counters.get(counter)))?;
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
        // Without a place for sessions there are none.
        let sessions =
            state::sessions_path().map_or(Ok(Vec::new()), |path| state::live::in_directory(&path))?;
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
            sessions: by_state(&sessions, &named, &frozen),
        })
    }
}

/// A session is served by the supervisor that holds its lock; that also holds the lock of the sandbox.
fn by_state(sessions: &[Locked], named: &[Locked], frozen: &[&SandboxId]) -> BTreeMap<&'static str, u64> {
    let mut counts: BTreeMap<&'static str, u64> = [("active", 0), ("paused", 0), ("stopped", 0)].into();
    for session in sessions {
        let state = match session.holder {
            None => "stopped",
            Some(pid) if named.iter().any(|one| one.holder == Some(pid) && frozen.contains(&&one.id)) => {
                "paused"
            }
            Some(_) => "active",
        };
        *counts.entry(state).or_default() += 1;
    }
    counts
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
    fn a_session_stands_still_with_its_sandbox() {
        let locked = |id: &str, holder| Locked { id: SandboxId::parse(id).unwrap(), holder };
        let sessions = [locked("a", Some(7)), locked("b", Some(8)), locked("c", None)];
        let named = [locked("x", Some(7)), locked("y", Some(8))];
        let counts = by_state(&sessions, &named, &[&named[0].id]);
        assert_eq!(counts, [("active", 1), ("paused", 1), ("stopped", 1)].into());
    }
}
