//! What an agent's sandbox is made of, from its policy to its plan.

use super::choice::{bind_demo_program, choose_agent, refuse_without_api};
use super::sandbox::{AgentSandbox, inner_folder};
use super::{AgentCall, AgentRequest, EventImport};
use crate::app::disk::{self, DiskLifetime};
use crate::app::folder_files::{self, FolderFiles};
use crate::app::mailbox;
use crate::app::overrides::StartOverrides;
use crate::app::prepare::{self, LaunchRequest, PreparedSandbox};
use crate::error::{Code, Error, Result};
use crate::id::SandboxId;
use crate::plan::agent::disk::DiskLimit;
use crate::session::Session;
use crate::session::retained_changes::RetainedChanges;
use crate::session::snapshot::{SnapshotLimits, restore_snapshot};
use crate::session::spool::{SpoolBounds, import_events};
use crate::session::workspace_origin::{ChangeStorage, WorkspaceSetup};
use crate::spec::OverlayUpper;
use crate::spec::policy::{AdapterKind, LoadedPolicy};
use crate::state;
use std::ffi::OsString;

/// What is known of a start before anything is made.
#[derive(Debug)]
pub(super) struct AgentLaunch {
    pub(super) session_id: SandboxId,
    overrides: StartOverrides,
    request: LaunchRequest,
    policy: LoadedPolicy,
    adapter: AdapterKind,
    command: Vec<OsString>,
    disk: DiskLimit,
}

impl AgentLaunch {
    pub(super) fn check(call: &AgentCall) -> Result<Self> {
        let AgentRequest { sandbox, session, overrides, .. } = &call.request;
        let overrides = StartOverrides::read(overrides)?;
        let session_id = session.as_ref().map_or(Ok(call.id.clone()), |session| SandboxId::parse(session))?;
        let request = call.launch_request()?;
        let mut policy = prepare::load_policy(sandbox, &request)?;
        if let Some(server) = &call.request.server {
            server.apply(&mut policy.effective);
        }
        let (adapter, command) = choose_agent(&policy.effective)?;
        overrides.check(&policy.effective, adapter)?;
        refuse_without_api(&policy.effective, adapter, &command)?;
        let path = state::sessions_path()?.join(session_id.as_str());
        let (overlay, copy) = (sandbox.workspace_overlay, call.copies_folder());
        let disk = disk::choose(&policy.effective, overlay, copy, Some(&path), DiskLifetime::Session);
        disk.check()?;
        if overlay {
            prepare::check_workspace(&request.workspace, policy.effective.allow_home.value)?;
            disk::check_lower(&request.workspace)?;
        }
        Ok(AgentLaunch { session_id, overrides, request, policy, adapter, command, disk })
    }

    /// Whether the policy keeps sessions that were not asked for.
    pub(super) fn keeps_sessions(&self) -> bool {
        self.policy.effective.keep_session.value
    }

    /// Everything up to the clone, and where the workspace is.
    pub(super) fn build(
        mut self,
        call: &AgentCall,
        session: &mut Session,
    ) -> Result<(AgentSandbox, Vec<String>)> {
        disk::mount_image(&self.disk, session)?;
        let session: &Session = session;
        // Before anything is made in it, which then belongs to the project too.
        let project = disk::quota_project(&mut self.disk, session.directory())?;
        self.request.session_home = Some(session.home()?);
        let retained = self.lay_overlay(call, session)?;
        let notices = self.copy_folder(call, session)?;
        bind_demo_program(&mut self.request, &self.policy.effective, self.adapter, &self.command)?;
        self.overrides.mount_servers(session, &mut self.request)?;
        self.write_origin(call, session, retained.is_some())?;
        self.restore_snapshot(call, session)?;
        self.import_events(call, session)?;
        let AgentLaunch { session_id, overrides, request, policy, adapter, command, disk } = self;
        let mut prepared = prepare::prepare(&call.request.sandbox, request, policy, disk)?;
        // What is in an image stays there.
        let guarded = (retained.is_some() || project.is_some()) && !prepared.disk.needs_image();
        prepared.session = guarded.then(|| session.directory().to_owned());
        prepared.project = project;
        let flags = flags(adapter, &overrides, &prepared, call)?;
        Ok((AgentSandbox { prepared, retained, session_id, adapter, command, flags }, notices))
    }

    /// Chooses where changes go, if an overlay is asked for; the place of those that are kept is made here.
    fn lay_overlay(&mut self, call: &AgentCall, session: &Session) -> Result<Option<RetainedChanges>> {
        if !call.request.sandbox.workspace_overlay {
            return Ok(None);
        }
        let data = session.data_directory();
        let changes = disk::overlay_changes(&self.disk, data);
        let keeps = matches!(changes, OverlayUpper::Directory(_));
        let retained =
            keeps.then(|| RetainedChanges::new(data, &self.request.workspace, call.request.resume));
        let retained = retained.transpose()?;
        self.request.changes = Some(changes);
        Ok(retained)
    }

    /// Copies the folder into the session, if the agent works on a copy.
    fn copy_folder(&mut self, call: &AgentCall, session: &Session) -> Result<Vec<String>> {
        if !call.copies_folder() {
            return Ok(Vec::new());
        }
        let workspace = session.workspace(&call.folder);
        self.request.workspace =
            workspace.map_err(|error| disk::disk_full_error(&self.disk, session, error))?;
        self.request.agent_folder = None;
        Ok(disk::workspace_notices(session, &self.disk, &self.request.workspace))
    }

    /// Writes down where the workspace came from, for `diff`, `apply` and `discard`.
    fn write_origin(&self, call: &AgentCall, session: &Session, keeps_changes: bool) -> Result<()> {
        let copy = call.copies_folder();
        let storage = match (copy, call.request.sandbox.workspace_overlay) {
            (true, _) => Some(ChangeStorage::Copy),
            (false, true) => Some(ChangeStorage::Overlay),
            (false, false) => None,
        };
        let protected = &self.policy.effective.protect.paths;
        let origin = WorkspaceSetup {
            storage,
            in_memory: storage == Some(ChangeStorage::Overlay) && !keeps_changes,
            folder: if copy { &call.folder } else { &self.request.workspace },
            protected: protected.iter().map(|entry| entry.value.clone()).collect(),
        };
        origin.write_record(session.directory())
    }

    /// Replaces the workspace and the agent's state by those of the snapshot that a new session starts from.
    fn restore_snapshot(&self, call: &AgentCall, session: &Session) -> Result<()> {
        let Some(file) = &call.request.snapshot else { return Ok(()) };
        if self.disk.needs_image() {
            let message = "--from: a snapshot cannot be restored into the disk image of a session";
            return Err(Error::new(Code::Unsupported, message).hint("leave limits.disk out of the policy"));
        }
        let workspace = self.request.workspace.to_string_lossy();
        let usual = SnapshotLimits::default();
        let limits = SnapshotLimits { bytes: usual.bytes.max(self.disk.bytes), ..usual };
        restore_snapshot(session.directory(), Some(&workspace), file, limits).map(drop)
    }

    /// Stores the events that a new session continues.
    fn import_events(&self, call: &AgentCall, session: &Session) -> Result<()> {
        let Some(EventImport { file, next }) = &call.request.events else { return Ok(()) };
        let policy = &self.policy.effective;
        let bounds = SpoolBounds {
            bytes: policy.spool_size.value.bytes(),
            remembered: usize::try_from(policy.remembered_uuids.value).unwrap_or(usize::MAX),
        };
        import_events(session.directory(), bounds, file, *next)
    }
}

/// What an agent that speaks stream-json is handed over of a folder that it does not find by itself, and of the options.
fn flags(
    adapter: AdapterKind,
    overrides: &StartOverrides,
    prepared: &PreparedSandbox,
    call: &AgentCall,
) -> Result<Vec<OsString>> {
    match adapter {
        AdapterKind::StreamJson => {
            let is_beside = inner_folder(prepared).is_some();
            let mut files =
                if is_beside { folder_files::read(&call.handle)? } else { FolderFiles::default() };
            if call.request.server.is_some() {
                let workspace = folder_files::open(&prepared.workspace)?;
                files.prefer_workspace(&workspace)?;
            }
            overrides.flags(files, mailbox::registration(&prepared.spec, &prepared.policy.effective))
        }
        AdapterKind::Bridge | AdapterKind::Demo => Ok(Vec::new()),
    }
}
