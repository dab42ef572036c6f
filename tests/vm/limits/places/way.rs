//! The ways in which people and services come to start saggar, each as a script that root runs.

use std::fmt;

use serde_json::json;

use crate::support::caller::Caller;

/// Those that root has on a host.
const CAPABILITIES: [&str; 41] = [
    "AUDIT_CONTROL",
    "AUDIT_READ",
    "AUDIT_WRITE",
    "BLOCK_SUSPEND",
    "BPF",
    "CHECKPOINT_RESTORE",
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "IPC_LOCK",
    "IPC_OWNER",
    "KILL",
    "LEASE",
    "LINUX_IMMUTABLE",
    "MAC_ADMIN",
    "MAC_OVERRIDE",
    "MKNOD",
    "NET_ADMIN",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_RAW",
    "PERFMON",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYSLOG",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_CHROOT",
    "SYS_MODULE",
    "SYS_NICE",
    "SYS_PACCT",
    "SYS_PTRACE",
    "SYS_RAWIO",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "WAKE_ALARM",
];

/// A way to start a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// The shell of a log-in. Another process is in its cgroup.
    Login,
    /// As after ssh: nothing in the environment says where the user's manager is.
    BareEnvironment,
    /// A terminal multiplexer that was started in the shell of a log-in.
    Tmux,
    /// A job of cron: the caller's process in the cgroup of a service, without a session.
    Cron,
    /// The one process of a service.
    Service {
        /// Whether the cgroup was given to the service.
        is_delegated: bool,
    },
    /// A child of a service, which has other processes.
    ChildOfService {
        /// As above.
        is_delegated: bool,
    },
    /// In a container with a cgroup namespace.
    Container {
        /// Whether its cgroup can be written.
        is_writable: bool,
        /// Whether it is the only process there.
        is_alone: bool,
    },
}

pub(super) const WAYS: [Way; 11] = [
    Way::Login,
    Way::BareEnvironment,
    Way::Tmux,
    Way::Cron,
    Way::Service { is_delegated: true },
    Way::Service { is_delegated: false },
    Way::ChildOfService { is_delegated: true },
    Way::ChildOfService { is_delegated: false },
    Way::Container { is_writable: true, is_alone: true },
    Way::Container { is_writable: true, is_alone: false },
    Way::Container { is_writable: false, is_alone: true },
];

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self {
            Way::Login => "log-in shell",
            Way::BareEnvironment => "ssh, bare environment",
            Way::Tmux => "tmux",
            Way::Cron => "cron",
            Way::Service { is_delegated: true } => "service, Delegate=yes",
            Way::Service { is_delegated: false } => "service, Delegate=no",
            Way::ChildOfService { is_delegated: true } => "child of a service, Delegate=yes",
            Way::ChildOfService { is_delegated: false } => "child of a service, Delegate=no",
            Way::Container { is_writable: true, is_alone: true } => "container, alone in it",
            Way::Container { is_writable: true, is_alone: false } => "container, beside others",
            Way::Container { is_writable: false, .. } => "container, read-only cgroup",
        };
        f.pad(words)
    }
}

/// What starts programs in this guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Machine {
    Systemd,
    /// Somebody else, who has laid the cgroups out as systemd does.
    Other,
    /// The controllers are in version 1, and nobody but root has any.
    V1,
}

impl Way {
    /// Whether there is such a thing on this machine.
    pub(super) fn is_there(self, machine: Machine) -> bool {
        machine != Machine::V1 || matches!(self, Way::Login | Way::BareEnvironment | Way::Tmux | Way::Cron)
    }

    /// Whether it gives away a cgroup that limits can hold in, or a manager or root's own rights can.
    pub(super) fn must_hold(self, caller: Caller, machine: Machine) -> bool {
        match self {
            // The cgroup of a container is root's. With other processes in it, it cannot give controllers away.
            Way::Container { is_writable, is_alone } => caller.is_root() && is_writable && is_alone,
            _ if caller.is_root() || machine == Machine::Systemd => true,
            _ if machine == Machine::V1 => false,
            Way::Login | Way::BareEnvironment | Way::Tmux => true,
            Way::Service { is_delegated } => is_delegated,
            // A cgroup with processes of others cannot give controllers away, whoever owns it.
            Way::ChildOfService { .. } | Way::Cron => false,
        }
    }

    /// A script for root's shell in which `inner`, a script too, runs as the caller and is waited for. `name` is unique.
    pub(super) fn script(self, caller: Caller, machine: Machine, name: &str, inner: &str) -> String {
        let uid = caller.uid();
        let (user, as_caller) = if caller.is_root() {
            (String::new(), String::new())
        } else {
            (format!("-p User={uid}"), format!("setpriv --reuid {uid} --regid {uid} --init-groups "))
        };
        let inner = match self {
            Way::Login => format!("XDG_RUNTIME_DIR=/run/user/{uid} {as_caller}sh {inner}"),
            // The shell that is waited for ends when the program in the multiplexer does.
            Way::Tmux => format!(
                "mkfifo -m 666 /run/{name} && \
                 {as_caller}tmux -L {name} new-session -d 'sh {inner}; echo ended >/run/{name}' && read _ </run/{name}; \
                 rm /run/{name}"
            ),
            _ => format!("{as_caller}sh {inner}"),
        };
        if let Way::Container { is_writable, is_alone } = self {
            return container(name, &inner, is_writable, is_alone);
        }
        let beside_another = beside_another(&inner);
        match machine {
            Machine::Systemd => self.script_of_systemd(&user, uid.as_raw(), &inner, &beside_another),
            Machine::Other => self.script_of_others(uid.as_raw(), name, &inner, &beside_another),
            Machine::V1 => beside_another,
        }
    }

    fn script_of_systemd(self, user: &str, uid: u32, inner: &str, beside_another: &str) -> String {
        let service = "systemd-run --quiet --wait --collect --service-type=exec";
        let quoted = |script: &str| format!("sh -c \"{}\"", script.replace('$', "\\$").replace('"', "\\\""));
        match self {
            Way::Login | Way::BareEnvironment | Way::Tmux => {
                format!("systemd-run --quiet --scope --slice=user-{uid}.slice {}", quoted(beside_another))
            }
            // As the user from the start, with what cron gives.
            Way::Cron => format!("{service} {user} {}", quoted(strip_caller(inner))),
            Way::Service { is_delegated } => {
                format!("{service} {user} -p Delegate={is_delegated} {}", strip_caller(inner))
            }
            Way::ChildOfService { is_delegated } => format!(
                "{service} {user} -p Delegate={is_delegated} {}",
                quoted(&beside_another.replace(inner, strip_caller(inner)))
            ),
            Way::Container { .. } => unreachable!("no matter of systemd"),
        }
    }

    fn script_of_others(self, uid: u32, name: &str, inner: &str, beside_another: &str) -> String {
        let fs = "/sys/fs/cgroup";
        let session = format!("{fs}/user.slice/user-{uid}.slice/user@{uid}.service/app.slice");
        let (above, is_given) = match self {
            Way::Login | Way::BareEnvironment | Way::Tmux if uid != 0 => (session, true),
            Way::Service { is_delegated } | Way::ChildOfService { is_delegated } => {
                (format!("{fs}/system.slice"), is_delegated)
            }
            _ => (format!("{fs}/system.slice"), false),
        };
        let script = match self {
            Way::Service { .. } | Way::Cron => inner.to_owned(),
            _ => beside_another.to_owned(),
        };
        let own = format!("{above}/{name}");
        let give = if is_given {
            format!(
                "chown {uid} {own} {own}/cgroup.procs {own}/cgroup.subtree_control {own}/cgroup.threads && "
            )
        } else {
            String::new()
        };
        // A supervisor has its own time to go.
        format!(
            "mkdir {own} && {give}(echo 0 >{own}/cgroup.procs || exit; {script}); status=$?; \
             until rmdir {own}; do sleep 0.1; done 2>/dev/null; exit $status"
        )
    }
}

/// A script that runs `inner` in a container of crun: this tree, a /run of its own, all capabilities.
fn container(name: &str, inner: &str, is_writable: bool, is_alone: bool) -> String {
    let (bundle, mode) = (format!("/run/{name}"), if is_writable { "rw" } else { "ro" });
    let script = if is_alone { format!("exec {inner}") } else { beside_another(inner) };
    let all: Vec<String> = CAPABILITIES.iter().map(|name| format!("CAP_{name}")).collect();
    let mount = |to: &str, kind: &str, options: &[&str]| json!({ "destination": to, "type": kind, "source": kind, "options": options });
    let config = json!({
        "ociVersion": "1.0.0",
        "root": { "path": "rootfs" },
        "process": {
            "user": { "uid": 0, "gid": 0 },
            "cwd": "/",
            "args": ["/bin/sh", "-c", script],
            "env": ["PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"],
            "capabilities": { "bounding": all, "effective": all, "permitted": all },
        },
        "mounts": [mount("/run", "tmpfs", &[]), mount("/sys/fs/cgroup", "cgroup", &[mode])],
        "linux": { "cgroupsPath": format!("/{name}"), "namespaces": [{ "type": "mount" }, { "type": "cgroup" }] },
    });
    format!(
        "mkdir -p {bundle}/rootfs && cat >{bundle}/config.json <<'EOF'\n{config}\nEOF\n\
         unshare --mount sh -c 'mount --rbind / {bundle}/rootfs && \
         exec crun --cgroup-manager=cgroupfs run --bundle {bundle} {name}'\n\
         status=$?; rm {bundle}/config.json; rmdir {bundle}/rootfs {bundle}; exit $status"
    )
}

/// A script that runs `inner` while another process is there.
fn beside_another(inner: &str) -> String {
    format!("sleep 1000 & {inner}; status=$?; kill $!; exit $status")
}

/// What `inner` is without the change to the caller, which a service has made already.
fn strip_caller(inner: &str) -> &str {
    inner.split_once("--init-groups ").map_or(inner, |(_, rest)| rest)
}
