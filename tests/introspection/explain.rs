//! `saggar explain`: complete, without secrets, without a trace on the host.

use super::{around, json, saggar, stdout};
use crate::support::place::Place;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Every path below `root` with what would show a change of it.
fn tree(root: &Path) -> BTreeMap<PathBuf, (u64, u32, i64, i64, u64)> {
    let mut found = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(path) = left.pop() {
        let meta = path.symlink_metadata().unwrap();
        if meta.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        found.insert(path, (meta.ino(), meta.mode(), meta.mtime(), meta.mtime_nsec(), meta.len()));
    }
    found
}

/// A repository whose hooks a start would make.
fn repository(place: &Place) {
    place.make_dir("work/.git", 0o755);
    place.make_file("work/.git/HEAD", "ref: refs/heads/main\n");
}

const EXPLAIN: [&[&str]; 5] = [
    &["explain"],
    &["explain", "--json"],
    &["explain", "--json", "--path", ".git/hooks/pre-commit"],
    &["explain", "--json", "."],
    &["wrap", "--dry-run", "--", "true"],
];

as_each_caller! {
    /// explain and --dry-run look, and make nothing: neither in the work tree nor in saggar's own directories.
    fn nothing_is_made_on_the_host(caller) {
        let place = Place::new(caller);
        repository(&place);
        // The program is linked into the place of an ordinary user when it is first asked for.
        place.saggar();
        let before = tree(place.path());
        for args in EXPLAIN {
            stdout(saggar(&place, args), 0);
        }
        assert_eq!(tree(place.path()), before);
        assert!(!place.work().join(".git/hooks").exists());
    }

    /// `--verbose` says before the start what the sandbox is, and everything that explain calls degraded.
    fn a_start_says_what_it_starts_when_it_is_asked(caller) {
        let place = Place::new(caller);
        place.make_dir("work/sub", 0o755);
        let run = |words: &[&str]| {
            let mut command = saggar(&place, words);
            let output = command.current_dir(place.work()).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stderr).unwrap()
        };
        let work = place.work().canonicalize().unwrap();
        let told = run(&["wrap", "-v", "--cwd", "sub", "--quiet-degraded", "--", "true"]);
        for line in [
            "profile strict (built-in)".to_owned(),
            format!("workspace {0}, programs start in {0}/sub", work.display()),
            "network none (built-in)".to_owned(),
            "no policy file was found".to_owned(),
        ] {
            assert!(told.lines().any(|said| said.starts_with("saggar: ") && said.ends_with(&line)), "{line}: {told}");
        }
        let report = json(saggar(&place, &["explain", "--json"]), 0);
        for row in report["degraded"].as_array().unwrap() {
            let line = format!("saggar: not enforced: {}: ", row["what"].as_str().unwrap());
            assert!(told.contains(&line), "{line}: {told}");
        }
        assert_eq!(run(&["wrap", "--quiet-degraded", "--", "true"]), "");
        let told = run(&["wrap", "--verbose", "--log-format", "json", "--quiet-degraded", "--", "true"]);
        let levels = told.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["level"].clone());
        assert!(levels.clone().count() > 4 && levels.into_iter().all(|level| level == "info"), "{told}");
        place.configure_user("[limits]\ntimeout = '1h'\n");
        let told = run(&["wrap", "-v", "--", "true"]);
        assert!(told.contains("saggar: policy files: ") && told.contains("config.toml"), "{told}");
    }

    /// What is explained as made at the start is what a start then makes.
    fn missing_hooks_are_said_to_be_made(caller) {
        let place = Place::new(caller);
        repository(&place);
        let report = json(saggar(&place, &["explain", "--json"]), 0);
        let pins = report["files"]["protected"].as_array().unwrap();
        let made: Vec<&str> = pins.iter().filter(|pin| pin["made"] == true).map(|pin| pin["path"].as_str().unwrap()).collect();
        let git = place.work().join(".git");
        let expected = ["commondir", "hooks", "info"].map(|name| git.join(name).display().to_string());
        assert_eq!(made, expected);
        stdout(saggar(&place, &["wrap", "--", "true"]), 0);
        assert!(expected.iter().all(|path| Path::new(path).exists()));
        let report = json(saggar(&place, &["explain", "--json"]), 0);
        assert!(report["files"]["protected"].as_array().unwrap().iter().all(|pin| pin["made"] == false));
    }

    /// KC-09: names get in and are named; values of the caller are never printed.
    fn values_of_the_caller_are_not_printed(caller) {
        let place = Place::new(caller);
        let secrets = [("ANTHROPIC_API_KEY", "sk-hush-1"), ("HUSH", "hush-2"), ("OTHER", "hush-3"), ("LANG", "hush-4")];
        for format in [&["explain"][..], &["explain", "--json"], &["explain", "--json", "--path", "/"]] {
            let mut command = saggar(&place, format);
            command.envs(secrets).args(["--env", "HUSH", "--env", "GIVEN=shown", "--env", "MY_TOKEN=hush-5"]);
            let said = stdout(command, 0);
            assert!(!said.contains("hush-"), "{said}");
            if !format.contains(&"--path") {
                for name in ["ANTHROPIC_API_KEY", "HUSH", "LANG", "GIVEN", "shown", "MY_TOKEN"] {
                    assert!(said.contains(name), "{name}: {said}");
                }
                assert!(!said.contains("OTHER"), "{said}");
            }
        }
    }

    /// The environment that is explained is the one that a program has.
    fn the_environment_is_the_programs(caller) {
        let place = Place::new(caller);
        let mut command = saggar(&place, &["explain", "--json"]);
        command.args(["--env", "GIVEN=1"]).env("ANTHROPIC_API_KEY", "k").env("UNKNOWN", "u");
        let report = json(command, 0);
        let names: Vec<&str> =
            report["environment"].as_array().unwrap().iter().map(|v| v["name"].as_str().unwrap()).collect();
        let mut command = saggar(&place, &["wrap", "--env", "GIVEN=1", "--", "env"]);
        command.env("ANTHROPIC_API_KEY", "k").env("UNKNOWN", "u");
        let said = stdout(command, 0);
        let mut inside: Vec<&str> = said.lines().map(|line| line.split_once('=').unwrap().0).collect();
        inside.sort_unstable();
        assert_eq!(names, inside);
    }

    /// Identity, resource limits and mounts as the kernel tells them.
    fn identity_limits_and_mounts_are_the_kernels(caller) {
        let place = Place::new(caller);
        let report = json(saggar(&place, &["explain", "--json"]), 0);
        let script = "id -u; id -g; ulimit -Sn; ulimit -Hn; cut -d' ' -f5,6 /proc/self/mountinfo";
        let said = stdout(saggar(&place, &["wrap", "--", "sh", "-c", script]), 0);
        let lines: Vec<&str> = said.lines().collect();
        let inside = &report["identity"]["inside"];
        assert_eq!(lines[..2], [inside["uid"].to_string(), inside["gid"].to_string()]);
        let nofile = report["limits"].as_array().unwrap().iter().find(|row| row["name"] == "nofile").unwrap();
        let (soft, hard) = (lines[2], lines[3]);
        let both = if soft == hard { soft.to_owned() } else { format!("{soft}:{hard}") };
        assert_eq!(nofile["value"], both);
        let real: BTreeMap<&str, bool> = lines[4..]
            .iter()
            .map(|line| line.split_once(' ').unwrap())
            .map(|(at, options)| (at, options.split(',').any(|option| option == "rw")))
            .collect();
        for mount in report["files"]["mounts"].as_array().unwrap() {
            let path = mount["path"].as_str().unwrap();
            let writable = real.get(path).unwrap_or_else(|| panic!("{path} is no mount: {said}"));
            // The kernel gives processes and devices no read-only mount; what they are says the rest.
            if !path.starts_with("/proc") && !path.starts_with("/dev/") {
                assert_eq!(mount["writable"], *writable, "{path}");
            }
        }
    }

    /// With DIR: the environment, too, is that of the agent.
    fn the_environment_of_an_agent_is_the_agents(caller) {
        let place = Place::new(caller);
        place.make_file("work/CLAUDE.md", "x");
        let program = place.make_file("work/agent", "#!/bin/sh\nenv >names\n");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let cmd = format!("agent_cmd = [\"{}\"]\nadapter = \"stream-json\"\n", program.display());
        let policy = place.make_file("policy.toml", &cmd);
        let policy = policy.to_str().unwrap();
        let report = json(saggar(&place, &["explain", "--json", "--policy", policy, "."]), 0);
        let names: BTreeSet<&str> =
            report["environment"].as_array().unwrap().iter().map(|v| v["name"].as_str().unwrap()).collect();
        let mut command = saggar(&place, &["agent", "--policy", policy, "--workspace", ".", "--id"]);
        // The agent ends before its turn does, which is an error of the turn, and has said its names by then.
        let id = format!("explain-{}", std::process::id());
        command.args([&id, ".", "hello"]);
        let ended = command.output().unwrap();
        let said = fs::read_to_string(place.work().join("names"))
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&ended.stderr)));
        // A shell adds these itself.
        let of_the_shell = ["PWD", "SHLVL", "_", "OLDPWD"];
        let inside: BTreeSet<&str> = said
            .lines()
            .map(|line| line.split_once('=').unwrap().0)
            .filter(|name| !of_the_shell.contains(name))
            .collect();
        assert_eq!(names, inside);
    }

    /// With DIR: the sandbox of `saggar agent DIR`, whose home and workspace last in the session.
    fn the_sandbox_of_an_agent_lasts(caller) {
        let place = Place::new(caller);
        place.make_file("work/saggar.toml", "[limits]\nmemory = \"64M\"\n");
        place.make_file("work/CLAUDE.md", "x");
        let report = json(saggar(&place, &["explain", "--json", "."]), 0);
        let workspace = report["workspace"].as_str().unwrap();
        assert!(workspace.ends_with("/sessions/SESSION/workspace"), "{workspace}");
        let mounts = report["files"]["mounts"].as_array().unwrap();
        let home = mounts.iter().find(|mount| mount["path"] == "/home/agent").unwrap();
        assert!(home["what"].as_str().unwrap().ends_with("/sessions/SESSION/home of the host"), "{home}");
        let memory = &report["limits"][0];
        assert_eq!(
            (memory["name"].as_str(), memory["value"].as_str(), memory["layer"].as_str()),
            (Some("memory"), Some("64M"), Some("agent folder saggar.toml"))
        );
        let file = json(saggar(&place, &["explain", "--json", "--path", "CLAUDE.md", "."]), 0);
        assert_eq!((&file["state"], &file["resolved"]), (&"read-write".into(), &format!("{workspace}/CLAUDE.md").into()));
        let policy = json(saggar(&place, &["explain", "--json", "--path", "saggar.toml", "."]), 0);
        assert_eq!(policy["state"], "protected");
    }

    /// DECISIONS 1: what is explained as degraded is what a start then says is missing.
    fn explained_degraded_list_matches_the_start(caller) {
        let place = Place::new(caller);
        let report = json(saggar(&place, &["explain", "--json"]), 0);
        let names = |lacks: &Value| -> BTreeSet<String> {
            lacks.as_array().unwrap().iter().map(|lack| lack["what"].as_str().unwrap().to_owned()).collect()
        };
        let said = stdout(saggar(&place, &["wrap", "--status-fd", "1", "--", "true"]), 0);
        let started: Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
        assert_eq!(started["event"], "started");
        let degraded = names(&report["degraded"]);
        assert_eq!(degraded, names(&started["degraded"]));
        for row in report["limits"].as_array().unwrap() {
            assert_eq!(row["holds"] == false, degraded.contains(row["name"].as_str().unwrap()), "{row}");
        }
    }

    /// A limit that was named and cannot hold is said to stop the start, and does.
    fn a_named_limit_that_cannot_hold_stops_the_start(caller) {
        let place = Place::new(caller);
        let report = json(saggar(&place, &["explain", "--json", "--disk", "64M"]), 0);
        let disk = report["limits"].as_array().unwrap().iter().find(|row| row["name"] == "disk").unwrap();
        assert_eq!((&disk["holds"], &disk["named"]), (&false.into(), &true.into()));
        assert!(disk["why"].as_str().unwrap().ends_with("so the start is refused"), "{disk}");
        stdout(saggar(&place, &["wrap", "--disk", "64M", "--", "true"]), 125);
    }
}

/// As root the directories of saggar are the host's: an empty /run and /var/lib stay empty.
#[test]
fn root_makes_no_directory_of_its_own() {
    let caller = match crate::support::caller::Caller::root() {
        Ok(caller) => caller,
        Err(why) => skip!("{why}"),
    };
    let place = Place::new(caller);
    repository(&place);
    let script = r#"mount -t tmpfs none /run && mount -t tmpfs none /var/lib && rm -rf /run/mount &&
        "$0" explain >/dev/null && "$0" explain . >/dev/null && "$0" wrap --dry-run -- true >/dev/null &&
        find /run /var/lib"#;
    assert_eq!(stdout(around(&place, &["/usr/bin/unshare", "--mount"], script), 0), "/run\n/var/lib\n");
}
