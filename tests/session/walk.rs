//! The walk-through of the README, line by line.

use std::fs;

use super::stage::{Sessions, supervisor};

/// What a line of a walk-through has instead of what differs each time.
const ANYTHING: &str = "...";

/// The commands of the section, each with the lines that it prints.
fn walk() -> Vec<(String, Vec<String>)> {
    let readme = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    let section = readme.split("\n## ").find(|section| section.starts_with("Sessions\n")).expect("a section");
    let block =
        section.split("```console\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a block");
    let mut walk: Vec<(String, Vec<String>)> = Vec::new();
    for line in block.lines() {
        match line.strip_prefix("$ ") {
            Some(command) => walk.push((command.to_owned(), Vec::new())),
            None => walk.last_mut().expect("a command comes first").1.push(line.to_owned()),
        }
    }
    walk
}

/// Whether a line is as the README has it.
fn fits(line: &str, wanted: &str) -> bool {
    // Columns are as wide as what stands in them.
    let narrow = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (line, wanted) = (narrow(line), narrow(wanted));
    let mut rest = line.as_str();
    for (at, piece) in wanted.split(ANYTHING).enumerate() {
        match rest.find(piece) {
            Some(found) if found == 0 || at > 0 => rest = &rest[found + piece.len()..],
            _ => return false,
        }
    }
    rest.is_empty() || wanted.ends_with(ANYTHING)
}

as_each_caller! {
    fn the_walk_through_works(caller) {
        let sessions = Sessions::new(caller);
        let saggar = sessions.stage.place.reachable(crate::support::binary::saggar());
        sessions.stage.place.make_dir("work/examples", 0o755);
        sessions.stage.place.make_dir("work/examples/hello", 0o755);
        for file in ["CLAUDE.md", "saggar.toml"] {
            let text = fs::read_to_string(format!("{}/examples/hello/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap();
            sessions.stage.place.make_file(&format!("work/examples/hello/{file}"), &text);
        }
        let walk = walk();
        assert!(walk.len() >= 8, "{walk:?}");
        let can_freeze = caller.is_root();
        for (command, wanted) in walk {
            // Without a cgroup nothing can be frozen, and it says so.
            let refused = !can_freeze && command.contains(" pause ");
            let mut shell = sessions.stage.place.command(std::path::Path::new("/bin/sh"));
            let path = format!("{}:/usr/bin:/bin", saggar.parent().unwrap().display());
            shell.env("PATH", path).args(["-c", &format!("{command} 2>&1")]);
            // A signal is on its way when kill(1) has ended.
            let doomed = command.contains("kill -9").then(|| supervisor(&sessions.show("hello")));
            let output = shell.output().unwrap();
            if let Some(doomed) = doomed {
                doomed.wait_gone("the supervisor");
            }
            let said = String::from_utf8(output.stdout).unwrap();
            if refused && !output.status.success() {
                assert!(said.contains("no cgroup"), "{command}: {said}");
                continue;
            }
            let lines: Vec<&str> = said.lines().collect();
            let same = lines.len() == wanted.len() && lines.iter().zip(&wanted).all(|(line, wanted)| fits(line, wanted));
            assert!(same || wanted.is_empty(), "{command}:\n{said}\ninstead of\n{}", wanted.join("\n"));
        }
        assert!(sessions.list().is_empty());
    }
}
