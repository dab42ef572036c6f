//! The Landlock domain of a sandbox: the file access of its mounts a second time, and the scopes.
//!
//! The landlock crate knows which rights exist at which ABI; the child adds the rules after the mounts
//! ([`saggar_sys::landlock`]). TCP is handled only where no network namespace is available: otherwise the namespace
//! isolates the network, and handling TCP would deny binding to loopback (DECISIONS 4).

use crate::host::{HostFacts, PathKind};
use crate::spec::{MountKind, NetworkSpec, SandboxProfile, SandboxSpec};
use landlock::{ABI, Access, AccessFs, BitFlags, make_bitflags};
use saggar_sys::file;
use saggar_sys::landlock::{BIND_TCP, CONNECT_TCP, RulesetAttr};
use std::ffi::CString;

/// The newest ABI whose rights this module knows.
const NEWEST_ABI: u32 = 6;

/// The first ABI that handles TCP (Linux 6.7).
pub(crate) const TCP_ABI: u32 = 4;

/// The first ABI with scopes (Linux 6.12).
pub(crate) const SCOPES_ABI: u32 = 6;

/// LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET and LANDLOCK_SCOPE_SIGNAL (ABI 6, Linux 6.12).
const SCOPES: u64 = 0b11;

/// A Landlock domain: the rights that it handles, and the rules that grant some of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LandlockPlan {
    /// The ABI that determines the size of [`RulesetAttr`] for the kernel.
    pub abi: u32,
    /// The handled rights, which are denied unless granted.
    pub attr: RulesetAttr,
    /// The granted rights.
    pub rules: Vec<LandlockRule>,
    /// Ports to which TCP connections are allowed, where TCP is handled.
    pub ports: Vec<u16>,
    /// Whether a standard stream that is a file or a device may be opened again with its access mode: `/dev/stderr`.
    pub streams: bool,
}

/// Rights beneath a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LandlockRule {
    /// Absolute, inside the new root.
    pub path: CString,
    /// Bits of `LANDLOCK_ACCESS_FS_*`.
    pub access: u64,
    /// Description of the rights, for `explain`.
    pub description: &'static str,
}

/// Returns the domain for `spec` on a kernel with this ABI; `None` when there is nothing to handle.
pub fn domain(spec: &SandboxSpec, host: &HostFacts) -> Option<LandlockPlan> {
    let abi = host.landlock_abi.min(NEWEST_ABI);
    let scoped = if abi >= SCOPES_ABI { SCOPES } else { 0 };
    let (access_net, ports) = match &spec.network {
        NetworkSpec::RestrictedHost(narrow) if abi >= TCP_ABI => {
            (BIND_TCP | CONNECT_TCP, narrow.ports.clone())
        }
        _ => (0, Vec::new()),
    };
    if !has_file_rules(spec.profile, abi) {
        // Scopes and ports only, which a kernel without Landlock does not have either.
        let attr = RulesetAttr { access_net, scoped, ..RulesetAttr::default() };
        let handles_any = access_net | scoped != 0;
        return handles_any.then_some(LandlockPlan { abi, attr, rules: Vec::new(), ports, streams: false });
    }
    let known = ABI::from(i32::try_from(abi).unwrap_or(i32::MAX));
    let all = AccessFs::from_all(known);
    let attr = RulesetAttr { access_fs: all.bits(), access_net, scoped };
    Some(LandlockPlan {
        abi,
        attr,
        rules: rules(spec, host, all, known),
        ports,
        streams: spec.reopen_streams,
    })
}

/// Whether there are rules for files. Processes in a domain that handles files can never mount (DECISIONS 3), so programs of
/// the profile nesting have none.
pub(super) fn has_file_rules(profile: SandboxProfile, abi: u32) -> bool {
    abi > 0 && profile != SandboxProfile::Nesting
}

/// Rights to make what is neither a file nor a directory.
const LINKS_AND_DEVICES: BitFlags<AccessFs> = make_bitflags!(AccessFs::{
    MakeSym | MakeChar | MakeBlock | MakeFifo | MakeSock
});

fn rules(spec: &SandboxSpec, host: &HostFacts, all: BitFlags<AccessFs>, known: ABI) -> Vec<LandlockRule> {
    let read = AccessFs::from_read(known);
    let read_words = "read and execute";
    let only_files = AccessFs::from_file(known);
    let rule = |path: &std::path::Path, access: BitFlags<AccessFs>, words| {
        let path = file::c_path(path).ok()?;
        Some(LandlockRule { path, access: (access & all).bits(), description: words })
    };
    // Rights on the root apply everywhere below it, also in a mount without a rule: only listing is granted. Apart from
    // mount points and links, the root holds only the files that saggar wrote.
    let mut rules: Vec<LandlockRule> =
        rule("/".as_ref(), AccessFs::ReadDir.into(), "list").into_iter().collect();
    // Two directories of the private root hold only what saggar put there: one rule each, since every rule costs three
    // system calls in the child.
    let devices = read | AccessFs::WriteFile | AccessFs::IoctlDev;
    rules.extend(rule("/etc".as_ref(), read, read_words));
    rules.extend(rule("/dev".as_ref(), devices, "read, write, terminal control"));
    if !spec.reopen_streams {
        // The input of a command beside an agent is the host's device, which is not below the root's /dev.
        let null = AccessFs::ReadFile | AccessFs::WriteFile;
        rules.extend(rule("/dev/null".as_ref(), null, "read, write"));
    }
    rules.extend(spec.mounts.iter().filter_map(|mount| {
        let shared = |directory: &str| mount.destination.parent() == Some(directory.as_ref());
        if matches!(mount.kind, MountKind::System { .. } | MountKind::Devpts { .. })
            && (shared("/etc") && !mount.writable || shared("/dev"))
        {
            return None;
        }
        let (access, words) = match &mount.kind {
            MountKind::System { source }
            | MountKind::Named { source }
            | MountKind::Overlay { lower: source, .. } => {
                let access = match (host.path_kind(source)?, mount.writable) {
                    (PathKind::Link(_), _) => return None,
                    (PathKind::File | PathKind::Fifo | PathKind::Device, true) => only_files,
                    (PathKind::File | PathKind::Fifo | PathKind::Device, false) => read & only_files,
                    (PathKind::Directory, true) if spec.linkless_mounts.contains(&mount.destination) => {
                        return rule(&mount.destination, all & !LINKS_AND_DEVICES, "files and directories");
                    }
                    (PathKind::Directory, true) => all,
                    (PathKind::Directory, false) => read,
                };
                (access, if mount.writable { "everything" } else { read_words })
            }
            MountKind::Devpts { .. } => (devices, "read, write, terminal control"),
            // Programs write to their own /proc/self files; file permissions protect those of other processes.
            MountKind::Proc => (read | AccessFs::WriteFile, "read, write where the file allows"),
            MountKind::OuterProc => (read, read_words),
            _ if mount.writable => (all, "everything"),
            _ => return None,
        };
        rule(&mount.destination, access, words)
    }));
    rules
}
