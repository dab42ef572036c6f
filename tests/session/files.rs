//! KC-31: files of the workspace for a server, on the control socket of a session.

use serde_json::{Value, json};

use super::stage::{Sessions, control};
use crate::control::client::ControlClient;
use crate::support::wait;

/// What the agent leaves: something changed, removed and made; ways out, and what holds up whoever opens it.
const PLANTED: &str = "run: echo changed > below; rm gone; mkdir -p d/e; printf '\\377\\0x' > d/binary; ln -s /etc/shadow d/shadow; \
                       ln -s /etc d/etc; ln -s .. d/up; ln -s below d/near; mkfifo d/fifo; truncate -s 3M large; \
                       printf 'a\\303\\244' > text; ln -s d/e to-e";

fn read(client: &mut ControlClient, path: &str) -> Value {
    client.call("files.read", &json!({ "path": path }))
}

fn names(client: &mut ControlClient, path: &str) -> Vec<(String, String)> {
    let listing = client.call("files.list", &json!({ "path": path }));
    assert!(listing["next"].is_null(), "{listing}");
    let text = |entry: &Value, field: &str| entry[field].as_str().unwrap().to_owned();
    let entries = listing["entries"].as_array().unwrap();
    let mut names: Vec<_> = entries.iter().map(|entry| (text(entry, "name"), text(entry, "kind"))).collect();
    names.sort();
    names
}

as_each_caller! {
    /// Through the mounts of the sandbox: what the agent sees, and nothing else.
    fn kc_31_a_server_sees_the_workspace_and_nothing_else(caller) {
        for options in [&[][..], &["--workspace-overlay"]] {
            let sessions = Sessions::new(caller);
            for (name, content) in [("work/below", "as it was\n"), ("work/untouched", "lower\n"), ("work/gone", "x")] {
                sessions.stage.place.make_file(name, content);
            }
            let session = sessions.create("seen", options);
            sessions.send("seen", PLANTED);
            let mut client = control(&session);
            assert_eq!(read(&mut client, "below")["content"], "changed\n");
            assert_eq!(read(&mut client, "./untouched")["content"], "lower\n");
            let whole = read(&mut client, "text");
            assert_eq!((&whole["content"], &whole["size"], &whole["next"]), (&json!("aä"), &json!(3), &Value::Null));
            let binary = client.call("files.read", &json!({ "path": "d/binary", "encoding": "base64" }));
            assert_eq!((&binary["content"], &binary["encoding"]), (&json!("/wB4"), &json!("base64")));
            for path in [
                "d/shadow", "d/etc/shadow", "d/up/below", "d/near", "d/fifo", "d", "gone", "d/binary", "below/x", "to-e",
            ] {
                assert_eq!(client.refused("files.read", &json!({ "path": path })).0, "state", "{path}");
            }
            assert!(client.refused("files.read", &json!({ "path": "d/fifo" })).1.contains("FIFO"));
            for path in ["../saggar.toml", "d/../below", "/etc/shadow", "/", "a\0"] {
                for method in ["files.read", "files.list"] {
                    assert_eq!(client.refused(method, &json!({ "path": path })).0, "params", "{path}");
                }
            }
            for path in ["d/etc", "d/up", "below", "gone", "to-e"] {
                assert_eq!(client.refused("files.list", &json!({ "path": path })).0, "state", "{path}");
            }
            let kinds = [
                ("binary", "file"), ("e", "directory"), ("etc", "link"), ("fifo", "FIFO"), ("near", "link"),
                ("shadow", "link"), ("up", "link"),
            ];
            assert_eq!(names(&mut client, "d"), kinds.map(|(name, kind)| (name.to_owned(), kind.to_owned())));
            let top = names(&mut client, "");
            assert!(top.iter().any(|(name, _)| name == "untouched") && top.iter().all(|(name, _)| name != "gone"));
        }
    }

    /// fcntl(2): who has a lease on a file may hold up whoever opens it for 45 seconds, who then has the file: to be
    /// refused is not to have waited.
    fn lease_on_a_file_blocks_no_client(caller) {
        let sessions = Sessions::new(caller);
        // Programs inside are refused leases: a process of the host holds this one.
        let hold = "import fcntl, signal, sys\nsignal.signal(signal.SIGIO, signal.SIG_IGN)\nf = open('held', 'w')\n\
                    fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_WRLCK)\nopen('up', 'w').close()\nsys.stdin.read()\n";
        let session = sessions.create("leased", &[]);
        let workspace = sessions.directory("leased").join("workspace");
        let mut holder = std::process::Command::new("/usr/bin/python3")
            .args(["-c", hold])
            .current_dir(&workspace)
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        wait::until_exists(&workspace.join("up"));
        let (name, message) = control(&session).refused("files.read", &json!({ "path": "held" }));
        assert!(name == "state" && message.contains("holds it"), "{name}: {message}");
        drop(holder.stdin.take());
        assert!(holder.wait().unwrap().success());
    }

    /// No answer is longer than it may be, whatever is asked for.
    fn a_large_file_comes_in_pieces(caller) {
        let sessions = Sessions::new(caller);
        let session = sessions.create("pieces", &[]);
        sessions.send("pieces", "run: head -c 3000000 /dev/urandom | base64 -w0 > large; mkdir many; cd many; seq 2500 | xargs touch");
        let expected = std::fs::read_to_string(sessions.directory("pieces").join("workspace/large")).unwrap();
        let mut client = control(&session);
        let (mut found, mut offset) = (String::new(), json!(0));
        while !offset.is_null() {
            let piece = client.call("files.read", &json!({ "path": "large", "offset": offset, "limit": 1u64 << 40 }));
            let content = piece["content"].as_str().unwrap();
            assert!(content.len() <= 512 << 10, "{}", content.len());
            found.push_str(content);
            offset = piece["next"].clone();
        }
        assert!(found == expected, "{} of {} bytes", found.len(), expected.len());
        let (mut count, mut after) = (0, json!("0"));
        while !after.is_null() {
            let listing = client.call("files.list", &json!({ "path": "many", "after": after, "limit": 100_000 }));
            let entries = listing["entries"].as_array().unwrap().len();
            assert!(entries <= 1000);
            count += entries;
            after = listing["next"].clone();
        }
        assert_eq!(count, 2500);
    }

    /// A file that the policy hides or mounts has its own mode there: nothing of the host takes its place.
    fn a_server_writes_no_file_that_is_mounted(caller) {
        for options in [&[][..], &["--workspace-overlay"]] {
            let sessions = Sessions::new(caller);
            let place = &sessions.stage.place;
            place.make_dir("work/d", 0o755);
            for name in ["work/d/hidden", "work/hidden", "work/shown", "outside"] {
                place.make_file(name, "host\n");
            }
            place.make_file("work/saggar.toml", "[files]\nhide = ['hidden', 'd/hidden']\n");
            let shown = format!("{}:{}", place.join("outside").display(), sessions.stage.work().join("shown").display());
            let work = sessions.stage.work();
            let direct = ["--workspace", work.to_str().unwrap(), "--ro", &shown];
            // Nothing can be mounted in an overlay or in a copy that is still to be made.
            let options = if options.is_empty() { &direct[..] } else { options };
            let session = sessions.create("mounted", options);
            let mut client = control(&session);
            for path in ["hidden", "d/hidden", "shown"] {
                if path == "shown" && options.len() == 1 {
                    continue;
                }
                let refused = client.refused("files.write", &json!({ "path": path, "content": "x" }));
                assert_eq!(refused.0, "state", "{path}");
                assert!(refused.1.contains("a mount of its own"), "{path}: {}", refused.1);
            }
            assert_eq!(read(&mut client, "hidden")["content"], "");
            client.call("files.write", &json!({ "path": "d/other", "content": "x" }));
            assert_eq!(sessions.state("mounted").0, "active");
            sessions.ok(&["end", "mounted"]);
            for name in ["hidden", "d/hidden", "shown"] {
                assert_eq!(std::fs::read_to_string(work.join(name)).unwrap(), "host\n", "{name}");
            }
        }
    }

    /// What a server writes is the agent's, who could have written it itself.
    fn a_server_writes_what_the_agent_could(caller) {
        for options in [&[][..], &["--workspace-overlay"]] {
            let sessions = Sessions::new(caller);
            sessions.stage.place.make_file("work/tool", "old\n");
            let session = sessions.create("written", options);
            sessions.send("written", "run: chmod 750 tool; mkdir d closed; ln -s /etc d/etc; ln -s tool link; mkfifo fifo; chmod 500 closed");
            let mut client = control(&session);
            for (path, content) in [("tool", "echo new\n"), ("d/made", "made\n")] {
                assert_eq!(client.call("files.write", &json!({ "path": path, "content": content })), json!({}));
            }
            let script = "cat d/made; ./tool 2>&1 || sh tool; echo more >> d/made; cat d/made; stat -c %a%U tool; id -un";
            let said = client.call("exec", &json!({ "command": script }))["stdout"].as_str().unwrap().to_owned();
            assert!(said.contains("made\nnew\nmade\nmore\n750"), "{said}");
            let owner = said.lines().find_map(|line| line.strip_prefix("750")).unwrap();
            assert!(said.lines().any(|line| line == owner), "{said}");
            let bytes = json!({ "path": "d/bytes", "content": "/wB4", "encoding": "base64" });
            client.call("files.write", &bytes);
            assert_eq!(client.call("files.read", &json!({ "path": "d/bytes", "encoding": "base64" }))["content"], "/wB4");
            for path in [
                "link", "fifo", "d", "d/etc/x", "none/x", ".mcp.json", "d/.envrc", ".git/hooks/pre-commit", ".claude/settings.json",
                "closed/x",
            ] {
                assert_eq!(client.refused("files.write", &json!({ "path": path, "content": "x" })).0, "state", "{path}");
            }
            for path in ["", "..", "../x", "/tmp/x"] {
                assert_eq!(client.refused("files.write", &json!({ "path": path, "content": "x" })).0, "params", "{path}");
            }
            let left = client.call("exec", &json!({ "command": "find . -name '.saggar-*'; ls -A closed" }));
            assert_eq!(left["stdout"], "", "{left}");
            if caller.is_root() {
                client.get("pause");
                assert_eq!(read(&mut client, "d/made")["content"], "made\nmore\n");
                client.get("resume");
            }
        }
    }
}
