//! The processes of a sandbox and their rights, from their own declarations
//! ([`crate::sys::confine::ProcessRights`]), for this caller, policy and kernel.

use crate::api;
use crate::app::prepare::PreparedSandbox;
use crate::launch::agent::streams::ReplacedFiles;
use crate::mcp::mailbox::MAILBOX_RIGHTS;
use crate::relay::{ATTRIBUTION_RIGHTS, RELAY_RIGHTS};
use crate::stage::agent::{copier, init, launcher};
use crate::stage::watcher;
use crate::supervise;
use crate::supervise::quarantine_monitor::SCAN_RIGHTS;
use crate::sys::caps;
use crate::sys::confine::ProcessRights;
use crate::sys::file_worker;
use crate::sys::seccomp;
use serde::Serialize;
use std::ffi::CStr;

/// One process, or several of the same kind.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct ProcessRow {
    /// The name in saggar-security(7).
    pub(super) role: &'static str,
    /// The process name, as `ps` shows it.
    pub(super) name: String,
    /// When the process exists.
    pub(super) when: &'static str,
    /// The user id on the host; `None` if it is chosen at the start.
    pub(super) uid: Option<u32>,
    /// A description of the user.
    pub(super) user: &'static str,
    /// The effective capabilities on the host.
    pub(super) capabilities: Vec<String>,
    pub(super) no_new_privs: bool,
    /// The profile of the system call filter; `None` without one.
    pub(super) filter: Option<&'static str>,
    /// What the Landlock domain allows; `None` without one.
    pub(super) landlock: Option<&'static str>,
}

const ALWAYS: &str = "while the sandbox runs";
const PER_TASK: &str = "for one thing each, when it is needed";
const AT_END: &str = "in the end, and after each command that a server runs";

/// The user that a process runs as.
#[derive(Debug, Clone, Copy)]
enum ProcessUser {
    Caller,
    /// The supervisor's own id, if the caller is root; also used by the relay.
    Supervisor,
    /// The id of the API process, if the caller is root.
    Nobody,
    Inside,
}

/// Lists the processes of this sandbox, in the order of the manual page.
pub(super) fn of(prepared: &PreparedSandbox) -> Vec<ProcessRow> {
    let builder = ProcessRows::new(prepared);
    let plan = &prepared.plan;
    let publishes = !prepared.policy.effective.publish.is_empty();
    let by_policy = plan.egress.is_some();
    let mut rows = vec![
        builder.row("supervisor", ALWAYS, ProcessUser::Supervisor, &supervise::SUPERVISOR_RIGHTS),
        builder.row("launcher", ALWAYS, ProcessUser::Caller, &launcher::RIGHTS),
        builder.row("worker", PER_TASK, ProcessUser::Caller, &launcher::RIGHTS),
    ];
    let copied = match ReplacedFiles::of(plan) {
        ReplacedFiles::None => None,
        ReplacedFiles::Forbidden(_) => {
            Some("for each standard stream that is a file the program may not open")
        }
        ReplacedFiles::All => Some("for each standard stream that is a file"),
    };
    if let Some(when) = copied {
        rows.push(builder.row("copier", when, ProcessUser::Caller, &copier::RIGHTS));
    }
    if by_policy || publishes {
        rows.push(builder.row("relay", ALWAYS, ProcessUser::Supervisor, &RELAY_RIGHTS));
    }
    if by_policy {
        rows.push(builder.row("attribution", ALWAYS, ProcessUser::Caller, &ATTRIBUTION_RIGHTS));
    }
    if prepared.spec.model_api.is_some() {
        rows.push(builder.row("API process", ALWAYS, ProcessUser::Nobody, &api::API_RIGHTS));
    }
    if prepared.spec.mailbox.is_some() {
        rows.push(builder.row("mailbox process", ALWAYS, ProcessUser::Caller, &MAILBOX_RIGHTS));
    }
    rows.push(builder.row("file worker", PER_TASK, ProcessUser::Inside, &file_worker::FILE_WORKER_RIGHTS));
    // A tree below an overlay is not scanned for new files.
    if !prepared.has_overlay() {
        rows.push(builder.row("file worker that looks", AT_END, ProcessUser::Inside, &SCAN_RIGHTS));
    }
    rows.push(builder.watcher());
    rows.push(builder.init());
    rows
}

/// What the rows depend on.
struct ProcessRows<'a> {
    prepared: &'a PreparedSandbox,
    is_root: bool,
    uid: u32,
}

impl<'a> ProcessRows<'a> {
    fn new(prepared: &'a PreparedSandbox) -> Self {
        let uid = nix::unistd::geteuid();
        ProcessRows { prepared, is_root: uid.is_root(), uid: uid.as_raw() }
    }

    fn row(
        &self,
        role: &'static str,
        when: &'static str,
        user: ProcessUser,
        rights: &ProcessRights,
    ) -> ProcessRow {
        let (uid, user) = self.user(user);
        let domain =
            rights.landlock.filter(|domain| self.prepared.host.landlock_abi >= domain.min_abi.max(1));
        ProcessRow {
            role,
            name: name(rights.name),
            when,
            uid,
            user,
            capabilities: names(rights.capabilities & caps::effective()),
            no_new_privs: true,
            filter: Some(rights.filter.describe().name),
            landlock: domain.map(|domain| domain.allows),
        }
    }

    /// Returns the user id on the host and its description.
    fn user(&self, user: ProcessUser) -> (Option<u32>, &'static str) {
        match user {
            ProcessUser::Supervisor if self.is_root => (None, "an id of its own, from sandbox.id_range"),
            ProcessUser::Nobody if self.is_root => (Some(api::NOBODY), "nobody"),
            ProcessUser::Inside => match self.prepared.plan.block {
                Some(block) if block.uses_host_ids() => (Some(block.host_uid), "the owner of the files"),
                Some(_) => (None, "the owner of the files"),
                None => (Some(self.uid), "the caller"),
            },
            _ => (Some(self.uid), "the caller"),
        }
    }

    /// The watcher is not confined: it shares the memory of the supervisor until the launcher exists.
    fn watcher(&self) -> ProcessRow {
        ProcessRow {
            role: "watcher",
            name: name(watcher::NAME),
            when: "until the first program is asked for",
            uid: Some(self.uid),
            user: "the caller",
            capabilities: names(caps::effective()),
            no_new_privs: false,
            filter: None,
            landlock: None,
        }
    }

    fn init(&self) -> ProcessRow {
        let plan = &self.prepared.plan;
        let (uid, user) = match plan.block {
            Some(block) if block.uses_host_ids() => (Some(block.host_uid), "the owner of the workspace"),
            Some(_) => (None, "an id of the sandbox's block"),
            None => (Some(self.uid), "the caller"),
        };
        ProcessRow {
            role: "pid 1",
            name: name(init::NAME),
            when: ALWAYS,
            uid,
            user,
            capabilities: Vec::new(),
            no_new_privs: true,
            filter: Some(seccomp::describe(plan.init_filter).name),
            landlock: plan.landlock.as_ref().map(|_| "as for its programs"),
        }
    }
}

fn name(name: &CStr) -> String {
    name.to_string_lossy().into_owned()
}

/// Returns the names of capabilities, such as `CAP_KILL`.
fn names(set: u64) -> Vec<String> {
    let is_in = |capability: &::caps::Capability| set & 1 << capability.index() != 0;
    let mut known: Vec<_> = ::caps::all().into_iter().filter(is_in).collect();
    known.sort_by_key(::caps::Capability::index);
    known.into_iter().map(|capability| capability.to_string()).collect()
}
