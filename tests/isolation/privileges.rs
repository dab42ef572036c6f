//! KC-13: no capability, no way to one, no set-id file made or obeyed.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::probe::{self, probe};
use super::wrapped::Wrap;
use crate::support::place::copy_program;

fn status_of(wrap: &Wrap, script: &str) -> BTreeMap<String, String> {
    let status = wrap.sh(script).success();
    status
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(key, value)| (key.to_owned(), value.trim().to_owned()))
        .collect()
}

as_each_caller! {
    /// A caller under nohup(1) ignores signals, and saggar itself SIGPIPE: programs start with the actions of signal(7).
    fn signals_ignored_by_the_caller_are_not_ignored_inside(caller) {
        let wrap = Wrap::new(caller);
        let saggar = wrap.command(&[], &["/bin/grep", "SigIgn", "/proc/self/status"]);
        let mut command = wrap.place.command("/bin/sh".as_ref());
        command.args(["-c", "trap '' HUP USR1 TERM; exec \"$@\"", "sh"]).arg(saggar.get_program());
        command.args(saggar.get_args());
        assert_eq!(wrap.finish(command).success(), "SigIgn:\t0000000000000000\n");
    }

    /// The one file about keys that is not masked counts those of the sandbox's own users alone.
    fn the_host_s_users_have_no_keys_here(caller) {
        let wrap = Wrap::new(caller);
        let own = wrap.sh("id -u").success();
        let said = wrap.sh("cat /proc/key-users").success();
        let users = said.lines().map(|line| line.split(':').next().unwrap().trim());
        assert!(users.clone().all(|user| user == own.trim() || user == "0" && caller.is_root()), "{said}");
        let host = fs::read_to_string("/proc/key-users").unwrap();
        assert!(!caller.is_root() || host.lines().all(|line| !said.contains(line)), "{said}");
    }

    /// KC-13, CVE-2022-24769, CVE-2022-27650: all five sets, the inheritable one too.
    fn every_capability_set_is_empty_and_no_new_privs_and_a_filter_are_on(caller) {
        let wrap = Wrap::new(caller);
        let status = status_of(&wrap, "cat /proc/self/status");
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(status[set], "0".repeat(16), "{set}");
        }
        assert_eq!(status["NoNewPrivs"], "1");
        assert_eq!(status["Seccomp"], "2");
        // pid 1's own, and the program's on top.
        assert_eq!(status["Seccomp_filters"], "2");
        // A program starts with every signal at its default and none blocked.
        for signals in ["SigBlk", "SigIgn", "SigCgt"] {
            assert_eq!(status[signals], "0".repeat(16), "{signals}");
        }
    }

    /// DECISIONS 2: root becomes 1000 of a block of its own, a user stays itself; root of the host is nobody.
    fn no_process_inside_is_root_of_the_host(caller) {
        let wrap = Wrap::new(caller);
        let ids = wrap.sh("id -u; id -g; cat /proc/self/uid_map").success();
        let words: Vec<&str> = ids.split_ascii_whitespace().collect();
        let [uid, gid, inner, outer, count] = words[..] else { panic!("one line of map: {ids}") };
        if caller.is_root() {
            assert_eq!((uid, gid, inner, count), ("1000", "1000", "0", "65536"));
            assert!(outer.parse::<u32>().unwrap() >= 65536, "{ids}");
        } else {
            let own = caller.uid().to_string();
            assert_eq!((uid, inner, outer, count), (own.as_str(), own.as_str(), own.as_str(), "1"));
        }
        let groups = wrap.sh("id -G").success();
        assert_eq!(groups.trim(), gid, "no group but its own");
    }

    /// DECISIONS 7: a set-id file would stay on the host, and be the workspace owner's.
    fn no_call_makes_a_set_id_file(caller) {
        let probe = probe!();
        let wrap = Wrap::new(caller);
        probe::expect_all(&wrap, probe, "EPERM", &[
            "chmod", "chmod_group", "fchmod", "fchmodat", "fchmodat2", "chmod_high", "open_creat", "openat_creat",
            "creat", "tmpfile", "mknod", "mknodat",
        ]);
        // The kernel makes the directory, and takes neither bit for it.
        probe::expect_all(&wrap, probe, "ENODATA", &["mkdir", "mkdirat"]);
        probe::expect_all(&wrap, probe, "ENOSYS", &["openat2"]);
        let set_id = |entry: fs::DirEntry| entry.metadata().unwrap().permissions().mode() & 0o6000 != 0;
        assert!(!fs::read_dir(wrap.work()).unwrap().flatten().any(set_id), "nothing of the kind on the host");
    }

    fn ids_capabilities_and_limits_are_not_raised(caller) {
        let probe = probe!();
        let wrap = Wrap::new(caller);
        // An id that is not in the map is invalid, one that is there is not permitted.
        let other = if caller.is_root() { "EPERM" } else { "EINVAL" };
        probe::expect(&wrap, probe, &[], &[
            ("setuid_root", other),
            ("setgid_root", other),
            ("chown_root", other),
            ("setgroups", "EPERM"),
            ("capset", "EPERM"),
            ("ambient", "EPERM"),
            ("new_privs", "EINVAL"),
            ("file_caps", "EPERM"),
            ("rlimit_up", "EPERM"),
            ("nice_up", "EACCES"),
            ("sethostname", "EPERM"),
        ]);
    }

    /// nosuid on every mount, the workspace too: a set-user-id program of the host's owner changes nothing.
    fn a_set_id_program_gives_nothing(caller) {
        let wrap = Wrap::new(caller);
        let program = wrap.work().join("id");
        copy_program("/usr/bin/id".as_ref(), &program);
        fs::set_permissions(&program, fs::Permissions::from_mode(0o6755)).unwrap();
        let same = wrap.sh("id; ./id; for m in $(cut -d' ' -f6 /proc/self/mountinfo); do echo $m; done").success();
        let mut lines = same.lines();
        assert_eq!(lines.next(), lines.next(), "{same}");
        let devices_and_all = lines.filter(|options| !options.split(',').any(|option| option == "nosuid"));
        assert_eq!(devices_and_all.count(), 0, "every mount is nosuid: {same}");
    }
}
