//! `saggar agent`: the agent of a folder in a sandbox, and its conversation on the bridge.

use super::find;
use super::prepare::{self, Prepared, Purpose};
use super::start::Started;
use crate::bridge::adapter::{Adapter, Relay, StreamJson};
use crate::bridge::io::{Listener, expand};
use crate::cli::AgentArgs;
use crate::error::{Code, Error, Result};
use crate::id::SandboxId;
use crate::launch::guard;
use crate::session::{Begin, Session};
use crate::spec::agent::AGENT_FOLDER;
use crate::spec::policy::{Adapter as AdapterName, Effective, Home, Layer, Network};
use crate::spec::{MountKind, Program};
use crate::supervise::agent::{AGENT_SOCKET, Job, Show, run as supervise};
use crate::supervise::status::{Status, take_descriptor};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

/// Where saggar's own program stands inside, for the demo agent.
const DEMO: &str = "/run/saggar/demo";

/// Variables that an agent gets beside those of `wrap`, whatever a policy says; known when it starts.
pub(super) const OWN_VARIABLES: [&str; 4] =
    ["ASH_AGENT_DIR", "ASH_SANDBOX_ID", "ASH_SESSION_ID", "ASH_WORKSPACE_DIR"];

pub(super) fn run(args: AgentArgs) -> Result<u8> {
    let mut status = Status::open(args.sandbox.status_fd)?;
    let mut call = Call::from_server(args)?;
    let made = Made::new(&mut call).inspect_err(|error| status.refused(error))?;
    made.run(call, status)
}

/// What was asked for, with what a server says in the environment (DECISIONS 22).
struct Call {
    args: AgentArgs,
    folder: PathBuf,
    id: SandboxId,
}

impl Call {
    fn from_server(mut args: AgentArgs) -> Result<Self> {
        let served = std::env::var_os("ASH_BRIDGE_SOCKET");
        if let Some(socket) = served {
            let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
            if args.bridge_socket.is_none() {
                let template = socket.to_string_lossy().parse();
                args.bridge_socket =
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
        let folder = args.dir.clone().ok_or_else(|| {
            Error::new(Code::Usage, "the agent's folder is missing").hint("saggar agent DIR [PROMPT]")
        })?;
        let folder = prepare::canonical(&folder)?;
        if !folder.join("CLAUDE.md").is_file() {
            let message = format!("{} is not an agent's folder: it has no CLAUDE.md", folder.display());
            return Err(
                Error::new(Code::Invalid, message).hint("a CLAUDE.md, the system prompt, is all it needs")
            );
        }
        let id = match &args.sandbox.id {
            Some(id) => SandboxId::parse(id)?,
            None => SandboxId::random()?,
        };
        args.sandbox.id = Some(id.to_string());
        Ok(Call { args, folder, id })
    }
}

/// Everything up to the start.
struct Made {
    prepared: Prepared,
    session: Session,
    session_id: SandboxId,
    adapter: AdapterName,
    command: Vec<OsString>,
}

impl Made {
    fn new(call: &mut Call) -> Result<Self> {
        let args = &call.args;
        let session_id = match &args.session {
            Some(session) => SandboxId::parse(session)?,
            None => call.id.clone(),
        };
        let mut command_line = prepare::command_line(&args.sandbox);
        command_line.agent_cmd.clone_from(&args.agent_cmd);
        command_line.adapter = args.adapter;
        command_line.bridge_socket.clone_from(&args.bridge_socket);

        let mut purpose = Purpose {
            home: Home::Session,
            workspace: call.folder.clone(),
            agent_folder: Some(call.folder.clone()),
            program: None,
            session_home: None,
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
        refuse_without_api(&policy.effective, adapter, &command)?;

        let begin = if args.resume { Begin::Resume } else { Begin::New };
        let session = Session::open(&session_id, begin)?;
        purpose.session_home = Some(session.home()?);
        if args.sandbox.workspace.is_none() {
            purpose.workspace = session.workspace(&call.folder)?;
            purpose.agent_folder = None;
            eprintln!("workspace: {}", purpose.workspace.display());
        }
        bring(&mut purpose, adapter, &command)?;
        let prepared = prepare::prepare(&args.sandbox, purpose, policy)?;
        Ok(Made { prepared, session, session_id, adapter, command })
    }

    fn run(mut self, call: Call, mut status: Status) -> Result<u8> {
        let args = call.args;
        let ready = args.ready_fd.map(|fd| take_descriptor(fd, "--ready-fd")).transpose()?;
        let mut started =
            Started::new(&mut self.prepared, true).inspect_err(|error| status.refused(error))?;
        let listener = self.listen(&mut started).inspect_err(|error| {
            started.launched.kill_and_reap();
            status.refused(error);
        })?;
        let warden = self.prepared.warden(self.session.quarantine()).inspect_err(|error| {
            started.launched.kill_and_reap();
            status.refused(error);
        })?;
        // pid 1 is at work on its steps: this costs the start nothing.
        guard::sweep_by_the_way();
        let Started { launched, guard } = started;

        let program = self.program();
        let show = if args.json || !std::io::stdout().is_terminal() { Show::Json } else { Show::Text };
        let timeout = self.prepared.policy.effective.limits.timeout.as_ref();
        let job = Job {
            id: self.prepared.id.as_str(),
            plan: &self.prepared.plan,
            pins: &self.prepared.spec.pins,
            warden,
            program,
            adapter: self.translator(),
            session: self.session_id.as_str(),
            agent_session: if args.resume { self.session.agent_session() } else { None },
            listener,
            prompt: args.prompt.map(|prompt| (prompt, show)),
            ready,
            timeout: timeout.map(|limit| limit.value.duration()),
            status,
        };
        let session = &self.session;
        let ended = supervise(job, launched, &mut |name, agent_session| {
            if let Err(error) = session.remember(name, agent_session) {
                log::warn!("{error}");
            }
        });
        drop(guard);
        ended
    }

    /// The socket: private in the runtime directory, or where the policy or the command line says.
    fn listen(&self, started: &mut Started) -> Result<Listener> {
        let template = self.prepared.policy.effective.bridge_socket.as_ref();
        let Some(template) = template else {
            let directory = started.guard.directory().unwrap_or(Path::new("/"));
            return Listener::bind(&directory.join("bridge.sock"));
        };
        let path = expand(&template.value.path(&self.prepared.id).to_string_lossy(), &self.prepared.id)?;
        guard::sweep_socket(&path);
        let socket = Listener::prepare(&path)?;
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

    fn program(&self) -> Program {
        let workspace = &self.prepared.workspace;
        let inner_folder = self.inner_folder();
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
        if self.adapter == AdapterName::StreamJson {
            argv.extend(self.folder_flags());
        }
        let file = if demo { Some(DEMO.into()) } else { self.prepared.program_file.clone() };
        Program { argv, file, env, cwd: workspace.clone() }
    }

    /// Where the agent's folder stands inside when it is not the workspace.
    fn inner_folder(&self) -> Option<&Path> {
        let mounts = &self.prepared.spec.mounts;
        mounts.iter().find(|mount| mount.at == Path::new(AGENT_FOLDER)).map(|mount| mount.at.as_path())
    }

    /// A folder that is not the workspace is not found by the agent itself: its prompt, its servers and its
    /// settings are handed over (DECISIONS 23).
    fn folder_flags(&self) -> Vec<OsString> {
        let outside = self.prepared.spec.mounts.iter().find_map(|mount| match &mount.kind {
            MountKind::Named { source } if mount.at == Path::new(AGENT_FOLDER) => Some(source),
            _ => None,
        });
        let Some(outside) = outside else { return Vec::new() };
        let mut flags: Vec<OsString> = Vec::new();
        if let Ok(prompt) = std::fs::read_to_string(outside.join("CLAUDE.md")) {
            flags.extend(["--append-system-prompt".into(), prompt.into()]);
        }
        for (file, flag) in [(".mcp.json", "--mcp-config"), (".claude/settings.json", "--settings")] {
            if outside.join(file).is_file() {
                flags.extend([flag.into(), Path::new(AGENT_FOLDER).join(file).into()]);
            }
        }
        flags
    }
}

/// What of the host the program needs inside: the demo agent is saggar itself.
pub(super) fn bring(purpose: &mut Purpose, adapter: AdapterName, command: &[OsString]) -> Result<()> {
    if adapter == AdapterName::Demo && command.is_empty() {
        let own =
            std::env::current_exe().map_err(|e| Error::system("find the program of saggar itself", e))?;
        purpose.own.push((own, DEMO.into(), false, "the built-in demo agent"));
    } else {
        purpose.program = command.first().cloned();
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
    if is_claude && policy.network.value == Network::None && policy.api_socket.is_none() {
        let layer = &policy.network.layer;
        let by = if *layer == Layer::BuiltIn { String::new() } else { format!(" (network none by {layer})") };
        return Err(Error::new(Code::Refused, format!("claude has no way to the model API{by}")).hint(
            "say --net host, or --api-socket PATH with a unix socket that leads to the API, or set [api] socket; \
             --adapter demo needs nothing",
        ));
    }
    Ok(())
}
