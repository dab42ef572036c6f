//! Texts that callers read: the log, the version, programs that are missing.

use super::bundle::Bench;
use serde_json::Value;
use std::fs;

as_each_caller! {
    fn a_failure_is_one_line_of_json_in_the_log(caller) {
        let bench = Bench::new(caller);
        let log = bench.place.join("work/log");
        let path = log.to_str().unwrap();
        let said = bench.say(&["--log", path, "--log-format", "json", "state", "nobody"]).fails("does not exist");
        assert!(said.stdout.is_empty());
        let text = fs::read_to_string(&log).unwrap();
        let line: Value = serde_json::from_str(text.trim_end()).unwrap();
        assert_eq!(text.lines().count(), 1);
        assert_eq!(line["level"], "error");
        assert!(line["msg"].as_str().unwrap().contains("does not exist"));
        let time: jiff::Timestamp = line["time"].as_str().unwrap().parse().unwrap();
        assert!(time.as_second() > 1_700_000_000);
        // The same again is appended.
        bench.say(&["state", "nobody", "--log", path, "--log-format=json"]).fails("does not exist");
        assert_eq!(fs::read_to_string(&log).unwrap().lines().count(), 2);
    }

    fn a_failure_is_one_line_of_text_in_the_log(caller) {
        let bench = Bench::new(caller);
        let log = bench.place.join("work/log");
        bench.say(&["--log", log.to_str().unwrap(), "state", "nobody"]).fails("does not exist");
        let text = fs::read_to_string(&log).unwrap();
        assert!(text.starts_with("time=\"") && text.contains("level=error msg=\"container"), "{text}");
    }

    fn a_log_that_cannot_be_written_is_an_error(caller) {
        let bench = Bench::new(caller);
        bench.say(&["--log", "/nonexistent/log", "list"]).fails("/nonexistent/log");
    }

    /// runtime.md, Warnings: they "MUST" be logged, and standard error is the log of a call without one.
    fn a_warning_is_on_standard_error_or_in_the_log(caller) {
        let bench = Bench::new(caller);
        bench.configure(|config| {
            config["process"]["args"] = serde_json::json!(["/bin/true"]);
            config["annotations"] = serde_json::json!({ "run.oci.handler": "wasm" });
        });
        let warning = "annotations.run.oci.handler is an annotation of crun and has no effect";
        let said = bench.run(&bench.id()).ok();
        assert_eq!(said.stderr, format!("saggar: {warning}\n"));
        let (log, bundle) = (bench.place.join("work/log"), bench.bundle());
        let run = ["--log", log.to_str().unwrap(), "run", "--bundle", bundle.to_str().unwrap(), &bench.id()].map(str::to_owned);
        let run: Vec<&str> = run.iter().map(String::as_str).collect();
        assert_eq!(bench.say(&run).ok().stderr, "");
        assert!(fs::read_to_string(&log).unwrap().contains(warning));
        // What engines usually configure is in the log alone: their users see the standard error of the container.
        bench.configure(|config| {
            config["process"]["args"] = serde_json::json!(["/bin/true"]);
            let some = serde_json::json!(["CAP_CHOWN"]);
            config["process"]["capabilities"] = serde_json::json!({ "bounding": some, "effective": some, "permitted": some, "ambient": some });
            config["linux"]["seccomp"] = serde_json::json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
                { "names": ["setns"], "action": "SCMP_ACT_ERRNO" }, { "names": ["setns"], "action": "SCMP_ACT_KILL" } ] });
        });
        assert_eq!(bench.run(&bench.id()).ok().stderr, "");
        assert_eq!(bench.say(&[&run[..5], &[&bench.id()]].concat()).ok().stderr, "");
        let logged = fs::read_to_string(&log).unwrap();
        assert!(logged.contains("process.capabilities.ambient loses CAP_CHOWN") && logged.contains("is never taken"), "{logged}");
        let quiet = ["--log-level", "error", "run", "--bundle", bundle.to_str().unwrap(), &bench.id()].map(str::to_owned);
        let quiet: Vec<&str> = quiet.iter().map(String::as_str).collect();
        assert_eq!(bench.say(&quiet).ok().stderr, "");
    }

    fn what_other_runtimes_have_is_refused_by_its_name(caller) {
        let bench = Bench::new(caller);
        let say = |args: &[&str]| bench.say(args);
        for (args, text) in [
            (&["checkpoint", "x"][..], "does not support checkpoints"),
            (&["mounts", "add", "x", "mounts.json"], "does not change the mounts of a running container"),
            (&["delete", "--regex", "a.*"], "delete --regex: containers are deleted by their ids alone"),
        ] {
            let said = say(args);
            assert!(!said.status.success() && said.stderr.contains(text), "{said:?}");
        }
    }

    fn options_that_do_not_apply_are_accepted(caller) {
        let bench = Bench::new(caller);
        bench.say(&["--rootless", "auto", "--criu", "/x", "--cgroup-manager=cgroupfs", "--debug", "list"]).ok();
        bench.say(&["--no-such-option", "list"]).fails("error");
    }

    fn a_missing_program_reads_as_docker_reads_it(caller) {
        let bench = Bench::new(caller);
        for (program, text) in [
            ("/x", "exec: \"/x\": stat /x: no such file or directory"),
            ("nosuch", "exec: \"nosuch\": executable file not found in $PATH"),
            ("/etc", "is a directory"),
        ] {
            bench.program(&[program]);
            let id = bench.id();
            let created = bench.create(&id);
            let said = if created.status.success() { bench.say(&["start", &id]) } else { created };
            let said = said.fails("exec: ");
            assert!(said.stderr.to_lowercase().contains(&text.to_lowercase()), "{said:?}");
            let id = bench.id();
            let status = bench.run(&id).fails(program).status;
            assert_eq!(status.code(), Some(if program == "/etc" { 126 } else { 127 }));
        }
        bench.configure(|_| {});
        let id = bench.start();
        bench.say(&["exec", &id, "/x"]).fails("exec: \"/x\": stat /x: no such file or directory");
        let said = bench.say(&["exec", &id, "nosuch"]).fails("exec: \"nosuch\": executable file not found in $PATH");
        assert_eq!(said.status.code(), Some(127));
    }
}

/// dockerd 20.10 takes what follows "version" in the first line, and what follows "commit:".
#[test]
fn the_version_is_in_the_lines_that_dockerd_reads() {
    let bench = Bench::new(crate::support::caller::Caller::current());
    for flag in ["--version", "-v", "-V"] {
        let mut command = bench.place.saggar();
        command.arg(flag);
        let said = bench.finish(command).ok();
        let lines: Vec<&str> = said.stdout.lines().collect();
        assert_eq!(lines[0], concat!("saggar version ", env!("CARGO_PKG_VERSION")));
        assert!(lines[1].starts_with("commit: ") && lines[1].len() > "commit: ".len());
        assert_eq!(lines[2], "spec: 1.3.0");
    }
}
