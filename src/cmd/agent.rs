//! `saggar agent`: the agent of a folder in a sandbox, and its conversation on the bridge.

use super::disk;
use super::find;
use super::folder_files::{self, FolderFiles};
use super::overrides::Overrides;
use super::prepare::{self, Prepared, Purpose};
use super::reach::{self, Reached};
use super::scripts;
use super::start::Started;
use crate::bridge::adapter::{Adapter, Relay, StreamJson};
use crate::bridge::io::{Listener, Unpublished, expand};
use crate::bridge::proto::LogLevel;
use crate::bridge::proto::spool::{Left, Store};
use crate::cli::AgentArgs;
use crate::error::{Code, Error, Result};
use crate::id::SandboxId;
use crate::launch::guard;
use crate::session::changes::Kept;
use crate::session::record::{Keeper, Options, Record, Why};
use crate::session::spool::Spool;
use crate::session::states::Move;
use crate::session::workspace::{self, Place};
use crate::session::{Begin, Session};
use crate::spec::agent::AGENT_FOLDER;
use crate::spec::policy::{Adapter as AdapterName, Effective, Home, Layer, Network, Setting, Template};
use crate::spec::{Changes, Program};
use crate::state;
use crate::state::process::ProcessId;
use crate::supervise::agent::{AGENT_SOCKET, Entrusted, Job, Logs, Script, Show, run as supervise};
use crate::supervise::quarantine::Warden;
use crate::supervise::status::{Status, take_descriptor};
use crate::sys::folder::Folder;
use std::ffi::OsString;
use std::fs::File;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Where saggar's own program stands inside, for the demo agent.
const DEMO: &str = "/run/saggar/demo";

/// The sockets: the key of the policy that places one, and its name in the runtime directory.
const BRIDGE: (&str, &str) = ("bridge.socket", "bridge.sock");
const CONTROL: (&str, &str) = ("bridge.control", "control.sock");

/// Variables that an agent gets beside those of `wrap`, whatever a policy says; known when it starts.
pub(super) const OWN_VARIABLES: [&str; 4] =
    ["ASH_AGENT_DIR", "ASH_SANDBOX_ID", "ASH_SESSION_ID", "ASH_WORKSPACE_DIR"];

pub(super) fn run(args: AgentArgs) -> Result<u8> {
    let status = Status::open(args.sandbox.status_fd)?;
    serve(Call::from_server(args)?, status, None)
}

/// What is different for a session that nobody waits for.
pub(super) struct Detached {
    /// Gets one byte `R` as that of `--ready-fd` does.
    pub(super) ready: File,
    /// What is to be remembered for later starts.
    pub(super) options: Options,
}

/// The same as [`run`], for a session that nobody waits for. A new one that does not come to run leaves nothing.
pub(super) fn run_detached(args: AgentArgs, detached: Detached) -> Result<u8> {
    serve(Call::new(args)?, Status::default(), Some(detached))
}

/// A session that is open, with its record.
struct Opened {
    session: Session,
    keeper: Keeper,
}

fn serve(mut call: Call, mut status: Status, detached: Option<Detached>) -> Result<u8> {
    let is_new = !call.args.resume;
    let is_detached = detached.is_some();
    let mut opened = None;
    let made = Made::new(&mut call, detached.as_ref(), &mut opened);
    let made = made.inspect_err(|error| status.refused(error));
    let Some(Opened { session, mut keeper }) = opened else { return made.map(|_| 0) };
    let outcome = made.and_then(|made| made.run(call, status, detached, &session, &mut keeper));
    if let Err(error) = &outcome {
        // The loop leaves a record behind when it has begun; before that nobody has.
        let left = match keeper.record().is_served() {
            true => keeper.leave(Move::Fail, Some(Why::Start), Some(error.to_string())),
            false => Ok(()),
        };
        let left = match is_new && is_detached && !keeper.has_run() && !keeper.is_gone() {
            true => session.remove(),
            false => left,
        };
        if let Err(error) = left {
            log::warn!("{error}");
        }
    }
    outcome
}

/// What was asked for, with what a server says in the environment (DECISIONS 22).
struct Call {
    args: AgentArgs,
    folder: PathBuf,
    /// The same folder, for what is read of it.
    handle: Folder,
    id: SandboxId,
}

impl Call {
    fn from_server(mut args: AgentArgs) -> Result<Self> {
        let served = std::env::var_os("ASH_BRIDGE_SOCKET");
        if let Some(socket) = served {
            let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
            if args.agent.bridge_socket.is_none() {
                let template = socket.to_string_lossy().parse();
                args.agent.bridge_socket =
                    Some(template.map_err(|e| Error::new(Code::Usage, format!("ASH_BRIDGE_SOCKET: {e}")))?);
            }
            args.dir = args.dir.or_else(|| variable("ASH_AGENT_DIR").map(PathBuf::from));
            args.sandbox.workspace =
                args.sandbox.workspace.or_else(|| variable("ASH_WORKSPACE_DIR").map(PathBuf::from));
            args.sandbox.id = args.sandbox.id.or_else(|| variable("ASH_SANDBOX_ID"));
            args.session = args.session.or_else(|| variable("ASH_SESSION_ID"));
            args.ready_fd = args.ready_fd.or(args.prompt.is_none().then_some(1));
        }
        if args.ready_fd == Some(1) && (args.prompt.is_some() || args.json) {
            let message = "--ready-fd 1 with a prompt or --json: standard output carries the messages";
            return Err(Error::new(Code::Usage, message).hint("give the ready byte another descriptor"));
        }
        Call::new(args)
    }

    /// What the arguments alone say.
    fn new(mut args: AgentArgs) -> Result<Self> {
        let folder = args.dir.clone().ok_or_else(|| {
            Error::new(Code::Usage, "the agent's folder is missing").hint("saggar agent DIR [PROMPT]")
        })?;
        let handle = folder_files::open(&folder)?;
        folder_files::check(&handle)?;
        let folder = handle.path().to_owned();
        let id = match &args.sandbox.id {
            Some(id) => SandboxId::parse(id)?,
            None => SandboxId::random()?,
        };
        args.sandbox.id = Some(id.to_string());
        Ok(Call { args, folder, handle, id })
    }
}

/// Everything up to the start.
struct Made {
    prepared: Prepared,
    kept: Option<Kept>,
    session_id: SandboxId,
    adapter: AdapterName,
    command: Vec<OsString>,
    /// What an agent is handed over of a folder that it does not find by itself, and of the options.
    flags: Vec<OsString>,
}

/// What a supervisor has beside the sandbox.
struct Outfit {
    listener: Listener,
    control: Listener,
    warden: Warden,
    audit: File,
    logs: Option<Logs>,
    spool: Option<(Box<dyn Store>, Left)>,
}

impl Made {
    fn new(call: &mut Call, detached: Option<&Detached>, opened: &mut Option<Opened>) -> Result<Self> {
        let args = &call.args;
        let overrides = Overrides::read(args)?;
        let session_id = match &args.session {
            Some(session) => SandboxId::parse(session)?,
            None => call.id.clone(),
        };
        let mut command_line = prepare::command_line(&args.sandbox);
        command_line.agent_cmd.clone_from(&args.agent.agent_cmd);
        command_line.adapter = args.agent.adapter;
        command_line.bridge_socket.clone_from(&args.agent.bridge_socket);
        command_line.control_socket.clone_from(&args.agent.control_socket);

        let mut purpose = Purpose {
            home: Home::Session,
            workspace: call.folder.clone(),
            agent_folder: Some(call.folder.clone()),
            program: None,
            session_home: None,
            changes: None,
            own: Vec::new(),
            streams: false,
            start: true,
            planned: Vec::new(),
        };
        if let Some(workspace) = &args.sandbox.workspace {
            purpose.workspace = prepare::canonical(workspace)?;
        }
        let policy = prepare::load_policy(&args.sandbox, &purpose, command_line)?;
        let (adapter, command) = choose(&policy.effective);
        overrides.check(&policy.effective, adapter)?;
        refuse_without_api(&policy.effective, adapter, &command)?;

        let copy = args.sandbox.workspace.is_none() && !args.sandbox.workspace_overlay;
        let place = state::sessions_path()?.join(session_id.as_str());
        let mut disk =
            disk::choose(&args.sandbox, &policy.effective, copy, Some(&place), disk::Lasting::Session);
        disk.check()?;
        if args.sandbox.workspace_overlay {
            prepare::check_workspace(&purpose.workspace, policy.effective.allow_home.value)?;
            disk::check_lower(&purpose.workspace)?;
        }

        let begin = if args.resume { Begin::Resume } else { Begin::New };
        let session = Session::open(&session_id, begin)?;
        let fresh = Record::new(&session_id, &call.folder, detached.map(|detached| detached.options.clone()));
        let keeper = Keeper::start(session.directory(), fresh)?;
        let opened = opened.insert(Opened { session, keeper });
        disk::mount_image(&disk, &mut opened.session)?;
        let session = &opened.session;
        // Before anything is made in it, which then belongs to the project too.
        let project = disk::project(&mut disk, session.directory())?;
        purpose.session_home = Some(session.home()?);
        let mut kept = None;
        if args.sandbox.workspace_overlay {
            let changes = disk::changes(&disk, session.place());
            if matches!(changes, Changes::Directory(_)) {
                kept = Some(Kept::new(session.place(), &purpose.workspace, args.resume)?);
            }
            purpose.changes = Some(changes);
        }
        if copy {
            let made = session.workspace(&call.folder);
            purpose.workspace = made.map_err(|error| disk::no_room(&disk, session, error))?;
            purpose.agent_folder = None;
            disk::tell_place(session, &disk, &purpose.workspace);
        }
        bring(&mut purpose, &policy.effective, adapter, &command)?;
        overrides.bring(session, &mut purpose)?;
        let place = match (copy, kept.is_some() || args.sandbox.workspace_overlay) {
            (true, _) => Some(Place::Copy),
            (false, true) => Some(Place::Overlay),
            (false, false) => None,
        };
        let protect = &policy.effective.protect;
        let made = workspace::Made {
            place,
            in_memory: place == Some(Place::Overlay) && kept.is_none(),
            folder: if copy { &call.folder } else { &purpose.workspace },
            protected: protect.paths.iter().map(|path| path.value.as_path().to_owned()).collect(),
        };
        made.record(session.directory())?;
        let mut prepared = prepare::prepare(&args.sandbox, purpose, policy, disk)?;
        // What is in an image stays there.
        let guarded = (kept.is_some() || project.is_some()) && !prepared.disk.needs_image();
        prepared.session = guarded.then(|| session.directory().to_owned());
        prepared.project = project;
        let is_beside = inner_folder(&prepared).is_some();
        let flags = match adapter {
            AdapterName::StreamJson => {
                let files =
                    if is_beside { folder_files::read(&call.handle)? } else { FolderFiles::default() };
                overrides.flags(files)?
            }
            AdapterName::Bridge | AdapterName::Demo => Vec::new(),
        };
        Ok(Made { prepared, kept, session_id, adapter, command, flags })
    }

    fn run(
        mut self,
        call: Call,
        mut status: Status,
        detached: Option<Detached>,
        session: &Session,
        keeper: &mut Keeper,
    ) -> Result<u8> {
        let args = call.args;
        let is_detached = detached.is_some();
        let ready = match detached {
            Some(detached) => Some(detached.ready),
            None => args.ready_fd.map(|fd| take_descriptor(fd, "--ready-fd")).transpose()?,
        };
        let mut started =
            Started::new(&mut self.prepared, true, true).inspect_err(|error| status.refused(error))?;
        self.kept.as_mut().map(Kept::leave_to_guard);
        let outfit = self.outfit(&mut started, is_detached, args.spool, session, keeper);
        let outfit = outfit.inspect_err(|error| {
            started.launched.kill_and_reap();
            status.refused(error);
        })?;
        // pid 1 is at work on its steps: this costs the start nothing.
        guard::sweep_by_the_way();
        let Started { launched, mut guard, published, api, has_cgroup } = started;

        let program = self.program();
        let scripts = self.scripts(&call.handle, session);
        let show = if args.json || !std::io::stdout().is_terminal() { Show::Json } else { Show::Text };
        let held = self.prepared.held();
        let job = Job {
            id: self.prepared.id.as_str(),
            plan: &self.prepared.plan,
            pins: &held,
            program,
            policy: self.prepared.policy.effective.clone(),
            audit: outfit.audit,
            remembered: self.remembered(),
            spool: outfit.spool,
            published,
            scripts,
            adapter: self.translator(),
            session: self.session_id.as_str(),
            agent_session: if args.resume { session.agent_session() } else { None },
            listener: outfit.listener,
            control: outfit.control,
            prompt: args.prompt.map(|prompt| (prompt, show)),
            ready,
            cgroup: guard.cgroup().filter(|_| has_cgroup).map(Path::to_owned),
            api,
            times: self.prepared.times(guard.cgroup()),
            status,
            keeper,
            logs: outfit.logs,
            detached: is_detached,
        };
        let entrusted = Entrusted {
            guard: &mut guard,
            warden: outfit.warden,
            meter: disk::meter(&self.prepared, session.directory()),
            kept: self.kept.as_ref(),
            session,
            supervisor: self.prepared.supervisor(),
            forget: is_detached && !args.resume,
        };
        let (ended, has_changes) = supervise(job, entrusted, launched);
        drop(guard);
        disk::tell(&self.prepared, self.kept.as_ref(), has_changes.unwrap_or(false));
        ended
    }

    /// Makes what a supervisor has beside the sandbox, while pid 1 is at work on its steps.
    fn outfit(
        &self,
        started: &mut Started,
        detached: bool,
        spool: bool,
        session: &Session,
        keeper: &mut Keeper,
    ) -> Result<Outfit> {
        let policy = &self.prepared.policy.effective;
        let reached = (!policy.allow_reachable.value).then(|| Reached::of(&self.prepared.plan));
        let reached = reached.as_ref();
        let listener = self.listen(started, policy.bridge_socket.as_ref(), BRIDGE, reached)?;
        let control = self.listen(started, policy.control_socket.as_ref(), CONTROL, reached)?;
        let warden = self.prepared.warden(session.quarantine(), started.launched.pid)?;
        let audit = session.audit()?;
        let logs = detached.then(|| detach(session)).transpose()?;
        keeper.set(|record| {
            let text = |path: &Path| Some(path.to_string_lossy().into_owned());
            record.sandbox = Some(self.prepared.id.to_string());
            record.workspace = text(&self.prepared.workspace);
            record.bridge_socket = text(listener.path());
            record.control_socket = text(control.path());
            record.init = ProcessId::of(started.launched.pid);
        });
        let spool = spool.then(|| self.spool(session)).transpose()?;
        Ok(Outfit { listener, control, warden, audit, logs, spool })
    }

    fn remembered(&self) -> usize {
        usize::try_from(self.prepared.policy.effective.remembered.value).unwrap_or(usize::MAX)
    }

    /// What is kept for servers that come back.
    fn spool(&self, session: &Session) -> Result<(Box<dyn Store>, Left)> {
        let bound = self.prepared.policy.effective.spool.value.bytes();
        let (spool, left) = Spool::open(session.directory(), bound, self.remembered())?;
        Ok((Box::new(spool), left))
    }

    /// A socket: private in the runtime directory under this name, or where the policy or the command line says, but
    /// not where programs reach it.
    fn listen(
        &self,
        started: &mut Started,
        template: Option<&Setting<Template>>,
        (key, name): (&str, &str),
        reached: Option<&Reached>,
    ) -> Result<Listener> {
        let check = |socket: Unpublished, path: &Path| match reached {
            Some(reached) if reached.holds(socket.directory()) => Err(reach::refused(key, path)),
            _ => Ok(socket),
        };
        let Some(template) = template else {
            let directory = started.guard.directory().unwrap_or(Path::new("/"));
            let path = directory.join(name);
            return check(Listener::prepare(&path)?, &path)?.publish();
        };
        let path = expand(&template.value.path(&self.prepared.id).to_string_lossy(), &self.prepared.id)?;
        guard::sweep_socket(&path);
        let socket = check(Listener::prepare(&path)?, &path)?;
        started.guard.add_socket(path, socket.record())?;
        let listener = socket.publish()?;
        started.guard.socket_has_its_name(listener.record())?;
        Ok(listener)
    }

    fn translator(&self) -> Box<dyn Adapter> {
        match self.adapter {
            AdapterName::StreamJson => Box::new(StreamJson::new()),
            AdapterName::Bridge => Box::new(Relay::bridge()),
            AdapterName::Demo => Box::new(Relay::demo()),
        }
    }

    /// The scripts of the folder as it stands inside: beside the workspace, or in it.
    fn scripts(&self, folder: &Folder, session: &Session) -> Vec<Script> {
        let limit = self.prepared.policy.effective.limits.script.value.duration();
        if inner_folder(&self.prepared).is_some() {
            return scripts::of(folder, session, limit);
        }
        match Folder::open(&self.prepared.workspace) {
            Ok(workspace) => scripts::of(&workspace, session, limit),
            Err(_) => Vec::new(),
        }
    }

    fn program(&self) -> Program {
        let workspace = &self.prepared.workspace;
        let inner_folder = inner_folder(&self.prepared);
        let mut env = self.prepared.environment().into_pairs();
        let mut set = |name: &str, value: OsString| {
            env.retain(|(known, _)| known != name);
            env.push((name.into(), value));
        };
        set("ASH_SANDBOX_ID", self.prepared.id.as_str().into());
        set("ASH_SESSION_ID", self.session_id.as_str().into());
        set("ASH_WORKSPACE_DIR", workspace.into());
        set("ASH_AGENT_DIR", inner_folder.unwrap_or(workspace).into());
        if self.adapter == AdapterName::Bridge {
            set("ASH_BRIDGE_SOCKET", AGENT_SOCKET.into());
        }
        let demo = self.command.is_empty();
        let mut argv =
            if demo { vec!["saggar".into(), crate::demo::ENTRY.into()] } else { self.command.clone() };
        argv.extend(self.flags.iter().cloned());
        let file = if demo { Some(DEMO.into()) } else { self.prepared.program_file.clone() };
        Program { argv, file, env, cwd: workspace.clone() }
    }
}

/// Where the agent's folder stands inside when it is not the workspace.
fn inner_folder(prepared: &Prepared) -> Option<&Path> {
    prepared.spec.mounts.iter().map(|mount| mount.at.as_path()).find(|at| *at == Path::new(AGENT_FOLDER))
}

/// What was prepared does not depend on where we are, and no directory is kept busy; what there is to say goes to the
/// session's own log.
fn detach(session: &Session) -> Result<Logs> {
    std::env::set_current_dir("/").map_err(|e| Error::system("go to /", e))?;
    let logs = Logs::open(session.directory())?;
    let taker = logs.clone();
    crate::log::divert(Box::new(move |level, text| {
        let level = match level {
            log::Level::Error | log::Level::Warn => LogLevel::Warn,
            log::Level::Info => LogLevel::Info,
            log::Level::Debug | log::Level::Trace => LogLevel::Debug,
        };
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        taker.add(u64::try_from(since_1970.as_millis()).unwrap_or(0), level, text);
    }));
    Ok(logs)
}

/// What of the host the program needs inside: the demo agent is saggar itself.
pub(super) fn bring(
    purpose: &mut Purpose,
    policy: &Effective,
    adapter: AdapterName,
    command: &[OsString],
) -> Result<()> {
    if adapter == AdapterName::Demo && command.is_empty() {
        let own =
            std::env::current_exe().map_err(|e| Error::system("find the program of saggar itself", e))?;
        purpose.own.push((own, DEMO.into(), false, "the built-in demo agent"));
    } else {
        let by = policy.agent_cmd.as_ref().map_or(&Layer::BuiltIn, |setting| &setting.layer);
        purpose.program = command.first().map(|program| Setting::new(program.clone(), by));
    }
    Ok(())
}

/// The program and what it speaks: what the policy says, else `claude` if it is there, else the demo agent,
/// whose command is empty.
pub(super) fn choose(policy: &Effective) -> (AdapterName, Vec<OsString>) {
    let adapter = policy.adapter.as_ref().map(|setting| setting.value);
    if let Some(command) = &policy.agent_cmd {
        let words = command.value.words().iter().map(OsString::from).collect();
        // The demo agent is built in; a program that was named speaks for itself.
        return (adapter.unwrap_or(AdapterName::StreamJson), words);
    }
    match adapter {
        Some(AdapterName::Demo) => (AdapterName::Demo, Vec::new()),
        Some(other) => (other, vec!["claude".into()]),
        None if find::on_path("claude") => (AdapterName::StreamJson, vec!["claude".into()]),
        None => (AdapterName::Demo, Vec::new()),
    }
}

/// `claude` without a way to its model would only retry for ever (DECISIONS 26).
fn refuse_without_api(policy: &Effective, adapter: AdapterName, command: &[OsString]) -> Result<()> {
    let name = command.first().map(|program| Path::new(program).file_name().unwrap_or_default());
    let is_claude = adapter == AdapterName::StreamJson && name.is_some_and(|name| name == "claude");
    let has_api = policy.api_socket.is_some() || policy.api.upstream.is_some();
    if is_claude && policy.network.value == Network::None && !has_api {
        let layer = &policy.network.layer;
        let by = if *layer == Layer::BuiltIn { String::new() } else { format!(" (network none by {layer})") };
        return Err(Error::new(Code::Refused, format!("claude has no way to the model API{by}")).hint(
            "say --api https://api.anthropic.com --api-key-file PATH, or --allow-host api.anthropic.com or --net host, \
             or --api-socket PATH with a unix socket that leads to the API; or set [api]; \
             --adapter demo needs nothing",
        ));
    }
    Ok(())
}
