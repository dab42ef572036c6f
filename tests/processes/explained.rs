//! What `saggar explain` lists of processes is what /proc shows of a sandbox with the same options.

use serde_json::Value;
use std::collections::BTreeMap;

use super::account::{self, Account};
use super::relay::{STAYS, up};
use crate::isolation::wrapped::Wrap;
use crate::session::stage::{Sessions, supervisor};
use crate::support::caller::Caller;
use crate::support::deadline::Deadline;
use crate::support::place::Place;

const ALWAYS: &str = "while the sandbox runs";
/// The standard error of a program that a test starts is such a file.
const FOR_FILES: &str = "for each standard stream that is a file the program may not open";

/// Whether a process of this row stays as long as the sandbox.
fn stays(row: &Value) -> bool {
    row["when"] == ALWAYS || row["when"] == FOR_FILES
}

/// The processes that `saggar explain` lists, by their names.
fn explained(place: &Place, options: &[&str]) -> BTreeMap<String, Vec<Value>> {
    let mut command = place.saggar();
    command.args(["explain", "--json"]).args(options);
    let output = command.output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    let mut by_name = BTreeMap::<String, Vec<Value>>::new();
    for row in report["processes"].as_array().unwrap() {
        by_name.entry(row["name"].as_str().unwrap().to_owned()).or_default().push(row.clone());
    }
    by_name
}

/// The processes of saggar of a running sandbox, by their names, with the supervisor.
fn running(supervisor: u32) -> BTreeMap<String, Account> {
    let (mut found, mut rest) = (BTreeMap::new(), vec![supervisor]);
    while let Some(pid) = rest.pop() {
        rest.extend(Account::children(pid).iter().map(|child| child.pid));
        let account = Account::of(pid).filter(|account| account.name.starts_with("saggar"));
        found.extend(account.map(|account| (account.name.clone(), account)));
    }
    found
}

/// Bits of `["CAP_KILL", …]`.
fn bits(capabilities: &Value) -> u64 {
    let named = |name: &Value| {
        let name: caps::Capability = name.as_str().unwrap().parse().unwrap();
        1u64 << name.index()
    };
    capabilities.as_array().unwrap().iter().map(named).sum()
}

/// The row and the kernel agree.
fn assert_same(row: &Value, account: &Account) {
    match row["uid"].as_u64() {
        Some(uid) => assert_eq!(u64::from(account.uids[0]), uid, "{row} and {account:?}"),
        // Of a range that no user of the host has.
        None => assert!(account.uids[0] >= 1 << 20, "{row} and {account:?}"),
    }
    assert_eq!(account.effective, bits(&row["capabilities"]), "{row} and {account:?}");
    assert_eq!(account.permitted, account.effective, "{account:?}");
    assert_eq!(account.no_new_privs == 1, row["no_new_privs"] == true, "{row} and {account:?}");
    assert_eq!(account.seccomp == 2, row["filter"].is_string(), "{row} and {account:?}");
}

fn assert_explained(caller: Caller, options: &[&str]) {
    let wrap = Wrap::new(caller);
    let explained = explained(&wrap.place, options);
    let (process, _stdout) = up(&wrap, options, STAYS);
    assert_same_processes(&explained, process.pid());
}

fn assert_same_processes(explained: &BTreeMap<String, Vec<Value>>, supervisor: u32) {
    let always = |rows: &[Value]| rows.iter().filter(|row| row["when"] == ALWAYS).count();
    account::until(supervisor, |account| account.seccomp == 2);
    // Each confines itself in its own time, and the watcher ends in its own.
    let deadline = Deadline::usual();
    let found = loop {
        let found = running(supervisor);
        let is_there = explained.iter().all(|(name, rows)| {
            (always(rows) == 0 && rows.iter().any(stays))
                || (always(rows) > 0) == found.get(name).is_some_and(|account| account.seccomp == 2)
        });
        // A worker that is on its way is none of those that stay.
        let stay = found.keys().all(|name| explained.get(name).is_some_and(|rows| rows.iter().any(stays)));
        if is_there && stay {
            break found;
        }
        assert!(!deadline.remaining().is_zero(), "{explained:?}, and there are {found:?}");
        deadline.pause();
    };
    for (name, account) in &found {
        let row = explained[name].iter().find(|row| stays(row)).unwrap();
        assert_same(row, account);
    }
    assert!(found.contains_key("saggar:launch") && found.contains_key("saggar:init"), "{found:?}");
}

as_each_caller! {
    fn explained_processes_are_those_of_a_sandbox(caller) {
        assert_explained(caller, &[]);
        assert_explained(caller, &["--profile", "nesting", "--workspace-overlay"]);
        assert_explained(caller, &["--net", "host"]);
    }

    fn explained_processes_are_those_of_a_sandbox_with_a_network(caller) {
        assert_explained(caller, &["--allow-host", "four.example:443"]);
        assert_explained(caller, &["--publish", "0:3000"]);
    }

    fn explained_processes_are_those_of_a_session(caller) {
        let sessions = Sessions::new(caller);
        let folder = sessions.stage.work();
        let explained = explained(&sessions.stage.place, &[folder.to_str().unwrap()]);
        assert!(explained.contains_key("saggar:files"), "{explained:?}");
        let session = sessions.create("explained", &[]);
        assert_same_processes(&explained, supervisor(&session).pid());
    }

    fn explained_processes_are_those_of_a_sandbox_with_a_model_api(caller) {
        let wrap = Wrap::new(caller);
        let key = wrap.place.make_file("key", "sk-none");
        std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let options = ["--api", "https://api.example", "--api-key-file", key.to_str().unwrap()];
        assert_explained(caller, &options);
    }

    fn explained_processes_are_those_of_a_sandbox_with_a_mailbox(caller) {
        assert_explained(caller, &["--mailbox", "1", "--as", "claude"]);
    }
}
