//! What mounts of a container do to those of the host, and what those allow it.

use std::ffi::{CStr, CString};
use std::fs;
use std::path::{Path, PathBuf};

use saggar::spec::container::{ContainerMount, ContainerMountKind, IdExtent, IdMaps, Namespace};

use super::Caller;
use super::bundle::{Bundle, bind};

fn mountinfo() -> String {
    fs::read_to_string("/proc/self/mountinfo").unwrap()
}

/// What mountinfo says of a propagation.
type Tags = fn(&str) -> bool;

/// mount(2).
fn mount(target: &Path, kind: &CStr, flags: u64) {
    let target = CString::new(target.to_str().unwrap()).unwrap();
    // SAFETY: C strings, and no data.
    let done =
        unsafe { libc::mount(c"none".as_ptr(), target.as_ptr(), kind.as_ptr(), flags, std::ptr::null()) };
    assert_eq!(done, 0, "{target:?}: {}", std::io::Error::last_os_error());
}

/// A tmpfs of this process alone, below the bundle, which cannot be removed before it is gone.
struct Host(PathBuf);

impl std::ops::Deref for Host {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // A mount that came from a container lies over ours; the directory stays while one of them is there.
        while nix::mount::umount2(&self.0, nix::mount::MntFlags::MNT_DETACH).is_ok() {}
    }
}

fn of_the_host(bundle: &Bundle, flags: u64) -> Host {
    let host = bundle.dir.path().join("host");
    fs::create_dir(&host).unwrap();
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
    mount(Path::new("/"), c"", libc::MS_PRIVATE | libc::MS_REC);
    mount(&host, c"tmpfs", flags);
    Host(host)
}

/// The fields of a line of mountinfo between its options and its file system.
fn propagation<'a>(table: &'a str, at: &str) -> &'a str {
    let line = table.lines().rfind(|line| line.split(' ').nth(4) == Some(at));
    let line = line.unwrap_or_else(|| panic!("{at}: {table}"));
    line.split_once(" - ").unwrap().0.splitn(7, ' ').nth(6).unwrap_or_default()
}

/// Who binds with `rshared` wants what the container mounts there on the host; the default is to receive only.
pub(crate) fn reach(caller: Caller) {
    for (flag, reaches) in [(libc::MS_SHARED, true), (libc::MS_SLAVE, false)] {
        let mut bundle = Bundle::new(caller, "mount -t tmpfs seen /data && echo mounted");
        let host = of_the_host(&bundle, 0);
        mount(&host, c"", libc::MS_SHARED);
        let seen = || {
            let table = mountinfo();
            table
                .lines()
                .filter(|line| line.contains(host.to_str().unwrap()) && line.contains("seen"))
                .count()
        };
        bundle.container.root.propagation = Some(flag | libc::MS_REC);
        let data = bind(&host, "/data", 0);
        bundle.container.mounts.push(ContainerMount { propagation: vec![flag | libc::MS_REC], ..data });
        assert_eq!(bundle.said(), "mounted\n");
        assert_eq!(seen() > 0, reaches, "{flag:#x}");
    }
}

/// `linux.rootfsPropagation` (config-linux.md, Rootfs Mount Propagation): each of its words is what the root has in
/// the end, and none of them, nor any mount of the container, is to be seen on the host, whatever its own mounts are.
pub(crate) fn root_propagation(caller: Caller) {
    let words: [(u64, Tags); 4] = [
        (libc::MS_SHARED, |tags| tags.contains("shared:")),
        (libc::MS_SLAVE, |tags| !tags.contains("shared:") && !tags.contains("unbindable")),
        (libc::MS_PRIVATE, str::is_empty),
        (libc::MS_UNBINDABLE, |tags| tags == "unbindable"),
    ];
    for host_is in [libc::MS_SHARED, libc::MS_PRIVATE, libc::MS_UNBINDABLE] {
        if caller == Caller::Ordinary && host_is != libc::MS_PRIVATE {
            continue;
        }
        for ((word, has), recursive) in words.into_iter().flat_map(|word| [(word, 0), (word, libc::MS_REC)]) {
            let mut bundle = Bundle::new(caller, "mount -t tmpfs inside /tmp && cat /proc/self/mountinfo");
            let host = (caller == Caller::Root).then(|| of_the_host(&bundle, 0));
            if let Some(host) = &host {
                let root = host.join("rootfs");
                fs::create_dir(&root).unwrap();
                for entry in fs::read_dir(bundle.root()).unwrap() {
                    let entry = entry.unwrap();
                    let to = root.join(entry.file_name());
                    match fs::read_link(entry.path()) {
                        Ok(target) => std::os::unix::fs::symlink(target, to).unwrap(),
                        Err(_) => fs::create_dir(to).unwrap(),
                    }
                }
                // Mounts that every path to the root goes through, and one below it.
                fs::create_dir(root.join("below")).unwrap();
                mount(&root.join("below"), c"tmpfs", 0);
                mount(Path::new("/"), c"", host_is | libc::MS_REC);
                bundle.container.root.path = root;
            }
            bundle.container.root.propagation = Some(word | recursive);
            let before = mountinfo();
            let said = bundle.said();
            assert!(has(propagation(&said, "/")), "{word:#x} {recursive:#x} on {host_is:#x}: {said}");
            if caller == Caller::Root && recursive != 0 {
                assert!(has(propagation(&said, "/below")), "{word:#x} on {host_is:#x}: {said}");
            }
            assert_eq!(mountinfo(), before, "{word:#x} {recursive:#x} on {host_is:#x}");
        }
    }
}

/// `unbindable` and `runbindable` of a mount: nothing of it is bound again.
pub(crate) fn unbindable(caller: Caller) {
    let script =
        "cat /proc/self/mountinfo; mkdir -p /tmp/to && mount --bind /data /tmp/to 2>&1 || echo refused";
    for recursive in [0, libc::MS_REC] {
        let mut bundle = Bundle::new(caller, script);
        let source = bundle.dir.path().join("data");
        fs::create_dir(&source).unwrap();
        let propagation_flags = vec![libc::MS_UNBINDABLE | recursive];
        let data = bind(&source, "/data", 0);
        bundle.container.mounts.push(ContainerMount { propagation: propagation_flags, ..data });
        let before = mountinfo();
        let said = bundle.said();
        assert_eq!(propagation(said.split("mount:").next().unwrap(), "/data"), "unbindable", "{said}");
        assert!(said.ends_with("refused\n"), "{said}");
        assert_eq!(mountinfo(), before);
    }
}

/// A user namespace may not clear what the host has set, and that is no reason to refuse what a remount can have.
pub(crate) fn locked(caller: Caller) {
    let mut bundle = Bundle::new(caller, "cat /proc/self/mountinfo");
    let host = of_the_host(&bundle, libc::MS_NOSUID | libc::MS_NODEV);
    let map = vec![IdExtent { inside: 0, outside: 1 << 24, count: 65536 }];
    bundle.container.id_maps = Some(IdMaps { uid: map.clone(), gid: map });
    bundle.container.namespaces.new.push(Namespace::User);
    for path in ["", "tmp", "etc"].map(|name| bundle.root().join(name)) {
        std::os::unix::fs::chown(path, Some(1 << 24), Some(1 << 24)).unwrap();
    }
    bundle.container.mounts.push(bind(&host, "/data", 0));
    let remount =
        |set, clear| ContainerMount { kind: ContainerMountKind::Remount, clear, ..bind(&host, "/data", set) };
    bundle.container.mounts.push(remount(libc::MOUNT_ATTR_RDONLY, 0));
    let said = bundle.said();
    let line = said.lines().find(|line| line.split(' ').nth(4) == Some("/data")).unwrap();
    assert_eq!(line.split(' ').nth(5), Some("ro,nosuid,nodev,relatime"));
    // What is asked for by name is not passed over.
    bundle.container.mounts.pop();
    bundle.container.mounts.push(remount(0, libc::MOUNT_ATTR_NOSUID));
    let error = bundle.create().unwrap_err();
    assert!(error.to_string().contains("operation not permitted"), "{error}");
}
