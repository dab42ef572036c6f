//! The profile `container`, in a container whose `/proc` is masked.

use super::wrapped::{Ended, Wrap};
use crate::support::caller::Caller;
use crate::support::own_mounts::own_mounts;

/// What masks `/proc`, as a container engine does.
const MASK: &str = "mount --bind /dev/null /proc/version";

/// Runs a script where `/proc` is masked, with saggar as `$0` and this program for the sandbox as `$1`.
fn in_container(wrap: &Wrap, caller: Caller, script: &str, program: &str) -> Ended {
    let saggar = wrap.place.saggar().get_program().to_owned();
    let before = own_mounts(caller);
    let mut command = wrap.place.command(before[0].as_ref());
    command
        .args(&before[1..])
        .args(["/bin/sh", "-c", &format!("{MASK} || exit 99\n{script}")])
        .arg(saggar)
        .arg(program);
    wrap.finish(command)
}

as_each_caller! {
    fn programs_see_its_processes_and_not_what_they_hold(caller) {
        let wrap = Wrap::new(caller);
        let script = "SECRET=of-the-container sleep 1000 & outer=$!; \
            \"$0\" wrap --profile container -- sh -c \"$1\" sh $outer; status=$?; \
            read name score rest </proc/$outer/oom_score_adj; kill $outer; echo score $name; exit $status";
        let program = "tr '\\0' ' ' </proc/$1/cmdline; echo; \
            for file in environ mem maps auxv io fd/1 root/etc/passwd cwd/x exe task/$1/environ; do \
                cat /proc/$1/$file >/dev/null 2>&1 && echo read $file; done; \
            readlink /proc/$1/ns/net /proc/$1/root /proc/$1/cwd /proc/$1/exe /proc/$1/fd/1; \
            echo 900 2>/dev/null >/proc/$1/oom_score_adj && echo written; \
            echo 1 2>/dev/null >/proc/$1/clear_refs && echo written; \
            kill -0 $1 2>/dev/null && echo signalled; \
            cat /proc/self/comm; [ -w /proc/sys/kernel/hostname ] || echo read-only; touch made; true";
        let said = in_container(&wrap, caller, script, program).success();
        assert_eq!(said, "sleep 1000 \ncat\nread-only\nscore 0\n");
        assert!(wrap.work().join("made").exists());
    }

    /// Without it, the start fails as before, and the hint names it.
    fn it_is_used_only_by_name(caller) {
        let wrap = Wrap::new(caller);
        let refused = in_container(&wrap, caller, "exec \"$0\" wrap -- true", "");
        refused.refused(&["mount proc", "--profile container", "systempaths=unconfined"]);
    }

    fn explain_says_what_it_gives(caller) {
        let wrap = Wrap::new(caller);
        let script = "exec \"$0\" explain --profile container";
        let text = in_container(&wrap, caller, script, "").success();
        assert!(text.contains("\n  proc "), "{text}");
        assert!(text.contains("programs see the processes of the container"), "{text}");
        assert!(text.contains("of the container, with its processes"), "{text}");
        let script = "exec \"$0\" explain --profile container --json --path /proc/1/environ";
        let path: serde_json::Value = serde_json::from_str(&in_container(&wrap, caller, script, "").success()).unwrap();
        assert_eq!((&path["state"], &path["writable"]), (&"read-only".into(), &false.into()), "{path}");
        let script = "exec \"$0\" wrap --profile container --dry-run -- true";
        let steps = in_container(&wrap, caller, script, "").success();
        assert!(steps.contains("mount the /proc of the container on /proc, read-only"), "{steps}");
    }

    /// Where the kernel mounts a new one, the profile is the default.
    fn a_new_proc_is_mounted_where_it_can_be(caller) {
        let wrap = Wrap::new(caller);
        let script = "grep -c 'hidepid=invisible' /proc/self/mounts; echo $$; cat /proc/self/stat | cut -d ' ' -f 1";
        let said = wrap.run(&["--profile", "container"], &["/bin/sh", "-c", script]).success();
        let numbers: Vec<u32> = said.lines().map(|line| line.parse().unwrap()).collect();
        // Those of the sandbox are counted from 1.
        assert!(numbers[0] > 0 && numbers[1] < 10 && numbers[2] < 10, "{said}");
        let mut command = wrap.place.saggar();
        command.args(["explain", "--profile", "container"]);
        let text = wrap.finish(command).success();
        assert!(!text.contains("processes of the container"), "{text}");
    }
}

/// Root of a container has no ids to give: its programs have id 0 outside, and what only root may read is masked.
#[test]
fn root_without_capabilities_is_told_what_its_programs_are() {
    let caller = Caller::current();
    if !caller.is_root() {
        skip!("this test needs to be started as root");
    }
    let wrap = Wrap::new(caller);
    let run = |script: &str| {
        let mut command = wrap.place.command("/usr/bin/setpriv".as_ref());
        command.args(["--bounding-set=-sys_admin", "--inh-caps=-sys_admin", "sh", "-c", script]);
        command.arg(wrap.place.saggar().get_program());
        wrap.finish(command).success()
    };
    let text = run("exec \"$0\" explain");
    assert!(text.contains("programs have its user id 0 outside"), "{text}");
    assert!(!text.contains("RLIMIT_NPROC holds it"), "it does not apply to root: {text}");
    let doctor = run("\"$0\" doctor || true");
    assert!(doctor.contains("id-maps") && doctor.contains("--user 1000"), "{doctor}");
    let proved = run("exec \"$0\" doctor --prove --json");
    assert!(proved.contains("be-host-root"), "{proved}");
    let said =
        run("exec \"$0\" wrap -- sh -c 'cat /proc/kpageflags /proc/slabinfo | wc -c; ls /proc/tty | wc -l'");
    assert_eq!(said, "0\n0\n");
}
