//! `list`, `ps`, `pause`, `resume`, `events`.

use super::bundle::Bench;
use crate::support::caller::Caller;
use serde_json::Value;

as_each_caller! {
    fn list_has_a_table_json_and_bare_ids(caller) {
        let bench = Bench::new(caller);
        assert_eq!(bench.say(&["list", "-q"]).ok().stdout, "");
        assert_eq!(bench.say(&["list", "--format", "json"]).ok().json(), Value::Array(Vec::new()));
        let (created, running) = (bench.id(), bench.start());
        bench.create(&created).ok();
        assert_eq!(bench.say(&["list", "-q"]).ok().stdout.lines().count(), 2);
        let rows = bench.say(&["list", "-f", "json"]).ok().json();
        for (id, status) in [(&created, "created"), (&running, "running")] {
            let row = rows.as_array().unwrap().iter().find(|row| row["id"] == id.as_str()).unwrap();
            assert_eq!(row["status"], status);
            for field in ["pid", "bundle", "created", "owner", "rootfs", "ociVersion"] {
                assert!(!row[field].is_null(), "{row} has no {field}");
            }
        }
        let table = bench.say(&["list"]).ok().stdout;
        assert!(table.starts_with("ID") && table.contains("STATUS") && table.contains(&running), "{table}");
    }

    fn ps_has_the_first_process(caller) {
        let bench = Bench::new(caller);
        let id = bench.start();
        let pid = u64::from(bench.pid(&id));
        for args in [["ps", "--format", "json", &id], ["ps", &id, "--format", "json"]] {
            let pids = bench.say(&args).ok().json();
            assert!(pids.as_array().unwrap().contains(&pid.into()), "{pids}");
        }
        let table = bench.say(&["ps", &id]).ok().stdout;
        assert!(table.contains("PID") && table.contains(&pid.to_string()) && table.contains("sleep"), "{table}");
        bench.say(&["kill", &id, "KILL"]).ok();
        bench.wait_stopped(&id);
        bench.say(&["ps", &id]).fails("not running");
    }
}

fn root() -> Option<Bench> {
    Caller::root().ok().map(Bench::new)
}

#[test]
fn pause_and_resume_stop_and_go() {
    let Some(bench) = root() else { skip!("this test needs to be started as root") };
    let id = bench.id();
    bench.create(&id).ok();
    bench.say(&["start", &id]).ok();
    bench.say(&["resume", &id]).fails("running");
    bench.say(&["pause", &id]).ok();
    bench.status_is(&id, "paused");
    bench.say(&["pause", &id]).fails("paused");
    bench.say(&["exec", &id, "/bin/true"]).fails("paused");
    bench.say(&["resume", &id]).ok();
    bench.status_is(&id, "running");
    bench.say(&["exec", &id, "/bin/true"]).ok();
    bench.say(&["pause", &id]).ok();
    let watch = crate::support::process::Watch::of(bench.pid(&id)).unwrap();
    bench.say(&["kill", &id, "KILL"]).ok();
    watch.wait_gone("a paused container");
    bench.say(&["pause", "nobody"]).fails("does not exist");
}

#[test]
fn events_prints_statistics_as_one_line_of_json() {
    let Some(bench) = root() else { skip!("this test needs to be started as root") };
    let id = bench.start();
    let said = bench.say(&["events", "--stats", &id]).ok();
    let event = said.json();
    assert_eq!((event["type"].as_str(), event["id"].as_str()), (Some("stats"), Some(id.as_str())));
    assert!(event["data"]["pids"].is_object() && event["data"]["memory"].is_object(), "{event}");
}

#[test]
fn events_ends_with_its_container() {
    let Some(bench) = root() else { skip!("this test needs to be started as root") };
    bench.program(&["/bin/sleep", "0.5"]);
    let id = bench.start();
    let said = bench.say(&["events", "--interval", "100ms", &id]).ok();
    assert!(said.stdout.lines().count() >= 1, "{said:?}");
}

#[test]
fn update_changes_a_limit_from_options_a_file_and_standard_input() {
    let Some(bench) = root() else { skip!("this test needs to be started as root") };
    let id = bench.start();
    let limit = || bench.say(&["events", "--stats", &id]).ok().json()["data"]["pids"]["limit"].clone();
    bench.say(&["update", "--pids-limit", "31", &id]).ok();
    assert_eq!(limit(), 31);
    let file = bench.place.make_file("resources.json", r#"{"pids":{"limit":32}}"#);
    bench.say(&["update", &format!("--resources={}", file.display()), &id]).ok();
    assert_eq!(limit(), 32);
    let mut command = bench.command(&["update", "--resources", "-", &id]);
    command
        .stdin(std::fs::File::open(bench.place.make_file("more.json", r#"{"pids":{"limit":33}}"#)).unwrap());
    bench.finish(command).ok();
    assert_eq!(limit(), 33);
    bench.say(&["update", &id]).fails("no limit");
    bench.say(&["update", "--memory", "lots", &id]).fails("error");
}
