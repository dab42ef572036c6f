//! A container's cgroups for a test, and a program in them; both go with the test.

use super::member::Member;
use oci_spec::runtime::LinuxResources;
use saggar::cgroup::{CgroupDriver, CgroupHandle, CgroupLayout, CgroupLocation, CgroupRequest};
use saggar::host::cgroups::CgroupVersion;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

/// Whether this user can make cgroups here: root can, others where some are delegated to them.
pub(super) fn can() -> Result<(), String> {
    match is_root() || !place(&CgroupLayout::discover().unwrap()).directories.is_empty() {
        true => Ok(()),
        false => Err(NEEDS_ROOT.to_owned()),
    }
}

pub(super) fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// What the guest knows as the one reason for an ordinary user to skip.
pub(super) const NEEDS_ROOT: &str = "this test needs to be started as root";

/// The id of a container that no other test has.
pub(super) fn id() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A place on this host, or on what of it `layout` tells.
pub(super) fn place(layout: &CgroupLayout) -> CgroupLocation {
    let annotations = BTreeMap::new();
    let wanted = CgroupRequest {
        id: &id(),
        cgroups_path: None,
        driver: CgroupDriver::Cgroupfs,
        rootless: !is_root(),
        annotations: &annotations,
    };
    CgroupLocation::choose(layout, &wanted).unwrap()
}

/// The cgroup v2 hierarchy of this host alone.
pub(super) fn unified() -> Option<CgroupLayout> {
    let mut layout = CgroupLayout::discover().unwrap();
    layout.hierarchies.retain(|one| one.version == CgroupVersion::V2);
    (!layout.hierarchies.is_empty()).then_some(layout)
}

/// `linux.resources`
pub(super) fn resources(json: serde_json::Value) -> LinuxResources {
    serde_json::from_value(json).unwrap()
}

/// Cgroups, which go with this value.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) group: Option<CgroupHandle>,
    pub(super) place: CgroupLocation,
}

impl Room {
    /// Cgroups with these limits, in all hierarchies of this host.
    pub(super) fn with(json: serde_json::Value) -> Self {
        Self::at(place(&CgroupLayout::discover().unwrap()), json).unwrap()
    }

    pub(super) fn at(place: CgroupLocation, json: serde_json::Value) -> saggar::error::Result<Self> {
        let group = Some(CgroupHandle::create(&place, Some(&resources(json)))?);
        Ok(Room { group, place })
    }

    pub(super) fn group(&mut self) -> &mut CgroupHandle {
        self.group.as_mut().unwrap()
    }

    /// A shell in the cgroups that runs `script`.
    pub(super) fn run(&mut self, script: &str) -> Member {
        let mut member = Member::waiting(script);
        self.group().enter(member.pid()).unwrap();
        member.go();
        member
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some(group) = self.group.take() {
            let killed = group.kill_all(libc::SIGKILL);
            let removed = group.remove();
            if !std::thread::panicking() {
                killed.and(removed).unwrap();
            }
        }
    }
}
