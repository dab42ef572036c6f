//! The places of a sandbox's cgroups: known before the cgroups are made, so that what cleans up knows them too.

use super::requests::controllers;
use super::sandbox_stats::SandboxStats;
use super::usage::SandboxUsage;
use super::v1::{self, V1Cgroup};
use crate::cgroup::systemd;
use crate::host::cgroup_parent::CgroupParent;
use crate::spec::{LimitsSpec, RootCgroupSpec};
use nix::unistd::geteuid;
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::id::SandboxId;
use std::path::{Path, PathBuf};

/// Where the cgroups of a sandbox will be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupPlace {
    /// In the unified hierarchy, if there is one.
    pub(super) unified: Option<UnifiedPlace>,
    pub(super) v1: Vec<V1Cgroup>,
}

/// The place of a cgroup in the unified hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnifiedPlace {
    /// What it is made in.
    pub(super) parent: CgroupParent,
    pub(super) path: PathBuf,
}

/// The cgroups of a sandbox, which may have been made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SandboxCgroups {
    /// In the unified hierarchy.
    pub unified: Option<PathBuf>,
    /// In hierarchies of version 1.
    pub v1: Vec<V1Cgroup>,
}

impl CgroupPlace {
    /// The places of the cgroups of `id`, where these limits can hold.
    pub fn choose(id: &SandboxId, limits: &LimitsSpec, root: &RootCgroupSpec) -> Self {
        let needed = controllers(limits);
        CgroupPlace {
            unified: CgroupParent::choose(&needed, root).map(|parent| UnifiedPlace::below(parent, id)),
            v1: V1Cgroup::choose(id.as_str(), &needed, &root.parent),
        }
    }

    /// Enters the scope of systemd that the place is in, if it is in one. For an ordinary user another place is chosen
    /// without the scope.
    ///
    /// # Errors
    /// [`Code::Unsupported`] if the policy asks for a scope for root, and systemd gives none, or not every controller is in
    /// version 2, the only one in which a scope is delegated.
    pub fn enter_scope(self, id: &SandboxId, limits: &LimitsSpec, root: &RootCgroupSpec) -> Result<Self> {
        const DRIVER: &str = "sandbox.cgroup_driver = \"systemd\"";
        const REMEDY: &str = "set sandbox.cgroup_driver = \"cgroupfs\"";
        let is_root = geteuid().is_root();
        if is_root && root.uses_systemd && (self.unified.is_none() || !self.v1.is_empty()) {
            let message =
                format!("{DRIVER}: cgroup v1 has controllers on this host, which systemd does not delegate");
            return Err(Error::new(Code::Unsupported, message).hint(REMEDY));
        }
        let Some(UnifiedPlace { parent: CgroupParent::Scope { slice, .. }, .. }) = &self.unified else {
            return Ok(self);
        };
        let parent = match systemd::scope::enter(id.as_str(), slice) {
            Ok(()) => CgroupParent::own(),
            Err(error) if is_root => return Err(error.context(DRIVER).hint(REMEDY)),
            Err(error) => {
                log::info!("no scope of the user's systemd for this sandbox: {error}");
                CgroupParent::choose_without_scope(&controllers(limits), root)
            }
        };
        Ok(CgroupPlace { unified: parent.map(|parent| UnifiedPlace::below(parent, id)), ..self })
    }

    /// Those of the cgroups that can be made. The others need no cleanup.
    pub fn cgroups(&self) -> SandboxCgroups {
        let unified = self.unified.as_ref().filter(|place| place.parent.check_writable().is_ok());
        SandboxCgroups { unified: unified.map(|place| place.path.clone()), v1: self.v1.clone() }
    }
}

impl UnifiedPlace {
    fn below(parent: CgroupParent, id: &SandboxId) -> Self {
        let path = parent.child(id.as_str());
        UnifiedPlace { parent, path }
    }
}

impl SandboxCgroups {
    /// Every directory.
    pub fn directories(&self) -> impl Iterator<Item = &Path> {
        self.unified.as_deref().into_iter().chain(self.v1.iter().map(V1Cgroup::path))
    }

    /// The directory with the files of this controller, if it is enabled.
    pub(super) fn path_with(&self, controller: &str) -> Option<&Path> {
        let v1 = self.v1.iter().find(|one| one.has(controller)).map(V1Cgroup::path);
        v1.or(self.unified.as_deref())
    }

    /// Usage of the sandbox; `None` if nothing counts it.
    pub fn usage(&self) -> Option<SandboxUsage> {
        let unified = self.unified.as_deref().and_then(SandboxUsage::read).unwrap_or_default();
        let usage = unified.or(v1::usage(&self.v1));
        (usage != SandboxUsage::default()).then_some(usage)
    }

    /// Current usage of the sandbox; `None` if it is in no cgroup.
    pub fn stats(&self) -> Option<SandboxStats> {
        let unified = self.unified.as_deref().filter(|cgroup| cgroup.is_dir()).map(SandboxStats::read);
        match self.v1.iter().any(|cgroup| cgroup.path().is_dir()) {
            true => Some(v1::stats(&self.v1, unified.unwrap_or_default())),
            false => unified,
        }
    }

    /// Number of processes that the kernel killed because memory ran out.
    pub fn oom_kills(&self) -> u64 {
        let unified = self.unified.as_deref().map_or(0, super::usage::oom_kills);
        unified + v1::oom_kills(&self.v1).unwrap_or(0)
    }
}
