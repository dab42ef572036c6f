//! runtime.md, Create.

use super::bundle::{Bench, end_of};
use crate::support::process::Watch;
use serde_json::json;
use std::fs;

as_each_caller! {
    fn create_without_an_id_is_an_error(caller) {
        let bench = Bench::new(caller);
        bench.say(&["create", "--bundle", bench.bundle().to_str().unwrap()]).fails("ID");
    }

    fn create_without_a_bundle_is_an_error(caller) {
        let bench = Bench::new(caller);
        let id = bench.id();
        bench.say(&["create", "--bundle", "/nonexistent", &id]).fails("/nonexistent");
        bench.say(&["create", "--bundle", bench.place.work().to_str().unwrap(), &id]).fails("config.json");
        bench.is_clean(&id);
    }

    /// Where there is no resctrl, and where it has no such group.
    fn create_with_an_intel_rdt_class_that_cannot_be_had_is_an_error_and_leaves_nothing(caller) {
        let bench = Bench::new(caller);
        bench.configure(|config| config["linux"]["intelRdt"] = json!({ "closID": "saggar-has-none" }));
        let id = bench.id();
        bench.create(&id).fails("linux.intelRdt");
        bench.is_clean(&id);
    }

    fn create_of_an_id_in_use_is_an_error_and_changes_nothing(caller) {
        let bench = Bench::new(caller);
        let id = bench.id();
        bench.create(&id).ok();
        let before = bench.state(&id);
        bench.create(&id).fails("already exists");
        assert_eq!(bench.state(&id), before);
    }

    fn create_of_an_invalid_id_is_an_error_and_touches_nothing(caller) {
        let bench = Bench::new(caller);
        let bundle = bench.bundle();
        for id in ["", ".", "..", "../x", "a/b", "/abs", "a b", "a\nb", "a\tb", "a\u{7f}", "ä", &"x".repeat(300)] {
            let said = bench.say(&["create", "--bundle", bundle.to_str().unwrap(), "--", id]);
            said.fails("id");
        }
        bench.say(&["create", "--bundle", bundle.to_str().unwrap(), "--", "-x"]).fails("id");
        let left: Vec<_> = fs::read_dir(bench.place.join("oci")).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }

    fn create_does_not_run_the_program(caller) {
        let bench = Bench::new(caller);
        bench.program(&["/bin/touch", "/tmp/ran"]);
        let id = bench.id();
        bench.create(&id).ok();
        bench.status_is(&id, "created");
        let ran = bench.bundle().join("rootfs/tmp/ran");
        assert!(!ran.exists());
        let watch = Watch::of(bench.pid(&id)).unwrap();
        bench.say(&["start", &id]).ok();
        watch.wait_gone("touch");
        assert!(ran.exists());
    }

    fn later_edits_of_config_json_have_no_effect(caller) {
        let bench = Bench::new(caller);
        bench.program(&["/bin/touch", "/tmp/first"]);
        let id = bench.id();
        bench.create(&id).ok();
        bench.program(&["/bin/touch", "/tmp/second"]);
        let watch = Watch::of(bench.pid(&id)).unwrap();
        bench.say(&["start", &id]).ok();
        watch.wait_gone("touch");
        let tmp = bench.bundle().join("rootfs/tmp");
        assert!(tmp.join("first").exists() && !tmp.join("second").exists());
    }

    /// Its lock, its cgroups, its log, and whatever its caller had open.
    fn the_init_has_nothing_of_its_makers_open(caller) {
        let bench = Bench::new(caller);
        let id = bench.id();
        let mut command = bench.place.command(std::path::Path::new("/bin/sh"));
        let create = bench.command(&["--log", bench.place.join("work/log").to_str().unwrap(), "create", "--bundle", bench.bundle().to_str().unwrap(), &id]);
        command.args(["-c", r#"exec "$@" 9>left"#, "sh"]).arg(create.get_program()).args(create.get_args());
        command.stdin(std::process::Stdio::null());
        bench.finish(command).ok();
        let entries = fs::read_dir(format!("/proc/{}/fd", bench.pid(&id)));
        // An ordinary user does not see what an init has open.
        let Ok(entries) = entries else { skip!("this test needs to be started as root") };
        for entry in entries.flatten() {
            let number: u32 = entry.file_name().to_str().unwrap().parse().unwrap();
            let link = fs::read_link(entry.path()).unwrap();
            let link = link.to_str().unwrap();
            // The sockets to its maker and for its start, a pidfd, procfs, and its own root.
            let is_own = link.starts_with("socket:") || link.starts_with("anon_inode:") || link == "/proc" || link == "/";
            assert!(number < 3 || is_own, "{number} is {link}");
        }
    }

    fn the_pid_file_has_the_pid_and_nothing_else(caller) {
        let bench = Bench::new(caller);
        let (id, file) = (bench.id(), bench.place.join("work/pid"));
        let bundle = bench.bundle();
        let args = ["create", "--bundle", bundle.to_str().unwrap(), "--pid-file", file.to_str().unwrap(), &id];
        bench.say(&args).ok();
        assert_eq!(fs::read_to_string(&file).unwrap(), bench.pid(&id).to_string());
        assert_eq!(fs::read_dir(bench.place.work()).unwrap().count(), 1, "no temporary file is left");
    }

    fn a_pid_file_that_cannot_be_written_leaves_no_container(caller) {
        let bench = Bench::new(caller);
        let (id, bundle) = (bench.id(), bench.bundle());
        let args = ["create", "--bundle", bundle.to_str().unwrap(), "--pid-file", "/nonexistent/pid", &id];
        bench.say(&args).fails("/nonexistent/pid");
        bench.is_clean(&id);
    }

    fn a_create_that_is_not_wholly_possible_leaves_nothing(caller) {
        let bench = Bench::new(caller);
        for change in [
            json!({ "mounts": [{ "destination": "/tmp", "type": "bind", "source": "/nonexistent", "options": ["bind"] }] }),
            json!({ "mounts": [{ "destination": "/tmp", "type": "nosuchfs", "source": "none" }] }),
            json!({ "root": { "path": "nowhere" } }),
            json!({ "hooks": { "createRuntime": [{ "path": "/bin/false" }] } }),
        ] {
            let id = bench.id();
            bench.configure(|config| {
                config.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            });
            let before = processes();
            let said = bench.create(&id);
            assert!(!said.status.success(), "{change}: {said:?}");
            bench.is_clean(&id);
            assert!(!processes().iter().any(|pid| !before.contains(pid) && is_of(*pid, &bench)), "{change}");
        }
    }

    fn bad_configurations_are_refused_and_leave_nothing(caller) {
        let bench = Bench::new(caller);
        let usual = bench.usual().to_string();
        let cases: [(&str, Vec<u8>); 9] = [
            ("empty", Vec::new()),
            ("null", b"null".to_vec()),
            ("a list", b"[]".to_vec()),
            ("no object", b"7".to_vec()),
            ("a NUL byte", usual.replace("/bin/sleep", "/bin/sl\\u0000eep").into_bytes()),
            ("64 MiB", format!("{usual}{}", " ".repeat(64 << 20)).into_bytes()),
            ("deep", "[".repeat(200_000).into_bytes()),
            ("a version of tomorrow", usual.replace("1.0.2", "2.0.0").into_bytes()),
            ("half", usual.as_bytes()[..usual.len() / 2].to_vec()),
        ];
        for (what, bytes) in cases {
            bench.write_config(&bytes);
            let id = bench.id();
            eprintln!("{what}");
            bench.create(&id).fails("error");
            bench.is_clean(&id);
        }
        // Nobody ever writes to it: who waits for that does not end.
        let path = bench.bundle().join("config.json");
        fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::from_bits_truncate(0o644)).unwrap();
        let id = bench.id();
        bench.create(&id).fails("config.json");
        bench.is_clean(&id);
    }

    fn of_concurrent_creates_of_one_id_one_wins(caller) {
        let bench = Bench::new(caller);
        for _ in 0..crate::support::rounds(3, 30) {
            let id = bench.id();
            let bundle = bench.bundle();
            let children: Vec<_> = (0..16)
                .map(|_| {
                    let mut command = bench.command(&["create", "--bundle", bundle.to_str().unwrap(), &id]);
                    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
                    command.spawn().unwrap()
                })
                .collect();
            let ended = children.into_iter().map(|child| end_of(child, "a create"));
            assert_eq!(ended.filter(|status| status.success()).count(), 1);
            bench.status_is(&id, "created");
            bench.say(&["delete", "--force", &id]).ok();
            bench.is_clean(&id);
        }
    }
}

fn processes() -> Vec<i32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Whether a living process has its root or its working directory in the place of the bench.
fn is_of(pid: i32, bench: &Bench) -> bool {
    let at = |link: &str| fs::read_link(format!("/proc/{pid}/{link}")).unwrap_or_default();
    at("root").starts_with(bench.place.path()) || at("cwd").starts_with(bench.place.path())
}
