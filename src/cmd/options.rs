//! Converts arguments to the plain values of the use cases.

use crate::app::{SandboxOptions, agent};
use crate::cli::SandboxArgs;
use crate::spec::policy::{EnvArgument, PolicyOptions};

/// `--env-all`: each variable of the caller, as `--env NAME` passes it.
fn all_variables() -> impl Iterator<Item = EnvArgument> {
    let names = agent::passed_names(std::env::vars_os().map(|(name, _)| name));
    names.map(|name| EnvArgument { name, value: None })
}

impl From<SandboxArgs> for SandboxOptions {
    fn from(args: SandboxArgs) -> Self {
        SandboxOptions {
            policy: PolicyOptions {
                profile: args.profile,
                network: args.net,
                allow_host: args.allow_host,
                deny_host: args.deny_host,
                ask_host: args.ask_host,
                publish: args.publish,
                allow_socket: args.allow_socket,
                memory: args.memory,
                cpus: args.cpus,
                pids: args.pids,
                disk: args.disk,
                inodes: args.inodes,
                timeout: args.timeout,
                ro: args.ro,
                rw: args.rw,
                env: match args.env_all {
                    true => all_variables().chain(args.env).collect(),
                    false => args.env,
                },
                home: args.home,
                allow_home: args.allow_home,
                allow_reachable_sockets: args.allow_reachable_sockets,
                api_socket: args.api_socket,
                api: args.api,
                api_key_file: args.api_key_file,
                mailbox: args.mailbox,
                mailbox_name: args.mailbox_name,
                mailbox_root: args.mailbox_root,
                mailbox_repo: args.mailbox_repo,
                require: args.require,
                prefer: args.prefer,
                quiet_degraded: args.quiet_degraded,
                ..PolicyOptions::default()
            },
            id: args.id,
            policy_file: args.policy,
            workspace: args.workspace,
            start_directory: args.cwd,
            workspace_overlay: args.workspace_overlay,
            api_key_fd: args.api_key_fd,
        }
    }
}
