//! Namespaces and ids.

use std::fs;
use std::os::fd::AsFd;

use saggar::spec::container::{IdExtent, IdMaps, Namespace};

use super::Caller;
use super::bundle::{Bundle, Output, wait};

const KINDS: [&str; 7] = ["mnt", "pid", "net", "ipc", "uts", "cgroup", "user"];

fn namespace(pid: &str, kind: &str) -> String {
    fs::read_link(format!("/proc/{pid}/ns/{kind}")).unwrap().to_string_lossy().into_owned()
}

pub(crate) fn own(caller: Caller) {
    let bundle =
        Bundle::new(caller, "hostname; echo $$; readlink /proc/self/ns/*; cat /proc/net/dev | tail -n +3");
    let said = bundle.said();
    let mut lines = said.lines();
    assert_eq!((lines.next(), lines.next()), (Some("inside"), Some("1")));
    for kind in KINDS {
        let ours = namespace("self", kind);
        let inherited = kind == "user" && caller == Caller::Root;
        assert_eq!(said.contains(&ours), inherited, "{kind}: {said}");
    }
    assert!(said.trim_end().lines().last().unwrap().trim().starts_with("lo:"), "{said}");
}

pub(crate) fn mapped(caller: Caller) {
    let script =
        "id -u; cat /proc/self/uid_map /proc/self/gid_map; stat -c %u /secret/file /tmp; touch /tmp/made";
    let mut bundle = Bundle::new(caller, script);
    let map = vec![IdExtent { inside: 0, outside: 1 << 24, count: 65536 }];
    bundle.container.id_maps = Some(IdMaps { uid: map.clone(), gid: map });
    bundle.container.namespaces.new.push(Namespace::User);
    // Only we can go there.
    let closed = bundle.dir.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    fs::create_dir(closed.join("secret")).unwrap();
    fs::write(closed.join("secret/file"), "").unwrap();
    let root = closed.join("rootfs");
    fs::rename(bundle.root(), &root).unwrap();
    for path in [root.clone(), root.join("tmp"), root.join("etc")] {
        std::os::unix::fs::chown(path, Some(1 << 24), Some(1 << 24)).unwrap();
    }
    bundle.container.root.path = root.clone();
    bundle.container.mounts.push(super::bundle::bind(&closed.join("secret"), "/secret", 0));
    let said = bundle.said();
    let words: Vec<_> = said.split_whitespace().collect();
    assert_eq!(words, ["0", "0", "16777216", "65536", "0", "16777216", "65536", "65534", "0"]);
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&fs::metadata(root.join("tmp/made")).unwrap()), 1 << 24);
}

pub(crate) fn joined(caller: Caller) {
    let first = Bundle::new(caller, "read word < /tmp/gate");
    let gate = first.root().join("tmp/gate");
    nix::unistd::mkfifo(&gate, nix::sys::stat::Mode::from_bits_truncate(0o666)).unwrap();
    let init = first.create().unwrap();
    first.start(&init).unwrap();

    let mut second = Bundle::new(caller, "echo $$; readlink /proc/self/ns/*; ls /proc | grep -c '^[0-9]'");
    let names = &mut second.container.namespaces;
    let shared = [Namespace::Pid, Namespace::Network, Namespace::Ipc, Namespace::Uts, Namespace::User];
    let had: Vec<_> = shared.into_iter().filter(|kind| names.new.contains(kind)).collect();
    names.new.retain(|kind| !shared.contains(kind));
    let path = |kind: &Namespace| format!("/proc/{}/ns/{}", init.pid, kind.proc_name()).into();
    names.joined = had.iter().map(|kind| (*kind, path(kind))).collect();
    second.container.id_maps = None;
    second.container.hostname = None;
    let said = second.said();
    assert_ne!(said.lines().next(), Some("1"), "{said}");
    for kind in &had {
        assert!(said.contains(&namespace(&init.pid.to_string(), kind.proc_name())), "{kind:?}: {said}");
    }
    assert!(!said.contains(&namespace(&init.pid.to_string(), "mnt")));
    fs::write(gate, "\n").unwrap();
    wait(&init);
}

pub(crate) fn wrong_kind(caller: Caller) {
    let mut bundle = Bundle::new(caller, "true");
    bundle.container.namespaces.new.retain(|kind| *kind != Namespace::Network);
    for (path, says) in [
        ("/proc/self/ns/uts", "join the net namespace /proc/self/ns/uts: it is a uts namespace"),
        ("/dev/null", "join the net namespace /dev/null: it is no namespace"),
        ("/nowhere", "join the net namespace /nowhere: no such file or directory"),
    ] {
        bundle.container.namespaces.joined = [(Namespace::Network, path.into())].into();
        assert_eq!(bundle.create().unwrap_err().to_string(), says);
    }
}

pub(crate) fn clocks(caller: Caller) {
    let mut bundle = Bundle::new(caller, "cat /proc/self/timens_offsets; cut -d. -f1 /proc/uptime");
    bundle.container.namespaces.new.push(Namespace::Time);
    bundle.container.time_offsets.boottime = Some((1_000_000_000, 5));
    bundle.container.time_offsets.monotonic = Some((77, 0));
    let said = bundle.said();
    let words: Vec<_> = said.split_whitespace().collect();
    assert_eq!(words[..6], ["monotonic", "77", "0", "boottime", "1000000000", "5"]);
    assert!(words[6].parse::<u64>().unwrap() > 1_000_000_000, "{said}");
}

/// A pod whose first container has a user namespace: those that join it have clocks of their own.
pub(crate) fn joined_clocks(caller: Caller) {
    let mut first = Bundle::new(caller, "read word < /tmp/gate");
    if caller == Caller::Root {
        let own = vec![IdExtent { inside: 0, outside: 0, count: 1 << 16 }];
        first.container.id_maps = Some(IdMaps { uid: own.clone(), gid: own });
        first.container.namespaces.new.push(Namespace::User);
    }
    let gate = first.root().join("tmp/gate");
    nix::unistd::mkfifo(&gate, nix::sys::stat::Mode::from_bits_truncate(0o666)).unwrap();
    let init = first.create().unwrap();
    first.start(&init).unwrap();

    let mut second = Bundle::new(caller, "cat /proc/self/timens_offsets; readlink /proc/self/ns/user");
    second.container.namespaces.new.retain(|kind| *kind != Namespace::User);
    second.container.namespaces.new.push(Namespace::Time);
    let user = format!("/proc/{}/ns/user", init.pid);
    second.container.namespaces.joined = [(Namespace::User, user.into())].into();
    second.container.id_maps = None;
    second.container.time_offsets.monotonic = Some((7, 8));
    second.container.time_offsets.boottime = Some((1_000_000_000, 0));
    let said = second.said();
    let words: Vec<_> = said.split_whitespace().collect();
    assert_eq!(words[..6], ["monotonic", "7", "8", "boottime", "1000000000", "0"], "{said}");
    assert_eq!(words[6], namespace(&init.pid.to_string(), "user"));
    // An offset before the zero of the clock.
    second.container.time_offsets.boottime = Some((-1_000_000_000, 0));
    let error = second.create().unwrap_err().to_string();
    assert!(error.starts_with("linux.timeOffsets: "), "{error}");
    fs::write(gate, "\n").unwrap();
    wait(&init);
}

pub(crate) fn no_group_map(caller: Caller) {
    let mut bundle = Bundle::new(caller, "id -u; cat /proc/self/gid_map | wc -l");
    let uid = vec![IdExtent { inside: 0, outside: nix::unistd::geteuid().as_raw(), count: 1 }];
    bundle.container.id_maps = Some(IdMaps { uid, gid: Vec::new() });
    // The kernel makes no file for a group that is not mapped, and no file system with one in it.
    bundle
        .container
        .mounts
        .retain(|mount| mount.destination.ends_with("proc") || mount.destination.ends_with("usr"));
    bundle.container.devices.clear();
    bundle.container.links.clear();
    fs::create_dir(bundle.root().join("proc")).unwrap();
    fs::create_dir(bundle.root().join("dev")).unwrap();
    if caller == Caller::Root {
        bundle.container.namespaces.new.push(Namespace::User);
    }
    assert_eq!(bundle.said(), "0\n0\n");
}

pub(crate) fn chroot(caller: Caller) {
    let mut bundle = Bundle::new(caller, "true");
    bundle.container.namespaces.new.retain(|kind| *kind != Namespace::Mount);
    let error = bundle.create().unwrap_err();
    assert!(
        error.to_string().contains("linux.maskedPaths or linux.readonlyPaths needs a mount namespace"),
        "{error}"
    );
    bundle.container.mounts.clear();
    bundle.container.masked_paths.clear();
    bundle.container.read_only_paths.clear();
    // There is no shell in it: whatever runs is found missing, inside.
    let error = bundle.create().unwrap_err();
    assert_eq!(error.to_string(), "exec: \"sh\": executable file not found in $PATH");
    bundle.process().program.argv = vec!["/probe".into()];
    fs::copy("/bin/busybox", bundle.root().join("probe")).ok();
    if bundle.root().join("probe").exists() {
        bundle.process().program.argv = ["/probe", "ls", "/"].map(Into::into).into();
        bundle.process().program.file = Some("/probe".into());
        let output = Output::catch();
        let init = bundle.create().unwrap();
        bundle.start(&init).unwrap();
        let said = output.end();
        let _ = init.pidfd.as_fd();
        wait(&init);
        assert!(!said.contains("home"), "{said}");
    }
}

pub(crate) fn net_devices(caller: Caller) {
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
    let ip = |words: &str| {
        let status = std::process::Command::new("ip").args(words.split(' ')).status().unwrap();
        assert!(status.success(), "ip {words}");
    };
    ip("link add out0 type veth peer name other");
    ip("link set out0 mtu 1400 address 02:00:00:00:00:07 up");
    ip("addr add 10.9.8.7/24 dev out0");
    ip("addr add fd00::7/64 dev out0 nodad");
    let mut bundle = Bundle::new(caller, "ip -o addr show dev in0; ip -o link show dev in0");
    bundle.container.net_devices = [("out0".to_owned(), "in0".to_owned())].into();
    let said = bundle.said();
    for word in ["10.9.8.7/24", "fd00::7/64", "mtu 1400", "02:00:00:00:00:07", ",UP"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    // A name that is taken "MUST generate an error", and a template is filled in.
    ip("link add out1 type veth peer name another");
    bundle.container.net_devices = [("out1".to_owned(), "lo".to_owned())].into();
    let error = bundle.create().unwrap_err().to_string();
    assert!(error.starts_with("linux.netDevices out1 as lo: "), "{error}");
    ip("link show out1");
    bundle.container.net_devices = [("out1".to_owned(), "in%d".to_owned())].into();
    bundle.process().program.argv[2] = "ip -o link show dev in0".into();
    assert!(bundle.said().contains(",UP"));
    bundle.container.net_devices = [("nothere".to_owned(), "in0".to_owned())].into();
    let error = bundle.create().unwrap_err();
    assert_eq!(error.to_string(), "linux.netDevices nothere as in0: No such device");
}
