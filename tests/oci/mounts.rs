//! The words of mount options (config.md, Linux mount options): each is taken by every file system, alone, and does
//! what mount(8) says of it; a remount leaves what it names, and no more (mount(2), MS_REMOUNT).

use super::bundle::Bench;
use crate::support::caller::Caller;
use crate::support::place::Place;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Every word with what a new mount shows of it: options of the mount, options of the file system. Those of which
/// nothing is to be seen are there to be taken. Without `bind`, `rbind` and `remount`, which need something to be
/// there, and `tmpcopyup`, `idmap` and `ridmap`, which are not for every file system.
const WORDS: [(&str, &str, &str); 56] = [
    ("async", "rw,relatime", ""),
    ("atime", "rw,relatime", ""),
    ("defaults", "rw,relatime", ""),
    ("dev", "rw,relatime", ""),
    ("diratime", "rw,relatime", ""),
    ("dirsync", "rw,relatime", "dirsync"),
    ("exec", "rw,relatime", ""),
    ("iversion", "rw,relatime", ""),
    ("lazytime", "rw,relatime", "lazytime"),
    ("loud", "rw,relatime", ""),
    ("mand", "rw,relatime", ""),
    ("noatime", "rw,noatime", ""),
    ("nodev", "rw,nodev,relatime", ""),
    ("nodiratime", "rw,nodiratime,relatime", ""),
    ("noexec", "rw,noexec,relatime", ""),
    ("noiversion", "rw,relatime", ""),
    ("nolazytime", "rw,relatime", ""),
    ("nomand", "rw,relatime", ""),
    ("norelatime", "rw,relatime", ""),
    ("nostrictatime", "rw,relatime", ""),
    ("nosuid", "rw,nosuid,relatime", ""),
    ("nosymfollow", "rw,relatime,nosymfollow", ""),
    ("private", "rw,relatime", ""),
    ("ratime", "rw,relatime", ""),
    ("rdev", "rw,relatime", ""),
    ("rdiratime", "rw,relatime", ""),
    ("relatime", "rw,relatime", ""),
    ("rexec", "rw,relatime", ""),
    ("rnoatime", "rw,noatime", ""),
    ("rnodev", "rw,nodev,relatime", ""),
    ("rnodiratime", "rw,nodiratime,relatime", ""),
    ("rnoexec", "rw,noexec,relatime", ""),
    ("rnorelatime", "rw,relatime", ""),
    ("rnostrictatime", "rw,relatime", ""),
    ("rnosuid", "rw,nosuid,relatime", ""),
    ("rnosymfollow", "rw,relatime,nosymfollow", ""),
    ("ro", "ro,relatime", ""),
    ("rprivate", "rw,relatime", ""),
    ("rrelatime", "rw,relatime", ""),
    ("rro", "ro,relatime", ""),
    ("rrw", "rw,relatime", ""),
    ("rshared", "rw,relatime shared", ""),
    ("rslave", "rw,relatime", ""),
    ("rstrictatime", "rw", ""),
    ("rsuid", "rw,relatime", ""),
    ("rsymfollow", "rw,relatime", ""),
    ("runbindable", "rw,relatime unbindable", ""),
    ("rw", "rw,relatime", ""),
    ("shared", "rw,relatime shared", ""),
    ("silent", "rw,relatime", ""),
    ("slave", "rw,relatime", ""),
    ("strictatime", "rw", ""),
    ("suid", "rw,relatime", ""),
    ("symfollow", "rw,relatime", ""),
    ("sync", "rw,relatime", "sync"),
    ("unbindable", "rw,relatime unbindable", ""),
];

/// What the container says of its mounts: by their place, the options of the mount with its propagation, and those
/// of the file system.
fn table(bench: &Bench, mounts: Vec<Value>) -> HashMap<String, (String, String)> {
    bench.configure(|config| {
        config["process"]["args"] = json!(["/bin/cat", "/proc/self/mountinfo"]);
        config["mounts"].as_array_mut().unwrap().extend(mounts);
    });
    let said = bench.run(&bench.id()).ok();
    let line = |line: &str| {
        let (mount, filesystem) = line.split_once(" - ")?;
        let fields: Vec<&str> = mount.split(' ').collect();
        let tags = fields[6..].iter().map(|tag| tag.split(':').next().unwrap());
        let options = [fields[5]].into_iter().chain(tags).collect::<Vec<_>>().join(" ");
        Some((fields[4].to_owned(), (options, filesystem.split(' ').nth(2)?.to_owned())))
    };
    said.stdout.lines().filter_map(line).collect()
}

/// What is bound from a tree that is shared on the host, as systemd makes all of it, is a slave of that tree, unless a
/// word takes it out.
fn without_master(options: &str) -> String {
    options.replace(" master", "")
}

/// A user namespace may not change how the host keeps the times of access.
fn times(word: &str) -> bool {
    word.contains("atime")
}

/// One mount for each word that `taken` lets pass, and what is seen of it.
fn each_word(caller: Caller, entry: &Value, taken: impl Fn(&str) -> bool) {
    let bench = Bench::new(caller);
    let words: Vec<_> = WORDS.iter().filter(|(word, ..)| taken(word)).collect();
    let mount = |word: &str| {
        let mut mount = entry.clone();
        mount["destination"] = format!("/m/{word}").into();
        let mut options: Vec<Value> = mount["options"].as_array().cloned().unwrap_or_default();
        options.push(word.into());
        mount["options"] = options.into();
        mount
    };
    let table = table(&bench, words.iter().map(|(word, ..)| mount(word)).collect());
    for (word, of_mount, of_filesystem) in words {
        let (options, filesystem) = &table[&format!("/m/{word}")];
        let is_taken_out = ["private", "unbindable"].contains(&word.trim_start_matches('r'));
        let options = if is_taken_out { options.clone() } else { without_master(options) };
        assert_eq!(options, *of_mount, "{word} on {entry}");
        let shown = of_filesystem.is_empty() || filesystem.split(',').any(|option| option == *of_filesystem);
        // Those that one mount has to itself: the others have one file system behind many mounts.
        let own = ["tmpfs", "devpts", "overlay"].iter().any(|kind| entry["type"] == *kind);
        assert!(shown || !own, "{word} on {entry}: {filesystem}");
    }
}

as_each_caller! {
    fn every_word_is_taken_by_new_file_systems(caller) {
        for kind in ["tmpfs", "proc", "sysfs", "mqueue", "devpts"] {
            let locked = !caller.is_root() && ["proc", "sysfs"].contains(&kind);
            each_word(caller, &json!({ "type": kind, "source": kind }), |word| !locked || !times(word));
        }
    }

    fn every_word_is_taken_by_an_overlay(caller) {
        let place = Place::new(caller);
        let lower = format!("lowerdir={}:{}", place.work().display(), place.join("tmp").display());
        each_word(caller, &json!({ "type": "overlay", "source": "o", "options": [lower] }), |_| true);
    }

    fn every_word_is_taken_by_a_bind(caller) {
        let place = Place::new(caller);
        let bind = json!({ "type": "none", "source": place.work(), "options": ["bind"] });
        each_word(caller, &bind, |word| caller.is_root() || !times(word));
    }

    /// mount(2): a remount sets the flags that are named and clears the others, but for the times of access, which
    /// stay where none is named.
    fn a_remount_leaves_what_it_names(caller) {
        let bench = Bench::new(caller);
        let cases: [(&[&str], &[&str], &str, &str); 12] = [
            (&["ro"], &["rw"], "rw,relatime", "rw"),
            (&["rw"], &["ro"], "ro,relatime", "ro"),
            (&["ro"], &[], "rw,relatime", "rw"),
            (&["nosuid", "nodev", "noexec", "nosymfollow"], &[], "rw,relatime", "rw"),
            (&["nosuid"], &["nosuid", "nodev"], "rw,nosuid,nodev,relatime", "rw"),
            (&["sync"], &["async"], "rw,relatime", "rw"),
            (&["sync"], &["noexec"], "rw,noexec,relatime", "rw"),
            (&["lazytime"], &["nolazytime"], "rw,relatime", "rw"),
            (&[], &["sync", "lazytime", "iversion"], "rw,relatime", "rw,sync,lazytime"),
            (&["noatime"], &["nosuid"], "rw,nosuid,noatime", "rw"),
            (&["noatime"], &["strictatime"], "rw", "rw"),
            (&["noatime", "nodiratime"], &["relatime"], "rw,relatime", "rw"),
        ];
        let tmpfs = |at: usize, options: Vec<&str>| {
            json!({ "destination": format!("/m{at}"), "type": "tmpfs", "source": "tmpfs", "options": options })
        };
        let mounts = cases.iter().enumerate().flat_map(|(at, (first, then, ..))| {
            [tmpfs(at, first.to_vec()), tmpfs(at, [&["remount"], *then].concat())]
        });
        let table = table(&bench, mounts.collect());
        for (at, (first, then, of_mount, of_filesystem)) in cases.iter().enumerate() {
            let (options, filesystem) = &table[&format!("/m{at}")];
            assert_eq!(options, of_mount, "{first:?} {then:?}");
            let ours = |option: &&str| ["rw", "ro", "sync", "lazytime"].contains(option);
            let filesystem: Vec<_> = filesystem.split(',').filter(ours).collect();
            assert_eq!(filesystem.join(","), *of_filesystem, "{first:?} {then:?}");
        }
    }

    /// mount(2), MS_REMOUNT with MS_BIND: the same for one mount, and nothing for the file system.
    fn a_remount_with_bind_leaves_what_it_names(caller) {
        let bench = Bench::new(caller);
        let mut cases: Vec<(&[&str], &[&str], &str)> = vec![
            (&["ro"], &["rw"], "rw,relatime"),
            (&["ro", "nosuid"], &[], "rw,relatime"),
            (&["nosuid", "nodev"], &["ro"], "ro,relatime"),
            (&[], &["ro", "noexec"], "ro,noexec,relatime"),
            (&["nosymfollow"], &["nosuid"], "rw,nosuid,relatime"),
        ];
        if caller.is_root() {
            cases.push((&["nodiratime", "ro"], &["nosuid"], "rw,nosuid,nodiratime,relatime"));
        }
        let bind = |at: usize, options: Vec<&str>| {
            let options = [&["bind"], options.as_slice()].concat();
            json!({ "destination": format!("/m{at}"), "type": "none", "source": bench.place.work(), "options": options })
        };
        let mounts = cases.iter().enumerate().flat_map(|(at, (first, then, _))| {
            [bind(at, first.to_vec()), bind(at, [&["remount"], *then].concat())]
        });
        let table = table(&bench, mounts.collect());
        for (at, (first, then, expected)) in cases.iter().enumerate() {
            let (options, filesystem) = &table[&format!("/m{at}")];
            assert_eq!(without_master(options), *expected, "{first:?} {then:?}");
            assert!(filesystem.starts_with("rw"), "the host's file system: {filesystem}");
        }
        fs::write(bench.place.work().join("still"), "writable").unwrap();
    }

    /// A file system that only mount(2) can make is filled and sealed like any other.
    fn a_tmpfs_with_iversion_is_like_any_other(caller) {
        let bench = Bench::new(caller);
        let data = bench.bundle().join("rootfs/data");
        fs::create_dir(&data).unwrap();
        fs::write(data.join("file"), "copied").unwrap();
        caller.own(&data);
        caller.own(&data.join("file"));
        bench.configure(|config| {
            config["process"]["args"] = json!(["/bin/sh", "-c", "cat /data/file; echo; ls -a /; touch /data/new || true"]);
            config["mounts"].as_array_mut().unwrap().push(json!({ "destination": "/data", "type": "tmpfs",
                "source": "tmpfs", "options": ["iversion", "tmpcopyup", "ro", "size=64k"] }));
        });
        let said = bench.run(&bench.id()).ok();
        assert!(said.stdout.starts_with("copied\n"), "{said:?}");
        assert!(said.stderr.contains("Read-only file system"), "{said:?}");
        assert!(!said.stdout.contains("here"), "{said:?}");
        assert!(!data.join("new").exists());
    }

    /// Options of crun(1): a link at either end of a bind mount is not followed.
    fn links_at_the_ends_of_a_bind_mount_are_not_followed_on_request(caller) {
        let bench = Bench::new(caller);
        bench.place.make_file("target", "of the host\n");
        bench.place.make_file("plain", "plain\n");
        let (link, root) = (bench.place.join("link"), bench.bundle().join("rootfs"));
        symlink("target", &link).unwrap();
        let run = |options: &[&str], source: &Path, script: &str| {
            let options: Vec<&str> = ["bind"].iter().chain(options).copied().collect();
            bench.configure(|config| {
                config["process"]["args"] = json!(["/bin/sh", "-c", script]);
                config["mounts"].as_array_mut().unwrap().push(json!({ "destination": "/at", "source": source,
                    "options": options }));
            });
            bench.run(&bench.id())
        };
        let clean = || { let _ = fs::remove_file(root.join("at")); };

        assert_eq!(run(&[], &link, "cat /at").ok().stdout, "of the host\n");
        clean();
        // The link is there, and leads nowhere in the container.
        let said = run(&["src-nofollow"], &link, "busybox readlink /at; cat /at");
        assert!(said.stdout == "target\n" && said.stderr.contains("No such file"), "{said:?}");
        clean();
        assert_eq!(run(&["src-nofollow"], &bench.place.join("plain"), "cat /at").ok().stdout, "plain\n");
        clean();
        // A slash at its end makes no difference.
        let slash = bench.place.join("link/");
        assert_eq!(run(&["src-nofollow"], &slash, "busybox readlink /at").ok().stdout, "target\n");
        clean();

        // No mount is made, and a second container of the same root file system finds its link.
        let script = "busybox readlink /at; busybox grep -c ' /at ' /proc/self/mountinfo";
        for _ in 0..2 {
            let said = run(&["copy-symlink"], &link, script);
            assert_eq!(said.stdout, "target\n0\n", "{said:?}");
            assert_eq!(fs::read_link(root.join("at")).unwrap(), Path::new("target"));
        }
        clean();
        symlink("another", root.join("at")).unwrap();
        run(&["copy-symlink"], &link, "true").fails("copy-symlink: something else");
        clean();
        assert_eq!(run(&["copy-symlink"], &bench.place.join("plain"), "cat /at").ok().stdout, "plain\n");
        clean();

        // The link at the destination is covered, and what it leads to is left alone.
        fs::write(root.join("etc/victim"), "of the image\n").unwrap();
        symlink("/etc/victim", root.join("at")).unwrap();
        let both = "cat /at /etc/victim";
        assert_eq!(run(&[], &bench.place.join("plain"), both).ok().stdout, "plain\nplain\n");
        assert_eq!(run(&["dest-nofollow"], &bench.place.join("plain"), both).ok().stdout, "plain\nof the image\n");
        run(&["dest-nofollow"], &bench.place.make_dir("directory", 0o755), "true").fails("a directory cannot be mounted on a link");
        // Where nothing is, a file is made.
        clean();
        assert_eq!(run(&["dest-nofollow"], &bench.place.join("plain"), "cat /at").ok().stdout, "plain\n");
    }

    /// In a user namespace flags of the host cannot be cleared: they stay, or with the option of runc the start fails.
    fn flags_that_the_host_has_locked_stay_or_are_an_error(caller) {
        let bench = Bench::new(caller);
        let host = bench.place.make_dir("host", 0o755);
        bench.configure(|config| {
            config["process"]["args"] = json!(["/bin/cat", "/proc/self/mountinfo"]);
            for options in [&["bind"][..], &["bind", "remount", "ro"]] {
                let mount = json!({ "destination": "/m", "source": &host, "options": options });
                config["mounts"].as_array_mut().unwrap().push(mount);
            }
            let linux = &mut config["linux"];
            if caller.is_root() {
                linux["namespaces"].as_array_mut().unwrap().push(json!({ "type": "user" }));
            }
            for map in ["uidMappings", "gidMappings"] {
                linux[map] = json!([{ "containerID": 0, "hostID": 0, "size": 1 }]);
            }
        });
        let bundle = bench.bundle();
        let run = |options: &[&str], id: &str| {
            let mut args = vec!["--cgroup-manager", "disabled", "run"];
            args.extend(options);
            args.extend(["--bundle", bundle.to_str().unwrap(), id]);
            let saggar = bench.command(&args);
            // A host, for the container's user namespace.
            let mut command = bench.place.command(Path::new("/usr/bin/unshare"));
            command.args(["--user", "--map-root-user", "--mount", "/bin/sh", "-c"]);
            command.arg("mount -t tmpfs -o nosuid,nodev none \"$0\" && exec \"$@\"").arg(&host);
            command.arg(saggar.get_program()).args(saggar.get_args());
            bench.finish(command)
        };
        let said = run(&[], &bench.id()).ok();
        let mount = said.stdout.lines().find(|line| line.contains(" /m ")).unwrap();
        assert!(mount.contains(" /m ro,nosuid,nodev,"), "{mount}");
        run(&["--no-mount-fallback"], &bench.id()).fails("change the mount at /m");
    }
}
