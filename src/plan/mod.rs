//! From what a sandbox is to be and what the host can do to an ordered list of steps. Pure: no I/O.

pub mod container;
pub mod disk;
pub mod files;
pub mod ids;
pub mod landlock;
mod narrow;
pub mod owners;
mod publish;
mod quotas;
pub mod seccomp;
pub mod step;

use crate::error::{Code, Error, Result};
use crate::host::Host;
pub use crate::spec::policy::hosts::DNS_PORT;
use crate::spec::policy::hosts::Rules;
use crate::spec::{Api, Identity, Network, Profile, Protection, SandboxSpec, Strength};
use crate::sys::seccomp::Profile as FilterProfile;
use std::ffi::CString;
use std::path::{Path, PathBuf};
use step::{Step, Steps};

/// The ports of the proxies that a sandbox with a network by policy has on its loopback: SOCKS5, HTTP.
pub const PROXIES: [u16; 2] = [1080, 3128];

/// Everything that [`crate::launch`] needs, as data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Namespaces, as flags of clone3(2).
    pub namespaces: u64,
    /// The id maps of the user namespace.
    pub maps: ids::Maps,
    /// Files that the parent opens before the clone, named by the steps by index.
    pub slots: Vec<Slot>,
    /// The first id of the block and the inner ids, when trees are to be idmapped.
    pub block: Option<Block>,
    /// What pid 1 does before it serves.
    pub steps: Steps,
    /// The domain that [`Step::Landlock`] enters.
    pub landlock: Option<landlock::Domain>,
    /// The filter of every program.
    pub program_filter: FilterProfile,
    /// Preferred protections that are missing, each with the reason.
    pub degraded: Vec<Degraded>,
    /// What of the network is relayed, where it goes by policy.
    pub egress: Option<Rules>,
}

/// A block of ids, and who the programs are in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Its first id on the host.
    pub base: u32,
    /// User id inside.
    pub uid: u32,
    /// Group id inside.
    pub gid: u32,
    /// What the user id is on the host: of the block, or the owner's own where a tree cannot be idmapped.
    pub host_uid: u32,
    /// What the group id is on the host.
    pub host_gid: u32,
}

impl Block {
    /// All ids in the block.
    pub fn shifted(base: u32, identity: &Identity) -> Self {
        let Identity { uid, gid, .. } = *identity;
        Block { base, uid, gid, host_uid: base + uid, host_gid: base + gid }
    }

    /// Whether the programs have an id of the host that is somebody else's too.
    pub fn is_direct(&self) -> bool {
        (self.host_uid, self.host_gid) != (self.base + self.uid, self.base + self.gid)
    }
}

/// A file or directory that somebody named, opened by the parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// Its absolute path on the host, without links.
    pub path: PathBuf,
    /// What the parent makes of it.
    pub tree: Tree,
    /// Whether programs may write it.
    pub writable: bool,
}

/// What the parent makes of a path that somebody named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tree {
    /// Nothing: the child opens it again and compares.
    None,
    /// A detached tree in which the owner is the inner user.
    Mapped,
    /// A detached tree as it is on the host: its file system has no idmapped mounts.
    Plain {
        /// The owner that its root must have: then it is the inner user's, who has that owner's id.
        owner: Option<(u32, u32)>,
    },
}

impl Plan {
    /// The namespaces that the clone makes: all but a network namespace that the child makes itself.
    pub fn cloned(&self) -> u64 {
        let own = if self.steps.make_network() { libc::CLONE_NEWNET } else { 0 };
        self.namespaces & !u64::from(own.cast_unsigned())
    }
}

/// A preferred protection that this sandbox does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Degraded {
    /// Its name.
    pub what: String,
    /// Why, in words.
    pub why: String,
}

/// Makes the plan.
///
/// # Errors
/// [`Code::Unsupported`] when a required protection cannot be had; [`Code::Invalid`] for a path that
/// cannot be mounted.
pub fn build(spec: &SandboxSpec, host: &Host) -> Result<Plan> {
    publish::check(spec)?;
    let mut degraded = Vec::new();
    let domain = landlock::domain(spec, host);
    check_landlock(spec, host.landlock_abi, &mut degraded)?;
    degraded.extend(narrow::check(spec, host.landlock_abi)?);

    let block = owners::block(spec, host)?;
    let privileged = block.is_some();
    let mut steps = vec![
        Step::AwaitMaps,
        Step::BecomeUser { uid: spec.identity.uid, gid: spec.identity.gid, clear_groups: privileged },
        Step::DieWithParent,
    ];
    if spec.network.is_own() {
        steps.push(Step::MakeNetwork);
    }
    let mut files = files::Files::new(host, block.as_ref());
    files.add(spec)?;
    let (file_steps, slots) = files.into_parts();
    steps.extend(file_steps);
    steps.push(Step::ChangeRoot);
    steps.push(Step::SealRoot);
    steps.push(Step::Hostname { name: c_string(&spec.hostname)? });
    steps.extend(spec.rlimits.iter().map(|limit| Step::Rlimit {
        resource: limit.resource,
        soft: limit.soft,
        hard: limit.hard,
    }));
    steps.push(Step::NewKeyring { required: want(spec, Protection::Keyring) == Strength::Require });
    if spec.network.is_own() {
        // As late as can be: it is made while the files are mounted.
        steps.push(Step::JoinNetwork);
    }
    let egress = match &spec.network {
        Network::Policy(rules) => {
            let mut ports = rules.ports();
            ports.extend(PROXIES);
            ports.sort_unstable();
            ports.dedup();
            steps.push(Step::CatchNetwork { ports });
            Some(rules.clone())
        }
        Network::None | Network::Narrow(_) | Network::Host => None,
    };
    if spec.api.is_some() {
        // With the host's network the port would be the host's.
        let port = spec.network.is_own().then_some(Api::PORT);
        steps.push(Step::OfferApi { path: below_root(Path::new(Api::SOCKET))?, port });
    }
    if spec.terminal {
        steps.push(Step::OpenTerminal);
    }
    if let Some(shown) = &spec.shown {
        steps.push(Step::ShowWorkspace { path: below_root(shown)? });
    }
    steps.push(Step::NoNewPrivs);
    if domain.is_some() {
        steps.push(Step::Landlock);
    }
    steps.extend([Step::DropCapabilities, Step::HideMemory]);
    if let Network::Narrow(network) = &spec.network {
        steps.extend(narrow::filters(network, host.landlock_abi).map(Step::Narrow));
    }
    steps.push(Step::Seccomp);

    let steps = Steps::new(steps, domain.as_ref())
        .map_err(|e| Error::new(Code::Invalid, format!("make a plan: {e}")))?;
    Ok(Plan {
        namespaces: namespaces(spec),
        maps: block.as_ref().map_or_else(|| ids::sandbox(&spec.identity), ids::in_block),
        slots,
        block,
        steps,
        landlock: domain,
        program_filter: match spec.profile {
            // Who asks for the network is told what becomes of all that programs want of it.
            Profile::Strict if egress.is_some() => FilterProfile::Told,
            Profile::Strict => FilterProfile::Agent,
            Profile::Nesting => FilterProfile::Nesting,
        },
        degraded,
        egress,
    })
}

/// Whether `protection` must hold.
pub fn want(spec: &SandboxSpec, protection: Protection) -> Strength {
    spec.protections.iter().find(|(p, ..)| *p == protection).map_or(Strength::Require, |(_, want, _)| *want)
}

fn check_landlock(spec: &SandboxSpec, abi: u32, degraded: &mut Vec<Degraded>) -> Result<()> {
    let mut missing = |protection, what: &str, why: String| {
        if want(spec, protection) == Strength::Require {
            let hint = "boot with landlock in lsm=, or say --prefer landlock to go on without it";
            return Err(Error::new(Code::Unsupported, format!("{what} is required: {why}")).hint(hint));
        }
        degraded.push(Degraded { what: what.to_owned(), why });
        Ok(())
    };
    if abi == 0 && spec.profile == Profile::Strict {
        missing(
            Protection::Landlock,
            "landlock",
            "the kernel has no landlock, or it is switched off".into(),
        )?;
    }
    if abi < landlock::SCOPES_ABI {
        let why = format!("the kernel's landlock ABI is {abi}, scopes came with 6 (Linux 6.12)");
        missing(Protection::LandlockScope, "landlock-scope", why)?;
    }
    Ok(())
}

fn namespaces(spec: &SandboxSpec) -> u64 {
    let always = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP;
    let network = if spec.network.is_own() { libc::CLONE_NEWNET } else { 0 };
    u64::from((always | network).cast_unsigned())
}

/// An absolute path inside as the steps name it: below the new root, without the leading slash.
///
/// # Errors
/// [`Code::Invalid`] for a path that is not absolute, is the root, or has `..`, `.` or a NUL byte in it.
fn below_root(path: &Path) -> Result<CString> {
    use std::path::Component;
    let mut parts = path.components();
    let absolute = parts.next() == Some(Component::RootDir);
    let plain = parts.all(|part| matches!(part, Component::Normal(_)));
    let text = path.to_string_lossy();
    if !absolute || !plain || path == Path::new("/") {
        let message = format!("the path {text:?} inside the sandbox is not absolute and plain");
        return Err(Error::new(Code::Invalid, message).hint("write it from / on, without . and .."));
    }
    let relative = path.strip_prefix("/").unwrap_or(path);
    CString::new(relative.as_os_str().as_encoded_bytes())
        .map_err(|_| Error::new(Code::Invalid, format!("the path {text:?} has a NUL byte")))
}

fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::new(Code::Invalid, format!("the text {text:?} has a NUL byte")))
}
