//! `saggar stats` on the host at hand; its figures are compared with the kernel's in guests (tests/vm/agents.rs).

use super::{saggar, stdout};
use crate::support::place::Place;
use crate::support::process::Process;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;

as_each_caller! {
    /// KC-34: a sandbox with a name is there as long as it runs, with what this host counts, and no more.
    fn kc_34_a_sandbox_that_runs_is_shown_with_what_the_host_counts(caller) {
        let place = Place::new(caller);
        let name = place.path().file_name().unwrap().to_str().unwrap().to_owned();
        let mut command = place.saggar();
        command.args(["wrap", "--id", &name, "--", "sh", "-c", "echo up; cat"]);
        let mut process = Process::start(&place, command);
        let mut up = String::new();
        BufReader::new(process.take_stdout()).read_line(&mut up).unwrap();
        assert_eq!(up, "up\n", "{}", process.stderr());

        let shown: Value = serde_json::from_str(&stdout(saggar(&place, &["stats", "--json", &name]), 0)).unwrap();
        assert_eq!(shown["id"], *name);
        match shown["cgroup"].as_str() {
            Some(cgroup) => {
                assert!(cgroup.ends_with(&format!("/saggar-{name}")), "{shown}");
                assert!(shown["cpu"]["usage_usec"].as_u64().unwrap() > 0, "{shown}");
                let has = |file: &str| Path::new(cgroup).join(file).exists();
                // In version 1 the files have other names, and other cgroups.
                let limits = [
                    ("/memory", "memory.current", 2_u64 << 30), ("/pids", "pids.current", 512), ("/cpu", "cpu.max", 1_000_000),
                ];
                for (key, file, limit) in limits {
                    if caller.is_root() || has(file) {
                        let max = if key == "/cpu" { "max_usec" } else { "max" };
                        assert_eq!(shown.pointer(&format!("{key}/{max}")), Some(&limit.into()), "{key}: {shown}");
                    } else {
                        assert!(shown.pointer(&format!("{key}/current")).is_none(), "{key}: {shown}");
                    }
                }
                assert_eq!(shown.get("io").is_some(), has("io.stat"), "{shown}");
                if caller.is_root() {
                    for count in ["/memory/current", "/pids/current"] {
                        assert!(shown.pointer(count).and_then(Value::as_u64).unwrap() > 0, "{shown}");
                    }
                }
            }
            None => assert!(shown.get("cpu").is_none() && shown.get("memory").is_none(), "{shown}"),
        }
        let table = stdout(saggar(&place, &["stats"]), 0);
        assert!(table.starts_with("ID ") && table.lines().any(|line| line.starts_with(&name)), "{table}");

        drop(process.take_stdin());
        assert!(process.wait().success());
        assert!(!stdout(saggar(&place, &["stats"]), 0).contains(&name));
        let refused = saggar(&place, &["stats", &name]).output().unwrap();
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(125), "{said}");
        assert!(said.contains(&name) && said.contains("hint: saggar stats lists"), "{said}");
        assert!(fs::read_dir(place.join("run")).unwrap().all(|entry| entry.unwrap().file_name() != *name));
    }
}
