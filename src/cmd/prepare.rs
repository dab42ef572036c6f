//! From arguments to a plan: what `wrap`, `agent` and `explain` have in common.

use super::find::{self, Outside, Trees};
use super::{api, reach, sockets};
use crate::cli::SandboxArgs;
use crate::error::{Code, Error, Result};
use crate::host::appeared::Watched;
use crate::host::protect::{self, Protected};
use crate::host::{Host, Kind, network};
use crate::id::SandboxId;
use crate::launch::ids::{self, IdBlock};
use crate::plan::disk::Disk;
use crate::plan::{self, Plan};
use crate::session::project::Project;
use crate::session::quarantine::Quarantine;
use crate::spec::agent::{self, Asked, HOME, WithoutNetwork};
use crate::spec::policy::{self, Access, CommandLine, Home, Layer, Part, Places, Policy, Setting};
use crate::spec::{Api, Changes, IdMap, MountKind, Pin, Protection, SandboxSpec, Strength};
use crate::supervise::clock::Times;
use crate::supervise::quarantine::{Warden, sweep_unfinished};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// What a sandbox is made for.
#[derive(Debug)]
pub(super) struct Purpose {
    /// The built-in home: `tmp` for `wrap`, `session` for `agent`.
    pub(super) home: Home,
    /// The work tree, without links.
    pub(super) workspace: PathBuf,
    /// The agent's folder, where there is one.
    pub(super) agent_folder: Option<PathBuf>,
    /// The program, looked up on the host's PATH, and who named it.
    pub(super) program: Option<Setting<OsString>>,
    /// The lasting home of the session.
    pub(super) session_home: Option<PathBuf>,
    /// What saggar itself needs of the host inside: source, destination, writable, why.
    pub(super) own: Vec<(PathBuf, PathBuf, bool, &'static str)>,
    /// Where changes of the work tree go, when it lies under an overlay.
    pub(super) changes: Option<Changes>,
    /// Whether standard streams are the caller's own, so that a terminal is relayed.
    pub(super) streams: bool,
    /// Whether a sandbox is to start. To show what it would be, nothing is made and nothing is held.
    pub(super) start: bool,
    /// Directories that a start makes first.
    pub(super) planned: Vec<Planned>,
}

impl Purpose {
    /// What was planned below `session` will be below `place`.
    pub(super) fn move_session(&mut self, session: &Path, place: &Path) {
        let move_one = |path: &mut PathBuf| {
            if let Ok(inner) = path.strip_prefix(session) {
                *path = place.join(inner);
            }
        };
        move_one(&mut self.workspace);
        self.session_home.iter_mut().for_each(move_one);
        self.planned.iter_mut().for_each(|planned| move_one(&mut planned.path));
    }

    /// Whether the work tree is this folder, or a copy of it.
    fn works_on(&self, folder: &Path) -> bool {
        let copies =
            |planned: &Planned| planned.path == self.workspace && planned.original.as_deref() == Some(folder);
        self.workspace == folder || self.planned.iter().any(copies)
    }
}

/// A directory that is not there yet.
#[derive(Debug, Clone)]
pub(super) struct Planned {
    /// Where it will be.
    pub(super) path: PathBuf,
    /// What it will be a copy of; without, it will be empty.
    pub(super) original: Option<PathBuf>,
}

impl Planned {
    /// What shows the content until the start has made it.
    pub(super) fn stand_in(&self) -> Option<&PathBuf> {
        self.original.as_ref().filter(|_| !self.path.exists())
    }
}

/// Everything up to the clone.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) id: SandboxId,
    pub(super) policy: Policy,
    pub(super) spec: SandboxSpec,
    pub(super) host: Host,
    pub(super) plan: Plan,
    /// The real file of the program, when it is bound for it.
    pub(super) program_file: Option<PathBuf>,
    /// The caller's PATH.
    path: Option<OsString>,
    pub(super) workspace: PathBuf,
    /// What a start makes in the workspace first.
    pub(super) missing: Vec<protect::Missing>,
    /// What git's configuration points at in the workspace and is not there.
    absent: Vec<PathBuf>,
    /// Directories that a start makes first.
    pub(super) planned: Vec<Planned>,
    /// What bounds what is written on disk.
    pub(super) disk: Disk,
    /// The directory of a session that has something for as long as the sandbox runs.
    pub(super) session: Option<PathBuf>,
    /// The project whose quota it is, if one is set.
    pub(super) project: Option<Project>,
    /// Holds the block of ids as long as the sandbox lives.
    pub(super) ids: Option<IdBlock>,
}

impl Prepared {
    /// The limits of time of the policy; `cgroup` is the sandbox's, which counts processor time.
    pub(super) fn times(&self, cgroup: Option<&Path>) -> Times {
        Times::of(&self.policy.effective, cgroup)
    }

    /// The user and the group that its supervisor becomes, where it is root.
    pub(super) fn supervisor(&self) -> Option<u32> {
        let id = self.ids.as_ref().map_or(ids::NOBODY, |ids| ids.supervisor);
        nix::unistd::geteuid().is_root().then_some(id)
    }

    /// Whether the workspace lies under an overlay.
    pub(super) fn has_overlay(&self) -> bool {
        self.spec.mounts.iter().any(|mount| matches!(mount.kind, MountKind::Overlay { .. }))
    }

    /// What must stay mounted over paths of the host's files for as long as the sandbox runs: what protects them and
    /// what hides them.
    pub(super) fn held(&self) -> Vec<Pin> {
        let hidden = self.spec.hidden.iter().filter(|(path, _)| self.host.kind(path).is_some());
        let hidden = hidden.map(|(path, origin)| Pin {
            at: path.clone(),
            read_only: true,
            why: "hidden by the policy".into(),
            origin: origin.clone(),
        });
        self.spec.pins.iter().cloned().chain(hidden).collect()
    }

    /// Looks after what programs may leave in the workspace for the host to run. Call it when the sandbox is made and no
    /// program runs in it yet: the child, `init`, is at work on its steps then.
    pub(super) fn warden(&self, quarantine: PathBuf, init: i32) -> Result<Warden> {
        let protect = &self.policy.effective.protect;
        let more: Vec<&Path> = protect.paths.iter().map(|setting| setting.value.as_path()).collect();
        let more: Vec<&Path> = more.into_iter().chain(self.absent.iter().map(PathBuf::as_path)).collect();
        // What appears in a tree under an overlay is not the sandbox's doing.
        let watched = (!self.has_overlay())
            .then(|| Watched::new(&self.workspace, protect.git_config.value, &more, &self.spec.pins))
            .transpose()
            .map_err(|e| Error::system(format_args!("look at {}", self.workspace.display()), e))?;
        let quarantine = Quarantine::new(quarantine, self.workspace.clone());
        Ok(Warden::new(self.id.as_str(), &self.workspace, watched, quarantine, init))
    }
}

/// Loads the policy of `purpose`.
pub(super) fn load_policy(
    args: &SandboxArgs,
    purpose: &Purpose,
    command_line: CommandLine,
) -> Result<Policy> {
    let current = std::env::current_dir().map_err(|e| Error::system("find the current directory", e))?;
    let mut places = Places::of_this_host(current, nix::unistd::geteuid().as_raw());
    places.agent_folder.clone_from(&purpose.agent_folder);
    places.workspace = Some(purpose.workspace.clone());
    places.policies.extend(args.policy.clone());
    policy::load(&places, purpose.home.clone(), command_line)
}

/// Makes the plan.
pub(super) fn prepare(args: &SandboxArgs, purpose: Purpose, policy: Policy, disk: Disk) -> Result<Prepared> {
    let id = match &args.id {
        Some(id) => SandboxId::parse(id)?,
        None => SandboxId::random()?,
    };
    let effective = &policy.effective;
    check_workspace(&purpose.workspace, effective.allow_home.value)?;
    let path = std::env::var_os("PATH");
    let outside = program(effective, &purpose, path.as_deref())?;

    let (map, id_block) = identity(effective, purpose.start)?;
    let mut own = purpose.own.clone();
    if let Some(socket) = &effective.api_socket {
        let real = sockets::socket(socket.value.as_path())?;
        own.push((real, Api::SOCKET.into(), false, "the model API"));
    }
    sockets::check(effective)?;
    if purpose.start {
        // A sandbox here that was killed may have left something that would now be taken for the user's.
        sweep_unfinished(Some(&purpose.workspace));
    }
    let mut protected = protected(&purpose, &policy);
    if purpose.changes.is_some() {
        protected.leave_out_missing();
    }
    if purpose.start {
        protected.make_missing(&purpose.workspace)?;
        if purpose.changes.is_none() {
            protected.separate(&purpose.workspace)?;
        }
    }
    let writable = writable_trees(effective, purpose.start)?;
    protected.pins.extend(writable);
    let asked = Asked {
        id: id.clone(),
        map,
        workspace: purpose.workspace.clone(),
        changes: purpose.changes.clone(),
        agent_folder: purpose.agent_folder.clone().filter(|folder| !purpose.works_on(folder)),
        home: match &effective.files.home.value {
            Home::Tmp => None,
            Home::Session => purpose.session_home.clone(),
            Home::Directory(directory) => Some(canonical(directory.as_path())?),
        },
        program: outside.iter().map(|outside| (outside.bind.clone(), agent::origin(&outside.by))).collect(),
        own,
        api: api::of(args, effective)?,
        pins: protected.pins,
        streams: purpose.streams,
        terminal: purpose.streams && has_terminal()?,
        // Servers ask for files beside an agent alone.
        shown: !purpose.streams,
        without_network: without_network(effective, &purpose),
    };
    let spec = agent::lower(effective, asked)?;
    let absent = protected.absent;
    api::check_outside(&spec, &purpose.planned)?;
    let mut host = Host::survey(&spec);
    host.paths.extend(purpose.planned.iter().map(|planned| (planned.path.clone(), Kind::Directory)));
    if disk.needs_image() {
        // They will be in its ext4, which can be idmapped whatever the file of the image is in.
        let is_made = |path: &Path| purpose.planned.iter().any(|planned| planned.path == path);
        host.unmapped.retain(|path, _| path.exists() || !is_made(path));
    }
    let mut plan = plan::build(&spec, &host)?;
    plan.degraded.extend(disk.degraded());
    reach::check_api_socket(&plan, effective)?;
    Ok(Prepared {
        id,
        spec,
        host,
        plan,
        program_file: outside.map(|outside| outside.file),
        path,
        workspace: purpose.workspace,
        missing: protected.missing,
        absent,
        planned: purpose.planned,
        policy,
        disk,
        session: None,
        project: None,
        ids: id_block,
    })
}

/// The program, when it lies outside of what stands inside whatever it is.
fn program(policy: &policy::Effective, purpose: &Purpose, path: Option<&OsStr>) -> Result<Option<Outside>> {
    let Some(program) = &purpose.program else { return Ok(None) };
    let binds = || policy.files.binds.iter().map(|bind| &bind.value);
    let writable = binds().filter(|bind| bind.access == Access::ReadWrite).map(|bind| bind.source.as_path());
    let home = match &policy.files.home.value {
        Home::Directory(directory) => Some(directory.as_path()),
        Home::Tmp | Home::Session => None,
    };
    let others = writable.chain(home).filter_map(|tree| tree.canonicalize().ok());
    let folders = [Some(&purpose.workspace), purpose.agent_folder.as_ref()].into_iter().flatten().cloned();
    let trees = Trees {
        visible: binds().map(|bind| bind.source.clone()).chain([purpose.workspace.clone()]).collect(),
        untrusted: folders.chain(others).collect(),
        workspace: purpose.workspace.clone(),
    };
    let outside = find::outside(program, path, &trees)?;
    if let Some(Outside { bind, by, .. }) = &outside
        && by.is_folder()
        && let Some(lock) = policy.locked_by(Part::Files)
    {
        let (name, bind) = (program.value.display(), bind.display());
        let message =
            format!("{by} asks for agent_cmd = {name}, which would show {bind}; {lock} locks files");
        return Err(
            Error::new(Code::Refused, message).hint("have whoever wrote that file show it (files.ro)")
        );
    }
    Ok(outside)
}

/// Where no network namespace is to be had and the policy goes on all the same, what there is instead.
fn without_network(policy: &policy::Effective, purpose: &Purpose) -> Option<WithoutNetwork> {
    let wants = policy.network.value != policy::Network::Host;
    let goes_on = policy.strength(Protection::Network) == Strength::Prefer;
    let why = (wants && goes_on).then(network::refusal).flatten()?;
    Some(WithoutNetwork {
        why,
        resolvers: std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default(),
        listens: purpose.agent_folder.is_some()
            && policy.adapter.as_ref().is_some_and(|adapter| adapter.value == policy::Adapter::Bridge),
    })
}

/// Who the programs are: root of the host takes a block of ids, an ordinary user has its own.
fn identity(policy: &policy::Effective, start: bool) -> Result<(IdMap, Option<IdBlock>)> {
    let (uid, gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    if uid != 0 || !crate::sys::caps::has(crate::sys::caps::SYS_ADMIN) {
        return Ok((IdMap::Own { uid, gid }, None));
    }
    let range = policy.ids.range.value;
    if !start {
        let base = ids::look(range.first..=range.last)?.base;
        return Ok((IdMap::Block { base }, None));
    }
    let block = ids::take(range.first..=range.last)?;
    Ok((IdMap::Block { base: block.base }, Some(block)))
}

/// Refuses a work tree that would give the sandbox what no work tree should (DECISIONS 23).
pub(super) fn check_workspace(path: &Path, allow_home: bool) -> Result<()> {
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
    if !allow_home && find::is_home_or_above(path) {
        return Err(Error::new(
            Code::Refused,
            format!("use {shown} as the workspace: it is a home directory, or holds one"),
        )
        .hint("name a project directory with --workspace DIR, or say --allow-home"));
    }
    if SYSTEM.iter().any(|system| path == Path::new(system)) && !(allow_home && find::is_home_or_above(path))
    {
        return refuse("it is a system directory");
    }
    Ok(())
}

/// The protected paths of other trees of the host that are writable inside: an operator that names a repository does
/// not mean its hooks. Trees may lie in each other, so a start makes what one lacks before it looks at the next.
fn writable_trees(policy: &policy::Effective, start: bool) -> Result<Vec<Pin>> {
    let binds = policy.files.binds.iter().map(|bind| &bind.value);
    let mut pins = Vec::new();
    for bind in binds.filter(|bind| bind.access == Access::ReadWrite) {
        let mut found = protect::find(&bind.source, policy.protect.git_config.value, &[]);
        if start {
            found.make_missing(&bind.source)?;
            found.separate(&bind.source)?;
        }
        for pin in &mut found.pins {
            if let Ok(relative) = pin.at.strip_prefix(&bind.source) {
                pin.at = bind.dest.join(relative);
            }
        }
        pins.extend(found.pins);
    }
    Ok(pins)
}

/// The protected paths of the workspace. Those of a copy that is still to be made are found in what is copied.
fn protected(purpose: &Purpose, policy: &Policy) -> Protected {
    let protect = &policy.effective.protect;
    let mut more: Vec<(&Path, &Layer)> =
        protect.paths.iter().map(|setting| (setting.value.as_path(), &setting.layer)).collect();
    let files: Vec<(PathBuf, &Layer)> =
        policy.files.iter().filter_map(|file| Some((file.path.canonicalize().ok()?, &file.layer))).collect();
    more.extend(
        files.iter().filter_map(|(file, layer)| Some((file.strip_prefix(&purpose.workspace).ok()?, *layer))),
    );
    let copied = purpose.planned.iter().find(|planned| planned.path == purpose.workspace);
    let Some(original) = copied.and_then(Planned::stand_in) else {
        return protect::find(&purpose.workspace, protect.git_config.value, &more);
    };
    let mut found = protect::find(original, protect.git_config.value, &more);
    let rebase = |path: &mut PathBuf| {
        if let Ok(relative) = path.strip_prefix(original) {
            *path = purpose.workspace.join(relative);
        }
    };
    found.pins.iter_mut().for_each(|pin| rebase(&mut pin.at));
    found.missing.iter_mut().for_each(|missing| rebase(&mut missing.path));
    found
}

/// A path without links.
///
/// # Errors
/// [`Code::Invalid`] when it is not there.
pub(super) fn canonical(path: &Path) -> Result<PathBuf> {
    path.canonicalize().map_err(|e| Error::new(Code::Invalid, format!("{}: {e}", path.display())))
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
pub(super) struct Environment {
    /// Each variable with the layer that let it in.
    pub(super) variables: Vec<(OsString, OsString, Layer)>,
    /// Names that saggar itself sets.
    pub(super) fixed: Vec<&'static str>,
}

impl Prepared {
    /// Reads the caller's environment and makes the programs'. Only after the clone: what is read before it
    /// is in the memory of pid 1 too (DECISIONS 9).
    pub(super) fn environment(&self) -> Environment {
        let search = search_path(self.path.as_deref(), &self.spec);
        let config = format!("{HOME}/.claude");
        let mut fixed: Vec<(&'static str, &OsStr)> = vec![
            ("HOME", HOME.as_ref()),
            ("PATH", &search),
            ("CLAUDE_CONFIG_DIR", config.as_ref()),
            ("CLAUDE_CODE_TMPDIR", "/tmp".as_ref()),
            ("IS_SANDBOX", "1".as_ref()),
        ];
        if self.policy.effective.api_socket.is_some() {
            fixed.push(("ANTHROPIC_UNIX_SOCKET", Api::SOCKET.as_ref()));
            fixed.push(("ANTHROPIC_BASE_URL", "http://localhost".as_ref()));
        }
        let api = self.spec.api.as_ref().map(|_| api::variables(&self.spec)).unwrap_or_default();
        fixed.extend(api.iter().map(|(name, value)| (*name, OsStr::new(value))));
        let mut variables = policy::environment(&self.policy.effective, std::env::vars_os(), &fixed);
        if self.spec.api.is_some() {
            variables.retain(|(name, _, layer)| name != api::HEADERS || *layer != Layer::BuiltIn);
        }
        Environment { variables, fixed: fixed.iter().map(|(name, _)| *name).collect() }
    }
}

impl Environment {
    /// Names and values alone.
    pub(super) fn into_pairs(self) -> Vec<(OsString, OsString)> {
        self.variables.into_iter().map(|(name, value, _)| (name, value)).collect()
    }
}

/// The caller's PATH, less what the sandbox does not have.
fn search_path(path: Option<&OsStr>, spec: &SandboxSpec) -> OsString {
    let inside = |directory: &PathBuf| {
        directory.is_absolute() && spec.mounts.iter().any(|mount| directory.starts_with(&mount.at))
    };
    let kept = path.map(std::env::split_paths).into_iter().flatten().filter(inside);
    match std::env::join_paths(kept) {
        Ok(joined) if !joined.is_empty() => joined,
        _ => "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin".into(),
    }
}

/// The options as the last layer of the policy.
pub(super) fn command_line(args: &SandboxArgs) -> CommandLine {
    CommandLine {
        profile: args.profile,
        net: args.net,
        allow_host: args.allow_host.clone(),
        deny_host: args.deny_host.clone(),
        ask_host: args.ask_host.clone(),
        publish: args.publish.clone(),
        allow_socket: args.allow_socket.clone(),
        memory: args.memory,
        cpus: args.cpus,
        pids: args.pids,
        disk: args.disk,
        inodes: args.inodes,
        timeout: args.timeout,
        ro: args.ro.clone(),
        rw: args.rw.clone(),
        env: args.env.clone(),
        home: args.home.clone(),
        allow_home: args.allow_home,
        allow_reachable_sockets: args.allow_reachable_sockets,
        api_socket: args.api_socket.clone(),
        api: args.api.clone(),
        api_key_file: args.api_key_file.clone(),
        require: args.require.clone(),
        prefer: args.prefer.clone(),
        ..CommandLine::default()
    }
}
