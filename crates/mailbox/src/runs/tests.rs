use super::*;
use crate::member::{Member, Roles};
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;

fn new_run() -> NewRun {
    NewRun {
        task: "task".into(),
        members: vec![Member::new("codex", Roles::WORKER), Member::new("claude", Roles::REVIEWER)],
        max_iterations: 3,
        both_review: false,
        launch: None,
    }
}

fn now() -> Timestamp {
    "2024-03-28T10:00:00Z".parse().unwrap()
}

#[test]
fn am_09_repo_id_is_the_start_of_the_hash_of_the_path() {
    // printf %s /home/user/project | sha256sum | cut -c1-16
    assert_eq!(repo_id(Path::new("/home/user/project")), "9dad1e4e08b0b11c");
}

#[test]
fn am_09_run_ids_count_from_1_and_are_not_used_again_below_the_highest() {
    let root = tempfile::tempdir().unwrap();
    let runs = Runs::open(&root.path().join(".agentpair"), Path::new("/p")).unwrap();
    assert_eq!(runs.create(new_run(), now()).unwrap().id(), 1);
    let second = runs.create(new_run(), now()).unwrap();
    let expected = root.path().join(".agentpair/runs").join(repo_id(Path::new("/p"))).join("2");
    assert_eq!(second.path(), expected);
    std::fs::create_dir(runs.directory.path_of("7")).unwrap();
    std::fs::create_dir(runs.directory.path_of("09")).unwrap();
    assert_eq!(runs.create(new_run(), now()).unwrap().id(), 8);
    assert_eq!(runs.list().unwrap(), [1, 2, 7, 8]);
}

#[test]
fn record_round_trips_with_a_path_of_any_bytes() {
    let root = tempfile::tempdir().unwrap();
    let repo = Path::new(OsStr::from_bytes(b"/p/\xff"));
    let runs = Runs::open(&root.path().join("r"), repo).unwrap();
    let mut run = runs.create(new_run(), now()).unwrap();
    run.set_outcome(Some(Outcome::Failed { agent: "codex".into(), reason: "exit status 1".into() })).unwrap();
    let opened = runs.open_run(1).unwrap();
    assert_eq!(opened.record(), run.record());
    assert_eq!(
        (opened.record().repo.as_path(), opened.record().created.as_str()),
        (repo, "2024-03-28T10:00:00Z")
    );
}

#[test]
fn missing_run_is_named_with_the_newest() {
    let root = tempfile::tempdir().unwrap();
    let runs = Runs::open(&root.path().join("r"), Path::new("/p")).unwrap();
    runs.create(new_run(), now()).unwrap();
    let error = runs.open_run(5).unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (ErrorKind::NotFound, "run 5 of /p does not exist")
    );
    assert_eq!(error.hint(), Some("use the number of an existing run; the newest is 1"));
}

#[test]
fn run_whose_creation_crashed_is_replaced() {
    let root = tempfile::tempdir().unwrap();
    let runs = Runs::open(&root.path().join("r"), Path::new("/p")).unwrap();
    let staging = runs.directory.open_or_create_directory(STAGING_NAME).unwrap();
    staging.write_atomically(".run.json.new", b"{").unwrap();
    assert_eq!(runs.create(new_run(), now()).unwrap().id(), 1);
    assert!(runs.directory.stat(STAGING_NAME).unwrap().is_none());
}

#[test]
fn directories_and_files_are_private() {
    let root = tempfile::tempdir().unwrap();
    let runs = Runs::open(&root.path().join("r"), Path::new("/p")).unwrap();
    let run = runs.create(new_run(), now()).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    for directory in
        [root.path().join("r"), root.path().join("r/runs"), runs.directory.path().into(), run.path().into()]
    {
        assert_eq!(mode(&directory), 0o700, "{}", directory.display());
    }
    assert_eq!(mode(&run.path().join("run.json")), 0o600);
}

#[test]
fn members_of_a_run_have_valid_and_different_names() {
    let root = tempfile::tempdir().unwrap();
    let runs = Runs::open(&root.path().join("r"), Path::new("/p")).unwrap();
    for names in [["a", "a"], ["a", "../b"]] {
        let members = names.map(|name| Member::new(name, Roles::WORKER)).to_vec();
        let error = runs.create(NewRun { members, ..new_run() }, now()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
    assert!(runs.list().unwrap().is_empty());
}

#[test]
fn other_users_must_not_write_to_the_directories() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("r");
    std::fs::create_dir(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
    let error = Runs::open(&path, Path::new("/p")).unwrap_err();
    assert!(error.to_string().ends_with("r: other users can write to it"), "{error}");
}

#[test]
fn agents_join_an_open_run_and_no_other() {
    let root = tempfile::tempdir().unwrap();
    let runs = Runs::open(root.path(), Path::new("/repo")).unwrap();
    let now = Timestamp::UNIX_EPOCH;
    let names = |run: &Run| run.record().members.iter().map(|member| member.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&runs.join(3, "one", now).unwrap()), ["one"]);
    assert_eq!(names(&runs.join(3, "two", now).unwrap()), ["one", "two"]);
    assert_eq!(names(&runs.join(3, "one", now).unwrap()), ["one", "two"]);
    let members = vec![Member::new("worker", Roles::WORKER)];
    let closed = runs.create(NewRun { members, ..NewRun::default() }, now).unwrap();
    assert_eq!(closed.id(), 4);
    let mailbox = runs.join(4, "two", now).unwrap().mailbox(Limits::default()).unwrap();
    assert_eq!(mailbox.check_member("two").unwrap_err().kind(), ErrorKind::Refused);
    assert!(mailbox.check_member("worker").is_ok());
    assert_eq!(runs.join(0, "one", now).unwrap_err().kind(), ErrorKind::Invalid);
}
