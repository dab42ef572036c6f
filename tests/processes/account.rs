//! What /proc says of a process (proc_pid_status(5)).

use std::fs;

use crate::support::deadline::Deadline;

/// The rights of a process.
#[derive(Debug, Clone)]
pub(crate) struct Account {
    pub(crate) pid: u32,
    pub(crate) name: String,
    pub(crate) uids: Vec<u32>,
    pub(crate) gids: Vec<u32>,
    pub(crate) groups: Vec<u32>,
    pub(crate) inheritable: u64,
    pub(crate) permitted: u64,
    pub(crate) effective: u64,
    pub(crate) bounding: u64,
    pub(crate) ambient: u64,
    pub(crate) no_new_privs: u32,
    pub(crate) seccomp: u32,
}

impl Account {
    /// Of this process, while it lives.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let field = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
                .unwrap_or_default()
                .trim()
        };
        let ids = |name| field(name).split_whitespace().filter_map(|id| id.parse().ok()).collect();
        let set = |name| u64::from_str_radix(field(name), 16).unwrap_or(u64::MAX);
        Some(Account {
            pid,
            name: field("Name").to_owned(),
            uids: ids("Uid"),
            gids: ids("Gid"),
            groups: ids("Groups"),
            inheritable: set("CapInh"),
            permitted: set("CapPrm"),
            effective: set("CapEff"),
            bounding: set("CapBnd"),
            ambient: set("CapAmb"),
            no_new_privs: field("NoNewPrivs").parse().unwrap_or(0),
            seccomp: field("Seccomp").parse().unwrap_or(0),
        })
    }

    /// Of its children.
    pub(crate) fn children(pid: u32) -> Vec<Self> {
        let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        list.split_whitespace().filter_map(|pid| Account::of(pid.parse().ok()?)).collect()
    }

    /// It can do nothing that any process of nobody could not do, and gain nothing.
    pub(crate) fn assert_powerless(&self) {
        let sets = [self.inheritable, self.permitted, self.effective, self.ambient];
        assert_eq!(sets, [0; 4], "{self:?}");
        assert_eq!((self.no_new_privs, self.seccomp), (1, 2), "{self:?}");
        let own = self.uids[0];
        assert!(self.uids.iter().all(|id| *id == own), "{self:?}");
        assert!(own < 1 << 20 || self.groups.is_empty(), "{self:?}");
    }
}

/// Waits until the account of a process is as wanted.
pub(crate) fn until(pid: u32, wanted: impl Fn(&Account) -> bool) -> Account {
    let deadline = Deadline::usual();
    loop {
        let account = Account::of(pid).unwrap_or_else(|| panic!("process {pid} is gone"));
        if wanted(&account) {
            return account;
        }
        assert!(!deadline.remaining().is_zero(), "not as wanted: {account:?}");
        deadline.pause();
    }
}

/// The child of this name, once it has its filter.
pub(crate) fn family(parent: u32, name: &str) -> Account {
    let deadline = Deadline::usual();
    loop {
        let found = Account::children(parent).into_iter().find(|child| child.name == name);
        if let Some(child) = found.filter(|child| child.seccomp == 2) {
            return child;
        }
        assert!(!deadline.remaining().is_zero(), "no {name}: {:?}", Account::children(parent));
        deadline.pause();
    }
}

/// Whether two processes have one memory (kcmp(2), KCMP_VM).
#[allow(unsafe_code, reason = "no crate has kcmp(2)")]
pub(crate) fn share_memory(one: u32, other: u32) -> bool {
    const KCMP_VM: libc::c_int = 1;
    // SAFETY: kcmp reads no memory of ours.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_VM, 0, 0) };
    // A process that may not look into them (both are undumpable) is told nothing.
    order == 0
}
