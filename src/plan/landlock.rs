//! The landlock domain of a sandbox: the file view of its mounts a second time, and the scopes.
//!
//! The landlock crate says which rights exist at which ABI; the rules themselves are added by the child
//! after the mounts ([`crate::sys::landlock`]). TCP is handled only where there is no network namespace to be had: in
//! one of its own the namespace is the wall, and handling it would refuse binding to loopback (DECISIONS 4).

use crate::host::{Host, Kind};
use crate::spec::{MountKind, Network, Profile, SandboxSpec};
use crate::sys::landlock::{BIND_TCP, CONNECT_TCP, RulesetAttr};
use landlock::{ABI, Access, AccessFs, BitFlags};
use std::ffi::CString;

/// The newest ABI that this module knows the rights of.
const NEWEST: u32 = 6;

/// The first ABI that handles TCP (Linux 6.7).
pub const TCP_ABI: u32 = 4;

/// The first ABI with scopes (Linux 6.12).
pub const SCOPES_ABI: u32 = 6;

/// LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET and LANDLOCK_SCOPE_SIGNAL (ABI 6, Linux 6.12).
const SCOPES: u64 = 0b11;

/// A domain: what it handles, and what it grants where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    /// The ABI whose size of [`RulesetAttr`] the kernel takes.
    pub abi: u32,
    /// What is handled, that is refused unless granted.
    pub attr: RulesetAttr,
    /// What is granted.
    pub rules: Vec<Rule>,
    /// Ports that may be called over TCP, where that is handled.
    pub ports: Vec<u16>,
    /// Whether a standard stream that is a regular file may be opened again, as it is open: `/dev/stderr`.
    pub streams: bool,
}

/// Rights beneath one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Absolute, inside the new root.
    pub path: CString,
    /// Bits of `LANDLOCK_ACCESS_FS_*`.
    pub access: u64,
    /// In words, for `explain`.
    pub words: &'static str,
}

/// The domain for `spec` on a kernel with this ABI; `None` when there is nothing to handle.
pub fn domain(spec: &SandboxSpec, host: &Host) -> Option<Domain> {
    let abi = host.landlock_abi.min(NEWEST);
    let scoped = if abi >= SCOPES_ABI { SCOPES } else { 0 };
    let (access_net, ports) = match &spec.network {
        Network::Narrow(narrow) if abi >= TCP_ABI => (BIND_TCP | CONNECT_TCP, narrow.ports.clone()),
        _ => (0, Vec::new()),
    };
    if spec.profile == Profile::Nesting {
        // A domain with file rights can never mount (DECISIONS 3): scopes and ports only.
        let attr = RulesetAttr { access_net, scoped, ..RulesetAttr::default() };
        let handles_any = access_net | scoped != 0;
        return handles_any.then_some(Domain { abi, attr, rules: Vec::new(), ports, streams: false });
    }
    if abi == 0 {
        return None;
    }
    let known = ABI::from(i32::try_from(abi).unwrap_or(i32::MAX));
    let all = AccessFs::from_all(known);
    let attr = RulesetAttr { access_fs: all.bits(), access_net, scoped };
    Some(Domain { abi, attr, rules: rules(spec, host, all, known), ports, streams: spec.streams })
}

fn rules(spec: &SandboxSpec, host: &Host, all: BitFlags<AccessFs>, known: ABI) -> Vec<Rule> {
    let read = AccessFs::from_read(known);
    let read_words = "read and execute";
    let only_files = AccessFs::from_file(known);
    let rule = |path: &std::path::Path, access: BitFlags<AccessFs>, words| {
        let path = CString::new(path.as_os_str().as_encoded_bytes()).ok()?;
        Some(Rule { path, access: (access & all).bits(), words })
    };
    // Rights on the root hold everywhere below it, in a mount that was forgotten too: names only. What it holds
    // beside mount points and links are the files that saggar wrote.
    let mut rules: Vec<Rule> = rule("/".as_ref(), AccessFs::ReadDir.into(), "list").into_iter().collect();
    // Two directories of the private root hold what saggar put there and nothing else: one rule each, since
    // every rule costs three calls in the child.
    let devices = read | AccessFs::WriteFile | AccessFs::IoctlDev;
    rules.extend(rule("/etc".as_ref(), read, read_words));
    rules.extend(rule("/dev".as_ref(), devices, "read, write, terminal control"));
    rules.extend(spec.mounts.iter().filter_map(|mount| {
        let shared = |directory: &str| mount.at.parent() == Some(directory.as_ref());
        if matches!(mount.kind, MountKind::System { .. } | MountKind::Devpts { .. })
            && (shared("/etc") && !mount.writable || shared("/dev"))
        {
            return None;
        }
        let (access, words) = match &mount.kind {
            MountKind::System { source }
            | MountKind::Named { source }
            | MountKind::Overlay { lower: source, .. } => {
                let access = match (host.kind(source)?, mount.writable) {
                    (Kind::Link(_), _) => return None,
                    (Kind::File, true) => only_files,
                    (Kind::File, false) => read & only_files,
                    (Kind::Directory, true) => all,
                    (Kind::Directory, false) => read,
                };
                (access, if mount.writable { "everything" } else { read_words })
            }
            MountKind::Devpts { .. } => (devices, "read, write, terminal control"),
            // Programs write to their own /proc/self files; whose they are, file permissions say.
            MountKind::Proc => (read | AccessFs::WriteFile, "read, write where the file allows"),
            _ if mount.writable => (all, "everything"),
            _ => return None,
        };
        rule(&mount.at, access, words)
    }));
    rules
}
