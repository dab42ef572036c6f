//! A container to begin with, and how one is run to its end.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use saggar::error::Result;
use saggar::launch::container::{
    self as launch, ConsoleTarget, ContainerCreateRequest, ContainerOptions, ContainerRecorder,
    ContainerStartRequest, LaunchedProcess, NoCgroup,
};
use saggar::plan::container::ContainerFilter;
use saggar::spec::ProgramSpec;
use saggar::spec::container::{
    Capabilities, ContainerMount, ContainerMountKind, ContainerSpec, CpuAffinity, DeviceSpec, Hooks,
    IdExtent, IdMaps, Namespace, Namespaces, ProcessSpec, RootFilesystem, TimeOffsets,
};
use tempfile::TempDir;

use super::Caller;

/// A container in a scratch directory.
pub(crate) struct Bundle {
    pub(crate) dir: TempDir,
    pub(crate) container: ContainerSpec,
    pub(crate) options: ContainerOptions,
    pub(crate) filter: Option<ContainerFilter>,
}

/// What is written down of a container here: nothing.
#[derive(Default)]
pub(crate) struct Nothing;

impl ContainerRecorder for Nothing {
    fn init_spawned(&mut self, _: &LaunchedProcess) -> Result<()> {
        Ok(())
    }

    fn init_created(&mut self, _: &LaunchedProcess) -> Result<()> {
        Ok(())
    }

    fn oci_state(&self, status: &str, pid: i32) -> String {
        format!(r#"{{"ociVersion":"1.3.0","id":"test","status":"{status}","pid":{pid},"bundle":"/b"}}"#)
    }
}

pub(crate) fn mount(at: &str, fstype: &str, options: &[(&str, &str)], set: u64) -> ContainerMount {
    let options = options
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (!value.is_empty()).then(|| (*value).to_owned())));
    let kind = ContainerMountKind::Filesystem {
        fstype: fstype.to_owned(),
        source: fstype.to_owned(),
        options: options.collect(),
        superblock: 0,
        copy_up: false,
    };
    ContainerMount::new(at, kind, set)
}

pub(crate) fn bind(source: &Path, at: &str, set: u64) -> ContainerMount {
    ContainerMount::new(at, ContainerMountKind::Bind { source: source.to_owned(), recursive: true }, set)
}

const CLOSED: u64 = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOEXEC;

impl Bundle {
    /// A shell with the host's /usr; in a user namespace when it is not root's.
    pub(crate) fn new(caller: Caller, script: &str) -> Self {
        let dir = tempfile::Builder::new().prefix("saggar-").tempdir_in("/var/tmp").unwrap();
        let root = dir.path().join("rootfs");
        for name in ["usr", "etc", "tmp"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        fs::create_dir(dir.path().join("state")).unwrap();
        for name in ["bin", "lib", "lib64", "sbin"] {
            symlink(format!("usr/{name}"), root.join(name)).unwrap();
        }
        fs::write(root.join("etc/passwd"), "root:x:0:0::/root:/bin/sh\nsome:x:7:7::/home/some:\n").unwrap();
        let mut new = vec![
            Namespace::Mount,
            Namespace::Pid,
            Namespace::Network,
            Namespace::Ipc,
            Namespace::Uts,
            Namespace::Cgroup,
        ];
        let mut ids = None;
        let mut all = 0x1ff_ffff_ffff & !(1 << 24);
        if caller == Caller::Ordinary {
            new.push(Namespace::User);
            let (uid, gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
            let map = |outside| vec![IdExtent { inside: 0, outside, count: 1 }];
            ids = Some(IdMaps { uid: map(uid), gid: map(gid) });
            all |= 1 << 24;
        }
        let devpts: &[_] = &[("newinstance", ""), ("ptmxmode", "0666"), ("mode", "0620")];
        let mounts = vec![
            mount("/proc", "proc", &[], CLOSED),
            mount("/dev", "tmpfs", &[("mode", "755"), ("size", "65536k")], libc::MOUNT_ATTR_NOSUID),
            mount("/dev/pts", "devpts", devpts, libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC),
            mount("/dev/shm", "tmpfs", &[("mode", "1777"), ("size", "65536k")], CLOSED),
            mount("/sys", "sysfs", &[], CLOSED | libc::MOUNT_ATTR_RDONLY),
            bind(Path::new("/usr"), "/usr", libc::MOUNT_ATTR_RDONLY),
        ];
        let device = |name: &str, major, minor| DeviceSpec {
            path: Path::new("/dev").join(name),
            kind: libc::S_IFCHR,
            major,
            minor,
            mode: 0o666,
            uid: 0,
            gid: 0,
        };
        let devices = [
            device("null", 1, 3),
            device("zero", 1, 5),
            device("full", 1, 7),
            device("random", 1, 8),
            device("urandom", 1, 9),
            device("tty", 5, 0),
        ];
        let container = ContainerSpec {
            oci_version: "1.3.0".to_owned(),
            root: RootFilesystem { path: root, read_only: false, propagation: None },
            namespaces: Namespaces { new, joined: Default::default() },
            id_maps: ids,
            time_offsets: TimeOffsets::default(),
            hostname: Some("inside".to_owned()),
            domainname: None,
            mounts,
            devices: devices.into(),
            links: [
                ("/dev/fd", "/proc/self/fd"),
                ("/dev/stdin", "/proc/self/fd/0"),
                ("/dev/stdout", "/proc/self/fd/1"),
                ("/dev/stderr", "/proc/self/fd/2"),
                ("/dev/ptmx", "pts/ptmx"),
            ]
            .map(|(path, target)| (path.into(), target.into()))
            .into(),
            masked_paths: vec![
                "/proc/kcore".into(),
                "/proc/acpi".into(),
                "/sys/firmware".into(),
                "/nope".into(),
            ],
            read_only_paths: vec!["/proc/sys".into(), "/proc/sysrq-trigger".into()],
            sysctl: Default::default(),
            net_devices: Default::default(),
            process: Some(process(script, all)),
            hooks: Hooks::default(),
            seccomp: None,
            cgroups_path: None,
            resources: None,
            intel_rdt: None,
            memory_policy: None,
            mount_label: None,
            annotations: Default::default(),
        };
        Bundle { dir, container, options: ContainerOptions::default(), filter: None }
    }

    pub(crate) fn process(&mut self) -> &mut ProcessSpec {
        self.container.process.as_mut().unwrap()
    }

    pub(crate) fn state_dir(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    pub(crate) fn root(&self) -> &Path {
        &self.container.root.path
    }

    pub(crate) fn create(&self) -> Result<LaunchedProcess> {
        self.create_with(ConsoleTarget::None)
    }

    pub(crate) fn create_with(&self, console: ConsoleTarget<'_>) -> Result<LaunchedProcess> {
        let state_dir = self.state_dir();
        let request = ContainerCreateRequest {
            container: &self.container,
            id: "test",
            bundle: Path::new("/"),
            state_dir: &state_dir,
            filter: self.filter.as_ref(),
            console,
            streams: None,
            options: self.options,
        };
        launch::create(&request, &NoCgroup, &mut Nothing)
    }

    pub(crate) fn start(&self, init: &LaunchedProcess) -> Result<()> {
        let state_dir = self.state_dir();
        let state = Nothing.oci_state("created", init.pid);
        launch::start(&ContainerStartRequest {
            container: &self.container,
            state_dir: &state_dir,
            init: init.pidfd.as_fd(),
            pid: init.pid,
            listener: self.filter.as_ref().and_then(|filter| filter.listener.as_ref()),
            state: &state,
        })
    }

    /// Runs the container to its end: its status and what it said.
    pub(crate) fn run(&self) -> (WaitStatus, String) {
        let output = Output::catch();
        let made = self.create().and_then(|init| self.start(&init).map(|()| init));
        let text = output.end();
        let init = made.unwrap_or_else(|error| panic!("{error}; hint: {:?}; said {text}", error.hint_text()));
        (wait(&init), text)
    }

    /// As [`Bundle::run`], for a container whose program succeeds.
    pub(crate) fn said(&self) -> String {
        let (status, text) = self.run();
        assert!(matches!(status, WaitStatus::Exited(_, 0)), "{status:?}: {text}");
        text
    }
}

/// `sh -c script` with these capabilities.
pub(crate) fn process(script: &str, capabilities: u64) -> ProcessSpec {
    ProcessSpec {
        program: ProgramSpec {
            argv: ["sh", "-c", script].map(Into::into).into(),
            file: None,
            env: vec![("PATH".into(), "/usr/bin:/usr/sbin".into())],
            cwd: "/".into(),
        },
        terminal: false,
        console_size: None,
        uid: 0,
        gid: 0,
        groups: Vec::new(),
        keep_groups: false,
        umask: None,
        capabilities: Capabilities {
            bounding: capabilities,
            effective: capabilities,
            inheritable: 0,
            permitted: capabilities,
            ambient: 0,
        },
        rlimits: Vec::new(),
        no_new_privs: true,
        apparmor_profile: None,
        selinux_label: None,
        oom_score_adj: None,
        io_priority: None,
        scheduler: None,
        cpu_affinity: CpuAffinity::default(),
        personality: None,
    }
}

pub(crate) fn wait(init: &LaunchedProcess) -> WaitStatus {
    waitid(Id::PIDFd(init.pidfd.as_fd()), WaitPidFlag::WEXITED).unwrap()
}

/// Our standard output and error, caught while a container inherits them.
pub(crate) struct Output {
    said: File,
    before: [OwnedFd; 2],
}

impl Output {
    pub(crate) fn catch() -> Self {
        let before = [1, 2].map(|fd| saggar::sys::file::duplicate(fd).unwrap());
        let (said, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap();
        for fd in [1, 2] {
            // SAFETY: our own standard streams.
            unsafe { libc::dup2(write.as_raw_fd(), fd) };
        }
        Output { said: said.into(), before }
    }

    /// Waits until nobody holds the other end.
    pub(crate) fn end(mut self) -> String {
        for (fd, before) in (1..).zip(&self.before) {
            // SAFETY: as above.
            unsafe { libc::dup2(before.as_raw_fd(), fd) };
        }
        let mut text = Vec::new();
        self.said.read_to_end(&mut text).unwrap();
        String::from_utf8_lossy(&text).into_owned()
    }
}
