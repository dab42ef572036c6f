//! Limits of a container at their edges: what they permit, and what is reported when they end a program.

use super::bundle::Bench;
use serde_json::json;
use std::fs;
use std::os::unix::fs::symlink;

/// Reads zeros into its memory until it is killed.
const ALLOCATOR: &str = "exec tail /dev/zero";

/// A bundle whose container may have 64 MiB; `None` for a caller who cannot limit it here.
fn limited_bench(caller: crate::support::caller::Caller, script: &str) -> Option<Bench> {
    let bench = Bench::new(caller);
    if !caller.is_root() {
        return None;
    }
    symlink("busybox", bench.bundle().join("rootfs/bin/tail")).unwrap();
    bench.configure(|config| {
        config["process"]["args"] = json!(["/bin/sh", "-c", script]);
        config["linux"]["resources"] = json!({ "memory": { "limit": 64 << 20, "swap": 64 << 20 } });
    });
    Some(bench)
}

as_each_caller! {
    /// config-linux.md, PIDs: 0 is a limit, and without the field there is none.
    fn no_further_processes_are_a_limit(caller) {
        let bench = Bench::new(caller);
        if !caller.is_root() {
            // An ordinary user has no cgroup here; the limit is tested as root.
            return;
        }
        let fork = "read -r line </proc/self/stat; (exit 0) && echo forked || echo refused";
        for (pids, said) in [(json!({ "limit": 0 }), "refused"), (json!({ "limit": 1 }), "refused"),
            (json!({}), "forked"), (json!({ "limit": -1 }), "forked")] {
            bench.configure(|config| {
                config["process"]["args"] = json!(["/bin/sh", "-c", fork]);
                config["linux"]["resources"] = json!({ "pids": pids });
            });
            let ran = bench.run(&bench.id());
            let forked = ran.stdout.contains("forked");
            assert_eq!(forked, said == "forked", "{pids}: {ran:?}");
        }
    }

    /// The program that was killed is named, with the limit and the peak, on standard error and in the log.
    fn a_program_without_memory_left_is_reported(caller) {
        let Some(bench) = limited_bench(caller, ALLOCATOR) else { return };
        let said = bench.run(&bench.id());
        assert_eq!(said.status.code(), Some(137), "{said:?}");
        let told = "tail was killed at the limit of memory of 64M, at most 6";
        assert!(said.stderr.contains(told) && said.stderr.starts_with("saggar: container \"t"), "{said:?}");
        let (log, bundle) = (bench.place.join("log"), bench.bundle());
        let id = bench.id();
        let said = bench.say(&["--log", log.to_str().unwrap(), "run", "--bundle", bundle.to_str().unwrap(), &id]);
        assert_eq!((said.status.code(), said.stderr.as_str()), (Some(137), ""), "{said:?}");
        let logged = fs::read_to_string(&log).unwrap();
        assert!(logged.contains(told), "{logged}");
    }

    fn a_program_of_exec_without_memory_left_is_reported(caller) {
        let Some(bench) = limited_bench(caller, "exec sleep 1000") else { return };
        let id = bench.start();
        let said = bench.say(&["exec", &id, "/bin/sh", "-c", ALLOCATOR]);
        assert_eq!(said.status.code(), Some(137), "{said:?}");
        assert!(said.stderr.contains("tail was killed at the limit of memory of 64M"), "{said:?}");
        let said = bench.say(&["exec", &id, "/bin/sh", "-c", "kill -9 $$"]);
        assert_eq!((said.status.code(), said.stderr.as_str()), (Some(137), ""), "{said:?}");
    }

    /// One that its parent survives is reported too.
    fn a_child_without_memory_left_is_reported(caller) {
        let Some(bench) = limited_bench(caller, "(exec tail /dev/zero); echo \"ended with $?\"") else { return };
        let said = bench.run(&bench.id()).ok();
        assert_eq!(said.stdout, "ended with 137\n");
        assert!(said.stderr.contains("tail was killed at the limit of memory of 64M"), "{said:?}");
    }
}
