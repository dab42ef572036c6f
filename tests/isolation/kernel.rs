//! KC-12: what no program inside may ask of the kernel.

use super::probe::{self, probe};
use super::wrapped::Wrap;

as_each_caller! {
    /// KC-12: by the old calls and by the new.
    fn mounts_cannot_be_undone_or_made(caller) {
        let probe = probe!();
        probe::expect_all(&Wrap::new(caller), probe, "EPERM", &[
            "umount_tmp", "umount_proc", "umount_masked", "umount_workspace", "remount_rw", "remount_usr",
            "mount_tmpfs", "mount_proc", "mount_bind", "mount_shared", "open_tree", "open_tree_plain", "move_mount",
            "fsopen", "fspick", "mount_setattr", "pivot_root", "chroot", "chroot_dot",
        ]);
    }

    /// KC-12, and with the filter of `nesting` out of the way: what we mounted is locked, or not ours.
    fn mounts_cannot_be_undone_even_where_the_filter_lets_the_calls_through(caller) {
        let probe = probe!();
        let wrap = Wrap::new(caller);
        probe::install(&wrap, probe);
        wrap.place.close();
        let script = "unshare -Ur --mount --propagation unchanged sh -c './probe umount_tmp umount_workspace remount_rw remount_usr'";
        let answers = wrap.run(&["--profile", "nesting"], &["/bin/sh", "-c", script]).success();
        let expected = "umount_tmp EINVAL\numount_workspace EINVAL\nremount_rw EPERM\nremount_usr EPERM\n";
        assert_eq!(answers, expected);
    }

    /// CVE-2022-0185 and its like begin with a user namespace. clone3 answers as a kernel without it.
    fn no_namespace_is_made_or_entered(caller) {
        let probe = probe!();
        let wrap = Wrap::new(caller);
        probe::expect_all(&wrap, probe, "EPERM", &[
            "unshare_user", "unshare_mount", "unshare_net", "unshare_pid", "unshare_time", "clone_user",
            "clone_user_high", "clone_net", "setns_own",
        ]);
        probe::expect_all(&wrap, probe, "ENOSYS", &["clone3_user"]);
        for tool in ["unshare -Ur true", "nsenter -t 1 -m true", "nsenter -t 1 -a true"] {
            assert_ne!(wrap.sh(tool).code(), 0, "{tool}");
        }
    }

    fn the_surface_where_holes_are_found_is_refused(caller) {
        let probe = probe!();
        probe::expect_all(&Wrap::new(caller), probe, "EPERM", &[
            "io_uring", "bpf", "userfaultfd", "perf", "keyctl", "keyctl_session", "add_key", "request_key", "kexec",
            "init_module", "finit_module", "delete_module", "name_to_handle", "open_by_handle", "personality",
            "personality_layout", "modify_ldt", "kcmp", "reboot", "swapon", "acct", "quotactl", "syslog", "settime",
            "fanotify", "mbind", "iopl", "set_mm",
        ]);
    }

    /// A second table of calls that the filter's numbers do not speak of.
    #[cfg(target_arch = "x86_64")]
    fn foreign_system_calls_kill(caller) {
        let probe = probe!();
        let attempts = ["i386_getpid", "i386_socketcall", "i386_unshare", "x32_getpid", "x32_ptrace"];
        probe::expect_all(&Wrap::new(caller), probe, "SIGSYS", &attempts);
    }

    fn a_filter_of_ones_own_may_tighten_and_not_listen(caller) {
        let probe = probe!();
        probe::expect_all(&Wrap::new(caller), probe, "EINVAL", &["seccomp_listener"]);
    }
}
