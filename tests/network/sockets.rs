//! Unix sockets of the host by path: what was named answers, and nothing beside it is there.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::thread;

use crate::isolation::wrapped::Wrap;
use crate::support::caller::Caller;

/// Says what the socket says at the path of its argument, or why it does not.
const CONNECT: &str = "import socket, sys
for path in sys.argv[1:]:
    s = socket.socket(socket.AF_UNIX)
    try:
        s.connect(path)
        print(s.recv(100).decode())
    except OSError as error: print(error.strerror)";

/// A server of the caller's with this path in the place, which greets all who connect.
fn serve(wrap: &Wrap, caller: Caller, name: &str) -> PathBuf {
    let path = wrap.place.join(name);
    let listener = UnixListener::bind(&path).unwrap();
    caller.own(&path);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.and_then(|mut stream| stream.write_all(b"hello"));
        }
    });
    path
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

as_each_caller! {
    /// At its own path and at another, with no network at all.
    fn a_named_socket_answers(caller) {
        let wrap = Wrap::new(caller);
        wrap.place.make_dir("served", 0o755);
        let path = serve(&wrap, caller, "served/a.sock");
        serve(&wrap, caller, "served/b.sock");
        wrap.place.make_file("work/connect.py", CONNECT);
        let (directory, other) = (path.parent().unwrap(), path.with_file_name("b.sock"));
        let script = format!(
            "/usr/bin/python3 connect.py {0} /run/b.sock {1}; ls {2}; (rm {0} || mv {0} x || touch {2}/x) 2>/dev/null; test -S {0} && echo there",
            path.display(), other.display(), directory.display(),
        );
        let elsewhere = format!("{}:/run/b.sock", other.display());
        let options = ["--allow-socket", text(&path), "--allow-socket", &elsewhere];
        let said = wrap.run(&options, &["/bin/sh", "-c", &script]).success();
        assert_eq!(said, "hello\nhello\nNo such file or directory\na.sock\nthere\n");
        assert!(path.exists());
        let relative = wrap.run(&["--allow-socket", "../served/a.sock"], &["/bin/true"]);
        assert_eq!(relative.code(), 2, "a path has no `..`: {relative:?}");
    }

    fn named_socket_that_is_no_socket_or_a_link_is_refused(caller) {
        let wrap = Wrap::new(caller);
        wrap.place.make_dir("served", 0o755);
        let path = serve(&wrap, caller, "served/a.sock");
        symlink(&path, wrap.place.join("link.sock")).unwrap();
        symlink(path.parent().unwrap(), wrap.place.join("linked")).unwrap();
        let file = wrap.place.make_file("file.sock", "");
        let real = format!("hint: name {}", path.display());
        for (named, words) in [
            (wrap.place.join("link.sock"), ["over a symbolic link", real.as_str()]),
            (wrap.place.join("linked/a.sock"), ["over a symbolic link", real.as_str()]),
            (file, ["it is no socket", "--ro and --rw"]),
            (wrap.place.join("served"), ["it is no socket", "--ro and --rw"]),
            (wrap.place.join("none.sock"), ["No such file", "start the server of this socket first"]),
        ] {
            let what = format!("show the socket {}", named.display());
            wrap.run(&["--allow-socket", text(&named)], &["/bin/true"]).refused(&[&what, words[0], words[1]]);
            if words[0] != "over a symbolic link" {
                wrap.run(&["--api-socket", text(&named)], &["/bin/true"]).refused(&[&what, words[0], words[1]]);
            }
        }
        let long = format!("{}:/run/{}", path.display(), "x".repeat(103));
        wrap.run(&["--allow-socket", &long], &["/bin/true"]).refused(&["has 108 bytes, 107 are the most", "PATH:DEST"]);
    }

    /// It works, and who started it hears of it at every start.
    fn risky_named_socket_is_reported_at_each_start(caller) {
        let wrap = Wrap::new(caller);
        let path = serve(&wrap, caller, "docker.sock");
        wrap.place.make_file("work/connect.py", CONNECT);
        let program = ["/usr/bin/python3", "connect.py", text(&path)];
        let ended = wrap.run(&["--allow-socket", text(&path)], &program);
        let told = format!("the socket {} is a way out of the sandbox: it starts containers", path.display());
        assert!(ended.stderr.contains(&told), "{}", ended.stderr);
        assert_eq!(ended.success(), "hello\n");
        let mut explain = wrap.place.saggar();
        explain.args(["explain", "--allow-socket", text(&path)]);
        let said = wrap.finish(explain).success();
        assert!(said.contains(&format!("WARNING: {told}")) && said.contains("sockets"), "{said}");
    }

    fn a_workspace_names_no_socket(caller) {
        let wrap = Wrap::new(caller);
        let path = serve(&wrap, caller, "a.sock");
        wrap.place.make_file("work/saggar.toml", &format!("[network]\nsockets = ['{}']\n", path.display()));
        wrap.run(&[], &["/bin/true"]).refused(&["asks for network.sockets", "may only tighten"]);
        wrap.place.make_file("home/policy.toml", &format!("[network]\nsockets = ['{}']\n", path.display()));
        let policy = wrap.place.join("home/policy.toml");
        fs::remove_file(wrap.work().join("saggar.toml")).unwrap();
        wrap.place.make_file("work/connect.py", CONNECT);
        let program = ["/usr/bin/python3", "connect.py", text(&path)];
        assert_eq!(wrap.run(&["--policy", text(&policy)], &program).success(), "hello\n");
    }
}
