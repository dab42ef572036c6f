//! Patterns in `files.hide` and `protect.paths`: what they match is hidden and protected, and what matches nothing is told.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::wrapped::{Ended, Wrap};
use crate::support::caller::Caller;

/// A workspace with these files, and this policy.
fn work(caller: Caller, policy: &str, files: &[&str]) -> Wrap {
    let wrap = Wrap::new(caller);
    wrap.place.make_file("work/saggar.toml", policy);
    for file in files {
        make(&wrap, file);
    }
    wrap
}

fn make(wrap: &Wrap, file: &str) {
    let path = format!("work/{file}");
    let mut above = String::new();
    for part in path.split('/').rev().skip(1).collect::<Vec<_>>().into_iter().rev() {
        above = if above.is_empty() { part.to_owned() } else { format!("{above}/{part}") };
        if !wrap.place.join(&above).exists() {
            wrap.place.make_dir(&above, 0o755);
        }
    }
    wrap.place.make_file(&path, "SECRET");
}

fn explain(wrap: &Wrap) -> Ended {
    let mut command = wrap.place.saggar();
    command.args(["explain", "."]);
    wrap.finish(command)
}

as_each_caller! {
    fn files_that_a_pattern_matches_are_empty_at_any_depth(caller) {
        let policy = "files.hide = ['*.env', 'conf/*.key', 'secret*', '**/deep/**/x']\n";
        let hidden = ["a.env", ".env", "one/two/b.env", "conf/a.key", "secrets/file", "p/deep/q/r/x", "a/secret"];
        let shown = ["a.envs", "one/conf/a.key", "conf/below/a.key", "p/x", "env"];
        let wrap = work(caller, policy, &[&hidden[..], &shown[..]].concat());
        let said = wrap.sh("find . -type f -size +0 ! -name saggar.toml | sort; cat .env one/two/b.env; ls secrets");
        assert_eq!(said.success(), "./a.envs\n./conf/below/a.key\n./env\n./one/conf/a.key\n./p/x\n");
        let attempts = wrap.sh("rm -f .env; mv one 1; mv secrets s; echo x >a.env; ls -d .env one secrets a.env 2>&1");
        assert_eq!(attempts.success(), ".env\na.env\none\nsecrets\n");
        for file in hidden {
            assert_eq!(fs::read_to_string(wrap.work().join(file)).unwrap(), "SECRET", "{file}");
        }
    }

    fn files_that_a_pattern_matches_are_read_only(caller) {
        let policy = "protect.paths = ['*.lock', 'scripts/**/*.sh', 'Make*']\n";
        let wrap = work(caller, policy, &["a.lock", "p/q/b.lock", "scripts/a/b.sh", "Makefile", "other/c.sh"]);
        for file in ["a.lock", "p/q/b.lock", "scripts/a/b.sh", "Makefile"] {
            let said = wrap.sh(&format!("(echo x >>{file}) 2>&-; rm -f {file} 2>&-; mv {file} x 2>&-; cat {file}"));
            assert_eq!(said.success(), "SECRET", "{file}");
        }
        wrap.sh("echo x >other/c.sh; mv other o; touch new.sh; rm new.sh").success();
    }

    /// A hidden directory is hidden whole, whatever else matches below it, and what is protected can hide a part.
    fn matches_below_matches(caller) {
        let policy = "files.hide = ['keys*', 'keys-1/inner', '*.pem']\nprotect.paths = ['vendor*', 'keys-1/*']\n";
        let wrap = work(caller, policy, &["keys-1/inner", "keys-1/a.pem", "vendor/a.pem", "vendor/code"]);
        let said = wrap.sh("ls -A keys-1; cat vendor/a.pem vendor/code; (echo x >vendor/code) 2>&- || echo refused");
        assert_eq!(said.success(), "SECRETrefused\n");
    }

    /// The characters of a pattern stand for themselves after a backslash, and in a path that is written like the pattern.
    fn names_like_patterns(caller) {
        let policy = "files.hide = ['\\*.env', 'app/[id]/key', 'a{b,c}']\n";
        let wrap = work(caller, policy, &["*.env", "x.env", "app/[id]/key", "app/i/key", "app/id/key", "ab", "a{b,c}"]);
        let said = wrap.sh("find . -type f -size +0 ! -name saggar.toml | sort");
        assert_eq!(said.success(), "./app/id/key\n./x.env\n");
    }

    /// A link to a file that stays visible would show what is to be hidden. Other links show nothing.
    fn links_that_a_pattern_matches(caller) {
        let wrap = work(caller, "files.hide = ['*.env']\n", &["real.env", "plain"]);
        symlink("real.env", wrap.work().join("link.env")).unwrap();
        symlink("nowhere", wrap.work().join("dangling.env")).unwrap();
        symlink("/etc/passwd", wrap.work().join("outside.env")).unwrap();
        symlink("loop.env", wrap.work().join("loop.env")).unwrap();
        assert_eq!(wrap.sh("cat link.env real.env plain").success(), "SECRET");
        symlink("plain", wrap.work().join("shown.env")).unwrap();
        wrap.sh("cat shown.env").refused(&["shown.env", "link to plain"]);
    }

    /// No link is followed out of the workspace, or in a circle.
    fn directories_behind_links_are_not_searched(caller) {
        let wrap = work(caller, "files.hide = ['*.env']\n", &["d/a.env"]);
        let outside = wrap.place.make_dir("outside", 0o755);
        wrap.place.make_file("outside/b.env", "OUTSIDE");
        symlink(&outside, wrap.work().join("link")).unwrap();
        symlink("..", wrap.work().join("d/up")).unwrap();
        assert_eq!(wrap.sh("find . -name '*.env'; cat d/a.env").success(), "./d/a.env\n");
        assert_eq!(fs::read_to_string(outside.join("b.env")).unwrap(), "OUTSIDE");
    }

    /// A search that cannot be complete is no start.
    fn directory_that_cannot_be_read_is_refused(caller) {
        let wrap = work(caller, "files.hide = ['*.env']\n", &["closed/a.env"]);
        let closed = wrap.work().join("closed");
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
        let said = wrap.sh("chmod 700 closed; cat closed/a.env");
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
        match caller.is_root() {
            // Root reads it all the same.
            true => assert_eq!(said.success(), ""),
            false => said.refused(&["closed", "files.hide"]),
        }
        // It is not searched if it is hidden itself.
        wrap.place.make_file("work/saggar.toml", "files.hide = ['*.env', 'closed']\n");
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
        let said = wrap.sh("chmod 700 closed 2>&-; ls -A closed 2>&-; exit 0");
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(said.success(), "");
    }

    fn more_matches_than_mounts_are_refused(caller) {
        let wrap = work(caller, "files.hide = ['*.env']\n", &[]);
        for number in 0..1025 {
            fs::write(wrap.work().join(format!("{number}.env")), "").unwrap();
        }
        wrap.sh("echo ran").refused(&["files.hide", "1024"]);
    }

    /// A path that no mount can reach could be read from a directory above it.
    fn path_that_is_too_long_is_refused(caller) {
        for (policy, depth) in [("files.hide = ['*.env']", 20), ("files.hide = ['*.env']", 24), ("protect.paths = ['*.lock']", 24)] {
            let wrap = work(caller, policy, &[]);
            let name = "d".repeat(200);
            let script = format!("i=0; while [ $i -lt {depth} ]; do mkdir {name}; cd {name} 2>&-; i=$((i + 1)); done; echo SECRET >{}.env", "x".repeat(65));
            wrap.outside(&script);
            let ended = wrap.sh("echo ran");
            ended.refused(&["too long", "files.hide", "remove it, or name"]);
            assert!(ended.stderr.len() < 5000, "{}", ended.stderr);
            wrap.outside(&format!("rm -rf {name}"));
        }
    }

    /// Everything below a directory that is read-only as a whole needs no mount of its own.
    fn protected_directory_counts_once(caller) {
        let wrap = work(caller, "protect.paths = ['ci/**']\nfiles.hide = ['*.key']\n", &["ci/a/x.key"]);
        for number in 0..1100 {
            fs::write(wrap.work().join(format!("ci/a/{number}")), "").unwrap();
        }
        let said = wrap.sh("(echo x >ci/a/5) 2>&- || echo refused; cat ci/a/x.key");
        assert_eq!(said.success(), "refused\n");
    }

    /// It can be neither read nor entered by programs of the sandbox.
    fn closed_directory_of_another_user_is_not_searched(caller) {
        let wrap = work(caller, "files.hide = ['*.env']\n", &["a.env"]);
        // It belongs to the user of the tests: root, if that is another one.
        let closed = wrap.work().join("closed");
        fs::create_dir(&closed).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(wrap.sh("cat a.env").success(), "");
    }

    /// What is mounted in the workspace has names of its own.
    fn mounted_tree_is_not_that_of_the_workspace(caller) {
        let wrap = work(caller, "files.hide = ['*.env']\n", &["data/a.env", "b.env"]);
        wrap.place.make_dir("other", 0o755);
        wrap.place.make_file("other/c.env", "MOUNTED");
        let data = wrap.work().join("data");
        let option = format!("--rw={}:{}", wrap.place.join("other").display(), data.display());
        let said = wrap.run(&[&option], &["/bin/sh", "-c", "cat b.env data/*"]);
        assert_eq!(said.success(), "MOUNTED");
        let same = format!("--rw={}", data.display());
        assert_eq!(wrap.run(&[&same], &["/bin/sh", "-c", "cat b.env data/*"]).success(), "");
        // Its own name is that of the workspace, and a directory of the workspace below it has its files.
        make(&wrap, "data/sub/d.env");
        wrap.place.make_dir("other/sub", 0o755);
        let sub = format!("--rw={}/sub", data.display());
        assert_eq!(wrap.run(&[&option, &sub], &["/bin/sh", "-c", "cat data/sub/d.env data/c.env"]).success(), "MOUNTED");
        wrap.place.make_file("work/saggar.toml", "files.hide = ['dat*']\n");
        assert_eq!(wrap.run(&[&option], &["/bin/sh", "-c", "ls -A data"]).success(), "");
    }

    fn entry_that_names_nothing_is_told(caller) {
        let policy = "files.hide = ['*.evn', '.env', 'gone']\nprotect.paths = ['*.lock', 'Makfile']\n";
        let wrap = work(caller, policy, &[".env", "a.lock", "Makefile"]);
        let ended = wrap.sh("cat .env");
        for entry in ["files.hide: *.evn", "files.hide: gone", "protect.paths: Makfile"] {
            assert!(ended.stderr.contains(&format!("{entry} names nothing")), "{entry}: {}", ended.stderr);
        }
        assert!(!ended.stderr.contains(".lock") && !ended.stderr.contains(": .env"), "{}", ended.stderr);
        let explained = explain(&wrap).success();
        let (_, listed) = explained.split_once("names nothing in the workspace\n").unwrap();
        assert_eq!(listed.lines().take_while(|line| !line.is_empty()).count(), 3, "{listed}");

        let mut check = wrap.place.saggar();
        check.args(["policy", "check", "saggar.toml"]);
        let checked = wrap.finish(check).success();
        assert_eq!(checked.matches("names nothing").count(), 3, "{checked}");
        // A name that two entries match, and a link, are matched, too.
        symlink("/etc/passwd", wrap.work().join("link.pem")).unwrap();
        wrap.place.make_file("work/saggar.toml", "files.hide = ['.env', '.e*', '*.env', '*.pem']\n");
        let ended = wrap.sh("cat .env");
        assert!(!ended.stderr.contains("names nothing"), "{}", ended.stderr);
        fs::remove_file(wrap.work().join("link.pem")).unwrap();
        // What applies to each workspace of a user is told by explain alone.
        wrap.place.make_file("work/saggar.toml", "files.hide = ['.env']\n");
        wrap.place.configure_user("files.hide = ['*.pem']\n");
        let ended = wrap.sh("cat .env");
        assert!(!ended.stderr.contains("names nothing"), "{}", ended.stderr);
        assert!(explain(&wrap).success().contains("*.pem"));
    }

    fn invalid_pattern_is_refused_with_its_place(caller) {
        let wrap = work(caller, "files.hide = ['[a']\n", &[]);
        wrap.sh("echo ran").refused(&["saggar.toml", "files.hide", "no pattern"]);
    }
}
