//! Folders, options and a caller's directory whose names are no text.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use nix::sys::signal::Signal;

use super::stage::{Sessions, json, supervisor, text};

as_each_caller! {
    fn a_session_keeps_names_that_are_not_utf_8(caller) {
        let sessions = Sessions::new(caller);
        let place = &sessions.stage.place;
        // The folder, and a caller's directory with a tree that an option names relative to it.
        place.make_dir("folder", 0o755);
        place.make_file("folder/CLAUDE.md", "An agent.\n");
        place.make_file("folder/known", "old\n");
        place.make_dir("from", 0o755);
        place.make_dir("from/tree", 0o755);
        place.make_file("from/tree/file", "content");
        let name = |name: &[u8]| place.path().join(OsStr::from_bytes(name));
        let (folder, from) = (name(b"folder-\xff"), name(b"from-\xfe"));
        fs::rename(place.join("folder"), &folder).unwrap();
        fs::rename(place.join("from"), &from).unwrap();
        fs::rename(from.join("tree"), from.join(OsStr::from_bytes(b"tree-\xfd"))).unwrap();

        let mut create = sessions.command(&["create", "--json", "--session", "names", "--adapter", "demo", "--workspace-overlay", "--ro"]);
        create.arg(OsStr::from_bytes(b"tree-\xfd:/data")).arg(&folder).current_dir(&from);
        let ended = sessions.stage.run(create);
        assert_eq!(ended.code, 0, "{ended:?}");
        let shown = json(&ended.stdout);
        assert!(text(&shown, "folder").ends_with("/folder-\u{fffd}"), "{shown}");
        assert_eq!(sessions.show("names"), sessions.list()[0]);
        sessions.send("names", "run: cp /data/file known");

        // It starts again as it was created, from anywhere.
        let watch = supervisor(&shown);
        watch.signal(Signal::SIGKILL);
        watch.wait_gone("the supervisor");
        sessions.ok(&["resume", "names"]);
        sessions.send("names", "run: cp /data/file new");
        sessions.ok(&["end", "names"]);
        let listed = json(&sessions.ok(&["diff", "--json", "names"]));
        assert!(text(&listed, "folder").ends_with("/folder-\u{fffd}"), "{listed}");
        let diff = sessions.ok(&["diff", "names"]);
        assert!(diff.contains("known") && diff.contains("new"), "{diff}");
        sessions.ok(&["apply", "names"]);
        for name in ["known", "new"] {
            assert_eq!(fs::read_to_string(folder.join(name)).unwrap(), "content", "{name}");
        }
        sessions.ok(&["remove", "names"]);
    }
}
