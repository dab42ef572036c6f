//! The verbs of sessions, and each against the adversary.

use nix::mount::umount;

use super::*;

/// The session of a test.
const ID: &str = "raced";
/// What the agent leaves: of each kind, new and changed.
const SCRIPT: &str = "echo new > src/main; rm -r old; mkdir -p d/e; echo x > d/e/f; rm kept; mkdir kept; echo k > kept/k; \
                      echo y > y; ln -s y link; chmod 700 src; mkdir many; cd many; seq 9 | xargs touch";
/// Where the agent's changes are.
const KINDS: [Left; 2] = [Left::Overlay, Left::Copy];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    Overlay,
    Copy,
}

impl Left {
    fn options(self) -> &'static [&'static str] {
        match self {
            Left::Overlay => &["--workspace-overlay"],
            Left::Copy => &[],
        }
    }
}

impl Raced {
    fn agent(&self, left: Left, script: &str) -> Vec<String> {
        let mut words = vec!["agent", "--adapter", "demo", "--session", ID];
        words.extend(left.options());
        words.push("../agent");
        let mut words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        words.push(format!("run: {script}"));
        words
    }

    /// One turn of an agent that leaves changes.
    fn begin(&self, left: Left) {
        let words = self.agent(left, SCRIPT);
        let ended = self.run(&words.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(ended.code(), 0, "{ended:?}");
    }

    fn folder(&self) -> PathBuf {
        self.place.join("agent")
    }

    fn session(&self) -> PathBuf {
        self.state().join("saggar/sessions").join(ID)
    }

    /// The trees that programs in the session reach.
    fn inside(&self, left: Left) -> Vec<PathBuf> {
        let workspace = if left == Left::Overlay { "upper/changes" } else { "workspace" };
        [workspace, "home"].map(|name| self.session().join(name)).into()
    }

    /// As [`Raced::inside`], with the agent's folder.
    fn all(&self, left: Left) -> Vec<PathBuf> {
        [vec![self.folder()], self.inside(left)].concat()
    }

    /// Nothing half done is left in the folder, or beside it.
    fn has_no_rest(&self, trees: &[PathBuf]) {
        for tree in trees {
            for entry in fs::read_dir(tree).into_iter().flatten().flatten() {
                let name = entry.file_name();
                assert!(!name.to_string_lossy().starts_with(".saggar-"), "{}", entry.path().display());
            }
        }
    }
}

/// Races `verb`; then the same again, undisturbed, succeeds and leaves no rest.
fn race_verb(caller: Caller, verb: &[&str], trees: impl Fn(&Raced, Left) -> Vec<PathBuf>) {
    race_for_a_while(&KINDS, Sweeps::new, |left, sweeps| one(caller, left, verb, &trees, sweeps));
}

fn one(
    caller: Caller,
    left: Left,
    verb: &[&str],
    trees: &impl Fn(&Raced, Left) -> Vec<PathBuf>,
    sweeps: &mut Sweeps,
) {
    let raced = Raced::new(caller);
    raced.begin(left);
    let file = raced.place.join("state/s.tar.zst");
    let file = file.to_str().unwrap();
    if verb.contains(&"restore") {
        let kept = raced.run(&["session", "snapshot", "--output", file, ID]);
        assert_eq!(kept.code(), 0, "{kept:?}");
    }
    let verb: Vec<&str> = verb.iter().map(|word| if *word == "FILE" { file } else { word }).collect();
    let trees = trees(&raced, left);
    raced.race(&raced.command(&verb), &trees, sweeps);
    if !raced.session().exists() {
        return;
    }
    if verb.contains(&"snapshot") {
        let _ = fs::remove_file(file);
    }
    let again = raced.run(&verb);
    assert_eq!(again.code(), 0, "{verb:?} again: {again:?}");
    raced.has_no_rest(&trees);
}

as_each_caller! {
    /// A directory that `apply` made was exchanged for a link before it got its mode.
    fn apply_changes_nothing_but_the_folder(caller) {
        race_verb(caller, &["session", "apply", "--force", ID], Raced::all);
    }

    /// That attack on each call that changes something, one after the other.
    fn no_name_that_apply_changes_can_be_exchanged(caller) {
        own_mounts();
        let mut sweeps = Sweeps::first();
        while !sweeps.are_over() {
            one(caller, Left::Copy, &["session", "apply", "--force", ID], &|raced, _| vec![raced.folder()], &mut sweeps);
        }
    }

    fn diff_reads_nothing_but_the_trees(caller) {
        race_verb(caller, &["session", "diff", "--patch", ID], Raced::all);
    }

    fn discard_changes_nothing_but_the_session(caller) {
        race_verb(caller, &["session", "discard", ID], Raced::all);
    }

    fn a_snapshot_holds_nothing_but_the_session(caller) {
        race_verb(caller, &["session", "snapshot", "--output", "FILE", ID], Raced::inside);
    }

    fn restore_changes_nothing_but_the_session(caller) {
        race_verb(caller, &["session", "restore", ID, "FILE"], Raced::inside);
    }

    /// An adversary that sees no name in the calls of the workers would prove nothing of them.
    fn names_that_the_workers_of_snapshot_and_restore_use_are_seen(caller) {
        own_mounts();
        let raced = Raced::new(caller);
        raced.begin(Left::Copy);
        let file = raced.place.join("state/s.tar.zst");
        let file = file.to_str().unwrap();
        let snapshot = ["session", "snapshot", "--output", file, ID];
        let restore = ["session", "restore", ID, file];
        for (verb, name) in [(&snapshot[..], "workspace/d/e/f"), (&restore, "restore.new/workspace/d/e/f")] {
            let (mut is_seen, path) = (false, raced.session().join(name));
            let status = stepped(&raced.place, &raced.command(verb), &raced.place.join("output"), |pid| {
                let program = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                is_seen |= program == "saggar:files\n" && names::used(pid).iter().any(|used| used.path == path);
            });
            assert_eq!((status, is_seen), (Some(0), true), "{verb:?}");
        }
    }

    fn remove_removes_nothing_but_the_session(caller) {
        race_verb(caller, &["session", "remove", ID], Raced::inside);
    }

    /// A removal that fails on its way leaves a session, not a directory that no command knows.
    fn a_removal_that_failed_can_be_repeated(caller) {
        if !nix::unistd::geteuid().is_root() {
            skip!("this test needs to be started as root");
        }
        own_mounts();
        let raced = Raced::new(caller);
        raced.begin(Left::Copy);
        let (from, at) = (raced.victim.root.join("mounted"), raced.session().join("workspace/src"));
        mount(Some(&from), &at, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
        let remove = || raced.command(&["session", "remove", ID]).output().unwrap();
        let refused = remove();
        umount(&at).unwrap();
        assert_eq!(refused.status.code(), Some(125), "{refused:?}");
        raced.victim.check("the first removal");
        let removed = remove();
        assert!(removed.status.success() && !raced.session().exists(), "{removed:?}");
    }

    /// A copy of the folder is made, or its names are pinned, while the folder changes.
    fn a_start_takes_nothing_but_the_folder(caller) {
        race_for_a_while(&KINDS, Sweeps::without_mounts, |left, sweeps| {
            let raced = Raced::new(caller);
            let words = raced.agent(left, "true");
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            raced.race(&raced.command(&words), &[raced.folder()], sweeps);
        });
    }
}
