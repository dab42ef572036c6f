//! KC-05 where project quotas are on, as they are on the guest's disk: root's sandboxes are bounded by them.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use nix::sys::statvfs::statvfs;

use crate::in_guest_of;
use crate::support::caller::Caller;
use crate::support::deadline::Deadline;
use crate::support::place::Place;
use crate::support::process::Process;

/// A place of root's on the guest's disk, with an agent's folder of somebody else's as its work tree.
struct Quotas {
    place: Place,
}

/// What a project quota is felt by: the size of the file system, as the kernel tells it of a directory that has one.
const LIMIT: u64 = 8 << 20;

/// Tries everything that would let a file out of its project: how each ended.
const ESCAPE: &str = r#"
import errno, fcntl, os, struct
GET, SET = 0x801c581f, 0x401c5820
def attempt(what, act):
    try:
        act()
        print(what, 'worked')
    except OSError as e: print(what, errno.errorcode[e.errno])
def change(project=None, inherited=True):
    def act():
        for path in ('.', 'file'):
            fd = os.open(path, os.O_RDONLY)
            flags, extent, extents, number, more, pad = struct.unpack('IIIII8s', fcntl.ioctl(fd, GET, bytes(28)))
            if project is not None: number = project
            if not inherited: flags &= ~0x200
            fcntl.ioctl(fd, SET, struct.pack('IIIII8s', flags, extent, extents, number, more, pad))
    return act
open('file', 'w').close()
attempt('project', change(project=0))
attempt('other', change(project=7))
attempt('inherited', change(inherited=False))
try:
    with open('big', 'wb', 0) as file:
        while True: file.write(b'x' * 4096)
except OSError as e: print('full', errno.errorcode[e.errno], os.path.getsize('big'))
"#;

impl Quotas {
    fn new() -> Option<Self> {
        in_guest_of("unified");
        let place = Place::new(Caller::root().ok()?);
        place.make_file("work/CLAUDE.md", "# test");
        place.make_file("work/file", "lower");
        let owner = nix::unistd::Uid::from_raw(4321);
        for name in ["work", "work/file", "work/CLAUDE.md"] {
            nix::unistd::chown(&place.join(name), Some(owner), Some(4321.into())).unwrap();
        }
        Some(Quotas { place })
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.place.saggar().args(arguments).output().unwrap()
    }

    /// One turn of the demo agent in the session `s`; everything that it said.
    fn turn(&self, options: &[&str], command: &str) -> String {
        let work = self.place.work();
        let mut saggar = self.place.saggar();
        saggar.args(["agent", "--adapter", "demo", "--session", "s"]).args(options).arg(work);
        let output = saggar.arg(format!("run: {command}")).output().unwrap();
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        said.replace("\\n", "\n")
    }

    fn sessions(&self) -> PathBuf {
        self.place.join("state/saggar/sessions")
    }

    /// The one session.
    fn session(&self) -> PathBuf {
        let found: Vec<PathBuf> =
            fs::read_dir(self.sessions()).unwrap().map(|entry| entry.unwrap().path()).collect();
        let [session] = &found[..] else { panic!("{found:?}") };
        session.clone()
    }

    /// What `saggar wrap` on an overlay changes until it is let go, in a process group of its own.
    fn holding(&self, options: &[&str], script: &str) -> Process {
        let mut command = self.place.saggar();
        command.args(["wrap", "--workspace-overlay", "--disk", "8M"]).args(options);
        command.args(["--", "sh", "-c", &format!("{script}; echo up; read go")]);
        let mut process = Process::start(&self.place, command);
        let mut up = [0; 3];
        process.take_stdout().read_exact(&mut up).unwrap();
        process
    }
}

/// The size of the file system as `directory` sees it.
fn size(directory: &Path) -> u64 {
    let found = statvfs(directory).unwrap();
    found.blocks() * found.fragment_size()
}

/// Waits until no limit is felt in `directory`.
fn until_unlimited(directory: &Path) {
    let deadline = Deadline::usual();
    while size(directory) <= LIMIT {
        assert!(!deadline.remaining().is_zero(), "the limit stays");
        deadline.pause();
    }
}

/// The changes stay, belong to the owner of the work tree, and are told of; no limit stays.
#[test]
fn given_quotas_an_overlay_keeps_its_changes_below_the_limit() {
    let Some(quotas) = Quotas::new() else { return skip_as_user() };
    let script = format!(
        "rm file; echo new > file; {}",
        "dd if=/dev/zero of=big bs=4096 2>&1; df -k --output=size . | tail -n 1"
    );
    let options = ["wrap", "--workspace-overlay", "--disk", "8M", "--status-fd", "2"];
    let output = quotas.run(&[&options[..], &["--", "sh", "-c", &script]].concat());
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("\"reason\":\"exit\"") && told.contains("\"limit\":\"disk\""), "{told}");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("Disk quota exceeded") && said.ends_with(" 8192\n"), "{said}");
    let changes = quotas.session().join("upper/changes");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains(&format!("the changes to it are in {}", changes.display())), "{told}");
    assert_eq!(fs::read_to_string(changes.join("file")).unwrap(), "new\n");
    assert_eq!(fs::metadata(changes.join("file")).unwrap().uid(), 4321);
    let big = fs::metadata(changes.join("big")).unwrap().len();
    assert!(big < LIMIT && LIMIT - big < 96 << 10, "{big}");
    assert_eq!(fs::read_to_string(quotas.place.join("work/file")).unwrap(), "lower");
    assert!(size(&changes) > LIMIT, "the limit is gone with the sandbox");
    // The name is taken as long as the changes are there.
    let id = quotas.session().file_name().unwrap().to_str().unwrap().to_owned();
    let again = quotas.run(&["wrap", "--workspace-overlay", "--id", &id, "--", "true"]);
    let told = String::from_utf8_lossy(&again.stderr);
    assert!(again.status.code() == Some(125) && told.contains("has the changes of another"), "{told}");
    assert!(changes.join("file").exists());
}

/// Nothing is left of what changed nothing, whoever was killed.
#[test]
fn given_quotas_nothing_stays_of_an_overlay_without_changes() {
    let Some(quotas) = Quotas::new() else { return skip_as_user() };
    let output = quotas.run(&["wrap", "--workspace-overlay", "--", "true"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert_eq!(fs::read_dir(quotas.sessions()).unwrap().count(), 0);

    let mut process = quotas.holding(&["--id", "killed"], "true");
    process.signal(nix::sys::signal::Signal::SIGKILL);
    process.wait();
    crate::support::wait::until_gone(&quotas.sessions().join("killed"));

    let mut process = quotas.holding(&["--id", "both"], "true");
    process.kill_launcher();
    process.signal(nix::sys::signal::Signal::SIGKILL);
    process.wait();
    let session = quotas.sessions().join("both");
    assert!(session.join("upper").exists() && size(&session) <= LIMIT);
    assert!(quotas.run(&["gc"]).status.success());
    assert!(!session.exists());
}

/// A killed sandbox leaves its changes, which are somebody's work, and no limit on them.
#[test]
fn given_quotas_a_killed_supervisor_leaves_no_limit() {
    let Some(quotas) = Quotas::new() else { return skip_as_user() };
    let mut process = quotas.holding(&[], "echo work > new");
    let changes = quotas.session().join("upper/changes");
    assert!(size(&changes) <= LIMIT);
    process.signal(nix::sys::signal::Signal::SIGKILL);
    process.wait();
    until_unlimited(&changes);
    assert_eq!(fs::read_to_string(changes.join("new")).unwrap(), "work\n");
}

/// The agent's copy and its home share one limit, which lasts over its sessions and stands only while one runs.
#[test]
fn given_quotas_an_agent_has_one_limit_for_copy_and_home() {
    let Some(quotas) = Quotas::new() else { return skip_as_user() };
    fs::write(quotas.place.join("work/escape.py"), ESCAPE).unwrap();
    let said = quotas.turn(
        &["--disk", "8M"],
        "dd if=/dev/zero of=$HOME/half bs=1M count=4; python3 escape.py; touch $HOME/more && echo touched",
    );
    for line in ["project EINVAL", "other EINVAL", "inherited EINVAL"] {
        assert!(
            said.contains(&format!("{line}\n")) || said.contains(&line.replace("EINVAL", "EPERM")),
            "{line}: {said}"
        );
    }
    assert!(said.contains("full EDQUOT "), "{said}");
    let workspace = quotas.session().join("workspace");
    let (big, half) = (
        fs::metadata(workspace.join("big")).unwrap(),
        fs::metadata(quotas.session().join("home/half")).unwrap(),
    );
    assert_eq!(half.len(), 4 << 20);
    let both = big.len() + half.len();
    assert!(both < LIMIT && LIMIT - both < 128 << 10, "{both}");
    assert!(size(&workspace) > LIMIT, "the limit stands while it runs");

    let said = quotas.turn(
        &["--resume", "--disk", "8M"],
        "echo x >> big || echo still; rm big; echo x > small && echo room",
    );
    assert!(said.contains("still\nroom\n"), "{said}");
    let said = quotas.turn(
        &["--resume", "--disk", "8M", "--inodes", "64"],
        "i=0; while echo > n$i; do i=$((i+1)); done; echo files $i",
    );
    assert!(said.contains("Disk quota exceeded\nfiles "), "{said}");
    // What is there already is more than this.
    let said = quotas.turn(&["--resume", "--disk", "2M"], "echo ran");
    assert!(said.contains("already, more than the limits disk = 2097152") && !said.contains("ran"), "{said}");
}

/// A folder that is larger than the limit is not copied beyond it.
#[test]
fn given_quotas_a_folder_above_the_limit_is_refused() {
    let Some(quotas) = Quotas::new() else { return skip_as_user() };
    fs::write(quotas.place.join("work/large"), vec![1; 3 << 20]).unwrap();
    let said = quotas.turn(&["--disk", "2M"], "echo ran");
    assert!(said.contains("raise --disk") && !said.contains("\"ran"), "{said}");
    let said = quotas.turn(&["--resume", "--disk", "4M"], "echo ran");
    assert!(said.contains("ran"), "{said}");
}

fn skip_as_user() {
    skip!("this test needs to be started as root");
}
