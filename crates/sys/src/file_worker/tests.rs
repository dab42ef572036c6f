//! The rights of a worker, and how it ends. A worker needs a process with one thread: the test binary executes itself
//! again, for one test.

use super::*;
use crate::beneath::{open_directory, open_root};
use crate::disposable_child::{ChildExit, run_disposable_child};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use nix::unistd::{getegid, geteuid, getgroups};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

const AGAIN: &str = "SAGGAR_TEST_WORKER";

/// Runs the body of the test `name` in a process with one thread: a fork of the test binary, which runs nothing else.
fn alone(name: &str, body: impl FnOnce()) {
    if std::env::var_os(AGAIN).is_some() {
        let ended = run_disposable_child(120, |_| {
            body();
            0
        });
        assert_eq!(ended, Ok(ChildExit::Exited(0)));
        return;
    }
    let test = format!("{}::{name}", module_path!().split_once("::").unwrap().1);
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", &test, "--nocapture", "--test-threads", "1"]).env(AGAIN, "1");
    assert!(again.status().unwrap().success());
}

/// A temporary directory with the directories `read` and `write`, which belong to another user if this process is root.
fn place() -> TempDir {
    let place = tempfile::tempdir().unwrap();
    for name in ["read", "write"] {
        fs::create_dir(place.path().join(name)).unwrap();
        fs::write(place.path().join(name).join("file"), name).unwrap();
        if geteuid().is_root() {
            chown(place.path().join(name), Some(1001), Some(1001)).unwrap();
            chown(place.path().join(name).join("file"), Some(1001), Some(1001)).unwrap();
        }
    }
    place
}

fn confinement<'a>(directories: &'a [(BorrowedFd<'a>, FileAccess)], limits: WorkerLimits) -> Confinement<'a> {
    let owner = directories.first().and_then(|(directory, _)| worker_owner(*directory).unwrap());
    Confinement { task: "test", owner, capabilities: 0, directories, files: &[], limits }
}

fn short() -> WorkerLimits {
    WorkerLimits { time: Duration::from_secs(60), ..WorkerLimits::default() }
}

#[test]
fn a_worker_has_its_directories_and_nothing_else() {
    alone("a_worker_has_its_directories_and_nothing_else", check_rights);
}

fn check_rights() {
    let place = place();
    let (read, write) =
        (open_root(&place.path().join("read")).unwrap(), open_root(&place.path().join("write")).unwrap());
    let directories = [(read.as_fd(), FileAccess::Read), (write.as_fd(), FileAccess::Write)];
    let other = File::open("/etc/passwd").unwrap();
    let is_root = geteuid().is_root();
    let fails = run_worker(&confinement(&directories, short()), || {
        let denied = |what: std::io::Result<()>| what.is_err_and(|e| e.kind() == ErrorKind::PermissionDenied);
        let create = |at: BorrowedFd<'_>, name: &str| beneath::create_file(at, name, 0o600).map(drop);
        let mut fails = Vec::new();
        let mut check = |what: &str, holds: bool| {
            if !holds {
                fails.push(what.to_owned());
            }
        };
        let inet = socket(AddressFamily::Inet, SockType::Stream, SockFlag::empty(), None);
        let unix = socket(AddressFamily::Unix, SockType::Stream, SockFlag::empty(), None);
        check("reads its directory", beneath::open_file(read.as_fd(), "file").is_ok());
        check("makes a file", create(write.as_fd(), "new").is_ok());
        check("makes a directory", open_directory(write.as_fd(), ".").is_ok());
        check("has no other ids", !is_root || (geteuid().as_raw(), getegid().as_raw()) == (1001, 1001));
        check("has no other groups", !is_root || getgroups().unwrap().is_empty());
        check("has no capability", crate::caps::effective() == 0);
        check("has no other descriptor", denied_or_closed((&other).read(&mut [0])));
        check("cannot write where it reads", denied(create(read.as_fd(), "new")));
        check("cannot read elsewhere", denied(File::open("/etc/passwd").map(drop)));
        check("cannot read its memory", denied(File::open("/proc/self/mem").map(drop)));
        check("cannot write elsewhere", denied(File::create("/var/tmp/saggar-worker").map(drop)));
        check("cannot list elsewhere", denied(fs::read_dir("/").map(drop)));
        check("cannot execute", denied(Command::new("/bin/true").status().map(drop)));
        check("cannot connect", inet.err() == Some(Errno::EPERM) && unix.err() == Some(Errno::EPERM));
        check("cannot signal", nix::sys::signal::kill(nix::unistd::getppid(), None) == Err(Errno::EPERM));
        check("cannot fork", crate::worker::fork(&[], || 0).is_err());
        Ok(fails)
    });
    let fails = fails.unwrap();
    let had_landlock = crate::landlock::abi() >= MIN_LANDLOCK_ABI;
    assert!(fails.is_empty() || !had_landlock, "{fails:?}");
    assert!(place.path().join("write/new").exists());
}

fn denied_or_closed(read: std::io::Result<usize>) -> bool {
    read.is_err_and(|e| e.raw_os_error() == Some(libc::EBADF))
}

#[test]
fn capabilities_are_kept_across_a_change_of_ids_and_end_at_the_domain() {
    if geteuid().is_root() {
        alone("capabilities_are_kept_across_a_change_of_ids_and_end_at_the_domain", check_capabilities);
    }
}

fn check_capabilities() {
    let place = place();
    fs::write(place.path().join("read/closed"), "x").unwrap();
    fs::set_permissions(
        place.path().join("read/closed"),
        std::os::unix::fs::PermissionsExt::from_mode(0o600),
    )
    .unwrap();
    let read = open_root(&place.path().join("read")).unwrap();
    let directories = [(read.as_fd(), FileAccess::Read)];
    let reads = |capabilities| {
        let confinement = Confinement { capabilities, ..confinement(&directories, short()) };
        run_worker(&confinement, || {
            let outside = File::open("/etc/shadow").is_ok();
            Ok((beneath::open_file(read.as_fd(), "closed").is_ok(), outside))
        })
        .unwrap()
    };
    assert_eq!(reads(0), (false, false));
    assert_eq!(reads(READ_MULTI_OWNER_CAPABILITIES), (true, false));
}

#[test]
fn results_errors_output_and_log_entries_come_back() {
    alone("results_errors_output_and_log_entries_come_back", check_messages);
}

fn check_messages() {
    let confinement = confinement(&[], short());
    let mut text = String::new();
    let job = |output: &WorkerOutput| {
        log::warn!("an entry of the log");
        output.write("one ")?;
        output.write("two")?;
        Ok(vec!["x".repeat(1 << 20); 3])
    };
    let pass_on = |piece: &str| {
        text.push_str(piece);
        Ok(())
    };
    assert_eq!(run_worker_with_output(&confinement, job, pass_on).unwrap(), vec!["x".repeat(1 << 20); 3]);
    assert_eq!(text, "one two");
    let failed =
        run_worker(&confinement, || Err::<(), _>(Error::new(Code::Refused, "no").hint("why"))).unwrap_err();
    assert_eq!(
        (failed.code(), failed.to_string(), failed.hint_text()),
        (Code::Refused, "no".into(), Some("why"))
    );
    let stopped = run_worker_with_output(
        &confinement,
        |output| (0..).try_for_each(|_| output.write("again")),
        |_| Err(Error::new(Code::System, "nothing reads it")),
    );
    assert_eq!(stopped.unwrap_err().to_string(), "nothing reads it");
}

#[test]
fn a_worker_that_exceeds_a_limit_or_dies_is_an_error_that_names_the_task() {
    alone("a_worker_that_exceeds_a_limit_or_dies_is_an_error_that_names_the_task", check_limits);
}

fn check_limits() {
    let fails = |limits: WorkerLimits, job: fn(&WorkerOutput) -> Result<()>| {
        run_worker_with_output(&confinement(&[], limits), job, |_| Ok(())).unwrap_err().to_string()
    };
    let late = fails(WorkerLimits { time: Duration::from_millis(50), ..short() }, |_| {
        loop {
            std::thread::sleep(Duration::from_secs(1));
        }
    });
    assert_eq!(late, "test: it takes more than 0 s");
    let busy = fails(WorkerLimits { cpu_seconds: 1, ..short() }, |_| {
        loop {
            std::hint::spin_loop();
        }
    });
    assert_eq!(busy, "test: it takes more than 1 s of processor time");
    let long = fails(WorkerLimits { output_size: 32 << 20, ..short() }, |output| {
        loop {
            output.write(&"x".repeat(8 << 20))?;
        }
    });
    assert_eq!(long, "test: the result is larger than 32 MiB");
    let text = |output: &WorkerOutput| output.write(&"x".repeat(2 << 20));
    assert_eq!(
        fails(WorkerLimits { output_size: 1 << 20, ..short() }, text),
        "test: the result is larger than 1 MiB"
    );
    let file = tempfile::tempfile().unwrap();
    let limits = WorkerLimits { file_size: 4096, ..short() };
    let written = run_worker(&Confinement { files: &[file.as_fd()], ..confinement(&[], limits) }, || {
        (&file).write_all(&[1; 8192]).map_err(|e| Error::system("write", e))
    });
    assert_eq!(written.unwrap_err().to_string(), "test: a file that it writes is larger than 4096 bytes");
    assert_eq!(fails(short(), |_| panic!("at fault")), "test: the worker ended without a result");
    assert_eq!(fails(short(), |_| process::exit_now(0)), "test: the worker ended without a result");
    let large = fails(WorkerLimits { memory: 1 << 30, ..short() }, |_| {
        let memory = vec![1u8; 2 << 30];
        Err(Error::new(Code::State, format!("{} bytes", memory.len())))
    });
    assert!(large.starts_with("test: the worker "), "{large}");
}

#[test]
fn nothing_is_forked_beside_other_threads() {
    let confinement = confinement(&[], short());
    let error = std::thread::spawn(move || run_worker(&confinement, || Ok(())).unwrap_err()).join().unwrap();
    assert_eq!(error.to_string(), "test: start a worker: this process has several threads");
}

#[test]
fn the_owner_of_a_directory_is_asked_of_what_is_open() {
    let place = place();
    let open = open_root(Path::new(&place.path().join("read"))).unwrap();
    let expected = geteuid().is_root().then_some((1001, 1001));
    assert_eq!(worker_owner(open.as_fd()).unwrap(), expected);
}
