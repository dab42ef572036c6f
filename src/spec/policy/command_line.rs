//! The last layer: what the options of this command say.

use super::api::{KeyFile, Upstream};
use super::document::{Api, Bridge, Document, Env, Files, Limits, NetworkTable, Protections};
use super::hosts::HostRule;
use super::names::{Adapter, EnvName, Network, Profile, Protection};
use super::paths::{BindSpec, Home, HostPath, Template};
use super::program::AgentCommand;
use super::publish::Publish;
use super::units::{Cpus, Size, TimeSpan};
use super::value::BadValue;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The options that overrule a policy; every value parses itself (`FromStr`), as it does in a file.
#[derive(Debug, Clone, Default)]
pub struct CommandLine {
    /// `--profile`
    pub profile: Option<Profile>,
    /// `--net`
    pub net: Option<Network>,
    /// `--allow-host`
    pub allow_host: Vec<HostRule>,
    /// `--deny-host`
    pub deny_host: Vec<HostRule>,
    /// `--ask-host`
    pub ask_host: Vec<HostRule>,
    /// `--publish`
    pub publish: Vec<Publish>,
    /// `--allow-socket`; a relative PATH is below the current directory.
    pub allow_socket: Vec<BindSpec>,
    /// `--memory`
    pub memory: Option<Size>,
    /// `--cpus`
    pub cpus: Option<Cpus>,
    /// `--pids`
    pub pids: Option<u32>,
    /// `--disk`
    pub disk: Option<Size>,
    /// `--inodes`
    pub inodes: Option<u32>,
    /// `--timeout`
    pub timeout: Option<TimeSpan>,
    /// `--ro`; a relative PATH is below the current directory.
    pub ro: Vec<BindSpec>,
    /// `--rw`; a relative PATH is below the current directory.
    pub rw: Vec<BindSpec>,
    /// `--env`; of two with the same name the later counts.
    pub env: Vec<EnvArgument>,
    /// `--home`
    pub home: Option<Home>,
    /// `--allow-home`
    pub allow_home: bool,
    /// `--api-socket`; a relative path is below the current directory.
    pub api_socket: Option<PathBuf>,
    /// `--api`
    pub api: Option<Upstream>,
    /// `--api-key-file`; a relative path is below the current directory.
    pub api_key_file: Option<PathBuf>,
    /// `--agent-cmd`
    pub agent_cmd: Option<AgentCommand>,
    /// `--adapter`
    pub adapter: Option<Adapter>,
    /// `--bridge-socket`
    pub bridge_socket: Option<Template>,
    /// `--control-socket`
    pub control_socket: Option<Template>,
    /// `--allow-reachable-sockets`
    pub allow_reachable_sockets: bool,
    /// `--require`
    pub require: Vec<Protection>,
    /// `--prefer`
    pub prefer: Vec<Protection>,
}

/// `NAME`, from the caller's environment, or `NAME=VALUE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvArgument {
    /// The name.
    pub name: EnvName,
    /// The value, if one is given.
    pub value: Option<String>,
}

impl FromStr for EnvArgument {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        match text.split_once('=') {
            Some((name, value)) => Ok(EnvArgument { name: name.parse()?, value: Some(value.to_owned()) }),
            None => Ok(EnvArgument { name: text.parse()?, value: None }),
        }
    }
}

impl CommandLine {
    /// The options as a document, paths made absolute below `directory`.
    pub(super) fn into_document(self, directory: &Path) -> Result<Document, BadValue> {
        let mut env = Env::default();
        for EnvArgument { name, value } in self.env {
            env.pass.retain(|earlier| *earlier != name);
            env.set.remove(&name);
            match value {
                Some(value) => drop(env.set.insert(name, value)),
                None => env.pass.push(name),
            }
        }
        let below = |specs: Vec<BindSpec>| -> Vec<BindSpec> {
            let absolute = |spec: BindSpec| BindSpec { source: directory.join(&spec.source), ..spec };
            specs.into_iter().map(absolute).collect()
        };
        let socket = self.api_socket.map(|path| HostPath::try_from(directory.join(path))).transpose()?;
        let key_file = self.api_key_file.map(|path| KeyFile::try_from(directory.join(path))).transpose()?;
        Ok(Document {
            profile: self.profile,
            agent_cmd: self.agent_cmd,
            adapter: self.adapter,
            files: Files { ro: below(self.ro), rw: below(self.rw), home: self.home, ..Files::default() },
            env,
            network: NetworkTable {
                mode: self.net,
                allow: self.allow_host,
                deny: self.deny_host,
                ask: self.ask_host,
                publish: self.publish,
                sockets: below(self.allow_socket),
            },
            limits: Limits {
                memory: self.memory,
                disk: self.disk,
                inodes: self.inodes,
                cpus: self.cpus,
                pids: self.pids,
                timeout: self.timeout,
                ..Limits::default()
            },
            protections: Protections { require: self.require, prefer: self.prefer },
            api: Api { socket, upstream: self.api, key_file, ..Api::default() },
            bridge: Bridge {
                socket: self.bridge_socket,
                control: self.control_socket,
                allow_reachable: self.allow_reachable_sockets.then_some(true),
                ..Bridge::default()
            },
            ..Document::default()
        })
    }
}
