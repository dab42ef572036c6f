//! KC-05, DECISIONS 29: without project quotas a named limit of root's agents holds by a file system in a file of the
//! session's own. It lasts with the session, and no mount and no loop device stay.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::wrapped::{Ended, Wrap};
use crate::support::bridge_client::BridgeClient;
use crate::support::caller::Caller;
use crate::support::deadline::Deadline;
use crate::support::process::Process;

const LIMITS: [&str; 4] = ["--disk", "8M", "--inodes", "300"];

/// A place of root's whose sessions are where there are no project quotas.
struct Images {
    wrap: Wrap,
    /// Goes before the directory that it is mounted at.
    mounted: Option<Ext4>,
    state: tempfile::TempDir,
}

/// A file system without project quotas, mounted until it is dropped.
struct Ext4(PathBuf);

impl Ext4 {
    fn at(place: &Path, file: &Path) -> Self {
        fs::File::create(file).unwrap().set_len(256 << 20).unwrap();
        run("mkfs.ext4", &[Path::new("-q"), file]);
        run("mount", &[Path::new("-oloop"), file, place]);
        Ext4(place.to_owned())
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        let _ = nix::mount::umount2(&self.0, nix::mount::MntFlags::MNT_DETACH);
    }
}

/// Runs a program of the host's to its end.
#[track_caller]
fn run(program: &str, args: &[&Path]) {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Images {
    /// `None` where there is nothing to see: project quotas, or no loop devices (and then `explain` says so).
    fn new() -> Result<Self, String> {
        let wrap = Wrap::new(Caller::root()?);
        wrap.place.make_file("work/CLAUDE.md", "# test");
        let state = tempfile::Builder::new().prefix("saggar-").tempdir_in("/var/tmp").unwrap();
        let mut images = Images { wrap, mounted: None, state };
        if images.explained(&LIMITS).1.contains("project quota over") {
            images.mounted =
                Some(Ext4::at(images.state.path(), &images.wrap.place.join("state/without-quotas")));
        }
        let (holds, why) = images.explained(&LIMITS);
        assert_eq!(holds, why.contains("disk.img"), "{why}");
        if holds { Ok(images) } else { Err(why) }
    }

    fn saggar(&self) -> Command {
        let mut command = self.wrap.place.saggar();
        command.env("SAGGAR_STATE_DIR", self.state.path().join("saggar"));
        command
    }

    /// Whether `explain` says that the limit on bytes holds, and by what.
    fn explained(&self, options: &[&str]) -> (bool, String) {
        let output =
            self.saggar().args(["explain", "--json"]).args(options).arg(self.wrap.work()).output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let row =
            report["limits"].as_array().unwrap().iter().find(|row| row["name"] == "disk").unwrap().clone();
        (row["holds"] == true, row["why"].as_str().unwrap().to_owned())
    }

    /// One turn of the demo agent in a session.
    fn turn(&self, session: &str, options: &[&str], command: &str) -> Ended {
        let mut saggar = self.saggar();
        saggar.args(["agent", "--adapter", "demo", "--session", session]).args(options).arg(self.wrap.work());
        saggar.arg(format!("run: {command}"));
        self.wrap.finish(saggar)
    }

    /// `saggar session ...`.
    fn of_session(&self, words: &[&str]) -> Ended {
        let mut saggar = self.saggar();
        saggar.arg("session").args(words);
        self.wrap.finish(saggar)
    }

    fn session(&self, name: &str) -> PathBuf {
        self.state.path().join("saggar/sessions").join(name)
    }

    /// Nothing of the session's is mounted, no device has its file, and the file is sound.
    #[track_caller]
    fn is_at_rest(&self, name: &str) {
        let session = self.session(name);
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(session.to_str().unwrap()), "{mounts}");
        until_no_device_has(&session.join("disk.img"));
        assert_eq!(fs::read_dir(session.join("disk")).unwrap().count(), 0);
        let check = Command::new("e2fsck").arg("-fn").arg(session.join("disk.img")).output().unwrap();
        assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stdout));
    }
}

/// The kernel lets the device go a moment after the last process with the mount has ended.
#[track_caller]
fn until_no_device_has(file: &Path) {
    let deadline = Deadline::usual();
    let has = |device: fs::DirEntry| {
        let backing = fs::read_to_string(device.path().join("loop/backing_file"));
        backing.is_ok_and(|backing| backing.trim_end().ends_with(file.to_str().unwrap()))
    };
    while fs::read_dir("/sys/block").unwrap().flatten().any(has) {
        assert!(!deadline.remaining().is_zero(), "a loop device has {}", file.display());
        deadline.pause();
    }
}

macro_rules! images {
    () => {
        match Images::new() {
            Ok(images) => images,
            Err(why) => skip!("{why}"),
        }
    };
}

/// Workspace and home together, in bytes and in inodes; and the end tells that there was no room.
#[test]
fn an_image_bounds_workspace_and_home_together() {
    let images = images!();
    let fill = "dd if=/dev/zero of=$HOME/half bs=1M count=4; dd if=/dev/zero of=big bs=4096; \
                stat -c 'sizes %s' big $HOME/half; stat -f -c 'free %a' .";
    let ended = images.turn("bytes", &[&LIMITS[..], &["--status-fd", "2"]].concat(), fill);
    let said = ended.stdout.replace("\\n", "\n");
    assert!(said.contains("No space left on device"), "{ended:?}");
    assert!(said.contains("free 0\n"), "it was refused while there was room: {said}");
    let sizes: Vec<u64> = said
        .lines()
        .filter_map(|line| line.rsplit_once("sizes ")?.1.split('"').next()?.parse().ok())
        .collect();
    let all: u64 = sizes.iter().sum();
    assert!(sizes.len() == 2 && all <= 8 << 20 && (8 << 20) - all < 128 << 10, "{said}");
    let exited = ended.stderr.lines().find(|line| line.contains("\"exited\"")).unwrap();
    let exited: Value = serde_json::from_str(exited).unwrap();
    assert_eq!((&exited["reason"], &exited["limit"]), (&"exit".into(), &"disk".into()), "{exited}");
    let limit = ended.stderr.lines().find(|line| line.contains("\"limit\",\"id\"")).unwrap();
    assert!(limit.contains("the disk is full: 8M and 300 inodes (limits.disk, limits.inodes)"), "{limit}");
    images.is_at_rest("bytes");

    let many = "i=0; while echo > n$i; do i=$((i+1)); done; echo files $i";
    let said = images.turn("inodes", &LIMITS, many).stdout;
    let files: u64 =
        said.rsplit_once("files ").unwrap().1.split(['\\', '"']).next().unwrap().parse().unwrap();
    assert!(said.contains("No space left") && (280..=300).contains(&files), "{said}");
    images.is_at_rest("inodes");
}

/// The file may lie where owners cannot be mapped (tmpfs before Linux 6.3): what is in it can be.
#[test]
fn an_image_may_lie_on_any_file_system() {
    let mut images = images!();
    images.mounted = None;
    images.state = tempfile::Builder::new().prefix("saggar-").tempdir_in("/run").unwrap();
    let (holds, why) = images.explained(&LIMITS);
    assert!(holds && why.contains("disk.img"), "{why}");
    let ended = images.turn("memory", &LIMITS, "echo ran > file; cat file");
    assert!(ended.code() == 0 && ended.stdout.contains("ran"), "{ended:?}");
    images.is_at_rest("memory");
}

/// What was written is there when the session goes on; with other limits it does not.
#[test]
fn an_image_lasts_with_its_session() {
    let images = images!();
    let ended = images.turn("s", &LIMITS, "echo work > kept; echo home > $HOME/kept; ln kept hard");
    assert_eq!(ended.code(), 0, "{ended:?}");
    let file = images.session("s").join("disk.img");
    let place = format!("workspace: {}", images.session("s").join("disk/workspace").display());
    assert!(
        ended.stderr.contains(&place) && ended.stderr.contains(file.to_str().unwrap()),
        "{}",
        ended.stderr
    );
    let allocated = std::os::unix::fs::MetadataExt::blocks(&fs::metadata(&file).unwrap()) * 512;
    assert!(allocated < 8 << 20, "nothing but what is in it takes room: {allocated}");
    let again = [&LIMITS[..], &["--resume"]].concat();
    let ended = images.turn("s", &again, "cat kept hard $HOME/kept");
    assert!(ended.stdout.contains("work\\nwork\\nhome"), "{ended:?}");
    for other in [&["--resume"][..], &["--resume", "--disk", "16M", "--inodes", "300"]] {
        let ended = images.turn("s", other, "echo ran");
        ended.refused(&["begun with other limits", "--disk and --inodes of its first run"]);
    }
    images.is_at_rest("s");

    // A session that is on disk as it is stays there.
    assert_eq!(images.turn("plain", &[], "true").code(), 0);
    images.turn("plain", &again, "echo ran").refused(&["cannot hold", "the session was begun without one"]);
    assert!(!images.session("plain").join("disk.img").exists());
}

/// The changes of an overlay are in it too; those that there are stay.
#[test]
fn an_image_takes_the_changes_of_an_overlay() {
    let images = images!();
    let options = [&LIMITS[..], &["--workspace-overlay"]].concat();
    let ended = images.turn("o", &options, "echo new > new; dd if=/dev/zero of=big bs=4096");
    assert!(ended.stdout.contains("No space left on device"), "{ended:?}");
    assert!(ended.stderr.contains("disk/upper/changes"), "{ended:?}");
    assert!(!images.wrap.work().join("new").exists());
    images.is_at_rest("o");
    for command in ["diff", "apply", "discard", "snapshot"] {
        let ended = images.of_session(&[command, "o"]);
        ended.refused(&["disk.img", "mount -o loop"]);
    }
    let ended = images.turn("o", &[&options[..], &["--resume"]].concat(), "cat new; rm big");
    assert!(ended.stdout.contains("new"), "{ended:?}");
}

/// There is no room for a folder that is larger; and no session is left that nobody could go on with.
#[test]
fn a_folder_above_the_size_of_an_image_is_refused() {
    let images = images!();
    images.wrap.place.make_file("work/large", &"x".repeat(9 << 20));
    images.turn("s", &LIMITS, "echo ran").refused(&["No space left", "raise --disk"]);
    assert!(!images.session("s").join("disk.img").exists());
    let ended = images.turn("s", &["--disk", "16M", "--inodes", "300", "--resume"], "stat -c %s large");
    assert!(ended.stdout.contains(&(9 << 20).to_string()), "{ended:?}");
}

/// DECISIONS 11: whoever is killed, the mount and the device go, and the session goes on.
#[test]
fn an_image_outlives_a_killed_supervisor() {
    let images = images!();
    for both in [false, true] {
        let name = if both { "both" } else { "one" };
        let socket = images.wrap.place.join(&format!("run/{name}.sock"));
        let mut command = images.saggar();
        command.args(["agent", "--adapter", "demo", "--session", name, "--ready-fd", "1"]).args(LIMITS);
        command.arg("--bridge-socket").arg(&socket).arg(images.wrap.work());
        let mut process = Process::start(&images.wrap.place, command);
        let _stdout = process.take_ready_stdout();
        let mut client = BridgeClient::connect(&socket);
        client.exec("echo work > kept; sync", 60_000);
        if both {
            process.kill_launcher();
        }
        process.signal(Signal::SIGKILL);
        process.wait();
        drop(client);
        let again = [&LIMITS[..], &["--resume"]].concat();
        let ended = images.turn(name, &again, "cat kept");
        assert!(ended.stdout.contains("work"), "{ended:?}");
        images.is_at_rest(name);
    }
}

/// A session that outlives its creator has one as well, also when it is gone on with; and it goes with the session.
#[test]
fn an_image_is_for_a_session_that_is_created() {
    let images = images!();
    let work = images.wrap.work();
    let create = |name: &'static str| {
        let words = ["create", "--adapter", "demo", "--session", name];
        images.of_session(&[&words[..], &LIMITS, &[work.to_str().unwrap()]].concat())
    };
    let ended = create("s");
    assert_eq!(ended.code(), 0, "{ended:?}");
    let said = images.of_session(&["send", "s", "run: echo kept > kept; dd if=/dev/zero of=big bs=4096"]);
    assert!(said.stdout.contains("No space left on device"), "{said:?}");
    assert_eq!(images.of_session(&["send", "s", "run: rm big"]).code(), 0);
    let shown: Value = serde_json::from_str(&images.of_session(&["show", "--json", "s"]).stdout).unwrap();
    let supervisor = shown["supervisor"]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(supervisor), Signal::SIGKILL).unwrap();
    images.is_at_rest("s");
    let ended = images.of_session(&["resume", "s"]);
    assert_eq!(ended.code(), 0, "{ended:?}");
    let said = images.of_session(&["send", "s", "run: cat kept"]);
    assert!(said.stdout.contains("kept"), "{said:?}");
    assert_eq!(images.of_session(&["end", "--remove", "s"]).code(), 0);
    assert!(!images.session("s").exists());

    // What could not begin leaves nothing.
    images.wrap.place.make_file("work/large", &"x".repeat(9 << 20));
    let ended = create("none");
    ended.refused(&["No space left", "raise --disk"]);
    assert!(!images.session("none").exists());
    until_no_device_has(&images.session("none").join("disk.img"));
}

/// Two devices of one file would ruin it.
#[test]
fn an_image_that_is_mounted_is_refused() {
    let images = images!();
    assert_eq!(images.turn("s", &LIMITS, "true").code(), 0);
    images.is_at_rest("s");
    let (file, place) = (images.session("s").join("disk.img"), images.session("s").join("disk"));
    run("mount", &[Path::new("-oloop"), &file, &place]);
    let ended = images.turn("s", &[&LIMITS[..], &["--resume"]].concat(), "echo ran");
    let there = place.join("workspace/CLAUDE.md").exists();
    run("umount", &[&place]);
    ended.refused(&["/dev/loop", "umount"]);
    assert!(there, "as the run has said");
}
