//! `saggar metrics`: every byte by the rules of the format, and the counts by what was done.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::json;

use super::{saggar, stdout};
use crate::bridge::served::Stage;
use crate::control::client::{ControlClient, serve, socket};
use crate::oci::bundle::Bench;
use crate::support::caller::Caller;
use crate::support::deadline::Deadline;
use crate::support::place::Place;
use crate::support::process::Process;

/// Samples by what stands before the value.
#[derive(Debug)]
struct Page(BTreeMap<String, u64>);

impl Page {
    /// Reads a page of version 0.0.4, and takes nothing that its grammar does not have: families one after the other,
    /// each with HELP, TYPE and at least one sample, no series twice (prometheus.io, Exposition formats).
    #[track_caller]
    fn parse(text: &str) -> Self {
        assert!(text.ends_with('\n') && !text.contains("\n\n") && !text.contains('\r'), "{text:?}");
        let (mut samples, mut families) = (BTreeMap::new(), BTreeSet::new());
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            let (name, help) =
                line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')).expect(line);
            assert!(!help.is_empty() && is_name(name) && families.insert(name), "{line}");
            assert!(name.starts_with("saggar_"), "{line}");
            let kind =
                lines.next().and_then(|line| line.strip_prefix(&format!("# TYPE {name} "))).expect(line);
            match kind {
                "counter" => assert!(name.ends_with("_total"), "{line}"),
                "gauge" => assert!(!name.ends_with("_total"), "{line}"),
                other => panic!("a type {other:?}"),
            }
            let before = samples.len();
            while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
                let (series, value) = line.rsplit_once(' ').expect(line);
                let labels = series.strip_prefix(name).expect("a sample of its family");
                if !labels.is_empty() {
                    check_labels(
                        labels.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).expect(line),
                    );
                }
                assert!(
                    samples.insert(series.to_owned(), value.parse().expect(line)).is_none(),
                    "{line} twice"
                );
            }
            assert!(samples.len() > before, "{name} has no samples");
        }
        Page(samples)
    }

    fn of(place: &Place, args: &[&str]) -> Self {
        Page::parse(&stdout(saggar(place, &[&["metrics"], args].concat()), 0))
    }

    #[track_caller]
    fn get(&self, series: &str) -> u64 {
        *self.0.get(series).unwrap_or_else(|| panic!("no {series} in {self:?}"))
    }

    /// By how much a counter has grown. Others may count for root at the same time, and then it is this or more.
    #[track_caller]
    fn grew(&self, before: &Page, series: &str, by: u64, caller: Caller) {
        let grown = self.get(series) - before.get(series);
        assert!(if caller.is_root() { grown >= by } else { grown == by }, "{series}: {grown}, not {by}");
    }
}

fn is_name(name: &str) -> bool {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_';
    name.starts_with(first) && name.chars().all(|c| first(c) || c.is_ascii_digit())
}

/// `name="value",…`, where a value has no bare quote, backslash or newline.
#[track_caller]
fn check_labels(mut text: &str) {
    loop {
        let (name, rest) = text.split_once("=\"").expect(text);
        assert!(is_name(name), "{text}");
        let mut chars = rest.char_indices();
        let end = loop {
            match chars.next().expect(text) {
                (_, '\\') => assert!(matches!(chars.next(), Some((_, '\\' | '"' | 'n'))), "{text}"),
                (at, '"') => break at,
                _ => {}
            }
        };
        match &rest[end + 1..] {
            "" => return,
            more => text = more.strip_prefix(',').expect(text),
        }
    }
}

const RUNNING: &str = "saggar_sandboxes{kind=\"sandbox\",state=\"running\"}";
const PAUSED: &str = "saggar_sandboxes{kind=\"sandbox\",state=\"paused\"}";
const STARTS: &str = "saggar_starts_total{kind=\"sandbox\"}";

/// The file of the counters.
fn counters(place: &Place, caller: Caller) -> PathBuf {
    assert!(!caller.is_root(), "that of root belongs to the host");
    place.join("run/saggar/.counters")
}

as_each_caller! {
    /// What runs is shown, and what was started and refused is remembered by those who come later.
    fn metrics_count_started_and_refused_sandboxes(caller) {
        let place = Place::new(caller);
        let before = Page::of(&place, &[]);
        if !caller.is_root() {
            assert!(before.0.iter().all(|(series, value)| *value == 0 || series.starts_with("saggar_build_info{")));
        }
        let name = place.path().file_name().unwrap().to_str().unwrap().to_owned();
        let mut process = Process::start(&place, saggar(&place, &["wrap", "--id", &name, "--", "sh", "-c", "echo up; cat"]));
        let mut up = String::new();
        BufReader::new(process.take_stdout()).read_line(&mut up).unwrap();
        assert_eq!(up, "up\n", "{}", process.stderr());
        let now = Page::of(&place, &[]);
        assert!(now.get(RUNNING) >= 1, "{now:?}");
        // The name is taken; the work tree is none; there is no such program.
        for (args, status) in [
            (&["--id", name.as_str(), "--", "true"][..], 125),
            (&["--workspace", "/", "--", "true"], 125),
            (&["--", "no-such-program"], 127),
        ] {
            let output = saggar(&place, &[&["wrap"], args].concat()).output().unwrap();
            assert_eq!(output.status.code(), Some(status), "{output:?}");
        }
        drop(process.take_stdin());
        assert!(process.wait().success());
        // A program that fails was started all the same.
        stdout(saggar(&place, &["wrap", "--", "sh", "-c", "exit 125"]), 125);
        let after = Page::of(&place, &[]);
        after.grew(&before, STARTS, 2, caller);
        for code in ["exists", "refused", "not-found"] {
            after.grew(&before, &format!("saggar_refusals_total{{kind=\"sandbox\",code=\"{code}\"}}"), 1, caller);
        }
        after.grew(&before, "saggar_refusals_total{kind=\"sandbox\",code=\"system\"}", 0, caller);
        if !caller.is_root() {
            assert_eq!((after.get(RUNNING), after.get(PAUSED)), (0, 0));
        }
    }

    /// Processes that count at once do not take each other's counts.
    fn starts_at_once_are_all_counted(caller) {
        let place = Place::new(caller);
        let before = Page::of(&place, &[]);
        let start = |_| saggar(&place, &["wrap", "--", "true"]).stdin(Stdio::null()).spawn().unwrap();
        let children: Vec<_> = (0..12).map(start).collect();
        children.into_iter().for_each(|mut child| assert!(child.wait().unwrap().success()));
        Page::of(&place, &[]).grew(&before, STARTS, 12, caller);
    }

    /// Containers count by their status, below the directories that are named.
    fn containers_are_counted_by_their_status(caller) {
        let bench = Bench::new(caller);
        let root = bench.place.join("oci").to_str().unwrap().to_owned();
        let look = || Page::of(&bench.place, &["--containers", &root]);
        let states = |page: &Page| {
            ["creating", "created", "running", "paused", "stopped"]
                .map(|state| page.get(&format!("saggar_sandboxes{{kind=\"container\",state=\"{state}\"}}")))
        };
        let before = look();
        assert_eq!(states(&before), [0; 5]);
        let created = bench.id();
        bench.create(&created).ok();
        let running = bench.start();
        let after = look();
        assert_eq!(states(&after), [0, 1, 1, 0, 0]);
        after.grew(&before, "saggar_starts_total{kind=\"container\"}", 1, caller);
        bench.create(&running).fails("exists");
        look().grew(&before, "saggar_refusals_total{kind=\"container\",code=\"exists\"}", 1, caller);
        bench.say(&["kill", &running, "KILL"]).ok();
        bench.wait_stopped(&running);
        assert_eq!(states(&look()), [0, 1, 0, 0, 1]);
        let none = Page::of(&bench.place, &["--containers", "/nowhere/at/all"]);
        assert_eq!(states(&none), [0; 5]);
    }

    /// By the states that sessions know of themselves.
    fn sessions_are_counted_by_their_state(caller) {
        let stage = Stage::new(caller);
        let states = ["starting", "active", "paused", "error", "ended"];
        let count = |state: &str| {
            let page = Page::of(&stage.place, &[]);
            let counts = states.map(|state| page.get(&format!("saggar_sessions{{state=\"{state}\"}}")));
            assert_eq!(counts.iter().sum::<u64>(), u64::from(state != "none"), "{state}: {page:?}");
            counts[states.iter().position(|known| *known == state).unwrap_or(0)]
        };
        assert_eq!(count("none"), 0);
        let served = serve(&stage, &["--adapter", "demo"]);
        assert_eq!(count("active"), 1);
        let mut client = ControlClient::connect(&socket(&stage));
        if caller.is_root() {
            client.get("pause");
            assert_eq!(count("paused"), 1);
            assert!(Page::of(&stage.place, &[]).get(PAUSED) >= 1);
            client.get("resume");
        }
        client.call("kill", &json!({ "signal": "KILL" }));
        let deadline = Deadline::usual();
        while client.get("state")["session"]["state"] != "error" {
            assert!(!deadline.remaining().is_zero(), "its agent is not gone");
        }
        // It was written down before it was told.
        assert_eq!(count("error"), 1);
        client.call("shutdown", &json!({}));
        assert!(served.end().0.success());
        assert_eq!(count("error"), 1);
        stdout(saggar(&stage.place, &["session", "end", &stage.name()]), 0);
        assert_eq!(count("ended"), 1);
    }
}

/// What ends badly after its start was no refusal.
#[test]
fn a_sandbox_that_is_killed_was_not_refused() {
    let Ok(caller) = Caller::ordinary() else { return };
    let stage = Stage::new(caller);
    let served = serve(&stage, &["--adapter", "demo"]);
    let agent = ControlClient::connect(&socket(&stage)).get("state")["pid"].clone();
    let stat = fs::read_to_string(format!("/proc/{agent}/stat")).unwrap();
    let first: i32 = stat.rsplit_once(')').unwrap().1.split(' ').nth(2).unwrap().parse().unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(first), nix::sys::signal::Signal::SIGKILL).unwrap();
    assert_eq!(served.end().0.code(), Some(125));
    let after = Page::of(&stage.place, &[]);
    assert_eq!(after.get(STARTS), 1);
    assert_eq!(after.get("saggar_refusals_total{kind=\"sandbox\",code=\"system\"}"), 0, "{after:?}");
}

/// Counters that cannot be kept cost no start, and are no page of wrong counts.
#[test]
fn a_start_does_not_need_the_counters() {
    let Ok(caller) = Caller::ordinary() else { return };
    let place = Place::new(caller);
    stdout(saggar(&place, &["wrap", "--", "true"]), 0);
    let file = counters(&place, caller);
    assert_eq!(fs::metadata(&file).unwrap().len(), 4096);
    fs::remove_file(&file).unwrap();
    place.make_file("run/saggar/.counters", "something else");
    stdout(saggar(&place, &["wrap", "--", "true"]), 0);
    let refused = saggar(&place, &["metrics"]).output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(125) && refused.stdout.is_empty(), "{said}");
    assert!(
        said.contains(".counters is not one of this version") && said.contains("hint: remove it"),
        "{said}"
    );
    fs::remove_file(&file).unwrap();
    stdout(saggar(&place, &["wrap", "--", "true"]), 0);
    assert_eq!(Page::of(&place, &[]).get(STARTS), 1);
}

/// What sweeps dead sandboxes away leaves the counters.
#[test]
fn counters_are_nothing_that_is_swept() {
    let Ok(caller) = Caller::ordinary() else { return };
    let place = Place::new(caller);
    stdout(saggar(&place, &["wrap", "--", "true"]), 0);
    let old = Command::new("touch").args(["-d", "1 day ago"]).arg(counters(&place, caller)).status().unwrap();
    assert!(old.success());
    assert_eq!(stdout(saggar(&place, &["gc"]), 0), "0 removed\n");
    assert_eq!(Page::of(&place, &[]).get(STARTS), 1);
}
