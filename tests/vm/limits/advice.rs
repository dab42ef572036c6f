//! The cure that the error of a limit names: run as it is printed, it gives the limit.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::in_guest_of;
use crate::support::caller::Caller;
use crate::support::place::Place;
use crate::support::process::Process;
use crate::support::wait::{until_exists, until_gone};

const USER: &str = "saggar-other";

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout)
}

/// What stands between backquotes: the commands of a cure.
fn commands(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Who asks for limits, as after a log-in.
struct Asker {
    place: Place,
    caller: Caller,
}

impl Asker {
    fn new(caller: Caller) -> Self {
        Asker { place: Place::new(caller), caller }
    }

    fn shell(&self, script: &str) -> Command {
        let mut command = self.place.command(Path::new("/bin/sh"));
        command.args(["-c", script]);
        if !self.caller.is_root() {
            command.env("XDG_RUNTIME_DIR", format!("/run/user/{}", self.caller.uid()));
        }
        command
    }

    /// saggar's arguments for a program that says that it ran, with these limits.
    fn wrap(&self, limits: &str) -> String {
        let policy = self.place.join("limits.toml");
        if !policy.exists() {
            self.place.make_file("limits.toml", "");
        }
        fs::write(&policy, format!("[limits]\n{limits}\n")).unwrap();
        format!("{} wrap --policy {} -- echo ran", self.saggar(), policy.display())
    }

    fn saggar(&self) -> String {
        self.place.saggar().get_program().to_str().unwrap().to_owned()
    }

    /// The commands of the cure that a refusal of these limits prints.
    #[track_caller]
    fn advised(&self, limits: &str) -> Vec<String> {
        let output = self.shell(&self.wrap(limits)).output().unwrap();
        let said = said(&output);
        assert_eq!(output.status.code(), Some(125), "{said}");
        assert!(!said.contains("ran\n"), "{said}");
        commands(said.split_once("hint: ").expect("a hint").1)
    }

    /// The program runs by this command, which says `saggar …`.
    #[track_caller]
    fn runs(&self, command: &str, limits: &str) {
        let command = command.replace("saggar …", &self.wrap(limits));
        let output = self.shell(&command).output().unwrap();
        assert!(output.status.success(), "{command}: {}", said(&output));
        assert!(String::from_utf8_lossy(&output.stdout).contains("ran\n"), "{}", said(&output));
    }

    /// The cure of this check of `doctor`, when it is run by `before`; empty when it has none.
    fn doctor(&self, before: &str, check: &str) -> String {
        let line = format!("{before} {} doctor --json", self.saggar());
        let output = self.shell(&line).output().unwrap();
        let report: serde_json::Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)));
        let checks = report["checks"].as_array().unwrap();
        let found = checks
            .iter()
            .find(|one| one["name"] == check)
            .unwrap_or_else(|| panic!("no {check} in {report}"));
        found["remedy"].as_str().unwrap_or_default().to_owned()
    }
}

#[track_caller]
fn as_root(script: &str) {
    let output = Command::new("/bin/sh").args(["-c", script]).output().unwrap();
    assert!(output.status.success(), "{script}: {}", said(&output));
}

const DEFAULTS: &str = "memory = '64M'\ncpus = 0.5\npids = 50";
const MORE: &str = "memory = '64M'\ncpuset_cpus = '0'\nio = { '/dev/vda' = { write_bps = '1M' } }";

as_each_caller! {
    /// For the limits that systemd gives everybody the controllers of, nothing is to be done.
    fn systemd_gives_the_default_limits_without_advice(caller) {
        in_guest_of("systemd");
        let asker = Asker::new(caller);
        asker.runs("saggar …", DEFAULTS);
        for limit in ["memory", "cpu", "pids"] {
            assert_eq!(asker.doctor("", &format!("limit-{limit}")), "");
        }
    }
}

/// Root has the others too, with huge pages.
#[test]
fn systemd_gives_root_every_limit_without_advice() {
    let Ok(caller) = Caller::root() else { skip!("this test needs to be started as root") };
    in_guest_of("systemd");
    let asker = Asker::new(caller);
    asker.runs("saggar …", MORE);
    asker.runs("saggar …", "hugetlb.2MB = '4M'");
}

/// Its cgroup is that of a scope of the system's manager, in the slice that the policy names.
#[test]
fn systemd_gives_root_a_scope_where_the_policy_says_so() {
    let Ok(caller) = Caller::root() else { skip!("this test needs to be started as root") };
    in_guest_of("systemd");
    let place = Place::new(caller);
    let policy =
        "[sandbox]\ncgroup_driver = 'systemd'\ncgroup_parent = 'agents-ci.slice'\n[limits]\npids = 50\n";
    let policy = place.make_file("policy.toml", policy);
    let mut command = place.saggar();
    command.args(["wrap", "--id", "box", "--policy"]).arg(policy);
    command.args(["--", "/bin/sh", "-c", "touch up; cat"]);
    let mut process = Process::start(&place, command);
    until_exists(&place.work().join("up"));
    let scope = Path::new("/sys/fs/cgroup/agents.slice/agents-ci.slice/saggar-sandbox-box.scope");
    assert_eq!(fs::read_to_string(scope.join("saggar-box/pids.max")).unwrap().trim(), "50");
    as_root("systemctl show -p Delegate saggar-sandbox-box.scope | grep -x Delegate=yes");
    drop(process.take_stdin());
    assert!(process.wait().success(), "{}", process.stderr());
    until_gone(scope);
}

/// What systemd does not give a user unless the administrator says so: both steps as they are printed.
#[test]
fn systemd_gives_a_user_cpuset_and_io_by_the_advised_commands() {
    let Ok(_) = Caller::root() else { skip!("this test needs to be started as root") };
    in_guest_of("systemd");
    // One of its own, whose manager can be started again without harm to other tests.
    as_root(&format!("useradd --no-create-home --shell /bin/sh {USER}"));
    let caller = Caller::named(USER);
    let manager = format!("user@{}.service", caller.uid());
    as_root(&format!("systemctl start {manager}"));
    let asker = Asker::new(caller);
    let advised = asker.advised(MORE);
    let [by_root] = &advised[..] else { panic!("{advised:?}") };
    assert_eq!(commands(&asker.doctor("", "cgroup-cpuset-io")), advised);

    as_root(by_root);
    as_root(&format!("systemctl restart {manager}"));
    asker.runs("saggar …", MORE);
    assert_eq!(asker.doctor("", "cgroup-cpuset-io"), "");
    as_root(&format!(
        "rm -r /etc/systemd/system/user@.service.d && systemctl daemon-reload && systemctl stop {manager}"
    ));
}

/// Without systemd the administrator gives a cgroup.
#[test]
fn given_by_root_a_cgroup_as_advised_has_the_limits() {
    let Ok(_) = Caller::root() else { skip!("this test needs to be started as root") };
    let caller = match Caller::ordinary() {
        Ok(caller) => caller,
        Err(why) => skip!("{why}"),
    };
    in_guest_of("unified");
    let asker = Asker::new(caller);
    let advised = asker.advised(MORE);
    let [by_root, command] = &advised[..] else { panic!("{advised:?}") };
    let script = format!("read go; {}", command.replace("saggar …", &asker.wrap(MORE)));
    let mut shell = asker
        .shell(&script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    as_root(&by_root.replace("PID", &shell.id().to_string()));
    std::io::Write::write_all(&mut shell.stdin.take().unwrap(), b"go\n").unwrap();
    let output = shell.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    as_root("rmdir /sys/fs/cgroup/saggar");
}
