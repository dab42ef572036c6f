//! The network by policy: exactly what was named is reached, and what is refused is told.
//!
//! Every sandbox starts in a network that the test made (`world`), where its hosts are (`hosts`) and from which no
//! other can be reached: a wall that does not hold sends nothing anywhere.

/// A place with hosts beside it, where this machine has what makes them.
macro_rules! network {
    ($caller:expr) => {
        match $crate::network::Network::new($caller) {
            Ok(network) => network,
            Err(why) => skip!("{why}"),
        }
    };
}

mod addresses;
mod api;
mod asked;
mod changed;
mod clients;
mod families;
mod kept_alive;
mod named;
mod narrowed;
mod neighbours;
mod others;
mod proxies;
mod publish;
mod relay;
mod resolvers;
pub(crate) mod served;
mod sockets;
mod unheard;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::isolation::wrapped::{Ended, Wrap};
use crate::support::caller::Caller;

/// A place with hosts beside it.
pub(crate) struct Network {
    pub(crate) wrap: Wrap,
}

impl Network {
    /// A place for `caller`, or what is missing for it.
    pub(crate) fn new(caller: Caller) -> Result<Self, String> {
        for tool in ["ip", "curl", "openssl", "unshare", "setpriv", "python3"] {
            let path = std::env::var_os("PATH").unwrap_or_default();
            if !std::env::split_paths(&path).any(|directory| directory.join(tool).is_file()) {
                return Err(format!("there is no {tool} on this machine"));
            }
        }
        let wrap = Wrap::new(caller);
        for (name, content) in [("work/world", include_str!("world")), ("work/hosts", include_str!("hosts"))]
        {
            let path = wrap.place.make_file(name, content);
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Ok(Network { wrap })
    }

    /// Runs a shell script in a sandbox that may reach these hosts.
    pub(crate) fn run(&self, allowed: &[&str], script: &str) -> Ended {
        let options: Vec<&str> = allowed.iter().flat_map(|rule| ["--allow-host", rule]).collect();
        self.run_with(&options, &["/bin/sh", "-c", script])
    }

    /// Runs a program in a sandbox with these options.
    pub(crate) fn run_with(&self, options: &[&str], program: &[&str]) -> Ended {
        self.run_by(&["/bin/sh", "-c", "exec \"$@\" 3>events", "sh"], options, program)
    }

    /// Runs a program in a sandbox that this command starts, which gets saggar and its arguments.
    pub(crate) fn run_by(&self, starter: &[&str], options: &[&str], program: &[&str]) -> Ended {
        let options = [&["--status-fd", "3"], options].concat();
        let saggar = self.wrap.command(&options, program);
        self.wrap.finish(self.command(starter, &saggar))
    }

    /// The same command in a network with hosts, started by another one.
    pub(crate) fn command(&self, starter: &[&str], saggar: &Command) -> Command {
        let mut command = self.wrap.place.command(Path::new("/bin/bash"));
        for (name, value) in saggar.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.args(["./world", "."]).args(starter).arg(saggar.get_program()).args(saggar.get_args());
        let work = self.wrap.work();
        for left in ["up", "go", "ready", "contacts", "events"] {
            let _ = fs::remove_file(work.join(left));
        }
        command
    }

    /// Whom the last sandbox's supervisor has called, and which names it looked up, in order.
    pub(crate) fn contacts(&self) -> Vec<String> {
        let text = fs::read_to_string(self.wrap.work().join("contacts")).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    /// The connections among those.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.contacts().into_iter().filter_map(|line| line.strip_prefix("tcp ").map(str::to_owned)).collect()
    }

    /// What was refused, as the status events have it: HOST:PORT or HOST, and why. Each once, however often it is told:
    /// that is again after a second, and a slow machine may take that long for one program.
    pub(crate) fn refused(&self) -> Vec<(String, String)> {
        let mut refused = Vec::new();
        for one in self.events("refused").iter().map(told) {
            if !refused.contains(&one) {
                refused.push(one);
            }
        }
        refused
    }

    /// The status events of this kind.
    pub(crate) fn events(&self, kind: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.wrap.work().join("events")).unwrap();
        let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        events.filter(|event| event["event"] == kind).collect()
    }

    /// Asserts that this alone was refused, at least once, for this reason.
    pub(crate) fn has_refused(&self, whom: &str, why: &str) {
        let refused = self.refused();
        assert!(!refused.is_empty(), "nothing was refused");
        for (who, reason) in &refused {
            assert!(who == whom && reason.contains(why), "{who}: {reason}");
        }
    }
}

/// Whether curl, whose status a script said last, has lost its connection: while it was made, or later.
fn ended_cut(ended: &Ended) -> bool {
    ["\n7\n", "\n56\n"].iter().any(|status| ended.stdout.ends_with(status))
}

/// The end of a script in Python that has said how to `ask()`, once, where that gives 1 when it was refused: four
/// children and itself ask without a pause, and a host answers all the same.
const FLOOD: &str = "
import os, signal, time, urllib.request
begin = time.monotonic()
children = []
for _ in range(4):
    children.append(os.fork())
    if not children[-1]:
        while True: ask()
asked = 0
while time.monotonic() < begin + 2.5: asked += ask()
print(urllib.request.urlopen('http://four.example/', timeout=20).read().decode(), end='')
for child in children:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
print(asked, int(time.monotonic() - begin))";

/// What such a script said at its end: how often it asked itself, and for how many seconds.
fn counted(said: &str) -> (u64, usize) {
    let counted = said.strip_prefix("hello to four.example at 93.184.215.14\n").unwrap();
    let (asked, seconds) = counted.trim().split_once(' ').unwrap();
    (asked.parse().unwrap(), seconds.parse().unwrap())
}

/// Asserts that these are told once in a second, with their count.
fn are_told_in_bounds(events: &[Value], (asked, seconds): (u64, usize)) {
    assert!((2..=seconds + 2).contains(&events.len()), "{} in {seconds} s", events.len());
    assert!(times(events) > asked / 2, "{} of {asked}", times(events));
}

/// How often what the events tell happened.
fn times(events: &[Value]) -> u64 {
    events.iter().map(|event| event["times"].as_u64().unwrap()).sum()
}

fn told(event: &Value) -> (String, String) {
    let host = event["host"].as_str().or(event["address"].as_str()).unwrap_or_default();
    let whom = match event["port"].as_u64() {
        Some(port) if host.contains(':') => format!("[{host}]:{port}"),
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    };
    (whom, event["why"].as_str().unwrap().to_owned())
}
