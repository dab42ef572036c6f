//! A mode holds at the path that has it, whatever lies above or below, in whatever order it was named.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::wrapped::Wrap;
use crate::support::rounds;

/// What a layer may say of a path.
const MODES: [Option<&str>; 3] = [None, Some("ro"), Some("rw")];

/// The paths of one tree, from the outermost: two directories, and a third one or a file.
const TREES: [[&str; 3]; 2] = [[".", "a", "a/b"], [".", "a", "a/file"]];

/// Prints the mode of each path: what lies on the host has a mark, a directory for mount points has none.
const LOOK: &str = r#"for p; do
    if [ -f "$p" ]; then (: >>"$p") 2>&- && echo "$p rw" || echo "$p ro"
    elif [ ! -e "$p/mark" ]; then echo "$p none"
    elif mkdir "$p/made" 2>&-; then rmdir "$p/made"; echo "$p rw"
    else echo "$p ro"; fi
done"#;

/// A path, what was said of it, and what holds there.
#[derive(Debug)]
struct Row {
    path: PathBuf,
    said: Option<&'static str>,
    holds: Option<&'static str>,
}

/// Every combination of modes on every kind of tree, made on the host.
fn table(wrap: &Wrap) -> Vec<Row> {
    let mut rows = Vec::new();
    for names in TREES {
        for combination in 0..27 {
            let tree = format!("{}{combination}", if names[2] == "a/b" { "dirs" } else { "files" });
            for directory in ["", "/a", "/a/b"] {
                wrap.place.make_dir(&format!("{tree}{directory}"), 0o755);
                wrap.place.make_file(&format!("{tree}{directory}/mark"), "");
            }
            wrap.place.make_file(&format!("{tree}/a/file"), "");
            let mut holds = None;
            for (name, divisor) in names.iter().zip([9, 3, 1]) {
                let said = MODES[combination / divisor % 3];
                holds = said.or(holds);
                let path: PathBuf = wrap.place.join(&format!("{tree}/{name}")).components().collect();
                rows.push(Row { path, said, holds });
            }
        }
    }
    rows
}

/// `--ro PATH` and `--rw PATH`, in this order.
fn options<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<String> {
    let named = rows.filter_map(|row| Some((row.said?, row.path.display())));
    named.flat_map(|(mode, path)| [format!("--{mode}"), path.to_string()]).collect()
}

/// What the kernel says of each path in a sandbox with these options.
fn assert_holds(wrap: &Wrap, options: &[String], rows: &[Row]) {
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let paths = rows.iter().map(|row| row.path.to_str().unwrap());
    let program: Vec<&str> = ["/bin/sh", "-c", LOOK, "look"].into_iter().chain(paths).collect();
    let said = wrap.run(&options, &program).success();
    let expected: Vec<String> =
        rows.iter().map(|row| format!("{} {}", row.path.display(), row.holds.unwrap_or("none"))).collect();
    let wrong: Vec<_> = said.lines().zip(&expected).filter(|(said, expected)| said != expected).collect();
    assert!(wrong.is_empty(), "{} are wrong: {wrong:#?}", wrong.len());
    assert_eq!(said.lines().count(), expected.len());
}

fn explained(wrap: &Wrap, options: &[String], path: &Path) -> Value {
    let mut command = wrap.place.saggar();
    command.args(["explain", "--json"]).args(options).arg("--path").arg(path);
    serde_json::from_str(&wrap.finish(command).success()).unwrap()
}

as_each_caller! {
    fn a_mode_holds_whatever_lies_above_and_below(caller) {
        let wrap = Wrap::new(caller);
        let rows = table(&wrap);
        assert_holds(&wrap, &options(rows.iter()), &rows);
        assert_holds(&wrap, &options(rows.iter().rev()), &rows);
        let list = |mode| {
            let paths = rows.iter().rev().filter(|row| row.said == Some(mode)).map(|row| &row.path);
            format!("{:?}", paths.collect::<Vec<_>>())
        };
        let policy = format!("[files]\nro = {}\nrw = {}\n", list("ro"), list("rw"));
        let policy = wrap.place.make_file("modes.toml", &policy);
        assert_holds(&wrap, &["--policy".to_owned(), policy.display().to_string()], &rows);
    }

    fn explain_says_the_mode_that_holds(caller) {
        let wrap = Wrap::new(caller);
        let rows = table(&wrap);
        let options = options(rows.iter().rev());
        for row in rows.iter().filter(|row| row.said.is_some()).step_by(rounds(5, 1)) {
            let state = if row.holds == Some("rw") { "read-write" } else { "read-only" };
            let explained = explained(&wrap, &options, &row.path);
            assert_eq!(explained["state"], state, "{row:?}: {explained}");
            assert_eq!(explained["mount"]["path"], row.path.to_str().unwrap(), "{explained}");
        }
    }

    fn the_workspace_is_writable_whatever_lies_above_and_below(caller) {
        let wrap = Wrap::new(caller);
        wrap.place.make_dir("above", 0o755);
        let work = wrap.place.make_dir("above/work", 0o755);
        wrap.place.make_dir("above/work/below", 0o755);
        for name in ["above", "above/work", "above/work/below"] {
            wrap.place.make_file(&format!("{name}/mark"), "");
        }
        for overlay in [&[][..], &["--workspace-overlay"]] {
            for (above, below) in MODES.iter().flat_map(|above| MODES.map(|below| (*above, below))) {
                let row = |name: &str, said, holds| Row { path: wrap.place.join(name), said, holds };
                let rows = [
                    row("above", above, above),
                    row("above/work", None, Some("rw")),
                    row("above/work/below", below, below.or(Some("rw"))),
                ];
                let mut all = vec!["--workspace".to_owned(), work.display().to_string()];
                all.extend(overlay.iter().map(|option| (*option).to_owned()));
                all.extend(options(rows.iter()));
                assert_holds(&wrap, &all, &rows);
            }
        }
    }

    /// saggar makes no mount point in a tree of the host.
    fn a_mount_point_that_is_not_there_is_refused_by_both_names(caller) {
        let wrap = Wrap::new(caller);
        let tree = wrap.place.make_dir("tree", 0o755);
        wrap.place.make_file("tree/file", "");
        wrap.place.make_dir("tree/directory", 0o755);
        std::os::unix::fs::symlink("directory", tree.join("link")).unwrap();
        let single = wrap.place.make_file("single", "");
        for (mode, source, at, why) in [
            ("--ro", "/usr/share/doc", "missing", "does not exist"),
            ("--rw", tree.to_str().unwrap(), "missing", "does not exist"),
            ("--ro", "/usr/share/doc", "missing/below", "does not exist"),
            ("--ro", "/usr/share/doc", "file/below", "does not exist"),
            ("--ro", "/usr/share/doc", "link", "link"),
            ("--ro", "/usr/share/doc", "file", "is a file"),
            ("--ro", single.to_str().unwrap(), "directory", "is a directory"),
        ] {
            let outer = format!("{}:/opt/a", tree.display());
            let inner = format!("{source}:/opt/a/{at}");
            let ended = wrap.run(&["--rw", &outer, mode, &inner], &["/bin/true"]);
            ended.refused(&[&format!("/opt/a/{at}"), "in /opt/a:", why, "PATH:DEST"]);
        }
        let inner = "/usr/share/doc:/opt/a/directory";
        let outer = format!("{}:/opt/a", tree.display());
        let said = wrap.run(&["--ro", inner, "--rw", &outer], &["/bin/ls", "-d", "/opt/a/directory/git"]);
        assert_eq!(said.success(), "/opt/a/directory/git\n");
    }

    /// What holds a read-only path in a tree that programs can write stays where it is, and so does the path.
    fn a_read_only_path_is_not_made_anew(caller) {
        let wrap = Wrap::new(caller);
        let outer = wrap.place.make_dir("outer", 0o755);
        for tree in [outer, wrap.work()] {
            let file = tree.join("a/b/c");
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, "old").unwrap();
            caller.own(&tree.join("a"));
            caller.own(&tree.join("a/b"));
            caller.own(&file);
            let script = "cd $0; mv a x; mv a/b a/x; mkdir -p a/b; echo new >a/b/c; cat a/b/c; echo y >a/y";
            let (outer, tree) = (wrap.place.join("outer").display().to_string(), tree.display().to_string());
            for held in ["a/b", "a/b/c"] {
                let held = format!("{tree}/{held}");
                let ended =
                    wrap.run(&["--rw", &outer, "--ro", &held], &["/bin/sh", "-c", &format!("{{ {script}; }} 2>&-"), &tree]);
                assert_eq!(ended.success(), "old", "{held}");
                assert_eq!(std::fs::read_to_string(&file).unwrap(), "old", "{held}");
            }
        }
    }

    /// Nor in the file systems of the kernel that a sandbox has.
    fn a_mount_point_among_files_of_the_kernel_is_refused_by_both_names(caller) {
        let wrap = Wrap::new(caller);
        for (named, under) in [
            ("/proc/self", "/proc"), ("/proc/cpuinfo", "/proc"), ("/etc:/proc/missing", "/proc"),
            ("/etc/hostname:/proc/version", "/proc"), ("/etc:/proc/sys", "/proc"), ("/dev/null:/proc/null", "/proc"),
            ("/etc:/dev/pts/missing", "/dev/pts"), ("/etc:/dev/mqueue/missing", "/dev/mqueue"),
        ] {
            let ended = wrap.run(&["--ro", named], &["/bin/true"]);
            ended.refused(&[named.split(':').next_back().unwrap(), &format!("in {under}:"), "PATH:DEST"]);
        }
        let of_links = [("/etc", "/bin", "/bin/missing"), ("/etc/hostname", "/sbin", "/sbin/missing"), ("/etc", "/lib", "/lib")];
        for (source, link, at) in of_links.into_iter().filter(|(_, link, _)| Path::new(link).is_symlink()) {
            let ended = wrap.run(&["--ro", &format!("{source}:{at}")], &["/bin/true"]);
            ended.refused(&[at, &format!("in {link}:"), "link", "PATH:DEST"]);
        }
        wrap.run(&["--ro", "/proc/self/status:/opt/status"], &["/bin/true"]).refused(&["/proc/self/status", "number"]);
    }

    /// What cannot be mounted with its mode is refused by its name, by `explain` as well.
    fn a_source_that_would_not_be_what_its_mode_says_is_refused(caller) {
        let wrap = Wrap::new(caller);
        wrap.place.make_dir("shared", 0o777);
        wrap.place.make_file("shared/file", "content");
        let shared = wrap.place.join("shared");
        let [link, fifo] = ["link", "fifo"].map(|name| shared.join(name));
        std::os::unix::fs::symlink("file", &link).unwrap();
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        caller.own(&fifo);
        let (shared, link, fifo) = (shared.to_str().unwrap(), link.to_str().unwrap(), fifo.to_str().unwrap());
        let in_tmp = format!("{fifo}:/tmp/fifo");
        let elsewhere = format!("{fifo}:/opt/fifo");
        let refused: [(&[&str], [&str; 3]); 8] = [
            (&["--profile", "nesting", "--ro", &elsewhere], [fifo, "FIFO", "Landlock"]),
            (&["--ro", link], [link, "a link to", "/shared/file"]),
            (&["--rw", link], [link, "a link to", "/shared/file"]),
            (&["--ro", "/dev/null"], ["/dev/null", "device", "command line"]),
            (&["--rw", "/dev/zero:/opt/zero"], ["/dev/zero", "device", "command line"]),
            (&["--ro", fifo, "--rw", shared], [fifo, "FIFO", "is writable"]),
            (&["--rw", shared, "--ro", fifo], [fifo, "FIFO", "is writable"]),
            (&["--ro", &in_tmp], [fifo, "FIFO", "/tmp is writable"]),
        ];
        for (options, words) in refused {
            wrap.run(options, &["/bin/true"]).refused(&words);
            let mut explain = wrap.place.saggar();
            explain.arg("explain").args(options);
            wrap.finish(explain).refused(&words);
        }
        // Where no rule of a tree above allows it, programs cannot write to a read-only FIFO.
        let script = "exec 3<>/opt/fifo || exit 7";
        assert_ne!(wrap.run(&["--ro", &elsewhere], &["/bin/sh", "-c", script]).code(), 0);
        assert_eq!(wrap.run(&["--rw", &elsewhere], &["/bin/sh", "-c", script]).code(), 0);
    }

    fn a_tree_over_what_saggar_makes_is_refused_by_both_names(caller) {
        let wrap = Wrap::new(caller);
        for (tree, made) in [("/etc", "/etc/"), ("/var", "/var/"), ("/usr/share:/home", "/home/agent")] {
            let ended = wrap.run(&["--ro", tree], &["/bin/true"]);
            ended.refused(&[made, tree.split(':').next_back().unwrap(), "cannot be mounted", "PATH:DEST"]);
        }
        // Where it has what is needed, it is no hindrance.
        wrap.place.make_dir("homes", 0o755);
        wrap.place.make_dir("homes/agent", 0o755);
        wrap.place.make_file("homes/mark", "");
        let homes = format!("{}:/home", wrap.place.join("homes").display());
        let said = wrap.run(&["--ro", &homes], &["/bin/sh", "-c", "ls /home; echo x > ~/file && cat ~/file"]).success();
        assert_eq!(said, "agent\nmark\nx\n");
    }

    fn a_mount_in_a_hidden_directory_is_refused_by_both_names(caller) {
        let wrap = Wrap::new(caller);
        wrap.place.make_dir("work/hidden", 0o755);
        wrap.place.make_dir("work/hidden/below", 0o755);
        wrap.place.make_file("work/hidden/below/file", "");
        let hide = |name: &str| {
            let policy = wrap.place.make_file("hide.toml", &format!("[files]\nhide = [{name:?}]\n"));
            policy.display().to_string()
        };
        let hidden = wrap.work().join("hidden");
        let below = hidden.join("below");
        let other = wrap.place.make_dir("other", 0o755);
        for named in [below.display().to_string(), format!("{}:{}", other.display(), below.display()), format!("{}/file", below.display())] {
            for mode in ["--ro", "--rw"] {
                let ended = wrap.run(&["--policy", &hide("hidden"), mode, &named], &["/bin/true"]);
                ended.refused(&[below.to_str().unwrap(), &format!("in {},", hidden.display()), "hidden", "PATH:DEST"]);
            }
        }
        // What does not exist is not hidden, and hides nothing.
        let named = format!("/usr/share/doc:{}", below.display());
        assert_eq!(wrap.run(&["--policy", &hide("missing"), "--ro", &named], &["/bin/true"]).code(), 0);
    }

    /// What protects a repository in a tree is not made of what covers it there.
    fn a_repository_that_something_covers_hinders_no_start(caller) {
        let wrap = Wrap::new(caller);
        let tree = wrap.place.make_dir("tree", 0o755);
        wrap.place.make_dir("other", 0o755);
        wrap.place.make_file("other/mark", "other");
        wrap.outside(&format!("git init -q {0}; git init -q .", tree.display()));
        let other = wrap.place.join("other");
        for repository in [&tree, &wrap.work()] {
            let over = format!("{}:{}/.git", other.display(), repository.display());
            let mark = format!("{}/.git/mark", repository.display());
            let options = ["--rw", tree.to_str().unwrap(), "--ro", &over];
            assert_eq!(wrap.run(&options, &["/bin/cat", &mark]).success(), "other");
        }
        // What shows the same files leaves their protection.
        let git = format!("{}/.git", tree.display());
        let script = format!("echo x > {git}/hooks/pre-commit");
        let ended = wrap.run(&["--rw", tree.to_str().unwrap(), "--rw", &git], &["/bin/sh", "-c", &script]);
        assert_ne!(ended.code(), 0, "a hook was written");
    }
}
