//! The command line of the OCI verbs: runc's options, and those of crun that callers use.
//!
//! Options stand on either side of the verb and of the id. A verb's options are parsed by themselves
//! ([`parse`]), since callers count the time of each call; [`super::Cli`] has them all for help and completions.

use crate::spec::policy::TimeSpan;
use clap::error::ErrorKind;
use clap::{ArgMatches, Args, FromArgMatches, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// The OCI verbs.
#[derive(Debug, Subcommand)]
pub enum OciCommand {
    /// Create a container from a bundle
    #[command(display_order = 50)]
    Create(Box<OciVerb<ContainerCreateArgs>>),
    /// Start a created container
    #[command(display_order = 51)]
    Start(Box<OciVerb<ContainerIdArgs>>),
    /// Print the state of a container as JSON
    #[command(display_order = 52)]
    State(Box<OciVerb<ContainerIdArgs>>),
    /// Send a signal to the init process of a container
    #[command(display_order = 53)]
    Kill(Box<OciVerb<KillArgs>>),
    /// Delete a stopped container
    #[command(display_order = 54)]
    Delete(Box<OciVerb<DeleteArgs>>),
    /// Create and start a container
    #[command(display_order = 55, after_help = EXIT_STATUS)]
    Run(Box<OciVerb<RunArgs>>),
    /// Run a program in a running container
    #[command(display_order = 56, after_help = EXIT_STATUS)]
    Exec(Box<OciVerb<ExecArgs>>),
    /// List containers
    #[command(display_order = 57)]
    List(Box<OciVerb<ContainerListArgs>>),
    /// List the processes of a container
    #[command(display_order = 58)]
    Ps(Box<OciVerb<PsArgs>>),
    /// Pause all processes of a container
    #[command(display_order = 59)]
    Pause(Box<OciVerb<ContainerIdArgs>>),
    /// Resume a paused container
    #[command(display_order = 60)]
    Resume(Box<OciVerb<ContainerIdArgs>>),
    /// Update the resource limits of a container
    #[command(display_order = 61)]
    Update(Box<OciVerb<UpdateArgs>>),
    /// Print the events and statistics of a container as JSON lines
    #[command(display_order = 62)]
    Events(Box<OciVerb<EventsArgs>>),
    /// Print the supported features as JSON
    #[command(display_order = 63)]
    Features(Box<OciVerb<FeaturesArgs>>),
    /// Write a default config.json
    #[command(display_order = 64)]
    Spec(Box<OciVerb<SpecArgs>>),
}

const EXIT_STATUS: &str = "Exit status in the foreground: the program's own, 128+N for signal N; 125 saggar \
                           failed; 126 and 127 the program cannot be executed or is not found.";

/// Also the answer to callers that ask by `checkpoint --help` whether there are any.
const NO_CHECKPOINTS: &str = "saggar does not support checkpoints of containers\n";

/// The answer to crun's `mounts add` and `mounts remove`.
const NO_MOUNTS: &str = "saggar does not change the mounts of a running container\n\
                         hint: name all of them in config.json; a shared bind mount passes later ones on\n";

/// One verb with the options that all verbs take.
#[derive(Debug, Args)]
pub struct OciVerb<A: Args> {
    /// What the verb itself takes.
    #[command(flatten)]
    pub args: A,
    /// What all verbs take.
    #[command(flatten)]
    pub global: OciGlobalArgs,
}

/// Options of every OCI verb; they may stand before it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Options of all OCI commands")]
pub struct OciGlobalArgs {
    /// Store the state of containers in DIR [default: /run/saggar-oci]
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Append messages to FILE; errors are also written to standard error
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Set the log format: text or json
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<OciLogFormat>,
    /// Set the lowest level that is logged: debug, info, warn or error
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<OciLogLevel>,
    /// Log everything
    #[arg(long)]
    pub debug: bool,
    /// Create cgroups through systemd; cgroupsPath is then slice:prefix:name
    #[arg(long)]
    pub systemd_cgroup: bool,
    /// Set the cgroup manager: cgroupfs, systemd or disabled
    #[arg(long, value_name = "MANAGER")]
    pub cgroup_manager: Option<CgroupManager>,
    /// Accept the option of runc (rootless mode is detected); with spec: write a rootless config.json
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "true|false|auto")]
    pub rootless: Option<RootlessMode>,
    /// Accept the option of runc; checkpoints are not supported
    #[arg(long, value_name = "PATH", hide = true)]
    pub criu: Option<PathBuf>,
}

/// The forms of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OciLogFormat {
    /// `time="…" level=error msg="…"`
    Text,
    /// One JSON object a line.
    Json,
}

/// The levels of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OciLogLevel {
    /// All messages.
    #[value(alias = "trace")]
    Debug,
    /// Completed operations.
    Info,
    /// Failures that are not fatal.
    #[value(alias = "warning")]
    Warn,
    /// The cause of a failed command.
    #[value(aliases = ["fatal", "panic"])]
    Error,
}

/// What creates the cgroups of containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CgroupManager {
    /// saggar itself, through the file system.
    Cgroupfs,
    /// systemd, over D-Bus.
    Systemd,
    /// None: the container stays in the cgroup of the caller.
    Disabled,
}

/// Whether the runtime is rootless, as callers of runc state it; saggar detects it by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RootlessMode {
    /// As an ordinary user.
    #[value(alias = "1")]
    True,
    /// As root.
    #[value(alias = "0")]
    False,
    /// Detect it.
    Auto,
}

/// A verb that takes an id and nothing else.
#[derive(Debug, Args)]
pub struct ContainerIdArgs {
    /// The container
    #[arg(value_name = "ID")]
    pub id: String,
}

/// What `create` and `run` share.
#[derive(Debug, Clone, Args)]
pub struct ContainerCreationArgs {
    /// Use the bundle in DIR
    #[arg(long, short, value_name = "DIR", default_value = ".")]
    pub bundle: PathBuf,
    /// Use FILE as the configuration instead of the bundle's config.json
    #[arg(long, short = 'f', value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Send the terminal of the container to a listening unix socket
    #[arg(long, value_name = "SOCKET")]
    pub console_socket: Option<PathBuf>,
    /// Write the pid of the container's init process to FILE
    #[arg(long, value_name = "FILE")]
    pub pid_file: Option<PathBuf>,
    /// Send a pidfd of the container's init process to a listening unix socket
    #[arg(long, value_name = "SOCKET")]
    pub pidfd_socket: Option<PathBuf>,
    /// Use mount and chroot instead of pivot_root, as on a ramdisk
    #[arg(long)]
    pub no_pivot: bool,
    /// Keep the caller's session keyring
    #[arg(long)]
    pub no_new_keyring: bool,
    /// Refuse a remount that the kernel permits only with the flags of the host
    #[arg(long)]
    pub no_mount_fallback: bool,
    /// Pass N file descriptors, from 3 on, to the program
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub preserve_fds: u32,
    /// The container
    #[arg(value_name = "ID")]
    pub id: String,
}

/// `saggar create`.
#[derive(Debug, Clone, Args)]
pub struct ContainerCreateArgs {
    /// The container.
    #[command(flatten)]
    pub container: ContainerCreationArgs,
    /// Accept the option of crun, without effect
    #[arg(long, hide = true)]
    pub no_subreaper: bool,
}

/// `saggar run`.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// The container.
    #[command(flatten)]
    pub container: ContainerCreationArgs,
    /// Detach from the program and exit
    #[arg(long, short)]
    pub detach: bool,
    /// Keep the container after its program has exited
    #[arg(long)]
    pub keep: bool,
    /// Disable the subreaper for orphans of the container
    #[arg(long)]
    pub no_subreaper: bool,
}

/// `saggar kill`.
#[derive(Debug, Args)]
pub struct KillArgs {
    /// Send the signal to all processes of the container
    #[arg(long, short)]
    pub all: bool,
    /// The container
    #[arg(value_name = "ID")]
    pub id: String,
    /// The signal: a name, with or without SIG, or a number
    #[arg(value_name = "SIGNAL", default_value = "SIGTERM")]
    pub signal: String,
}

/// `saggar delete`.
#[derive(Debug, Args)]
pub struct DeleteArgs {
    /// Kill a running container first; succeed if it does not exist
    #[arg(long, short)]
    pub force: bool,
    /// Refuse the option of crun
    #[arg(long, hide = true)]
    pub regex: bool,
    /// The container
    #[arg(value_name = "ID")]
    pub id: String,
}

/// `saggar exec`.
#[derive(Debug, Args)]
pub struct ExecArgs {
    /// Read the process from a JSON file, as in config.json; other process options are then ignored
    #[arg(long, short, value_name = "FILE")]
    pub process: Option<PathBuf>,
    /// Detach from the program and exit
    #[arg(long, short)]
    pub detach: bool,
    /// Write the pid of the program to FILE
    #[arg(long, value_name = "FILE")]
    pub pid_file: Option<PathBuf>,
    /// Send a pidfd of the program to a listening unix socket
    #[arg(long, value_name = "SOCKET")]
    pub pidfd_socket: Option<PathBuf>,
    /// Send the terminal of the program to a listening unix socket
    #[arg(long, value_name = "SOCKET")]
    pub console_socket: Option<PathBuf>,
    /// Allocate a terminal for the program
    #[arg(long, short, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    pub tty: Option<bool>,
    /// Set the working directory
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<String>,
    /// Set an environment variable
    #[arg(long, short, value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// Set the user and the group
    #[arg(long, short, value_name = "UID[:GID]")]
    pub user: Option<String>,
    /// Add a supplementary group
    #[arg(long, short = 'g', value_name = "GID", value_delimiter = ',')]
    pub additional_gids: Vec<u32>,
    /// Add a capability
    #[arg(long, short, value_name = "CAP")]
    pub cap: Vec<String>,
    /// Set no_new_privs
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    pub no_new_privs: Option<bool>,
    /// Set the AppArmor profile
    #[arg(long, value_name = "PROFILE")]
    pub apparmor: Option<String>,
    /// Set the SELinux label
    #[arg(long, value_name = "LABEL")]
    pub process_label: Option<String>,
    /// Join an existing cgroup below the container's; with CONTROLLER: of cgroup v1
    #[arg(long, value_name = "[CONTROLLER:]PATH")]
    pub cgroup: Vec<String>,
    /// Run the program even if the container is paused
    #[arg(long)]
    pub ignore_paused: bool,
    /// Pass N file descriptors, from 3 on, to the program
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub preserve_fds: u32,
    /// Accept the option of crun, without effect
    #[arg(long, hide = true)]
    pub no_subreaper: bool,
    /// The container
    #[arg(value_name = "ID")]
    pub id: String,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    pub argv: Vec<OsString>,
}

/// How lists look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ListFormat {
    /// Columns.
    Table,
    /// JSON.
    Json,
}

/// `saggar list`.
#[derive(Debug, Args)]
pub struct ContainerListArgs {
    /// Set the output format: table or json
    #[arg(long, short, value_name = "FORMAT", default_value = "table")]
    pub format: ListFormat,
    /// Print only ids
    #[arg(long, short)]
    pub quiet: bool,
}

/// `saggar ps`.
#[derive(Debug, Args)]
pub struct PsArgs {
    /// Set the output format: table or json
    #[arg(long, short, value_name = "FORMAT", default_value = "table")]
    pub format: ListFormat,
    /// The container
    #[arg(value_name = "ID")]
    pub id: String,
    /// Options of ps(1) [default: a table like ps -ef]
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTION OF ps")]
    pub options: Vec<OsString>,
}

/// `saggar update`.
#[derive(Debug, Args)]
pub struct UpdateArgs {
    /// Read linux.resources from a JSON file, or - for standard input; other options are then ignored
    #[arg(long, short, value_name = "FILE")]
    pub resources: Option<PathBuf>,
    /// Set the block I/O weight, 10 to 1000
    #[arg(long, value_name = "N")]
    pub blkio_weight: Option<u16>,
    /// Set the period of the CPU quota, in microseconds
    #[arg(long, value_name = "N")]
    pub cpu_period: Option<u64>,
    /// Limit CPU time in each period, in microseconds; -1 for no limit
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub cpu_quota: Option<i64>,
    /// Limit the CPU time that can be accumulated, in microseconds
    #[arg(long, value_name = "N")]
    pub cpu_burst: Option<u64>,
    /// Set the CPU weight
    #[arg(long, visible_alias = "cpu-shares", value_name = "N")]
    pub cpu_share: Option<u64>,
    /// Set the period of real-time scheduling, in microseconds
    #[arg(long, value_name = "N")]
    pub cpu_rt_period: Option<u64>,
    /// Limit real-time CPU time in each period, in microseconds
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub cpu_rt_runtime: Option<i64>,
    /// Set whether all processes are SCHED_IDLE: 0 or 1
    #[arg(long, value_name = "N")]
    pub cpu_idle: Option<i64>,
    /// Set the allowed CPUs, e.g. 0-2,5
    #[arg(long, value_name = "LIST")]
    pub cpuset_cpus: Option<String>,
    /// Set the allowed memory nodes
    #[arg(long, value_name = "LIST")]
    pub cpuset_mems: Option<String>,
    /// Limit memory, in bytes; -1 for no limit
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, allow_negative_numbers = true)]
    pub memory: Option<i64>,
    /// Set the memory reservation (soft limit), in bytes
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, allow_negative_numbers = true)]
    pub memory_reservation: Option<i64>,
    /// Limit memory and swap together, in bytes; -1 for no limit
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, allow_negative_numbers = true)]
    pub memory_swap: Option<i64>,
    /// Accept the option of crun, without effect: kernels no longer have this limit
    #[arg(long, hide = true, value_name = "BYTES", allow_negative_numbers = true)]
    pub kernel_memory: Option<i64>,
    /// Accept the option of crun, without effect
    #[arg(long, hide = true, value_name = "BYTES", allow_negative_numbers = true)]
    pub kernel_memory_tcp: Option<i64>,
    /// Limit the number of processes; -1 for no limit
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub pids_limit: Option<i64>,
    /// Set the L3 cache schema of intelRdt
    #[arg(long, value_name = "SCHEMA")]
    pub l3_cache_schema: Option<String>,
    /// Set the memory bandwidth schema of intelRdt
    #[arg(long, value_name = "SCHEMA")]
    pub mem_bw_schema: Option<String>,
    /// The container
    #[arg(value_name = "ID")]
    pub id: String,
}

/// `saggar events`.
#[derive(Debug, Args)]
pub struct EventsArgs {
    /// Print statistics once and exit
    #[arg(long)]
    pub stats: bool,
    /// Set the interval between statistics, e.g. 5s
    #[arg(long, value_name = "DURATION", default_value = "5s")]
    pub interval: TimeSpan,
    /// The container
    #[arg(value_name = "ID")]
    pub id: String,
}

/// `saggar features`.
#[derive(Debug, Args)]
pub struct FeaturesArgs {}

/// `saggar spec`.
#[derive(Debug, Args)]
pub struct SpecArgs {
    /// Write config.json to DIR
    #[arg(long, short, value_name = "DIR", default_value = ".")]
    pub bundle: PathBuf,
}

/// The command line of a verb, without the rest of saggar's; `None` when it is none, or asks for something else
/// first. `args` begins with the program's name.
pub fn parse(args: &[OsString]) -> Option<Result<OciCommand, clap::Error>> {
    let at = find_verb(args)?;
    let verb = args[at].to_str()?;
    let words = || args.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, word)| word);
    macro_rules! verbs {
        ($($name:literal => $variant:ident),+ $(,)?) => {
            match verb {
                "checkpoint" | "restore" => Some(Err(clap::Error::raw(ErrorKind::InvalidSubcommand, NO_CHECKPOINTS))),
                "mounts" => Some(Err(clap::Error::raw(ErrorKind::InvalidSubcommand, NO_MOUNTS))),
                $($name => Some(parse_verb($name, words()).map(|verb| OciCommand::$variant(Box::new(verb)))),)+
                _ => None,
            }
        };
    }
    verbs! {
        "create" => Create, "start" => Start, "state" => State, "kill" => Kill, "delete" => Delete,
        "run" => Run, "exec" => Exec, "list" => List, "ps" => Ps, "pause" => Pause, "resume" => Resume,
        "update" => Update, "events" => Events, "features" => Features, "spec" => Spec,
    }
}

fn parse_verb<'a, A: Args>(
    name: &'static str,
    words: impl Iterator<Item = &'a OsString>,
) -> Result<OciVerb<A>, clap::Error> {
    let command = clap::Command::new(name)
        .bin_name(format!("saggar {name}"))
        .max_term_width(100)
        .args_override_self(true);
    let mut command = OciVerb::<A>::augment_args(command);
    let matches: ArgMatches = command.try_get_matches_from_mut(words)?;
    OciVerb::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// A number of bytes, with or without a suffix of 1024s (`k`, `m`, `g`, `t`); -1 stands for no limit.
fn parse_bytes(text: &str) -> Result<i64, String> {
    let lower = text.to_ascii_lowercase();
    let number = lower.trim_end_matches('b').trim_end_matches('i');
    let (number, shift) = match number.as_bytes().last() {
        Some(b'k') => (&number[..number.len() - 1], 10),
        Some(b'm') => (&number[..number.len() - 1], 20),
        Some(b'g') => (&number[..number.len() - 1], 30),
        Some(b't') => (&number[..number.len() - 1], 40),
        _ => (number, 0),
    };
    let value: i64 = number.parse().map_err(|_| "not a number of bytes".to_owned())?;
    match value.checked_mul(1 << shift) {
        Some(bytes) if bytes >= -1 => Ok(bytes),
        _ => Err("not a number of bytes that fits".to_owned()),
    }
}

/// The index of the verb: the first word that is neither an option of all verbs nor the value of one.
fn find_verb(args: &[OsString]) -> Option<usize> {
    const WITH_VALUE: [&str; 8] = [
        "--root",
        "--log",
        "--log-format",
        "--log-level",
        "--cgroup-manager",
        "--rootless",
        "--criu",
        "--config",
    ];
    const FLAGS: [&str; 2] = ["--debug", "--systemd-cgroup"];
    let mut at = 1;
    loop {
        let word = args.get(at)?.to_str()?;
        if !word.starts_with('-') {
            return Some(at);
        }
        let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        at += match (WITH_VALUE.contains(&name), FLAGS.contains(&name), value) {
            (true, _, None) => 2,
            (true, _, Some(_)) | (_, true, None) => 1,
            _ => return None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    fn parsed(line: &str) -> OciCommand {
        parse(&words(line))
            .unwrap_or_else(|| panic!("{line}: no verb"))
            .unwrap_or_else(|e| panic!("{line}: {e}"))
    }

    /// As containerd's and conmon's shims call a runtime.
    #[test]
    fn the_command_lines_of_the_callers_are_understood() {
        for line in [
            "saggar create --bundle B --pid-file F --console-socket S ID",
            "saggar exec --pid-file F --process P --detach ID",
            "saggar kill ID 9",
            "saggar delete --force ID",
            "saggar update --resources=FILE ID",
            "saggar --root R --log L --log-format json create --bundle B --pid-file F ID",
            "saggar --root R --log L --log-format json ps --format json ID",
            "saggar --root=R --debug --systemd-cgroup update --resources - ID",
            "saggar --cgroup-manager cgroupfs --rootless true --criu /x start ID",
            "saggar start ID --root R --debug",
            "saggar create ID --config F --no-pivot --no-new-keyring --preserve-fds 3",
            "saggar spec --rootless",
            "saggar update ID --memory 64M --memory-swap -1 --cpu-quota -1 --pids-limit -1",
        ] {
            parsed(line);
        }
    }

    #[test]
    fn options_stand_on_either_side_of_the_verb_and_of_the_id() {
        for line in ["saggar --root R state ID", "saggar state --root R ID", "saggar state ID --root R"] {
            let OciCommand::State(verb) = parsed(line) else { panic!("{line}") };
            assert_eq!((verb.args.id.as_str(), verb.global.root), ("ID", Some("R".into())), "{line}");
        }
    }

    #[test]
    fn what_follows_the_program_is_the_programs() {
        let OciCommand::Exec(exec) = parsed("saggar exec -e A=b ID --detach -t sh -c --tty") else {
            panic!()
        };
        assert_eq!(exec.args.argv, ["sh", "-c", "--tty"]);
        assert!(exec.args.detach && exec.args.tty == Some(true));
        let OciCommand::Ps(ps) = parsed("saggar ps ID -ef") else { panic!() };
        assert_eq!(ps.args.options, ["-ef"]);
    }

    #[test]
    fn what_is_no_verb_is_left_to_the_rest() {
        for line in
            ["saggar", "saggar --version", "saggar wrap -- create", "saggar --help create", "saggar --root"]
        {
            assert!(parse(&words(line)).is_none(), "{line}");
        }
        assert!(parse(&words("saggar start")).unwrap().is_err());
        for line in [
            "saggar checkpoint ID",
            "saggar --root R restore ID",
            "saggar checkpoint --help",
            "saggar mounts add ID mounts.json",
        ] {
            assert!(parse(&words(line)).unwrap().unwrap_err().use_stderr(), "{line}");
        }
    }

    #[test]
    fn sizes_have_suffixes_and_bounds() {
        assert_eq!(
            (parse_bytes("-1"), parse_bytes("64M"), parse_bytes("1GiB")),
            (Ok(-1), Ok(64 << 20), Ok(1 << 30))
        );
        for text in ["", "x", "-2", "9223372036854775807k", "k"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }
}
