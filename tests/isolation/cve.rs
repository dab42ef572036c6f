//! Holes that other runtimes had, by number, where their class applies to `wrap`. Those that a wall of its own
//! stands against are named at that wall's test.

use std::fs;

use super::probe::{self, probe};
use super::wrapped::Wrap;

as_each_caller! {
    /// CVE-2019-5736: the runtime's own program, reached through /proc/…/exe, is not written and not run anew.
    fn cve_2019_5736_the_runtime_is_not_overwritten(caller) {
        let wrap = Wrap::new(caller);
        let saggar = wrap.place.saggar().get_program().to_owned();
        let before = fs::metadata(&saggar).unwrap().modified().unwrap();
        // The interpreter of the script is whatever executes it: in runc, that was runc.
        let script = wrap.place.make_file("work/script", "#!/proc/self/exe\n");
        fs::set_permissions(script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        assert_ne!(wrap.run(&[], &["./script"]).code(), 0);
        let exe = wrap.sh("readlink /proc/self/exe; for exe in /proc/[0-9]*/exe; do case $(readlink $exe) in *saggar*) echo $exe;; esac; done; \
            (echo x >> /proc/1/exe) 2>&-; exit 0").success();
        assert!(!exe.contains("/exe\n"), "no process shows saggar: {exe}");
        assert_eq!(fs::metadata(&saggar).unwrap().modified().unwrap(), before);
    }

    /// CVE-2024-21626: a working directory that is named by an open descriptor is the directory itself.
    fn cve_2024_21626_a_workspace_by_descriptor_is_what_it_is(caller) {
        let wrap = Wrap::new(caller);
        let saggar = wrap.place.saggar();
        let script = |directory: &str| format!(
            "exec 9<{directory}; exec {} wrap --workspace /proc/self/fd/9 -- /bin/pwd -P", saggar.get_program().display());
        let mut command = wrap.place.command("/bin/sh".as_ref());
        command.args(["-c", &script("/")]);
        wrap.finish(command).refused(&["it is the root"]);
        let mut command = wrap.place.command("/bin/sh".as_ref());
        command.args(["-c", &script(".")]);
        assert_eq!(wrap.finish(command).success().trim(), wrap.work().to_str().unwrap());
    }

    /// CVE-2022-0492: without a cgroup file system there is no release agent, and none can be mounted.
    fn cve_2022_0492_no_cgroup_file_system_is_mounted(caller) {
        let probe = probe!();
        let wrap = Wrap::new(caller);
        probe::expect_all(&wrap, probe, "EPERM", &["unshare_user", "mount_tmpfs", "fsopen"]);
        assert_eq!(wrap.sh("grep -c cgroup /proc/self/mounts; cat /proc/self/cgroup").stdout.lines().next(), Some("0"));
    }

    /// CVE-2021-30465, CVE-2018-15664: the workspace is exchanged for a link while saggar starts, again and again.
    fn cve_2021_30465_an_exchanged_workspace_is_never_the_other_directory(caller) {
        let wrap = Wrap::new(caller);
        let other = wrap.place.make_dir("other", 0o755);
        wrap.place.make_file("other/secret", "secret");
        let swapped = wrap.place.make_dir("swap", 0o755);
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (away, link) = (wrap.place.join("away"), wrap.place.join("link"));
                std::os::unix::fs::symlink(&other, &link).unwrap();
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    fs::rename(&swapped, &away).unwrap();
                    fs::rename(&link, &swapped).unwrap();
                    fs::rename(&swapped, &link).unwrap();
                    fs::rename(&away, &swapped).unwrap();
                }
            });
            // What saggar resolved is what it mounts, or it refuses; the link leads where the caller could go,
            // so what counts is that path and content agree.
            let outcomes: Vec<_> = (0..20)
                .map(|_| wrap.run(&["--workspace", "../swap"], &["/bin/sh", "-c", "pwd -P; ls"]))
                .collect();
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            for ended in outcomes {
                let agree = match ended.stdout.lines().next() {
                    Some(path) if path.ends_with("/swap") => !ended.stdout.contains("secret"),
                    Some(path) => path.ends_with("/other") && ended.stdout.contains("secret"),
                    None => ended.code() == 125,
                };
                assert!(agree, "{ended:?}");
            }
        });
    }
}
