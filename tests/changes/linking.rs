//! Symbolic links that an agent left, and locks and leases that programs take on the folder.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::process::Command;

use nix::fcntl::{Flock, FlockArg};

use super::{ID, Work, on_each};

as_each_caller! {
    /// What the host's programs write through such a link they would write elsewhere.
    fn links_that_lead_out_are_marked_and_taken_over_by_option_alone(caller) {
        on_each(caller, |work| {
            let outside = work.place.make_dir("outside", 0o755);
            symlink(&outside, work.folder().join("way")).unwrap();
            work.own(&work.folder().join("way"));
            work.begin(
                "ln -s /etc/passwd absolute; ln -s ../outside up; ln -s old/../../x winding; ln -s way/x through; \
                 mkdir -p d/e; ln -s .. d/e/here; ln -s d/e/here/../../x over; ln -s .git/config git; ln -s .envrc rc; \
                 ln -s old/a fine; ln -s ../src/main d/well; ln -s missing/name dangling; ln -s loop loop",
            );
            let lines = work.diff();
            let marked = |name: &str| {
                let start = format!("A {name} -> ");
                let line = lines.iter().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("{name}: {lines:?}"));
                line.contains("[link: it is a link that leads ")
            };
            for name in ["absolute", "up", "winding", "through", "over", "git", "rc", "loop"] {
                assert!(marked(name), "{name}, overlay {}: {lines:?}", work.overlay);
                work.run(&["apply", ID, name]).refused(&[name, "it is a link", "--allow-links"]);
                assert!(work.folder().join(name).symlink_metadata().is_err(), "{name}");
            }
            for name in ["fine", "d/well", "d/e/here", "dangling"] {
                assert!(!marked(name), "{name}: {lines:?}");
            }
            work.run(&["apply", ID]).refused(&["nothing was done"]);
            assert!(work.folder().join("fine").symlink_metadata().is_err());
            work.run(&["apply", ID, "fine", "d", "dangling"]).success();
            work.run(&["apply", "--allow-links", ID, "absolute"]).success();
            assert_eq!(fs::read_link(work.folder().join("absolute")).unwrap().to_str(), Some("/etc/passwd"));
        });
    }

    /// A program that can read the folder could hold a lock on it for ever.
    fn lock_on_the_folder_blocks_no_command(caller) {
        let work = Work::new(caller, false);
        work.begin("echo x > new; echo y > src/main");
        let folder = fs::File::open(work.folder()).unwrap();
        let _lock = Flock::lock(folder, FlockArg::LockShared).unwrap();
        work.run(&["apply", ID]).success();
        work.has("new", "x\n");
    }

    /// A lease on a file makes every open of it wait for its holder, the host's too (fcntl(2)).
    fn programs_take_no_leases(caller) {
        let work = Work::new(caller, false);
        const LEASE: &str = "import fcntl,os; f=open('lease','w'); fcntl.fcntl(f, 1024, fcntl.F_WRLCK)";
        if !Command::new("python3").args(["-c", "pass"]).status().is_ok_and(|status| status.success()) {
            skip!("python3 is not here");
        }
        // Programs that nest may write a tree of root's only where nobody else can enter.
        work.place.close();
        for profile in ["strict", "nesting"] {
            let mut command = work.place.saggar();
            command.args(["wrap", "--profile", profile, "--workspace"]).arg(work.folder());
            command.args(["--", "python3", "-c", LEASE]);
            let ended = crate::isolation::wrapped::finish(crate::support::process::Process::start(&work.place, command));
            assert_ne!(ended.code(), 0, "{profile}: {ended:?}");
            assert!(ended.stderr.contains("PermissionError"), "{profile}: {ended:?}");
            assert_eq!(fs::metadata(work.folder().join("lease")).unwrap().size(), 0);
        }
    }
}
