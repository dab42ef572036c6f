//! `--ro`, `--rw`, `--home` and the program of the caller.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::wrapped::Wrap;
use crate::support::place::copy_program;

as_each_caller! {
    fn named_paths_are_there_as_they_were_named(caller) {
        let wrap = Wrap::new(caller);
        let shared = wrap.place.make_dir("shared", 0o755);
        wrap.place.make_file("shared/file", "shared");
        let given = wrap.place.make_dir("given", 0o755);
        let read_only = format!("{}:/data/in", shared.display());
        let script = format!(
            "cat /data/in/file; touch /data/in/x 2>&- && echo wrote; mount -o remount,rw /data/in 2>&- && echo remounted; \
             touch {0}/made || exit 1; ls -A {1}/.. ; exit 0", given.display(), wrap.work().display());
        let said = wrap.run(&["--ro", &read_only, "--rw", given.to_str().unwrap()], &["/bin/sh", "-c", &script]).success();
        assert_eq!(said, "sharedgiven\nwork\n");
        assert!(given.join("made").exists());
    }

    /// A name is bytes, and may have a colon and a backslash.
    fn any_path_can_be_named(caller) {
        let wrap = Wrap::new(caller);
        for (name, written) in [(&b"plain"[..], &b"plain"[..]), (b"not-\xff\xfe-text", b"not-\xff\xfe-text"), (b"a:b", b"a\\:b"), (b"a\\b", b"a\\b"), (b"a\\:", b"a\\\\\\:")] {
            let directory = wrap.place.join("").join(OsStr::from_bytes(name));
            fs::create_dir(&directory).unwrap();
            fs::write(directory.join("file"), "content").unwrap();
            fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
            let written = wrap.place.join("").join(OsStr::from_bytes(written));
            let at = OsStr::from_bytes(b"/data/\xff\\:x");
            let to = [written.as_os_str(), OsStr::new(":"), at].join(OsStr::new(""));
            let said = |options: &[&OsStr], script: &str, argument: &OsStr| {
                let mut command = wrap.place.saggar();
                command.arg("wrap").args(options).args(["--", "/bin/sh", "-c", script, "sh"]).arg(argument);
                wrap.finish(command).success()
            };
            let [ro, rw, home, workspace] = ["--ro", "--rw", "--home", "--workspace"].map(OsStr::new);
            assert_eq!(said(&[ro, written.as_os_str()], "cat \"$1/file\"", directory.as_os_str()), "content");
            assert_eq!(said(&[rw, &to], "cat \"$1/file\" && echo x >\"$1/made\"", OsStr::from_bytes(b"/data/\xff:x")), "content");
            assert!(directory.join("made").exists());
            assert_eq!(said(&[home, directory.as_os_str()], "cat ~/file", OsStr::new("")), "content");
            assert_eq!(said(&[workspace, directory.as_os_str()], "cat file", OsStr::new("")), "content");
        }
    }

    /// CVE-2021-30465: a destination that is a link would be mounted over somewhere else.
    fn a_destination_that_is_a_link_is_refused(caller) {
        let wrap = Wrap::new(caller);
        std::os::unix::fs::symlink("/etc", wrap.work().join("link")).unwrap();
        for destination in ["link", "link/ssl"] {
            let bind = format!("/usr/share:{}/{destination}", wrap.work().display());
            wrap.run(&["--ro", &bind], &["/bin/true"]).refused(&["link"]);
        }
        for destination in ["/data/../etc", "relative", "/"] {
            let ended = wrap.run(&["--ro", &format!("/usr/share:{destination}")], &["/bin/true"]);
            assert!([2, 125].contains(&ended.code()), "{destination}: {ended:?}");
        }
    }

    fn a_lasting_home_is_the_directory_that_was_named(caller) {
        let wrap = Wrap::new(caller);
        let home = wrap.place.make_dir("lasting", 0o700);
        wrap.run(&["--home", home.to_str().unwrap()], &["/bin/sh", "-c", "echo kept > ~/file"]).success();
        assert_eq!(fs::read_to_string(home.join("file")).unwrap(), "kept\n");
        assert_eq!(wrap.sh("ls -A ~; stat -f -c %T ~").success(), "tmpfs\n", "without it, it is memory");
    }

    /// DECISIONS 25: a program outside of the root brings its own directory, and never one that all share.
    fn a_program_in_a_shared_directory_comes_alone(caller) {
        let wrap = Wrap::new(caller);
        let shared = tempfile::Builder::new().prefix("saggar-").tempdir_in("/tmp").unwrap();
        fs::set_permissions(shared.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        let program = shared.path().join("list");
        copy_program("/bin/ls".as_ref(), &program);
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(shared.path().join("secret"), "of somebody else").unwrap();
        let seen = wrap.run(&[], &[program.as_path(), shared.path(), Path::new("/tmp")]).success();
        assert!(seen.contains("list") && !seen.contains("secret"), "{seen}");
        assert_eq!(seen.matches('\n').count(), 5, "two directories of one entry: {seen}");
    }

    fn a_program_of_its_own_directory_comes_with_it(caller) {
        let wrap = Wrap::new(caller);
        wrap.place.make_dir("tool", 0o755);
        wrap.place.make_file("tool/data", "beside it");
        let program = wrap.place.make_file("tool/run", "#!/bin/sh\ncat ${0%/*}/data; touch ${0%/*}/x 2>&- && echo wrote; exit 0\n");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(wrap.run(&[], &[program]).success(), "beside it");
    }

    fn resource_limits_hold(caller) {
        let wrap = Wrap::new(caller);
        let limits = wrap.sh("ulimit -c; ulimit -Hn; ulimit -l").success();
        let mut limits = limits.lines();
        assert_eq!(limits.next(), Some("0"));
        assert!(limits.next().unwrap().parse::<u32>().unwrap() <= 65536);
        assert!(limits.next().unwrap().parse::<u32>().unwrap() <= 8192);
    }
}
