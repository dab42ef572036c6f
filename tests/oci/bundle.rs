//! Bundles for the tests, and saggar called as orchestrators call it.

use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

use crate::support::caller::Caller;
use crate::support::deadline::Deadline;
use crate::support::place::{Place, copy_program};
use crate::support::process::Watch;

/// A static shell and its kin, for roots of containers (Debian: busybox-static).
const BUSYBOX: &str = "/bin/busybox";

/// A `--root` of its own, a bundle, and the containers made of it, which are deleted when it goes.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) place: Place,
    caller: Caller,
    ids: RefCell<Vec<String>>,
}

/// What a command came to.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Said {
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert!(self.status.success(), "{self:?}");
        self
    }

    /// Fails with `text` somewhere on standard error.
    #[track_caller]
    pub(crate) fn fails(self, text: &str) -> Self {
        assert!(!self.status.success(), "{self:?}");
        assert!(self.stderr.contains(text), "no {text:?} in {self:?}");
        assert!(self.stderr.contains("error"), "{self:?}");
        assert!(!self.stderr.contains("panicked"), "{self:?}");
        self
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Bench {
    /// A place with a bundle whose program is `sleep`.
    pub(crate) fn new(caller: Caller) -> Self {
        assert!(Path::new(BUSYBOX).exists(), "install busybox-static: the containers of these tests run it");
        let place = Place::new(caller);
        let bench = Bench { place, caller, ids: RefCell::default() };
        bench.place.make_dir("oci", 0o700);
        bench.make_bundle("bundle");
        bench.configure(|_| {});
        bench
    }

    fn make_bundle(&self, name: &str) {
        for dir in [
            "",
            "/rootfs",
            "/rootfs/bin",
            "/rootfs/proc",
            "/rootfs/dev",
            "/rootfs/sys",
            "/rootfs/tmp",
            "/rootfs/etc",
        ] {
            self.place.make_dir(&format!("{name}{dir}"), 0o755);
        }
        let bin = self.place.join(name).join("rootfs/bin");
        copy_program(Path::new(BUSYBOX), &bin.join("busybox"));
        for applet in [
            "sh", "sleep", "cat", "true", "false", "echo", "id", "kill", "ls", "env", "tty", "mount", "touch",
        ] {
            symlink("busybox", bin.join(applet)).unwrap();
        }
    }

    pub(crate) fn bundle(&self) -> PathBuf {
        self.place.join("bundle")
    }

    /// Writes config.json: the usual one, changed by `change`.
    pub(crate) fn configure(&self, change: impl FnOnce(&mut Value)) {
        let mut config = self.usual();
        change(&mut config);
        self.write_config(config.to_string().as_bytes());
    }

    pub(crate) fn write_config(&self, bytes: &[u8]) {
        let path = self.bundle().join("config.json");
        let _ = fs::remove_file(&path);
        fs::write(&path, bytes).unwrap();
        self.caller.own(&path);
    }

    /// A container that sleeps: every namespace its own, and for an ordinary user a user namespace too.
    pub(crate) fn usual(&self) -> Value {
        let mut config = json!({
            "ociVersion": "1.0.2",
            "process": {
                "terminal": false, "user": { "uid": 0, "gid": 0 }, "cwd": "/",
                "args": ["/bin/sleep", "1000"], "env": ["PATH=/bin"],
            },
            "root": { "path": "rootfs" },
            "mounts": [{ "destination": "/proc", "type": "proc", "source": "proc" }],
            "linux": { "namespaces": [
                { "type": "pid" }, { "type": "mount" }, { "type": "ipc" }, { "type": "uts" }, { "type": "network" },
            ] },
        });
        if !self.caller.is_root() {
            let linux = &mut config["linux"];
            linux["namespaces"].as_array_mut().unwrap().push(json!({ "type": "user" }));
            let id = self.caller.uid().as_raw();
            linux["uidMappings"] = json!([{ "containerID": 0, "hostID": id, "size": 1 }]);
            linux["gidMappings"] = json!([{ "containerID": 0, "hostID": id, "size": 1 }]);
        }
        config
    }

    /// Gives a path to the caller.
    pub(crate) fn give(&self, path: &Path) {
        self.caller.own(path);
    }

    /// The program of the bundle.
    pub(crate) fn program(&self, args: &[&str]) {
        self.configure(|config| config["process"]["args"] = json!(args));
    }

    /// An id that no other test has.
    pub(crate) fn id(&self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let id = format!("t{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        self.ids.borrow_mut().push(id.clone());
        id
    }

    /// Where the state of a container is.
    pub(crate) fn state_dir(&self, id: &str) -> PathBuf {
        self.place.join("oci").join(id)
    }

    /// `saggar --root … ARGS`.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.place.saggar();
        command.arg("--root").arg(self.place.join("oci")).args(args).stdin(Stdio::null());
        command
    }

    /// The same after `prelude` in a shell: a umask, limits, CPUs that saggar is left with.
    pub(crate) fn command_after(&self, prelude: &str, args: &[&str]) -> Command {
        let saggar = self.place.reachable(crate::support::binary::saggar());
        let mut command = self.place.command(Path::new("/bin/sh"));
        command.arg("-c").arg(format!("{prelude}; exec \"$0\" \"$@\"")).arg(saggar);
        command.arg("--root").arg(self.place.join("oci")).args(args).stdin(Stdio::null());
        command
    }

    /// The same with words that may not be UTF-8 or hold anything.
    pub(crate) fn say(&self, args: &[&str]) -> Said {
        self.finish(self.command(args))
    }

    /// Runs a command to its end. Its streams are files: a container keeps them open beyond it.
    pub(crate) fn finish(&self, mut command: Command) -> Said {
        let file = |name| tempfile::Builder::new().prefix(name).tempfile_in(self.place.path()).unwrap();
        let (out, err) = (file("out-"), file("err-"));
        command.stdout(out.reopen().unwrap()).stderr(err.reopen().unwrap());
        let child = command.spawn().unwrap();
        let status = end_of(child, &format!("{command:?}"));
        let text = |file: &tempfile::NamedTempFile| {
            String::from_utf8_lossy(&fs::read(file.path()).unwrap()).into_owned()
        };
        Said { status, stdout: text(&out), stderr: text(&err) }
    }

    /// Makes a container of the bundle.
    pub(crate) fn create(&self, id: &str) -> Said {
        self.say(&["create", "--bundle", &self.bundle().to_string_lossy(), id])
    }

    /// Makes a container and starts it.
    pub(crate) fn start(&self) -> String {
        let id = self.id();
        self.create(&id).ok();
        self.say(&["start", &id]).ok();
        id
    }

    /// `run` in the foreground.
    pub(crate) fn run(&self, id: &str) -> Said {
        self.say(&["run", "--bundle", &self.bundle().to_string_lossy(), id])
    }

    pub(crate) fn state(&self, id: &str) -> Value {
        self.say(&["state", id]).ok().json()
    }

    #[track_caller]
    pub(crate) fn status_is(&self, id: &str, status: &str) {
        assert_eq!(self.state(id)["status"], status);
    }

    /// Whether a container of this id has a cgroup of its own, as all of root and those of a user with a subtree have.
    pub(crate) fn has_cgroup(&self, id: &str) -> bool {
        fs::read_to_string(format!("/proc/{}/cgroup", self.pid(id))).unwrap().contains(id)
    }

    pub(crate) fn pid(&self, id: &str) -> u32 {
        u32::try_from(self.state(id)["pid"].as_u64().unwrap()).unwrap()
    }

    /// Waits until the first process of a container has ended.
    pub(crate) fn wait_stopped(&self, id: &str) {
        if let Some(watch) = Watch::of(self.pid(id)) {
            watch.wait_gone("a container's first process");
        }
    }

    /// Nothing of the container is there: no directory, no cgroup.
    #[track_caller]
    pub(crate) fn is_clean(&self, id: &str) {
        assert!(!self.state_dir(id).exists(), "the state of {id} is left");
        let left = cgroups_named(id);
        assert!(left.is_empty(), "cgroups are left: {left:?}");
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for id in self.ids.take() {
            let said = self.say(&["delete", "--force", &id]);
            if !std::thread::panicking() {
                assert!(said.status.success(), "{said:?}");
                self.is_clean(&id);
            }
        }
    }
}

/// Waits for a child, and kills it when it takes too long.
pub(crate) fn end_of(mut child: Child, what: &str) -> ExitStatus {
    let watch = Watch::of(child.id()).expect("an unreaped child has a pidfd");
    if !watch.is_gone_by(Deadline::usual()) {
        let _ = child.kill();
        let _ = child.wait();
        panic!("{what} does not end");
    }
    child.wait().unwrap()
}

/// Directories of cgroup hierarchies whose name has the id in it.
pub(crate) fn cgroups_named(id: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut rest = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(dir) = rest.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                // t1-5 is not t1-59.
                let name = entry.file_name().to_string_lossy().into_owned();
                if name.split(id).skip(1).any(|after| !after.starts_with(|c: char| c.is_ascii_digit())) {
                    found.push(entry.path());
                }
                rest.push(entry.path());
            }
        }
    }
    found
}
