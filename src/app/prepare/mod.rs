//! From options to a plan: what commands, agents and `explain` have in common.

mod protected_paths;
mod repository;
mod surroundings;

use repository::{GitMount, RepositoryAccess};
pub(crate) use repository::{agent_start_directory, start_directory, workspace_of};

use super::program_lookup::{self, ProgramBind, VisibleTrees};
use super::{SandboxOptions, mailbox, model_api, shared_directories, sockets};
use crate::cgroup::SandboxCgroups;
use crate::error::{Code, Error, Result};
use crate::host::{self, HostFacts, PathKind};
use crate::id::SandboxId;
use crate::launch::agent::cleanup::{self, ClaimedEntries};
use crate::launch::agent::skipped_entries::{SkippedEntries, SkippingIndex};
use crate::launch::ids::{self, IdBlock};
use crate::plan::agent::disk::DiskLimit;
use crate::plan::agent::{self as plan, AgentPlan};
use crate::session::named_paths::UnmatchedEntry;
use crate::session::policy_parser::WorkerPolicyParser;
use crate::session::protect;
use crate::session::quarantine::Quarantine;
use crate::session::repository::{OutsideGitDirectory, plain_path};
use crate::session::session_project::SessionProject;
use crate::session::workspace_scan::WorkspaceScanner;
use crate::spec::agent::{self, AgentSandboxRequest, SANDBOX_HOME};
use crate::spec::hidden_in_git;
use crate::spec::policy::{
    self, BindAccess, EffectivePolicy, HomeSource, LoadedPolicy, PolicyLayer, PolicyOptions, PolicyPart,
    PolicySources, Setting, UserPath,
};
use crate::spec::{
    GitIndexSpec, HostIdMapping, ModelApiSpec, MountKind, Origin, OverlayUpper, PinnedPath, SandboxSpec,
};
use crate::state::group_only_record::{self, Keep};
use crate::supervise::quarantine_monitor::{QuarantineMonitor, finish_abandoned_scans};
use crate::supervise::time_limits::TimeLimits;
use nix::errno::Errno;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// Where saggar's own program is inside, for what needs it.
pub(crate) const OWN_PROGRAM: &str = "/run/saggar/saggar";

/// What saggar itself needs of the host inside: source, destination, writable, why.
pub(crate) type OwnBind = (PathBuf, PathBuf, bool, &'static str);

/// What a sandbox is made for.
#[derive(Debug)]
pub(crate) struct LaunchRequest {
    /// The built-in home: `tmp` for `wrap`, `session` for `agent`.
    pub(crate) home: HomeSource,
    /// The work tree, without links.
    pub(crate) workspace: PathBuf,
    /// Whether the work tree is, or will be, a copy that belongs to a session.
    pub(crate) is_copy: bool,
    /// Where programs start, from the work tree.
    pub(crate) start_directory: PathBuf,
    /// What the agents of a run work on, whose mailbox they share: the work tree, or what it will be a copy of.
    pub(crate) repository: PathBuf,
    /// The agent's folder, where there is one.
    pub(crate) agent_folder: Option<PathBuf>,
    /// The program, looked up on the host's PATH, and who named it.
    pub(crate) program: Option<Setting<OsString>>,
    /// The lasting home of the session.
    pub(crate) session_home: Option<PathBuf>,
    /// What saggar itself needs of the host inside.
    pub(crate) own_binds: Vec<OwnBind>,
    /// Where changes of the work tree go, when it lies under an overlay.
    pub(crate) changes: Option<OverlayUpper>,
    /// Whether standard streams are the caller's own, so that a terminal is relayed.
    pub(crate) inherits_streams: bool,
    /// Whether a sandbox is to start. To show what it would be, nothing is made and nothing is held.
    pub(crate) will_start: bool,
    /// Directories that a start makes first.
    pub(crate) planned: Vec<PlannedDirectory>,
}

impl LaunchRequest {
    /// What was planned below `session` will be below `place`.
    pub(crate) fn relocate_session(&mut self, session: &Path, directory: &Path) {
        let move_one = |path: &mut PathBuf| {
            if let Ok(inner) = path.strip_prefix(session) {
                *path = directory.join(inner);
            }
        };
        move_one(&mut self.workspace);
        self.session_home.iter_mut().for_each(move_one);
        self.planned.iter_mut().for_each(|planned| move_one(&mut planned.path));
    }

    /// Whether the work tree is this folder, or a copy of it.
    fn works_on(&self, folder: &Path) -> bool {
        let copies = |planned: &PlannedDirectory| {
            planned.path == self.workspace && planned.original.as_deref() == Some(folder)
        };
        self.workspace == folder || self.planned.iter().any(copies)
    }

    /// What the work tree will be a copy of.
    fn copied_from(&self) -> Option<&Path> {
        let copied = self.planned.iter().find(|planned| planned.path == self.workspace);
        copied.and_then(PlannedDirectory::content_source).map(PathBuf::as_path)
    }
}

/// A directory that is not there yet.
#[derive(Debug, Clone)]
pub(crate) struct PlannedDirectory {
    /// Where it will be.
    pub(crate) path: PathBuf,
    /// What it will be a copy of; without, it will be empty.
    pub(crate) original: Option<PathBuf>,
}

impl PlannedDirectory {
    /// What shows the content until the start has made it.
    pub(crate) fn content_source(&self) -> Option<&PathBuf> {
        self.original.as_ref().filter(|_| !self.path.exists())
    }
}

/// Shows saggar's own program inside, at [`OWN_PROGRAM`].
///
/// # Errors
/// [`Code::System`]
pub(crate) fn bind_own_program(binds: &mut Vec<OwnBind>, why: &'static str) -> Result<()> {
    if !binds.iter().any(|(_, at, ..)| at == Path::new(OWN_PROGRAM)) {
        let own =
            std::env::current_exe().map_err(|e| Error::system("find the program of saggar itself", e))?;
        binds.push((own, OWN_PROGRAM.into(), false, why));
    }
    Ok(())
}

/// The tree of the host that contains `path` or lies in it and that programs see, and where they see it.
pub(crate) fn visible_source<'a>(
    spec: &'a SandboxSpec,
    planned: &'a [PlannedDirectory],
    path: &Path,
) -> Option<(&'a Path, &'a Path)> {
    let shows = |source: &Path| path.starts_with(source) || source.starts_with(path);
    let mounted = spec
        .mounts
        .iter()
        .filter_map(|mount| Some((mount.kind.host_source()?.as_path(), mount.destination.as_path())));
    let copied =
        planned.iter().filter_map(|planned| Some((planned.original.as_deref()?, planned.path.as_path())));
    mounted.chain(copied).find(|(source, _)| shows(source))
}

/// Everything up to the clone.
#[derive(Debug)]
pub(crate) struct PreparedSandbox {
    pub(crate) id: SandboxId,
    pub(crate) policy: LoadedPolicy,
    pub(crate) spec: SandboxSpec,
    pub(crate) host: HostFacts,
    pub(crate) plan: AgentPlan,
    /// The real file of the program, when it is bound for it.
    pub(crate) program_file: Option<PathBuf>,
    /// The caller's PATH.
    path: Option<OsString>,
    pub(crate) workspace: PathBuf,
    /// Where programs start, an absolute path inside.
    pub(crate) start_directory: PathBuf,
    /// The git directory of the workspace, if programs can write it beside the workspace, and paths that its
    /// configuration names and that do not exist.
    git: Option<(OutsideGitDirectory, Vec<PathBuf>)>,
    /// Why git does not work in the workspace, for people.
    pub(crate) git_problem: Option<String>,
    /// What a start makes in the workspace first.
    pub(crate) missing: Vec<protect::MissingPath>,
    /// What git's configuration points at in the workspace and is not there.
    absent: Vec<PathBuf>,
    /// Entries of `files.hide` and `protect.paths` that name nothing.
    pub(crate) unmatched: Vec<UnmatchedEntry>,
    /// Directories that a start makes first.
    pub(crate) planned: Vec<PlannedDirectory>,
    /// What bounds what is written on disk.
    pub(crate) disk: DiskLimit,
    /// The directory of a session that has something for as long as the sandbox runs.
    pub(crate) session: Option<PathBuf>,
    /// The project whose quota it is, if one is set.
    pub(crate) project: Option<SessionProject>,
    /// Holds the block of ids as long as the sandbox lives.
    pub(crate) ids: Option<IdBlock>,
    /// Entries of indices in the upper layer of an overlay, which have the skip-worktree bit while the sandbox runs.
    skipped_in_overlay: Vec<SkippedEntries>,
}

impl PreparedSandbox {
    /// The limits of time of the policy; `cgroup` is the sandbox's, which counts processor time.
    pub(crate) fn time_limits(&self, cgroups: &SandboxCgroups) -> TimeLimits {
        TimeLimits::from_policy(&self.policy.effective, cgroups)
    }

    /// The user and the group that its supervisor becomes, where it is root.
    pub(crate) fn supervisor_id(&self) -> Option<u32> {
        let id = self.ids.as_ref().map_or(ids::NOBODY, |ids| ids.supervisor);
        nix::unistd::geteuid().is_root().then_some(id)
    }

    /// Whether the workspace lies under an overlay.
    pub(crate) fn has_overlay(&self) -> bool {
        self.spec.mounts.iter().any(|mount| matches!(mount.kind, MountKind::Overlay { .. }))
    }

    /// What must stay mounted over paths of the host's files for as long as the sandbox runs: what protects them and
    /// what hides them.
    pub(crate) fn held_pins(&self) -> Vec<PinnedPath> {
        let hidden = self.hidden_paths().map(|(path, origin)| PinnedPath {
            path: path.clone(),
            read_only: true,
            reason: "hidden by the policy".into(),
            origin: origin.clone(),
        });
        self.spec.pinned_paths.iter().cloned().chain(hidden).collect()
    }

    /// The paths that the policy hides and that exist on this host.
    pub(crate) fn hidden_paths(&self) -> impl Iterator<Item = &(PathBuf, Origin)> {
        existing_hidden_paths(&self.spec, &self.host)
    }

    /// The entries of git indices at hidden paths. Under an overlay the index of the host's tree stays as it is.
    pub(crate) fn hidden_in_git(&self) -> ClaimedEntries {
        if self.has_overlay() {
            return ClaimedEntries::unshared(self.skipped_in_overlay.clone());
        }
        let hidden = paths_hidden_in(&self.workspace, &self.spec, &self.host);
        match hidden.is_empty() {
            true => ClaimedEntries::default(),
            false => ClaimedEntries::find(&self.workspace, &hidden),
        }
    }

    /// Looks after what programs may leave in the workspace for the host to run. Call it when the sandbox is made and no
    /// program runs in it yet: the child, `init`, is at work on its steps then.
    pub(crate) fn quarantine_monitor(&self, quarantine: PathBuf, init: i32) -> Result<QuarantineMonitor> {
        let protect = &self.policy.effective.protect;
        // What patterns match is pinned; a name that appears later is not looked for.
        let written = protect.paths.iter().filter(|setting| !setting.value.has_wildcards());
        let more: Vec<&Path> = written.map(|setting| setting.value.text()).collect();
        let more: Vec<&Path> = more.into_iter().chain(self.absent.iter().map(PathBuf::as_path)).collect();
        // What appears in a tree under an overlay is not the sandbox's doing.
        let (git_config, pins) = (protect.git_config.value, &self.spec.pinned_paths);
        let mut scanners = Vec::new();
        if !self.has_overlay() {
            let of_git = self.git.as_ref().map(|(git, unresolved)| {
                let scanner = WorkspaceScanner::of_git_directory(git, git_config, unresolved, pins);
                (scanner, &git.common)
            });
            let of_workspace = WorkspaceScanner::new(&self.workspace, git_config, &more, pins);
            for (scanner, path) in [(of_workspace, &self.workspace)].into_iter().chain(of_git) {
                let scanner =
                    scanner.map_err(|e| Error::system(format_args!("look at {}", path.display()), e))?;
                scanners.push(scanner);
            }
        }
        let quarantine = Quarantine::new(quarantine);
        Ok(QuarantineMonitor::new(self.id.as_str(), &self.workspace, scanners, quarantine, init))
    }
}

/// Loads the policy of a sandbox, whose options are the last layer.
pub(crate) fn load_policy(options: &SandboxOptions, request: &LaunchRequest) -> Result<LoadedPolicy> {
    let mut places = operator_sources(options.policy_file.clone())?;
    places.agent_folder.clone_from(&request.agent_folder);
    places.workspace = Some(request.workspace.clone());
    policy::load_policy(&places, request.home.clone(), options.policy.clone())
}

/// Loads the policy of a command that starts no sandbox: that of no folder.
pub(crate) fn load_operator_policy(file: Option<PathBuf>, options: PolicyOptions) -> Result<EffectivePolicy> {
    policy::load_policy(&operator_sources(file)?, HomeSource::Tmp, options).map(|policy| policy.effective)
}

fn operator_sources(file: Option<PathBuf>) -> Result<PolicySources> {
    let current = std::env::current_dir().map_err(|e| Error::system("find the current directory", e))?;
    let mut sources =
        PolicySources::of_this_host(current, nix::unistd::geteuid().as_raw(), &WorkerPolicyParser);
    sources.policy_files.extend(file);
    Ok(sources)
}

/// Makes the plan.
pub(crate) fn prepare(
    options: &SandboxOptions,
    request: LaunchRequest,
    policy: LoadedPolicy,
    disk: DiskLimit,
) -> Result<PreparedSandbox> {
    let id = match &options.id {
        Some(id) => SandboxId::parse(id)?,
        None => SandboxId::random()?,
    };
    let effective = &policy.effective;
    check_workspace(&request.workspace, effective.allow_home.value)?;
    let path = std::env::var_os("PATH");
    let outside = program_bind(effective, &request, path.as_deref())?;

    let (map, id_block) = identity(effective, request.will_start)?;
    let mut own = request.own_binds.clone();
    if let Some(socket) = &effective.api_socket {
        let real = sockets::resolve_socket(socket.value.as_path())?;
        own.push((real, ModelApiSpec::SOCKET_PATH.into(), false, "the model API"));
    }
    let mailbox = mailbox::configure(effective, &request.repository)?;
    if mailbox.is_some() {
        bind_own_program(&mut own, "the client of the mailbox")?;
    }
    sockets::check(effective)?;
    if request.will_start {
        // A sandbox here that was killed may have left something that would now be taken for the user's.
        finish_abandoned_scans(Some(&request.workspace));
    }
    let named = protected_paths::find_named(&request, effective)?;
    let RepositoryAccess { found: git, problem: git_problem } =
        repository::find_git_directory(&request, effective);
    let of_git = git.as_ref().map(|(git, _)| git);
    let mut protected = protected_paths::workspace(&request, &policy, of_git, &named.protected);
    if request.changes.is_some() {
        protected.drop_missing();
    }
    if request.will_start {
        protected.create_missing(&request.workspace)?;
        if request.changes.is_none() {
            protected.separate_hard_links(&request.workspace)?;
        }
    }
    protected
        .pins
        .retain(|pin| !protected_paths::is_covered(effective, &request.workspace, &pin.path, &pin.path));
    protected.pins.extend(protected_paths::writable_trees(effective, request.will_start)?);
    let mut hidden_paths: Vec<(PathBuf, Origin)> =
        named.hidden.iter().map(|named| (named.path.clone(), agent::layer_origin(&named.layer))).collect();
    let (mut shared, mut linkless_mounts) = (None, Vec::new());
    if let Some((git, mount)) = git {
        let is_writable = match mount {
            // What is written to an overlay does not reach the host, so neither does this.
            GitMount::BuiltIn => git.is_writable && request.changes.is_none(),
            GitMount::Layer { is_writable } => is_writable,
        };
        if is_writable {
            let (pins, unresolved) = protected_paths::git_directory(&git, effective, request.will_start)?;
            protected.pins.extend(pins);
            shared = Some((git.clone(), unresolved));
        }
        if mount == GitMount::BuiltIn {
            own.extend(repository::mounts(&git, is_writable, effective));
            linkless_mounts.extend(git.mounts(is_writable).map(|(path, ..)| path));
            hidden_paths.extend(git.foreign.iter().map(|path| (git.common.join(path), Origin::BUILT_IN)));
        }
    }
    if let Some(problem) = &git_problem
        && request.will_start
        && !effective.quiet_degraded.value
    {
        log::warn!("{problem}");
    }
    let sandbox_request = AgentSandboxRequest {
        id: id.clone(),
        id_mapping: map,
        workspace: request.workspace.clone(),
        hidden_paths,
        overlay_upper: request.changes.clone(),
        agent_folder: request.agent_folder.clone().filter(|folder| !request.works_on(folder)),
        home: match &effective.files.home.value {
            HomeSource::Tmp => None,
            HomeSource::Session => request.session_home.clone(),
            HomeSource::Directory(directory) => Some(canonical_directory(directory.as_path())?),
        },
        program_mounts: outside
            .iter()
            .map(|outside| (outside.bind.clone(), agent::layer_origin(&outside.named_by)))
            .collect(),
        runtime_mounts: own,
        linkless_mounts,
        model_api: model_api::configure(options.api_key_fd, effective)?,
        mailbox,
        pinned_paths: protected.pins,
        reopen_streams: request.inherits_streams,
        terminal: request.inherits_streams && has_terminal()?,
        // Servers ask for files beside an agent alone.
        visible_workspace: !request.inherits_streams,
        container: surroundings::outer_container(effective),
        network_fallback: surroundings::without_network(effective, &request),
    };
    let mut spec = agent::lower_policy(effective, sandbox_request)?;
    hide_group_only_paths(&mut spec, if request.will_start { Keep::Record } else { Keep::Nothing });
    let absent = protected.unresolved_paths;
    model_api::check_key_hidden(&spec, &request.planned)?;
    mailbox::check_files_hidden(&spec, &request.planned)?;
    let mut host = HostFacts::survey(&spec);
    host.paths.extend(request.planned.iter().map(|planned| (planned.path.clone(), PathKind::Directory)));
    if let Some(original) = request.copied_from() {
        host.paths.extend(spec.hidden_paths.iter().filter_map(|(path, _)| {
            let below = path.strip_prefix(&request.workspace).ok()?;
            Some((path.clone(), host::path_kind(&original.join(below))?))
        }));
    }
    if disk.needs_image() {
        // They will be in its ext4, which can be idmapped whatever the file of the image is in.
        let is_made = |path: &Path| request.planned.iter().any(|planned| planned.path == path);
        host.unmappable_trees.retain(|path, _| path.exists() || !is_made(path));
    }
    let skipped = match &request.changes {
        Some(changes) => skip_in_overlay(&mut spec, &host, &request, changes),
        None => Vec::new(),
    };
    let mut plan = plan::build(&spec, &host)?;
    plan.degraded.extend(disk.degraded_protections());
    shared_directories::check_api_socket(&plan, effective)?;
    Ok(PreparedSandbox {
        id,
        spec,
        host,
        plan,
        program_file: outside.map(|outside| outside.file),
        path,
        start_directory: plain_path(&request.workspace, &request.start_directory),
        git: shared,
        git_problem,
        workspace: request.workspace,
        missing: protected.paths_to_create,
        absent,
        unmatched: named.unmatched,
        planned: request.planned,
        policy,
        disk,
        session: None,
        project: None,
        ids: id_block,
        skipped_in_overlay: skipped,
    })
}

/// Gives an overlay indices of its own, in which the entries at hidden paths have the skip-worktree bit. Returns the
/// entries that are to lose it when the sandbox ends, because their index is kept with other changes.
fn skip_in_overlay(
    spec: &mut SandboxSpec,
    host: &HostFacts,
    request: &LaunchRequest,
    changes: &OverlayUpper,
) -> Vec<SkippedEntries> {
    let hidden = paths_hidden_in(&request.workspace, spec, host);
    if hidden.is_empty() {
        return Vec::new();
    }
    let report = |error| log::warn!("git shows hidden files as changed: {error}");
    let kept = match changes {
        OverlayUpper::Memory { .. } => None,
        OverlayUpper::Directory(directory) => Some(directory.join("changes")),
    };
    // An earlier run may have left an index in the upper layer.
    let existing =
        kept.as_deref().filter(|kept| kept.is_dir()).map(|kept| SkippedEntries::find(kept, &hidden, &[]));
    let mut entries = existing.unwrap_or(Ok(Vec::new())).map_err(report).unwrap_or_default();
    let others = cleanup::entries_of_running_sandboxes(None);
    let found = SkippedEntries::find_with_indices(&request.workspace, &hidden, &others).map_err(report);
    for (lower, index) in found.unwrap_or_default() {
        let directory = request.workspace.join(lower.directory());
        let upper = kept.as_deref().map(|kept| lower.in_tree(kept));
        if upper.as_ref().is_some_and(SkippedEntries::has_index) {
            continue;
        }
        let SkippingIndex { content, mode, mtime } = index;
        spec.git_indices.push(GitIndexSpec { directory, content: content.0, mode, mtime });
        entries.extend(upper);
    }
    entries
}

/// Paths of the workspace that exist and are hidden, relative to it.
fn paths_hidden_in(workspace: &Path, spec: &SandboxSpec, host: &HostFacts) -> Vec<PathBuf> {
    let below = |(path, _): &(PathBuf, Origin)| path.strip_prefix(workspace).ok().map(Path::to_owned);
    existing_hidden_paths(spec, host).filter_map(below).collect()
}

fn existing_hidden_paths<'a>(
    spec: &'a SandboxSpec,
    host: &'a HostFacts,
) -> impl Iterator<Item = &'a (PathBuf, Origin)> {
    spec.hidden_paths.iter().filter(|(path, _)| host.path_kind(path).is_some())
}

/// Hides what of the system trees the caller's groups alone give, unless a layer names it: programs of an ordinary user have
/// these groups.
fn hide_group_only_paths(spec: &mut SandboxSpec, keep: Keep) {
    if !matches!(spec.identity.map, HostIdMapping::Caller { .. }) {
        return;
    }
    let named: Vec<&Path> = spec
        .mounts
        .iter()
        .filter(|mount| mount.kind.named_source().is_some())
        .map(|mount| mount.destination.as_path())
        .collect();
    let is_named = |path: &PathBuf| named.iter().any(|at| path.starts_with(at) || at.starts_with(path));
    let system = spec.mounts.iter().filter_map(|mount| match &mount.kind {
        MountKind::System { source } if !mount.writable => Some(source.as_path()),
        _ => None,
    });
    let hidden: Vec<PathBuf> =
        group_only_record::paths_to_hide(system, keep).into_iter().filter(|path| !is_named(path)).collect();
    spec.hidden_paths.extend(hidden.into_iter().map(|path| (path, Origin::BUILT_IN)));
}

/// The program, when it lies outside of what stands inside whatever it is.
fn program_bind(
    policy: &EffectivePolicy,
    request: &LaunchRequest,
    path: Option<&OsStr>,
) -> Result<Option<ProgramBind>> {
    let Some(program) = &request.program else { return Ok(None) };
    let binds = || policy.files.binds.iter().map(|bind| &bind.value);
    let writable =
        binds().filter(|bind| bind.access == BindAccess::ReadWrite).map(|bind| bind.source.as_path());
    let home = match &policy.files.home.value {
        HomeSource::Directory(directory) => Some(directory.as_path()),
        HomeSource::Tmp | HomeSource::Session => None,
    };
    let others = writable.chain(home).filter_map(|tree| tree.canonicalize().ok());
    let folders = [Some(&request.workspace), request.agent_folder.as_ref()].into_iter().flatten().cloned();
    let trees = VisibleTrees {
        visible: binds().map(|bind| bind.source.clone()).chain([request.workspace.clone()]).collect(),
        untrusted: folders.chain(others).collect(),
        workspace: request.workspace.clone(),
    };
    let outside = program_lookup::find_program_bind(program, path, &trees)?;
    if let Some(ProgramBind { bind, named_by: by, .. }) = &outside
        && by.is_agent_writable()
        && let Some(lock) = policy.locked_by(PolicyPart::Files)
    {
        let (name, bind) = (program.value.display(), bind.display());
        let message =
            format!("{by} asks for agent_cmd = {name}, which would show {bind}; {lock} locks files");
        return Err(
            Error::new(Code::Refused, message).hint("ask the owner of that file to show it (files.ro)")
        );
    }
    Ok(outside)
}

/// Who the programs are: root of the host takes a block of ids, an ordinary user has its own.
fn identity(policy: &EffectivePolicy, start: bool) -> Result<(HostIdMapping, Option<IdBlock>)> {
    let (uid, gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    if !crate::sys::caps::is_privileged_root() {
        return Ok((HostIdMapping::Caller { uid, gid }, None));
    }
    let range = policy.ids.range.value;
    if !start {
        let base = ids::usage(range.first..=range.last)?.base;
        return Ok((HostIdMapping::Block { base }, None));
    }
    let block = ids::allocate(range.first..=range.last)?;
    Ok((HostIdMapping::Block { base: block.base }, Some(block)))
}

/// Refuses a work tree that would give the sandbox what no work tree should (DECISIONS 23).
pub(crate) fn check_workspace(path: &Path, allow_home: bool) -> Result<()> {
    const SYSTEM: [&str; 18] = [
        "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/root", "/run",
        "/sbin", "/sys", "/tmp", "/usr", "/var", "/home", "/opt",
    ];
    // These hold nothing that is anybody's work, at any depth, but for the sources in them.
    const WHOLE: [&str; 12] = [
        "/proc", "/sys", "/dev", "/boot", "/etc", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
        "/usr",
    ];
    const SOURCES: [&str; 2] = ["/usr/src", "/usr/local/src"];
    let shown = path.display();
    let refuse = |why: &str| {
        Err(Error::new(Code::Refused, format!("use {shown} as the workspace: {why}"))
            .hint("name a project directory with --workspace DIR"))
    };
    if path == Path::new("/") {
        return refuse("it is the root");
    }
    let below = |directories: &[&str]| directories.iter().any(|directory| path.starts_with(directory));
    if below(&WHOLE) && !below(&SOURCES) {
        return refuse("it is a system directory");
    }
    if !allow_home && program_lookup::is_home_or_above(path) {
        return Err(Error::new(
            Code::Refused,
            format!("use {shown} as the workspace: it is a home directory, or holds one"),
        )
        .hint("name a project directory with --workspace DIR, or use --allow-home"));
    }
    if SYSTEM.iter().any(|system| path == Path::new(system))
        && !(allow_home && program_lookup::is_home_or_above(path))
    {
        return refuse("it is a system directory");
    }
    Ok(())
}

/// A path without links.
///
/// # Errors
/// [`Code::Invalid`] when it is not there.
pub(crate) fn canonical(path: &Path) -> Result<PathBuf> {
    path.canonicalize().map_err(|e| {
        let why =
            e.raw_os_error().map_or_else(|| e.to_string(), |code| Errno::from_raw(code).desc().to_owned());
        Error::new(Code::Invalid, format!("look for {}: {why}", path.display()))
            .hint("name a path that exists and that this user can reach")
    })
}

/// As [`canonical`], for a directory.
///
/// # Errors
/// [`Code::Invalid`] when it is not there, or is no directory.
pub(crate) fn canonical_directory(path: &Path) -> Result<PathBuf> {
    let directory = canonical(path)?;
    if !directory.is_dir() {
        let message = format!("{} is not a directory", path.display());
        return Err(Error::new(Code::Invalid, message).hint("name the directory that it is in"));
    }
    Ok(directory)
}

/// The path on the host that a key of the policy names, which may be below the caller's home directory.
///
/// # Errors
/// [`Code::Invalid`]: HOME is not set.
pub(crate) fn resolve_user_path(key: &str, path: &UserPath) -> Result<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    path.resolve(home.as_deref()).ok_or_else(|| {
        Error::new(Code::Invalid, format!("{key} {path}: there is no home (HOME)"))
            .hint("write the whole path")
    })
}

/// Whether one of the standard streams is a terminal. A directory or an O_PATH descriptor there would be a
/// way out, and is refused (DECISIONS 6).
fn has_terminal() -> Result<bool> {
    use std::io::IsTerminal;
    let (stdin, stdout, stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let streams: [(BorrowedFd<'_>, &str); 3] =
        [(stdin.as_fd(), "input"), (stdout.as_fd(), "output"), (stderr.as_fd(), "error")];
    for (fd, name) in streams {
        let refuse = |why: &str| {
            let message = format!("pass standard {name} on: {why}");
            Err(Error::new(Code::Refused, message).hint("redirect it to a file, a pipe or /dev/null"))
        };
        let Ok(stat) = nix::sys::stat::fstat(fd) else { continue };
        if stat.st_mode & libc::S_IFMT == libc::S_IFDIR {
            return refuse("it is a directory, and a way to the host's files");
        }
        let flags = nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_GETFL).unwrap_or(0);
        if flags & libc::O_PATH != 0 {
            return refuse("it is an O_PATH descriptor, and a way to the host's files");
        }
    }
    Ok(stdin.is_terminal() || stdout.is_terminal() || stderr.is_terminal())
}

/// The environment of programs.
#[derive(Debug)]
pub(crate) struct ProgramEnvironment {
    /// Each variable with the layer that let it in.
    pub(crate) variables: Vec<(OsString, OsString, PolicyLayer)>,
    /// Names that saggar itself sets.
    pub(crate) fixed: Vec<&'static str>,
}

impl PreparedSandbox {
    /// Reads the caller's environment and makes the programs'. Only after the clone: what is read before it
    /// is in the memory of pid 1 too (DECISIONS 9).
    pub(crate) fn environment(&self) -> ProgramEnvironment {
        let search = search_path(self.path.as_deref(), &self.spec);
        let config = format!("{SANDBOX_HOME}/.claude");
        let mut fixed: Vec<(&'static str, &OsStr)> = vec![
            ("HOME", SANDBOX_HOME.as_ref()),
            ("PATH", &search),
            ("CLAUDE_CONFIG_DIR", config.as_ref()),
            ("CLAUDE_CODE_TMPDIR", "/tmp".as_ref()),
            ("IS_SANDBOX", "1".as_ref()),
        ];
        if self.policy.effective.api_socket.is_some() {
            fixed.push(("ANTHROPIC_UNIX_SOCKET", ModelApiSpec::SOCKET_PATH.as_ref()));
            fixed.push(("ANTHROPIC_BASE_URL", "http://localhost".as_ref()));
        }
        if self.spec.files.iter().any(|(path, _)| path == Path::new(hidden_in_git::CONFIG_PATH)) {
            fixed.push((hidden_in_git::CONFIG_VARIABLE, hidden_in_git::CONFIG_PATH.as_ref()));
        }
        let api = self.spec.model_api.as_ref().map(|_| model_api::variables(&self.spec)).unwrap_or_default();
        fixed.extend(api.iter().map(|(name, value)| (*name, OsStr::new(value))));
        let mut variables = policy::program_environment(&self.policy.effective, std::env::vars_os(), &fixed);
        if self.spec.model_api.is_some() {
            variables.retain(|(name, _, layer)| {
                name != model_api::HEADERS_VARIABLE || *layer != PolicyLayer::BuiltIn
            });
        }
        ProgramEnvironment { variables, fixed: fixed.iter().map(|(name, _)| *name).collect() }
    }
}

impl ProgramEnvironment {
    /// Names and values alone.
    pub(crate) fn into_pairs(self) -> Vec<(OsString, OsString)> {
        self.variables.into_iter().map(|(name, value, _)| (name, value)).collect()
    }
}

/// The caller's PATH, less what the sandbox does not have.
fn search_path(path: Option<&OsStr>, spec: &SandboxSpec) -> OsString {
    let inside = |directory: &PathBuf| {
        directory.is_absolute() && spec.mounts.iter().any(|mount| directory.starts_with(&mount.destination))
    };
    let usable = path.map(std::env::split_paths).into_iter().flatten().filter(inside);
    match std::env::join_paths(usable) {
        Ok(joined) if !joined.is_empty() => joined,
        _ => "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin".into(),
    }
}
