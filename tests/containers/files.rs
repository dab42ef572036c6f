//! The file tree of a container.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

use saggar::spec::container::{ContainerMount, ContainerMountKind, IdExtent, IdMaps, MountIdMap};

use super::Caller;
use super::bundle::{Bundle, Output, bind, mount, wait};

pub(crate) fn devices(caller: Caller) {
    let script = "cd /dev; for f in null zero full random urandom tty; do stat -c '%n %F %a %t %T' $f; done; \
                  for l in fd stdin stdout stderr ptmx; do readlink $l; done; echo gone > /dev/null && echo wrote";
    let said = Bundle::new(caller, script).said();
    for line in ["null character special file 666 1 3", "tty character special file 666 5 0"] {
        assert!(said.lines().any(|said| said == line), "{line}: {said}");
    }
    let tail: Vec<_> = said.lines().skip(6).collect();
    let links = ["/proc/self/fd", "/proc/self/fd/0", "/proc/self/fd/1", "/proc/self/fd/2", "pts/ptmx"];
    assert_eq!(tail[..5], links);
    assert_eq!(tail[5..], ["wrote"]);
}

pub(crate) fn masked(caller: Caller) {
    let script = "ls -A /proc/acpi | wc -l; wc -c < /etc/secret; ls -A /etc/private | wc -l; \
                  (echo 1 > /proc/sys/kernel/hostname) 2>&1; (echo > /etc/passwd) 2>&1; (echo > /top) 2>&1";
    let mut bundle = Bundle::new(caller, script);
    fs::write(bundle.root().join("etc/secret"), "secret").unwrap();
    fs::create_dir(bundle.root().join("etc/private")).unwrap();
    fs::write(bundle.root().join("etc/private/key"), "secret").unwrap();
    bundle.container.masked_paths.extend(["/etc/secret".into(), "/etc/private".into()]);
    bundle.container.read_only_paths.push("/etc".into());
    bundle.container.root.read_only = true;
    let (_, said) = bundle.run();
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines[..3], ["0", "0", "0"], "{said}");
    assert!(
        lines.len() == 6 && lines[3..].iter().all(|line| line.contains("Read-only file system")),
        "{said}"
    );
}

pub(crate) fn attributes(caller: Caller) {
    let mut bundle = Bundle::new(caller, "cat /proc/self/mountinfo; touch /ro/x 2>&1; cat /sub/file");
    // A user namespace may not change how the host keeps the times of access.
    let (atime, shown) = match caller {
        Caller::Root => (libc::MOUNT_ATTR_NOATIME, "noatime"),
        Caller::Ordinary => (0, "relatime"),
    };
    let ro = ContainerMount {
        set_recursive: libc::MOUNT_ATTR_NOEXEC,
        set: libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | atime,
        ..bind(&bundle.root().join("tmp"), "/ro", 0)
    };
    bundle.container.mounts.push(ro);
    bundle.container.mounts.push(mount("/sealed", "tmpfs", &[("size", "4096")], libc::MOUNT_ATTR_RDONLY));
    fs::write(bundle.dir.path().join("file"), "content").unwrap();
    let file = bundle.dir.path().join("file");
    bundle.container.mounts.push(bind(&file, "/sub/file", 0));
    let change = ContainerMount {
        kind: ContainerMountKind::ChangeAttributes,
        ..bind(&file, "/sub/file", libc::MOUNT_ATTR_RDONLY)
    };
    bundle.container.mounts.push(change);
    let (_, said) = bundle.run();
    let options = |at: &str| {
        let line = said.lines().find(|line| line.split(' ').nth(4) == Some(at));
        line.unwrap_or_else(|| panic!("{at}: {said}")).split(' ').nth(5).unwrap().to_owned()
    };
    assert_eq!(options("/ro"), format!("ro,nosuid,noexec,{shown}"));
    assert_eq!(options("/sealed"), "ro,relatime");
    assert_eq!(options("/sub/file"), "ro,relatime");
    assert!(said.ends_with("content") && said.contains("Read-only file system"), "{said}");
}

pub(crate) fn mount_points(caller: Caller) {
    let mut bundle = Bundle::new(caller, "ls /run/here /escape /a/b/c");
    symlink("/run", bundle.root().join("var")).unwrap();
    symlink("../../../../../../..", bundle.root().join("up")).unwrap();
    for (at, name) in [("/var/here", "one"), ("/up/escape", "two"), ("/a/../a/b/c", "three")] {
        let source = bundle.dir.path().join(name);
        fs::create_dir(&source).unwrap();
        fs::write(source.join(name), "").unwrap();
        bundle.container.mounts.push(bind(&source, at, 0));
    }
    let said = bundle.said();
    assert!(["one", "two", "three"].iter().all(|name| said.contains(name)), "{said}");
    assert!(!Path::new("/escape").exists());
    assert!(bundle.root().join("escape").is_dir() && bundle.root().join("run/here").is_dir());
}

pub(crate) fn copy_up(caller: Caller) {
    let mut bundle = Bundle::new(caller, "cat /data/deep/file; stat -c %a /data; touch /data/new");
    let data = bundle.root().join("data");
    fs::create_dir_all(data.join("deep")).unwrap();
    fs::write(data.join("deep/file"), "copied\n").unwrap();
    fs::set_permissions(&data, fs::Permissions::from_mode(0o751)).unwrap();
    let mut tmpfs = mount("/data", "tmpfs", &[], 0);
    let ContainerMountKind::Filesystem { copy_up, .. } = &mut tmpfs.kind else { unreachable!() };
    *copy_up = true;
    bundle.container.mounts.push(tmpfs);
    assert_eq!(bundle.said(), "copied\n751\n");
    assert!(!data.join("new").exists());
}

pub(crate) fn idmapped(caller: Caller) {
    let mut bundle = Bundle::new(caller, "stat -c '%u %g' /data/file; touch /data/new");
    let data = bundle.dir.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::write(data.join("file"), "").unwrap();
    chown(data.join("file"), Some(5), Some(6)).unwrap();
    let map = |outside| vec![IdExtent { inside: 0, outside, count: 1000 }];
    let maps = IdMaps { uid: map(7000), gid: map(8000) };
    let idmap = Some(MountIdMap { maps: Some(maps), recursive: false });
    bundle.container.mounts.push(ContainerMount { idmap, ..bind(&data, "/data", 0) });
    let (_, said) = bundle.run();
    assert!(said.starts_with("7005 8006\n"), "{said}");
}

pub(crate) fn no_pivot(caller: Caller) {
    let mut bundle = Bundle::new(caller, "ls /; cat /proc/self/mountinfo");
    bundle.options.no_pivot = true;
    let said = bundle.said();
    assert!(said.lines().any(|line| line == "usr") && !said.lines().any(|line| line == "home"), "{said}");
}

pub(crate) fn other_device(caller: Caller) {
    let mut bundle = Bundle::new(caller, "true");
    bundle.container.mounts.retain(|mount| !mount.destination.starts_with("/dev"));
    fs::create_dir(bundle.root().join("dev")).unwrap();
    let null = bundle.root().join("dev/null");
    fs::write(&null, "not a device").unwrap();
    if caller == Caller::Root {
        let error = bundle.create().unwrap_err().to_string();
        assert_eq!(error, "make device /dev/null c 1:3: file exists");
        assert_eq!(fs::read_to_string(&null).unwrap(), "not a device");
        fs::remove_file(&null).unwrap();
    }
    // A link leads nowhere outside (CVE-2026-41579 and its kin).
    let outside = bundle.dir.path().join("outside");
    let _ = fs::remove_file(&null);
    symlink(&outside, &null).unwrap();
    let _ = bundle.create().map(|init| saggar::sys::pidfd::signal(std::os::fd::AsFd::as_fd(&init.pidfd), 9));
    assert!(fs::symlink_metadata(&outside).is_err());
}

/// CVE-2019-16884, CVE-2019-19921, CVE-2023-27561.
pub(crate) fn inside_proc(caller: Caller) {
    let mut bundle = Bundle::new(caller, "true");
    let file = bundle.dir.path().join("file");
    fs::write(&file, "").unwrap();
    for at in ["/proc/self/attr/exec", "/proc/sys/kernel/hostname", "/link/version"] {
        symlink("proc", bundle.root().join("link")).ok();
        bundle.container.mounts.push(bind(&file, at, 0));
        let error = bundle.create().unwrap_err();
        assert!(error.hint_text().unwrap_or_default().contains("inside /proc"), "{at}: {error}");
        bundle.container.mounts.pop();
    }
    bundle.container.mounts.push(bind(&file, "/proc/meminfo", 0));
    bundle.process().program.argv[2] = "wc -c < /proc/meminfo".into();
    assert_eq!(bundle.said(), "0\n");
    bundle.container.mounts.pop();
    // /proc of the image is a link: what is masked below it would be something else.
    fs::remove_dir(bundle.root().join("proc")).unwrap();
    fs::create_dir(bundle.root().join("elsewhere")).unwrap();
    symlink("elsewhere", bundle.root().join("proc")).unwrap();
    let output = Output::catch();
    let error = bundle.create().unwrap_err();
    output.end();
    assert!(
        error.hint_text().unwrap_or_default().contains("must be mounted on ordinary directory"),
        "{error}"
    );
    assert_eq!(fs::metadata(bundle.root().join("elsewhere")).unwrap().nlink(), 2);
    let _ = wait;
}
