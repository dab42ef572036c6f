//! `explain --path` against what a program in the sandbox finds when it reads, writes and makes files.

use super::{json, saggar, stdout};
use crate::support::caller::Caller;
use crate::support::place::Place;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

/// Of each path: is it there, can it be read, can it be written; of one that is not there, can it be made.
/// By doing it: access(2) knows nothing of landlock.
const LOOK: &str = r#"
word() { if "$@" >/dev/null 2>&1; then printf ' true'; else printf ' false'; fi; }
read_it() { if test -d "$1"; then ls -A "$1"; else head -c 1 "$1"; fi; }
write_it() { if test -d "$1"; then mkdir "$1/probe.$$" && rmdir "$1/probe.$$"; else (: >>"$1"); fi; }
make_it() { (: >>"$1") && rm "$(readlink -f "$1")"; }
while read -r path; do
    if test -e "$path"; then printf true; word read_it "$path"; word write_it "$path"; printf ' false'
    else printf 'false false false'; word make_it "$path"
    fi
    echo
done
"#;

/// A work tree with one of everything.
fn furnish(place: &Place, caller: Caller) {
    place.make_file("work/plain.txt", "x");
    place.make_file("work/.bashrc", "x");
    place.make_file("work/closed.txt", "x");
    place.make_dir("work/sub", 0o755);
    place.make_dir("work/closed", 0o000);
    place.make_dir("work/.git", 0o755);
    place.make_file("work/.git/config", "[core]\n");
    place.make_file("work/.git/HEAD", "ref: refs/heads/main\n");
    place.make_file("secret.txt", "x");
    fs::set_permissions(place.join("work/closed.txt"), fs::Permissions::from_mode(0o444)).unwrap();
    for (name, target) in [
        ("to-plain", "sub/../plain.txt"),
        ("to-outside", "../secret.txt"),
        ("to-passwd", "/etc/passwd"),
        ("to-nothing", "sub/nothing"),
        ("to-itself", "to-itself"),
        ("to-sub", "sub"),
    ] {
        symlink(target, place.work().join(name)).unwrap();
    }
    caller.own(&place.work());
}

const RELATIVE: &[&str] = &[
    ".",
    "plain.txt",
    "absent.txt",
    ".bashrc",
    ".bashrc/x",
    ".zshrc",
    "closed.txt",
    "closed",
    "closed/x",
    "sub",
    "sub/absent",
    "sub/absent/deeper",
    "../secret.txt",
    "..",
    "to-plain",
    "to-outside",
    "to-passwd",
    "to-nothing",
    "to-itself",
    "to-sub/x",
    "plain.txt/x",
    ".git",
    ".git/config",
    ".git/hooks",
    ".git/hooks/pre-commit",
    ".git/commondir",
    ".git/HEAD",
    ".git/index",
    "sub/../../work/plain.txt",
];

const ABSOLUTE: &[&str] = &[
    "/",
    "/usr",
    "/usr/bin/env",
    "/usr/absent",
    "/bin/sh",
    "/bin",
    "/etc",
    "/etc/passwd",
    "/etc/shadow",
    "/etc/absent",
    "/etc/ssl",
    "/root",
    "/home",
    "/home/agent",
    "/home/agent/x",
    "/tmp",
    "/tmp/x",
    "/var",
    "/var/tmp",
    "/var/lib",
    "/run",
    "/run/x",
    "/dev",
    "/dev/null",
    "/dev/x",
    "/dev/shm",
    "/dev/shm/x",
    "/dev/sda",
    "/proc",
    "/proc/scsi/x",
    "/sys",
    "/mnt",
    "/boot/x",
];

/// What the sandbox of `wrap` says of these paths.
fn inside(place: &Place, options: &[&str], paths: &[String]) -> Vec<Value> {
    let list = place.make_file("work/list", &(paths.join("\n") + "\n"));
    let mut command = saggar(place, &["wrap"]);
    command.args(options).args(["--", "sh", "-c", LOOK]).stdin(fs::File::open(list).unwrap());
    let said = stdout(command, 0);
    let word = |word: &str| word.parse::<bool>().unwrap();
    said.lines().map(|line| line.split(' ').map(word).collect::<Vec<_>>().into()).collect()
}

/// What explain says of them, in the same words.
fn explained(place: &Place, options: &[&str], path: &str) -> Value {
    let mut command = saggar(place, &["explain", "--json", "--path", path]);
    command.args(options);
    let answer = json(command, 0);
    json!([answer["present"], answer["readable"], answer["writable"], answer["creatable"]])
}

/// A directory that is closed to its owner could not be removed with the place.
fn reopen(place: &Place) {
    fs::set_permissions(place.join("work/closed"), fs::Permissions::from_mode(0o755)).unwrap();
}

fn agree(place: &Place, options: &[&str], paths: impl IntoIterator<Item = String>) {
    let paths: Vec<String> = paths.into_iter().collect();
    // Before the sandbox runs: explain is about one that is still to start.
    let explained: Vec<Value> = paths.iter().map(|path| explained(place, options, path)).collect();
    let inside = inside(place, options, &paths);
    assert_eq!(inside.len(), paths.len());
    let differ: Vec<String> = paths
        .iter()
        .zip(explained.iter().zip(&inside))
        .filter(|(_, (explained, inside))| explained != inside)
        .map(|(path, (explained, inside))| format!("{path}: explain says {explained}, it is {inside}"))
        .collect();
    assert!(differ.is_empty(), "present, readable, writable, creatable:\n{}", differ.join("\n"));
}

as_each_caller! {
    /// DECISIONS 25 and 34: the file view as explained is the file view as it is.
    fn explain_says_what_a_program_finds(caller) {
        let place = Place::new(caller);
        furnish(&place, caller);
        agree(&place, &[], RELATIVE.iter().chain(ABSOLUTE).map(|path| (*path).to_owned()));
        reopen(&place);
    }

    /// DECISIONS 34: what is said to be held in its place cannot be renamed, and the rest can.
    fn pinned_paths_cannot_be_renamed(caller) {
        let place = Place::new(caller);
        furnish(&place, caller);
        let paths = [".git", ".git/hooks", ".git/config", ".git/HEAD", ".bashrc", "plain.txt", "sub"];
        let pinned = paths.map(|path| json(saggar(&place, &["explain", "--json", "--path", path]), 0)["pinned"].clone());
        let script = r#"for path; do
            if mv "$path" moved 2>/dev/null; then mv moved "$path"; echo false; else echo true; fi
        done"#;
        let mut command = saggar(&place, &["wrap", "--", "sh", "-c", script, "sh"]);
        command.args(paths);
        let said = stdout(command, 0);
        let held: Vec<bool> = said.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(Value::from(pinned.to_vec()), Value::from(held));
        reopen(&place);
    }

    /// The file view again, without landlock's file rules and masks.
    fn explain_says_what_a_program_finds_when_nesting(caller) {
        let place = Place::new(caller);
        furnish(&place, caller);
        place.close();
        agree(&place, &["--profile=nesting"], RELATIVE.iter().map(|path| (*path).to_owned()));
        reopen(&place);
    }

    /// The same for trees that the command line names, also one inside another.
    fn explain_says_what_a_program_finds_in_named_trees(caller) {
        let place = Place::new(caller);
        furnish(&place, caller);
        place.make_dir("data", 0o755);
        place.make_dir("data/inner", 0o755);
        place.make_file("data/file", "x");
        let data = place.join("data").display().to_string();
        let options =
            [format!("--ro={data}:/data"), format!("--rw={data}/inner:/data/inner"), format!("--rw={data}/file:/one")];
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let paths = ["/data", "/data/file", "/data/x", "/data/inner", "/data/inner/x", "/one", "/one/x"];
        agree(&place, &options, paths.map(str::to_owned).into_iter().chain([data]));
        reopen(&place);
    }
}
