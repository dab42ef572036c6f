//! runtime.md, Lifecycle: which hooks run when, and what becomes of a container whose hook fails.

use super::bundle::Bench;
use crate::support::caller::Caller;
use serde_json::{Value, json};
use std::fs;

const KINDS: [&str; 6] =
    ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"];

/// A hook that appends its name, and the state's status, to a file. It is a busybox both outside and inside.
fn hook(bench: &Bench, name: &str, then: &str) -> Value {
    let log = if name == "startContainer" { "/tmp/log".to_owned() } else { log(bench) };
    let script = format!(
        "read -r s; case $s in *'\"status\":\"'*) s=${{s#*'\"status\":\"'}}; s=${{s%%'\"'*}};; esac; echo {name} $s >> {log}; {then}"
    );
    json!({ "path": "/bin/busybox", "args": ["busybox", "sh", "-c", script], "env": ["PATH=/bin"] })
}

/// The file as the host names it.
fn log(bench: &Bench) -> String {
    bench.bundle().join("rootfs/tmp/log").to_string_lossy().into_owned()
}

fn with_hooks(bench: &Bench, failing: Option<&str>) {
    bench.configure(|config| {
        for kind in KINDS {
            let then = if failing == Some(kind) { "exit 1" } else { "true" };
            let hooks = [hook(bench, kind, then), hook(bench, kind, "true")];
            config["hooks"][kind] = hooks.into();
        }
        config["process"]["args"] = json!(["/bin/sh", "-c", "echo program >> /tmp/log; exec sleep 1000"]);
    });
}

fn lines(bench: &Bench) -> Vec<String> {
    let text = fs::read_to_string(log(bench)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn twice(kinds: &[(&str, &str)]) -> Vec<String> {
    kinds.iter().flat_map(|(kind, status)| [format!("{kind} {status}"), format!("{kind} {status}")]).collect()
}

as_each_caller! {
    fn hooks_run_in_their_order_with_the_state_on_their_input(caller) {
        let bench = Bench::new(caller);
        with_hooks(&bench, None);
        let id = bench.id();
        bench.create(&id).ok();
        let created = twice(&[("prestart", "creating"), ("createRuntime", "creating"), ("createContainer", "creating")]);
        assert_eq!(lines(&bench), created);
        bench.say(&["start", &id]).ok();
        let mut started = lines(&bench);
        // The program and the poststart hooks run side by side.
        assert!(started.iter().filter(|line| *line == "program").count() <= 1);
        started.retain(|line| line != "program");
        let more = twice(&[("startContainer", "created"), ("poststart", "running")]);
        assert_eq!(started, [created, more].concat());
        bench.say(&["kill", &id, "KILL"]).ok();
        bench.wait_stopped(&id);
        bench.say(&["delete", &id]).ok();
        assert_eq!(lines(&bench)[lines(&bench).len() - 2..], twice(&[("poststop", "stopped")]));
    }

    fn a_hook_of_create_that_fails_undoes_it_and_poststop_runs(caller) {
        for (index, kind) in KINDS[..3].iter().enumerate() {
            let bench = Bench::new(caller);
            with_hooks(&bench, Some(kind));
            let id = bench.id();
            bench.create(&id).fails(kind);
            bench.is_clean(&id);
            let mut expected = twice(&KINDS[..index].iter().map(|kind| (*kind, "creating")).collect::<Vec<_>>());
            expected.push(format!("{kind} creating"));
            expected.extend(twice(&[("poststop", "stopped")]));
            assert_eq!(lines(&bench), expected, "{kind}");
        }
    }

    fn a_hook_of_start_that_fails_ends_the_container_and_poststop_runs(caller) {
        for kind in ["startContainer", "poststart"] {
            let bench = Bench::new(caller);
            with_hooks(&bench, Some(kind));
            let id = bench.id();
            bench.create(&id).ok();
            bench.say(&["start", &id]).fails(kind);
            bench.is_clean(&id);
            let found = lines(&bench);
            assert_eq!(found[found.len() - 2..], twice(&[("poststop", "stopped")]), "{kind}: {found:?}");
            assert!(!(found.contains(&"program".to_owned()) && kind == "startContainer"), "{found:?}");
        }
    }

    fn a_poststop_hook_that_fails_is_a_warning_and_the_rest_run(caller) {
        let bench = Bench::new(caller);
        with_hooks(&bench, Some("poststop"));
        let id = bench.start();
        bench.say(&["kill", &id, "KILL"]).ok();
        bench.wait_stopped(&id);
        // Unasked, standard error has only what ends the verb.
        let said = bench.say(&["--debug", "delete", &id]).ok();
        assert!(said.stderr.contains("poststop"), "{said:?}");
        bench.is_clean(&id);
        let found = lines(&bench);
        assert_eq!(found[found.len() - 2..], twice(&[("poststop", "stopped")]), "{found:?}");
    }
}

#[test]
fn a_hook_can_ask_for_the_state_while_its_verb_is_at_work() {
    let bench = Bench::new(Caller::current());
    let id = bench.id();
    let saggar = bench.place.reachable(crate::support::binary::saggar());
    let answer = bench.place.join("work/answer");
    let script = format!(
        "{} --root {} state {id} > {}",
        saggar.display(),
        bench.place.join("oci").display(),
        answer.display()
    );
    bench.configure(|config| {
        let hook =
            json!({ "path": "/bin/sh", "args": ["sh", "-c", script], "env": ["PATH=/bin"], "timeout": 30 });
        config["hooks"] = json!({ "createRuntime": [hook] });
    });
    bench.create(&id).ok();
    let state: Value = serde_json::from_str(&fs::read_to_string(answer).unwrap()).unwrap();
    assert_eq!(state["status"], "creating");
    assert_eq!(state["pid"], bench.state(&id)["pid"]);
}
