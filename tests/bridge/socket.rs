//! BP-02, BP-03, DECISIONS 21: where the socket is, what it is, and what it never takes the place of.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::served::{Served, Stage};
use crate::support::caller::Caller;

/// A directory that everybody may write in, as /tmp is.
fn shared(stage: &Stage) -> PathBuf {
    let path = stage.place.make_dir("shared", 0o777);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o1777)).unwrap();
    path
}

fn serve_at(stage: &Stage, template: &str, path: &Path) -> Served {
    let mut command = stage.command(&["--adapter", "demo", "--ready-fd", "1", "--bridge-socket", template]);
    command.stdin(std::process::Stdio::null());
    Served::start(&stage.place, command, path)
}

/// Another sandbox of the stage, at the same path.
fn command_as(stage: &Stage, name: &str, path: &Path) -> std::process::Command {
    let mut command = stage.place.saggar();
    command.arg("agent").arg(stage.work()).args([
        "--id",
        &format!("{}-{name}", stage.name()),
        "--adapter",
        "demo",
    ]);
    command.arg("--bridge-socket").arg(path);
    command
}

fn serve_as(stage: &Stage, name: &str, path: &Path) -> Served {
    let mut command = command_as(stage, name, path);
    command.args(["--ready-fd", "1"]);
    Served::start(&stage.place, command, path)
}

/// Ends runtime and watcher, so that nothing is removed.
fn kill_both(served: Served) {
    served.process.kill_launcher();
    served.end_by(Signal::SIGKILL);
}

fn check_file(path: &Path, caller: Caller) {
    let meta = fs::symlink_metadata(path).unwrap();
    assert!(meta.file_type().is_socket());
    assert_eq!(meta.permissions().mode() & 0o7777, 0o600);
    assert_eq!(meta.uid(), caller.uid().as_raw());
}

as_each_caller! {
    /// BP-02, BP-03: the template of the seed, really in /tmp; 0600, the caller's, gone at the end.
    fn bp_02_the_short_id_names_a_socket_in_tmp(caller) {
        let stage = Stage::new(caller);
        // The name of a place ends in its random part; a sandbox's short name is the first eight characters.
        let id: String = stage.name().chars().rev().take(8).collect();
        let path = PathBuf::from(format!("/tmp/ash-{id}.sock"));
        let mut command = stage.place.saggar();
        command.arg("agent").arg(stage.work()).args(["--workspace".as_ref(), stage.work().as_os_str()]);
        command.args(["--id", &format!("{id}-more"), "--adapter", "demo", "--ready-fd", "1"]);
        command.args(["--bridge-socket", "/tmp/ash-{short_id}.sock"]);
        let served = Served::start(&stage.place, command, &path);
        check_file(&path, caller);
        let mut client = served.connect();
        assert!(client.turn("hi").is_done());
        served.shut_down(&mut client);
    }

    /// BP-02: without a template the socket is in the sandbox's own directory, which nobody else may enter.
    fn bp_02_the_socket_is_private_by_default(caller) {
        let stage = Stage::new(caller);
        let runtime = if caller.is_root() { PathBuf::from("/run/saggar") } else { stage.place.join("run/saggar") };
        let path = runtime.join(stage.name()).join("bridge.sock");
        let command = stage.command(&["--adapter", "demo", "--ready-fd", "1"]);
        let served = Served::start(&stage.place, command, &path);
        check_file(&path, caller);
        let mode = fs::metadata(path.parent().unwrap()).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o700);
        served.shut_down(&mut served_client(&path));
        assert!(!path.parent().unwrap().exists(), "the directory is gone too");
    }

    /// BP-03: whatever is at the path in a shared directory is an error, and stays as it is.
    fn bp_03_nothing_in_a_shared_directory_is_replaced(caller) {
        let stage = Stage::new(caller);
        let shared = shared(&stage);
        let target = stage.place.make_file("target", "untouched");
        let at = |name: &str| shared.join(name);
        fs::write(at("file"), "mine").unwrap();
        mkfifo(&at("fifo"), Mode::S_IRWXU).unwrap();
        fs::create_dir(at("dir")).unwrap();
        symlink(&target, at("link")).unwrap();
        symlink(stage.place.join("nowhere"), at("dangling")).unwrap();
        drop(UnixListener::bind(at("dead")).unwrap());
        let living = UnixListener::bind(at("living")).unwrap();
        for name in ["file", "fifo", "dir", "link", "dangling", "dead", "living"] {
            let before = fs::symlink_metadata(at(name)).unwrap();
            let mut command = stage.place.saggar();
            command.arg("agent").arg(stage.work()).args(["--adapter", "demo", "--bridge-socket"]);
            stage.run(command_with(command, &at(name))).refused(125, &["socket"]);
            let after = fs::symlink_metadata(at(name)).unwrap();
            let of = |meta: &fs::Metadata| (meta.ino(), meta.mode(), meta.ctime(), meta.ctime_nsec(), meta.len());
            assert_eq!(of(&before), of(&after), "{name} is as it was");
        }
        living.set_nonblocking(true).unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "untouched");
        assert!(!stage.place.join("nowhere").exists());
    }

    /// DECISIONS 21: the socket that a dead sandbox recorded is replaced, by whichever sandbox comes next.
    fn bp_03_the_socket_of_a_dead_sandbox_in_a_shared_directory_is_replaced(caller) {
        let stage = Stage::new(caller);
        let path = shared(&stage).join("s");
        kill_both(serve_at(&stage, path.to_str().unwrap(), &path));
        let next = serve_as(&stage, "next", &path);
        check_file(&path, caller);
        let mut client = next.connect();
        assert!(client.turn("hi").is_done());
        next.shut_down(&mut client);
        let left: Vec<_> = fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(left, [""; 0].map(PathBuf::from));
    }

    /// DECISIONS 21: whatever else came to stand there since is an error and stays, also for `saggar gc`.
    fn bp_03_files_that_a_dead_sandbox_did_not_record_are_kept(caller) {
        let changes: [fn(&Path); 3] = [
            |path| fs::set_permissions(path, fs::Permissions::from_mode(0o660)).unwrap(),
            |path| {
                fs::remove_file(path).unwrap();
                drop(UnixListener::bind(path).unwrap());
            },
            |path| {
                fs::remove_file(path).unwrap();
                fs::write(path, "another's").unwrap();
            },
        ];
        for (round, change) in changes.into_iter().enumerate() {
            let stage = Stage::new(caller);
            let path = shared(&stage).join("s");
            let served = serve_at(&stage, path.to_str().unwrap(), &path);
            // Before its end: a `gc` of the same user may come by right after.
            change(&path);
            kill_both(served);
            let before = fs::symlink_metadata(&path).unwrap();
            stage.run(command_as(&stage, "next", &path)).refused(125, &["socket"]);
            let mut gc = stage.place.saggar();
            gc.arg("gc");
            assert_eq!(stage.run(gc).code, 0);
            let after = fs::symlink_metadata(&path).unwrap();
            assert_eq!((before.ino(), before.ctime_nsec()), (after.ino(), after.ctime_nsec()), "round {round}");
        }
    }

    /// BP-03: in a directory of the caller's own, a dead socket is replaced; a living one and a file are not.
    fn bp_03_a_dead_socket_in_a_private_directory_is_replaced(caller) {
        let stage = Stage::new(caller);
        let path = stage.socket();
        drop(UnixListener::bind(&path).unwrap());
        caller.own(&path);
        let served = stage.demo();
        check_file(&path, caller);
        let mut other = stage.place.saggar();
        other.arg("agent").arg(stage.work()).args(["--adapter", "demo", "--bridge-socket"]).arg(&path);
        stage.run(other).refused(125, &["socket"]);
        let mut client = served.connect();
        served.shut_down(&mut client);
    }

    /// BP-03: a file that took the socket's place meanwhile is another's, and stays.
    fn bp_03_only_its_own_socket_is_removed(caller) {
        let stage = Stage::new(caller);
        let served = stage.demo();
        let path = served.socket.clone();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "another's").unwrap();
        assert!(served.end_by(Signal::SIGTERM).0.success());
        assert_eq!(fs::read_to_string(&path).unwrap(), "another's");
    }

    /// BP-02: a path of 107 bytes is the longest that unix(7) takes; one more is refused before the start.
    fn bp_02_the_longest_path_is_taken_and_a_longer_one_refused(caller) {
        let stage = Stage::new(caller);
        let directory = stage.place.join("run");
        let name = |length: usize| {
            let room = length - directory.as_os_str().len() - 1;
            directory.join("s".repeat(room))
        };
        let path = name(107);
        let served = serve_at(&stage, path.to_str().unwrap(), &path);
        let mut client = served.connect();
        served.shut_down(&mut client);
        let mut command = stage.place.saggar();
        command.arg("agent").arg(stage.work()).args(["--adapter", "demo", "--bridge-socket"]);
        let ended = stage.run(command_with(command, &name(108)));
        ended.refused(ended.code, &["108 bytes", "107"]);
        assert!([2, 125].contains(&ended.code), "{ended:?}");
    }

    /// DECISIONS 21: two sandboxes whose short names are the same want the same socket; the second says so.
    fn bp_02_the_same_short_id_is_refused_for_the_second(caller) {
        let stage = Stage::new(caller);
        let random = stage.name();
        let short: String = random.chars().rev().take(8).collect();
        let template = format!("{}/run/{{short_id}}.sock", stage.place.path().display());
        let command = |id: &str| {
            let mut command = stage.place.saggar();
            command.arg("agent").arg(stage.work()).args(["--id", id, "--adapter", "demo", "--ready-fd", "1"]);
            command.args(["--bridge-socket", &template]);
            command
        };
        let path = stage.place.join(&format!("run/{short}.sock"));
        let first = Served::start(&stage.place, command(&format!("{short}-one")), &path);
        stage.run(command(&format!("{short}-two"))).refused(125, &["socket", &short]);
        let mut client = first.connect();
        assert!(client.turn("hi").is_done());
        first.shut_down(&mut client);
    }
}

fn served_client(path: &Path) -> crate::support::bridge_client::BridgeClient {
    crate::support::bridge_client::BridgeClient::connect(path)
}

fn command_with(mut command: std::process::Command, path: &Path) -> std::process::Command {
    command.arg(path);
    command
}
