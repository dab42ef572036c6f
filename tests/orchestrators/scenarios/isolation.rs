//! Privileges, files and namespaces.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use serde_json::json;

use super::{Background, says, shell, status};
use crate::callers::{Engine, IMAGE, Kind};

pub(super) fn capabilities(engine: &dyn Engine) {
    assert_eq!(status(engine, &["--cap-drop", "ALL"], "CapEff"), "0000000000000000");
    // Bit 6 is CAP_SETGID, bit 13 CAP_NET_RAW.
    let some = ["--cap-drop", "ALL", "--cap-add", "SETGID", "--cap-add", "NET_RAW"];
    for set in ["CapEff", "CapPrm", "CapBnd"] {
        assert_eq!(status(engine, &some, set), "0000000000002040", "{set}");
    }
    assert_eq!(status(engine, &some, "CapAmb"), "0000000000000000");
    let said = shell(engine, &["--cap-drop", "CHOWN"], "touch /x; chown 1:1 /x 2>&1; echo $?");
    assert!(said.ends_with("not permitted\n1"), "{said}");
}

pub(super) fn no_new_privileges(engine: &dyn Engine) {
    assert_eq!(status(engine, &[], "NoNewPrivs"), "0");
    assert_eq!(status(engine, &["--security-opt", "no-new-privileges"], "NoNewPrivs"), "1");
}

pub(super) fn seccomp_profile(engine: &dyn Engine) {
    let profile = json!({"defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86"],
    "syscalls": [
        {"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38},
        {"names": ["sync"], "action": "SCMP_ACT_KILL_PROCESS"},
        {"names": ["chmod"], "action": "SCMP_ACT_ERRNO", "args": [
            {"index": 1, "value": 0o700, "op": "SCMP_CMP_EQ"}]},
    ]});
    let path = engine.dir().join("share/seccomp.json");
    fs::write(&path, profile.to_string()).unwrap();
    let option = format!("seccomp={}", path.display());
    let options = ["--security-opt", option.as_str()];
    let line = "mkdir /x 2>&1; sync; echo $?; chmod 700 /tmp 2>&1; chmod 755 /tmp; echo $?";
    let said = shell(engine, &options, line);
    assert!(said.contains("not implemented"), "{said}");
    assert!(said.contains("\n159\n"), "killed by SIGSYS: {said}");
    assert!(said.contains("not permitted"), "{said}");
    assert!(said.ends_with("\n0"), "{said}");
}

pub(super) fn seccomp_default(engine: &dyn Engine) {
    assert_eq!(status(engine, &[], "Seccomp"), "2");
    let said = shell(
        engine,
        &["--cap-add", "SYS_ADMIN"],
        "unshare --user true 2>&1; echo $?; date >/dev/null; ls / >/dev/null; echo $?",
    );
    assert!(said.ends_with("\n0"), "{said}");
    // keyctl and its like are not there even for root.
    let said = shell(engine, &[], "unshare --mount true 2>&1; echo $?");
    assert!(said.contains("not permitted") && said.ends_with("\n1"), "{said}");
}

pub(super) fn seccomp_off(engine: &dyn Engine) {
    assert_eq!(status(engine, &["--security-opt", "seccomp=unconfined"], "Seccomp"), "0");
}

pub(super) fn read_only(engine: &dyn Engine) {
    let line =
        "touch /x 2>&1; touch /dev/shm/x && echo shm; touch /proc/x 2>/dev/null; touch /etc/x 2>&1; echo $?";
    let said = shell(engine, &["--read-only"], line);
    assert_eq!(said.matches("Read-only file system").count(), 2, "{said}");
    assert!(said.contains("shm"), "{said}");
}

pub(super) fn tmpfs(engine: &dyn Engine) {
    let options = ["--read-only", "--tmpfs", "/scratch:rw,size=1m,mode=1777,noexec"];
    let line = "mount | grep ' /scratch '; stat -c %a /scratch; dd if=/dev/zero of=/scratch/x bs=64k count=32 2>&1; stat -c %s /scratch/x";
    let said = shell(engine, &options, line);
    assert!(said.contains("size=1024k") && said.contains("noexec") && said.contains("\n1777\n"), "{said}");
    assert!(said.contains("No space left") && said.ends_with("1048576"), "{said}");
}

pub(super) fn volumes(engine: &dyn Engine) {
    let share = engine.dir().join("share/volume");
    fs::create_dir(&share).unwrap();
    fs::set_permissions(&share, fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(share.join("given"), "from outside\n").unwrap();
    let bind = format!("{}:/given", share.display());
    assert_eq!(
        shell(engine, &["--volume", &bind], "cat /given/given; echo back >/given/made"),
        "from outside"
    );
    assert_eq!(fs::read_to_string(share.join("made")).unwrap(), "back\n");
    let said =
        shell(engine, &["--volume", &format!("{bind}:ro")], "echo no 2>&1 >/given/made; cat /given/made");
    assert!(said.ends_with("back"), "{said}");
    let file = format!("{}/given:/etc/one:ro", share.display());
    assert_eq!(shell(engine, &["--volume", &file], "cat /etc/one"), "from outside");
    // A named one lives on, and starts with what the image has there.
    engine.run(&["volume", "create", "kept"]).exits(0);
    assert_eq!(shell(engine, &["--volume", "kept:/etc"], "echo x >/etc/kept; ls /etc/passwd"), "/etc/passwd");
    assert_eq!(shell(engine, &["--volume", "kept:/elsewhere"], "cat /elsewhere/kept"), "x");
    engine.run(&["volume", "rm", "kept"]).exits(0);
    fs::remove_dir_all(&share).unwrap();
}

pub(super) fn owners(engine: &dyn Engine) {
    // Files made by root inside belong to whoever the caller is.
    let share = engine.dir().join("share");
    let bind = format!("{}:/given", share.display());
    shell(engine, &["--volume", &bind], "echo >/given/owned");
    let made = share.join("owned");
    assert_eq!(fs::metadata(&made).unwrap().uid(), fs::metadata(&share).unwrap().uid());
    fs::remove_file(made).unwrap();
}

pub(super) fn no_network(engine: &dyn Engine) {
    let said = shell(engine, &["--network", "none"], "ls /sys/class/net; ip addr show lo; ip route");
    assert!(said.lines().any(|line| line == "lo"), "{said}");
    assert!(said.contains("LOOPBACK,UP") && !said.contains("eth0") && !said.contains("default"), "{said}");
}

pub(super) fn host_network(engine: &dyn Engine) {
    let host = fs::read_link("/proc/self/ns/net").unwrap();
    let said = says(engine, &["--network", "host"], &["readlink", "/proc/self/ns/net"]);
    assert_eq!(said, host.to_str().unwrap());
}

pub(super) fn host_pids(engine: &dyn Engine) {
    let host = fs::read_link("/proc/self/ns/pid").unwrap();
    assert_eq!(says(engine, &["--pid", "host"], &["readlink", "/proc/self/ns/pid"]), host.to_str().unwrap());
    let me = std::process::id().to_string();
    assert_eq!(
        says(engine, &["--pid", "host"], &["ls", "-d", &format!("/proc/{me}")]),
        format!("/proc/{me}")
    );
}

pub(super) fn pids_of_another_container(engine: &dyn Engine) {
    let first = Background::waiting(engine, &[]);
    let said =
        shell(engine, &["--pid", &format!("container:{}", first.name)], "ps; readlink /proc/self/ns/pid");
    assert!(said.contains("trap 'exit 7' TERM"), "{said}");
    assert!(said.ends_with(&first.exec(&["readlink", "/proc/self/ns/pid"])), "{said}");
}

pub(super) fn network_of_another_container(engine: &dyn Engine) {
    let first = Background::waiting(engine, &["--network", "none"]);
    let said =
        shell(engine, &["--network", &format!("container:{}", first.name)], "readlink /proc/self/ns/net");
    assert_eq!(said, first.exec(&["readlink", "/proc/self/ns/net"]));
}

pub(super) fn devices(engine: &dyn Engine) {
    let said = shell(
        engine,
        &[],
        "ls -1 /dev; echo x >/dev/null; head -c 4 /dev/zero | wc -c; head -c 4 /dev/urandom | wc -c; ls -l /dev/fd /dev/ptmx",
    );
    for name in [
        "fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty",
        "urandom", "zero",
    ] {
        assert!(said.lines().any(|line| line == name), "no {name} in {said}");
    }
    assert!(!said.contains("kmsg") && !said.contains("vda"), "{said}");
    if !engine.is_rootless() {
        // A device of the host by name; and by the cgroup's word no other, even if somebody makes its node.
        let open = |path: &str| format!("(: <{path}) 2>&1 && echo opened");
        let line = format!("ls -l /dev/given; {}", open("/dev/given"));
        let said = shell(engine, &["--device", "/dev/fuse:/dev/given:rm"], &line);
        assert!(said.contains("10, 229") && said.ends_with("opened"), "{said}");
        let line = format!("mknod /tmp/fuse c 10 229; {}; true", open("/tmp/fuse"));
        let said = shell(engine, &["--cap-add", "MKNOD"], &line);
        assert!(said.contains("not permitted") && !said.contains("opened"), "{said}");
    }
}

pub(super) fn sysctl(engine: &dyn Engine) {
    let said =
        shell(engine, &["--sysctl", "kernel.shm_rmid_forced=1"], "cat /proc/sys/kernel/shm_rmid_forced");
    assert_eq!(said, "1");
    let said = shell(
        engine,
        &["--network", "none", "--sysctl", "net.ipv4.ip_unprivileged_port_start=77"],
        "cat /proc/sys/net/ipv4/ip_unprivileged_port_start",
    );
    assert_eq!(said, "77");
}

pub(super) fn covered_paths(engine: &dyn Engine) {
    // /dev/null over files, an empty directory over directories.
    let line = "for path in /proc/kcore /proc/keys /proc/timer_list; do [ ! -e $path ] || wc -c <$path; done; \
                for path in /sys/firmware /proc/scsi; do [ ! -e $path ] || ls $path | wc -l; done";
    let said = shell(engine, &[], line);
    assert!(!said.is_empty() && said.lines().all(|line| line == "0"), "{said}");
    for path in ["/proc/sys/vm/drop_caches", "/proc/irq/x", "/sys/x"] {
        let said = shell(engine, &[], &format!("(echo 1 >{path}) 2>&1; true"));
        assert!(said.contains("Read-only") || said.contains("nonexistent"), "{path}: {said}");
    }
}

pub(super) fn privileged(engine: &dyn Engine) {
    let said = shell(
        engine,
        &["--privileged"],
        "grep -E 'CapEff|Seccomp:' /proc/self/status; mkdir /m; mount -t tmpfs m /m && echo mounted; ls /dev | wc -l",
    );
    assert!(said.contains("Seccomp:\t0") && said.contains("mounted"), "{said}");
}

pub(super) fn shared_memory(engine: &dyn Engine) {
    let said = shell(engine, &["--shm-size", "2m"], "df -k /dev/shm | tail -n 1");
    assert!(said.contains(" 2048 "), "{said}");
    let host = fs::read_link("/proc/self/ns/ipc").unwrap();
    let said = says(engine, &["--ipc", "host"], &["readlink", "/proc/self/ns/ipc"]);
    assert_eq!(said, host.to_str().unwrap());
}

pub(super) fn hostname_of_the_host(engine: &dyn Engine) {
    let host = fs::read_link("/proc/self/ns/uts").unwrap();
    assert_eq!(says(engine, &["--uts", "host"], &["readlink", "/proc/self/ns/uts"]), host.to_str().unwrap());
    // In a namespace of its own it may not be changed either, without the capability.
    engine.run(&["run", "--rm", IMAGE, "hostname", "other"]).exits(1);
}

/// saggar in a container with the options of saggar(1), CONTAINERS. Without the profile, the masks of /proc are in the way.
pub(super) fn sandbox_inside(engine: &dyn Engine) {
    let saggar = engine.dir().join("share/saggar");
    fs::copy(crate::binary::saggar(), &saggar).unwrap();
    fs::set_permissions(&saggar, fs::Permissions::from_mode(0o755)).unwrap();
    let program = format!("{}:/saggar:ro", saggar.display());
    let mut options = vec!["--user", "1000", "--workdir", "/tmp", "--env", "HOME=/tmp", "--volume", &program];
    // What saggar is linked with, and programs for the sandbox: it shows /usr and the links to it.
    for path in ["/usr:/usr:ro", "/lib:/lib:ro", "/lib64:/lib64:ro"] {
        options.extend(["--volume", path]);
    }
    if engine.kind() == Kind::Docker {
        options.extend(["--security-opt", "seccomp=unconfined"]);
    }
    let refused = shell(engine, &options, "mkdir work; cd work; /saggar wrap -- true 2>&1; echo $?");
    assert!(refused.contains("--profile container") && refused.ends_with("\n125"), "{refused}");
    let line = "export SECRET=of-the-container; mkdir work && cd work && /saggar wrap --profile container -- \
        /usr/bin/bash -c 'echo made >made; id -u; cat /proc/self/comm; cat /proc/1/environ; ls /proc/1/root/; \
        echo 1 >/proc/1/oom_score_adj; ls /saggar /etc/not-executable; getent hosts $(hostname) >/dev/null || echo nameless' \
        2>&1; cat made";
    let said = shell(engine, &options, line);
    let lines: Vec<&str> =
        said.lines().filter(|line| !line.starts_with("saggar: no cgroup enforces")).collect();
    assert_eq!(&lines[..2], ["1000", "cat"], "{said}");
    assert_eq!(lines.last(), Some(&"made"), "{said}");
    for denied in
        ["environ: Permission denied", "root/': Permission denied", "oom_score_adj: Read-only file system"]
    {
        assert!(said.contains(denied), "{denied}: {said}");
    }
    assert_eq!(said.matches("No such file").count(), 2, "the files of the container are not inside: {said}");
    assert!(!said.contains("of-the-container") && !said.contains("nameless"), "{said}");
}
