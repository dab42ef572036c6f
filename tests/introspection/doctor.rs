//! `saggar doctor`: that what it says of this host is so, and that hostile surroundings get their cure.

use super::{around, json, saggar, stdout};
use crate::support::caller::Caller;
use crate::support::own_mounts::own_mounts;
use crate::support::place::Place;
use saggar::host::cgroups::{CgroupLayout, CgroupVersion};
use serde_json::Value;

fn check<'a>(report: &'a Value, name: &str) -> &'a Value {
    let checks = report["checks"].as_array().unwrap();
    checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("no check {name}: {report}"))
}

/// The status of a check, and its cure.
fn of<'a>(report: &'a Value, name: &str) -> (&'a str, &'a str) {
    let check = check(report, name);
    (check["status"].as_str().unwrap(), check["remedy"].as_str().unwrap_or(""))
}

/// A user namespace in which this caller is root: its limits of namespaces are its own to lower.
const NESTED: [&str; 4] = ["/usr/bin/unshare", "--user", "--map-root-user", "--"];

as_each_caller! {
    /// What doctor says of this host holds: the default sandbox starts.
    fn this_host_can_start_a_sandbox(caller) {
        let place = Place::new(caller);
        let report = json(saggar(&place, &["doctor", "--json"]), 0);
        assert_eq!((&report["version"], &report["ok"]), (&1.into(), &true.into()), "{report}");
        for name in ["user-namespace", "first-mount", "fresh-proc", "landlock", "seccomp", "id-maps"] {
            assert_eq!(of(&report, name), ("ok", ""), "{report}");
        }
        for check in report["checks"].as_array().unwrap() {
            let keys: Vec<&str> = check.as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(keys, ["detail", "name", "remedy", "status"]);
            assert_eq!(check["remedy"].is_null(), check["status"] == "ok", "what is not ok has a cure: {check}");
        }
        stdout(saggar(&place, &["wrap", "--", "true"]), 0);
        assert!(stdout(saggar(&place, &["doctor"]), 0).contains("saggar can start its default sandbox here"));
    }

    /// No other user may write to the directory of runs.
    fn the_directory_of_mailboxes_is_looked_at(caller) {
        let place = Place::new(caller);
        let row = || {
            let report = json(saggar(&place, &["doctor", "--json"]), 0);
            check(&report, "mailbox-directory").clone()
        };
        let at = place.join("home/.agentpair");
        let missing = row();
        assert_eq!((&missing["status"], &missing["remedy"]), (&"ok".into(), &Value::Null), "{missing}");
        assert_eq!(missing["detail"], format!("{} is not there yet, and can be made", at.display()));
        place.make_dir("home/.agentpair", 0o777);
        let open = row();
        assert_eq!(open["status"], "degraded", "{open}");
        assert!(open["detail"].as_str().unwrap().contains("others can write to it"), "{open}");
        assert!(open["remedy"].is_string(), "{open}");
        std::fs::set_permissions(&at, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        assert_eq!(row()["detail"], format!("{} is ours alone", at.display()));
    }

    /// The processes of saggar are confined as far as they can be on a host with all of it, and the check says by what.
    fn own_processes_are_confined(caller) {
        let place = Place::new(caller);
        let report = json(saggar(&place, &["doctor", "--json"]), 0);
        let own = check(&report, "own-processes");
        assert_eq!((&own["status"], own["remedy"].is_null()), (&"ok".into(), true), "{own}");
        let detail = own["detail"].as_str().unwrap();
        for word in ["filters of system calls", "landlock domains: ABI", "file workers need 2"] {
            assert!(detail.contains(word), "{own}");
        }
        assert_eq!(detail.contains("supervisors with ids of "), caller.is_root(), "{own}");
        assert!(stdout(saggar(&place, &["doctor"]), 0).contains("own-processes"));
    }

    /// Root has the sets of version 1; what version 1 has besides, no command gives to version 2.
    fn controllers_of_version_1_are_those_of_root(caller) {
        let layout = CgroupLayout::discover().unwrap();
        let is_old = |name| layout.hierarchy_of(name).is_some_and(|one| one.version == CgroupVersion::V1);
        if !is_old("blkio") || !is_old("cpuset") || layout.v2_hierarchy().is_none() {
            return;
        }
        let place = Place::new(caller);
        let report = json(saggar(&place, &["doctor", "--json"]), 0);
        let (detail, remedy) = (&check(&report, "cgroup-cpuset-io")["detail"], of(&report, "cgroup-cpuset-io").1);
        let lacks = if caller.is_root() { "has cpuset, lacks io" } else { "has none, lacks cpuset io" };
        assert!(detail.as_str().unwrap().ends_with(lacks), "{detail}");
        assert_eq!(remedy.contains("as root"), !caller.is_root(), "{remedy}");
        assert!(remedy.contains("systemd.unified_cgroup_hierarchy=1") && !remedy.contains("mkdir"), "{remedy}");
    }

    /// A limit of zero is ENOSPC, and the cure names the limit.
    fn no_user_namespaces(caller) {
        let place = Place::new(caller);
        let script = r#"echo 0 >/proc/sys/user/max_user_namespaces && exec "$0" doctor --json"#;
        let report = json(around(&place, &NESTED, script), 1);
        assert_eq!(report["ok"], false);
        let (status, cure) = of(&report, "user-namespace");
        assert_eq!(status, "missing");
        assert!(cure.starts_with("sysctl -w user.max_user_namespaces="), "{cure}");
    }

    /// The same for one other kind alone.
    fn no_net_namespaces(caller) {
        let place = Place::new(caller);
        let script = r#"echo 0 >/proc/sys/user/max_net_namespaces && exec "$0" doctor --json"#;
        let report = json(around(&place, &NESTED, script), 1);
        assert_eq!(of(&report, "user-namespace").0, "ok");
        assert_eq!(of(&report, "pid-namespace").0, "ok");
        let (status, cure) = of(&report, "net-namespace");
        assert_eq!(status, "missing");
        assert!(cure.starts_with("sysctl -w user.max_net_namespaces="), "{cure}");
    }

    /// A container whose /proc is masked gives no fresh one, and wrap fails there as doctor says.
    fn a_masked_proc(caller) {
        let place = Place::new(caller);
        let mask = "mount --bind /dev/null /proc/version && exec";
        let report = json(around(&place, own_mounts(caller), &format!(r#"{mask} "$0" doctor --json"#)), 1);
        assert_eq!(of(&report, "first-mount").0, "ok", "{report}");
        let (status, cure) = of(&report, "fresh-proc");
        assert_eq!(status, "missing");
        assert!(cure.contains("systempaths=unconfined"), "{cure}");
        stdout(around(&place, own_mounts(caller), &format!(r#"{mask} "$0" wrap -- true"#)), 125);
    }

    /// A seccomp filter around saggar, its own: no sandbox in the sandbox, and doctor says why.
    fn a_filter_around(caller) {
        let place = Place::new(caller);
        let program = place.saggar().get_program().to_owned();
        let mut command = saggar(&place, &["wrap", "--"]);
        command.arg(program).args(["doctor", "--json"]);
        let report = json(command, 1);
        let (status, cure) = of(&report, "user-namespace");
        assert_eq!(status, "missing");
        assert!(cure.contains("seccomp filter around saggar"), "{cure}");
    }
}

/// Root of a container has no block of ids to give.
#[test]
fn root_of_a_user_namespace_is_told_of_its_ids() {
    let place = Place::new(Caller::current());
    let report = json(around(&place, &NESTED, r#"exec "$0" doctor --json"#), 1);
    let (status, cure) = of(&report, "id-maps");
    assert_eq!(status, "missing");
    assert!(cure.contains("sandbox.id_range"), "{cure}");
}
