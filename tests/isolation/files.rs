//! KC-11: of the host there is the list of `spec::agent`, and nothing else.

use std::collections::BTreeSet;
use std::path::Path;

use super::probe::{self, probe};
use super::wrapped::Wrap;

/// Paths of the host that are there when the host has them, as they are.
const OF_THE_HOST: [&str; 15] = [
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/usr",
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/ssl",
    "/etc/pki",
];

/// What saggar makes.
const MADE: [&str; 35] = [
    "/",
    "/dev",
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
    "/dev/fd",
    "/dev/stdin",
    "/dev/stdout",
    "/dev/stderr",
    "/dev/pts",
    "/dev/pts/ptmx",
    "/dev/shm",
    "/dev/mqueue",
    "/etc",
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
    "/etc/machine-id",
    "/etc/hostname",
    "/etc/hosts",
    "/etc/resolv.conf",
    "/etc/mtab",
    "/home",
    "/home/agent",
    "/proc",
    "/run",
    "/tmp",
    "/var",
    "/var/empty",
    "/var/run",
    "/var/tmp",
];

as_each_caller! {
    /// KC-11: a walk over everything but what is bound whole.
    fn nothing_of_the_host_is_there_but_the_list(caller) {
        let wrap = Wrap::new(caller);
        let whole = ["/proc", "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/alternatives",
            "/etc/ca-certificates", "/etc/ld.so.conf.d", "/etc/ssl", "/etc/pki"];
        let prune: String = whole.iter().map(|path| format!(" -path '{path}/*' -prune -o")).collect();
        let walk = wrap.sh(&format!("find /{prune} -print")).success();
        let found: BTreeSet<&str> = walk.lines().collect();
        let (work, place) = (wrap.work(), wrap.place.path());
        let mut expected: BTreeSet<&str> = MADE.into_iter().collect();
        expected.extend(OF_THE_HOST.iter().filter(|path| Path::new(path).symlink_metadata().is_ok()));
        expected.extend([place.to_str().unwrap(), work.to_str().unwrap()]);
        let surplus: Vec<&&str> = found.difference(&expected).collect();
        let missing: Vec<&&str> = expected.difference(&found).collect();
        assert!(surplus.is_empty() && missing.is_empty(), "surplus {surplus:?}, missing {missing:?}");
    }

    /// KC-11: what the host says of its users, its machine and its name is not there.
    fn the_hosts_identity_is_not_there(caller) {
        let wrap = Wrap::new(caller);
        let script = "cat /etc/machine-id; hostname; cut -d: -f1 /etc/passwd | xargs; ls -A /home/agent /run /tmp; \
            for path in /root /sys /boot /opt /srv /mnt /media /work /etc/shadow /etc/hostid /var/lib /var/log /home/[!a]*; \
            do [ -e $path ] && echo $path; done; exit 0";
        let said = wrap.sh(script).success();
        let expected = format!("{}\nsaggar\nroot agent nobody\n/home/agent:\n\n/run:\n\n/tmp:\n", "0".repeat(32));
        assert_eq!(said, expected);
    }

    fn only_the_workspace_and_memory_are_written(caller) {
        let wrap = Wrap::new(caller);
        // A name that the host's own /tmp surely lacks.
        let name = format!("saggar-wrote-{}", std::process::id());
        let script = "for at in / /usr /usr/bin /etc /etc/ssl /dev /var /var/tmp /home /proc /bin /usr/local; \
            do touch $at/x 2>&- && echo wrote $at; done; \
            for file in /etc/passwd /etc/hosts /etc/ld.so.cache /usr/bin/env; do (true >>$file) 2>&- && echo wrote $file; done; \
            set -e; for at in . /tmp /run /home/agent /dev/shm; do touch $at/x; done; echo done"
            .replace("$at/x", &format!("$at/{name}"));
        assert_eq!(wrap.sh(&script).success(), "done\n");
        assert!(wrap.work().join(&name).exists(), "the workspace is the host's own");
        assert!(!Path::new("/tmp").join(&name).exists() && !Path::new("/run").join(&name).exists(), "the others are not");
    }

    /// CVE-2025-31133, CVE-2019-16884: what leaks in /proc is covered by what it should be covered by.
    fn leaking_files_of_proc_are_masked(caller) {
        let wrap = Wrap::new(caller);
        let script = "for name in kcore keys kmsg timer_list sched_debug latency_stats interrupts kallsyms; \
            do [ -e /proc/$name ] || continue; [ $(stat -c %t:%T /proc/$name) = 1:3 ] || echo $name is not null; \
            [ -z \"$(cat /proc/$name)\" ] || echo $name says; done; \
            for name in scsi acpi asound; do [ -z \"$(ls -A /proc/$name 2>&-)\" ] || echo $name holds; done; \
            for file in sys/kernel/core_pattern sys/kernel/hostname sys/vm/drop_caches sys/net/ipv4/ip_forward sys/kernel/modprobe \
                sys/kernel/ns_last_pid sys/fs/binfmt_misc/register irq/default_smp_affinity sysrq-trigger; \
            do [ -e /proc/$file ] && (true >>/proc/$file) 2>&- && echo wrote $file; done; exit 0";
        assert_eq!(wrap.sh(script).success(), "");
    }

    fn only_harmless_devices_are_there(caller) {
        let probe = probe!();
        let wrap = Wrap::new(caller);
        let devices = wrap.sh("cd /dev; for it in * pts/*; do [ -L $it ] || [ -d $it ] || stat -c '%n %F %t:%T' $it; done").success();
        // hexadecimal; the terminals' multiplexer is the sandbox's own
        let expected = ["full 1:7", "null 1:3", "random 1:8", "tty 5:0", "urandom 1:9", "zero 1:5", "pts/ptmx 5:2"];
        let devices = devices.replace("character special file ", "");
        assert_eq!(devices.lines().collect::<Vec<_>>(), expected);
        probe::expect_all(&wrap, probe, "EPERM", &["mknod_device", "mknod_block"]);
        wrap.sh("set -e; echo x >/dev/null; head -c1 /dev/zero >/dev/null; head -c1 /dev/urandom >/dev/null; ! echo x 2>&- >/dev/full").success();
        // A device node in the workspace is dead: nodev.
        if caller.is_root() {
            nix::sys::stat::mknod(&wrap.work().join("null"), nix::sys::stat::SFlag::S_IFCHR,
                nix::sys::stat::Mode::from_bits_truncate(0o666), nix::sys::stat::makedev(1, 3)).unwrap();
            assert_ne!(wrap.sh("echo x > null").code(), 0);
        }
    }

    /// CVE-2022-0492, CVE-2023-25809: no cgroup file system, no /sys, and no mount of the host comes later.
    fn no_mount_is_shared_with_the_host_and_none_is_a_control_file_system(caller) {
        let wrap = Wrap::new(caller);
        let mounts = wrap.sh("cat /proc/self/mountinfo").success();
        for mount in mounts.lines() {
            let (place, kind) = mount.split_once(" - ").unwrap();
            assert!(!place.contains("shared:") && !place.contains("master:"), "{mount}");
            let kind = kind.split(' ').next().unwrap();
            let control = ["cgroup", "cgroup2", "sysfs", "securityfs", "debugfs", "tracefs", "bpf", "devtmpfs", "configfs"];
            // The devices come from the host's devtmpfs, one file each.
            let one_device = kind == "devtmpfs" && place.split(' ').nth(3).is_some_and(|root| root != "/");
            assert!(one_device || !control.contains(&kind), "{mount}");
        }
    }
}
