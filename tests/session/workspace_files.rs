//! `saggar session files`: files of a workspace from the command line, of a session that is served and of one that is not.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use nix::sys::signal::Signal;

use super::stage::{Sessions, json, supervisor};

impl Sessions {
    /// `saggar session files WORDS` with this standard input; its exit status, output and error.
    fn files(&self, words: &[&str], input: &[u8]) -> (bool, Vec<u8>, String) {
        let mut command = self.command(&[&["files"], words].concat());
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = process.stdin.take().unwrap();
        let input = input.to_vec();
        // One that is refused does not read all of it.
        let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let output = process.wait_with_output().unwrap();
        writer.join().unwrap();
        (output.status.success(), output.stdout, String::from_utf8_lossy(&output.stderr).into_owned())
    }

    #[track_caller]
    fn files_ok(&self, words: &[&str], input: &[u8]) -> Vec<u8> {
        let (ok, output, error) = self.files(words, input);
        assert!(ok, "{words:?}: {error}");
        output
    }

    fn files_text(&self, words: &[&str]) -> String {
        String::from_utf8(self.files_ok(words, b"")).unwrap()
    }
}

const SCRIPT: &str = "run: mkdir -p d/node_modules/x closed; echo one > d/one; echo x > d/node_modules/x/y; ln -s /etc etc; \
                      ln -s /etc/shadow shadow; mkfifo pipe; echo x > closed/x; chmod 0 closed";

as_each_caller! {
    /// KC-31: the same files, whether a supervisor serves the session, nothing does, or it has ended.
    fn kc_31_files_of_a_session_are_reached_served_or_not(caller) {
        for options in [&[][..], &["--workspace", "WORK"]] {
            let sessions = Sessions::new(caller);
            let work = sessions.stage.work();
            let options: Vec<&str> =
                options.iter().map(|word| if *word == "WORK" { work.to_str().unwrap() } else { word }).collect();
            sessions.create("files", &options);
            sessions.send("files", SCRIPT);
            // More than fits into one line of the control socket, and not UTF-8.
            let large: Vec<u8> = (0..1_500_000u32).flat_map(|number| number.to_le_bytes()).take(3 << 20).collect();
            // Later, saggar may have opened it for its last search.
            assert!(!sessions.files_text(&["list", "files"]).contains("closed/x"));
            for (path, verb) in [("closed/x", "read"), ("closed/new/x", "write")] {
                let (ok, _, error) = sessions.files(&[verb, "files", path], b"x");
                assert!(!ok && error.contains(path), "{error}");
            }
            for state in ["served", "paused", "ended"] {
                match state {
                    "paused" => {
                        let served = supervisor(&sessions.show("files"));
                        served.signal(Signal::SIGTERM);
                        served.wait_gone("the supervisor");
                    }
                    "ended" => drop(sessions.ok(&["end", "files"])),
                    _ => {}
                }
                let listed = sessions.files_text(&["list", "--exclude", "node_modules", "files"]);
                let expected = ["CLAUDE.md", "closed/", "d/", "d/one", "etc", "pipe", "shadow"];
                let is_known = |line: &&str| expected.contains(line);
                assert_eq!(listed.lines().filter(is_known).collect::<Vec<_>>(), expected, "{state}: {listed}");
                assert!(!listed.contains("node_modules"), "{state}: {listed}");
                let below = sessions.files_text(&["list", "--json", "files", "d"]);
                let below: Vec<_> = below.lines().map(json).collect();
                assert_eq!(below.len(), 4, "{state}: {below:?}");
                assert_eq!((&below[3]["name"], &below[3]["size"]), (&"one".into(), &4.into()), "{state}");

                assert_eq!(sessions.files_text(&["read", "files", "d/one"]), "one\n", "{state}");
                let shown = json(&sessions.files_text(&["show", "files", "d/one"]));
                assert_eq!((&shown["size"], &shown["mtime"]), (&below[3]["size"], &below[3]["mtime"]), "{state}");
                for content in [&b""[..], b"\xff\n", &large, &large[..512 << 10]] {
                    sessions.files_ok(&["write", "files", "made/below/it"], content);
                    assert!(sessions.files_ok(&["read", "files", "made/below/it"], b"") == content, "{state}: {}", content.len());
                }
                let (ok, _, error) = sessions.files(&["remove", "files", "made"], b"");
                assert!(!ok && error.contains("not empty"), "{state}: {error}");
                sessions.files_ok(&["remove", "--recursive", "files", "made"], b"");
                for path in ["etc/passwd", "shadow", "pipe", "d", "none", "made/below/it"] {
                    let (ok, output, error) = sessions.files(&["read", "files", path], b"");
                    assert!(!ok && output.is_empty() && error.contains(path), "{state}: {path}: {error}");
                }
                for path in ["etc/x", "shadow", "d", ".git/hooks/post-checkout", "d/.envrc", "../x", "/tmp/x", ""] {
                    let (ok, _, error) = sessions.files(&["write", "files", path], b"x");
                    assert!(!ok && error.contains("saggar: error: "), "{state}: {path}: {error}");
                    assert!(!error.contains("bug"), "{state}: {path}: {error}");
                }
            }
            assert!(!fs::exists(work.join("etc/x")).unwrap());
        }
    }

    /// An overlay is nowhere a whole tree but in its sandbox.
    fn files_of_an_overlay_need_its_sandbox(caller) {
        let sessions = Sessions::new(caller);
        sessions.create("over", &["--workspace-overlay"]);
        sessions.files_ok(&["write", "over", "new"], b"x");
        assert!(sessions.files_text(&["list", "over"]).contains("CLAUDE.md\n"));
        sessions.ok(&["end", "over"]);
        let (ok, _, error) = sessions.files(&["read", "over", "new"], b"");
        assert!(!ok && error.contains("overlay"), "{error}");
        let (ok, _, error) = sessions.files(&["list", "none"], b"");
        assert!(!ok && error.contains("none"), "{error}");
    }

    /// The new content takes effect only with its end.
    fn transfer_that_is_killed_leaves_the_old_file(caller) {
        let sessions = Sessions::new(caller);
        sessions.create("killed", &[]);
        sessions.files_ok(&["write", "killed", "f"], b"old");
        let mut command = sessions.command(&["files", "write", "killed", "f"]);
        let mut process = command.stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = process.stdin.take().unwrap();
        stdin.write_all(&vec![b'x'; 2 << 20]).unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
        assert_eq!(sessions.files_text(&["read", "killed", "f"]), "old");
        sessions.files_ok(&["write", "killed", "f"], b"new");
        assert_eq!(sessions.files_text(&["read", "killed", "f"]), "new");
    }
}
