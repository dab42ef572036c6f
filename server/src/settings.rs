//! Settings of the server. Command-line options take precedence over environment variables with the names that Ash uses
//! (`ASH_…`), and environment variables over the TOML file of `--config`.

use crate::body_limits::BodyLimits;
use crate::error::{Context, Error, Result};
use crate::kubernetes::{KubernetesSettings, KubernetesTable};
use crate::model_apis::{ModelApis, ModelApisTable};
use crate::permission_mode::PermissionMode;
use crate::persisted::SnapshotUrl;
use crate::relay::RelayArguments;
use crate::tls::TlsFiles;
use crate::traces::TraceEndpoint;
use clap::{Parser, Subcommand, ValueEnum};
use serde::Deserialize;
use std::fs::{self, DirBuilder};
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Default maximum size of an attachment, in bytes.
const MAX_ATTACHMENT_SIZE: usize = 10 << 20;

/// Default number of queue items that run at once.
const QUEUE_WORKERS: usize = 4;

/// Defaults of [`SandboxLimits`].
const MAX_SANDBOXES: NonZeroUsize = NonZeroUsize::new(1000).unwrap();
const MAX_WAIT: Duration = Duration::from_secs(10);
const IDLE_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// The command line.
#[derive(Debug, Default, Parser)]
#[command(name = "saggar-server", version, about = "Serve agents in sandboxes over HTTP")]
#[command(args_conflicts_with_subcommands = true)]
pub struct Arguments {
    /// What else the program does than to serve.
    #[command(subcommand)]
    pub mode: Option<Mode>,
    /// Listen on this address [default: 127.0.0.1:4100]
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<SocketAddr>,
    /// Keep all data in DIR [default: /var/lib/saggar-server for root, else ~/.local/state/saggar-server]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Use this database: sqlite://PATH or postgres://USER@HOST/DATABASE [default: a SQLite file in the data directory]
    #[arg(long, value_name = "URL")]
    pub database_url: Option<String>,
    /// Store snapshots of sessions in a directory or a bucket: file:///DIR or s3://BUCKET/PREFIX
    #[arg(long, value_name = "URL")]
    pub snapshot_url: Option<String>,
    /// Accept the API key in FILE in addition to the keys in the database
    #[arg(long, value_name = "FILE")]
    pub api_key_file: Option<PathBuf>,
    /// Serve HTTPS with the certificate in FILE, in PEM; --tls-key names its key
    #[arg(long, value_name = "FILE")]
    pub tls_certificate: Option<PathBuf>,
    /// Use the private key in FILE, in PEM, for TLS
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Accept requests whose Host header contains one of these names
    #[arg(long, value_name = "HOST,…", value_delimiter = ',')]
    pub allowed_hosts: Vec<String>,
    /// Start sandboxes with PROGRAM [default: saggar next to this program, or in PATH]
    #[arg(long, value_name = "PROGRAM")]
    pub saggar: Option<PathBuf>,
    /// Read settings from the TOML file FILE
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Set the format of log lines on standard error [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
    /// Send traces to the OpenTelemetry collector at URL, by OTLP over HTTP
    #[arg(long, value_name = "URL")]
    pub otlp_endpoint: Option<String>,
    /// Print the OpenAPI document of the API to standard output, and exit
    #[arg(long, exclusive = true)]
    pub print_openapi: bool,
}

/// A mode of the program.
#[derive(Debug, Subcommand)]
pub enum Mode {
    /// Relay the sockets of the pods on this node of a Kubernetes cluster
    Relay(RelayArguments),
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Plain text.
    #[default]
    Text,
    /// One JSON object for each line.
    Json,
}

/// The file of `--config`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct SettingsFile {
    listen: Option<SocketAddr>,
    data: Option<PathBuf>,
    database_url: Option<String>,
    snapshot_url: Option<String>,
    api_key_file: Option<PathBuf>,
    #[serde(default)]
    allowed_hosts: Vec<String>,
    #[serde(default)]
    allowed_origins: Vec<String>,
    log_format: Option<LogFormat>,
    otlp_endpoint: Option<String>,
    max_attachment_size: Option<usize>,
    queue_workers: Option<NonZeroUsize>,
    page: Option<bool>,
    #[serde(default)]
    body_limit: BodyLimits,
    #[serde(default)]
    rate_limit: RequestLimits,
    #[serde(default)]
    sandbox: SandboxTable,
    #[serde(default)]
    tls: TlsTable,
    #[serde(default)]
    credentials: ModelApisTable,
    #[serde(default)]
    kubernetes: KubernetesTable,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct TlsTable {
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct SandboxTable {
    program: Option<PathBuf>,
    #[serde(default)]
    options: Vec<String>,
    max: Option<NonZeroUsize>,
    /// In seconds.
    max_wait: Option<u64>,
    /// In seconds.
    idle_timeout: Option<u64>,
    pre_warm: Option<usize>,
    permission_mode: Option<PermissionMode>,
}

/// Limits on sandboxes. The defaults of `max` and `idle_timeout` are those of Ash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SandboxLimits {
    /// Maximum number of sandboxes that run at once.
    pub max: usize,
    /// How long a start waits while all of them work.
    pub max_wait: Duration,
    /// The time without work after which a session loses its sandbox; `None` is never.
    pub idle_timeout: Option<Duration>,
    /// Number of sandboxes that are started ahead of the sessions of each agent, unless its configuration has another.
    pub pre_warm: usize,
}

impl SandboxLimits {
    /// Combines the settings file and the values of `ASH_MAX_SANDBOXES` and `ASH_IDLE_TIMEOUT_MS`.
    fn read(file: &SandboxTable, max: Option<String>, idle_timeout: Option<String>) -> Result<Self> {
        let max = match max {
            Some(max) => {
                max.parse().context(|| format!("invalid ASH_MAX_SANDBOXES={max}: use a number from 1"))?
            }
            None => file.max.unwrap_or(MAX_SANDBOXES),
        };
        let idle_timeout = match idle_timeout {
            Some(time) => Duration::from_millis(time.parse().context(|| {
                format!("invalid ASH_IDLE_TIMEOUT_MS={time}: use a number of milliseconds; 0 is no limit")
            })?),
            None => file.idle_timeout.map_or(IDLE_TIMEOUT, Duration::from_secs),
        };
        Ok(SandboxLimits {
            max: max.get(),
            max_wait: file.max_wait.map_or(MAX_WAIT, Duration::from_secs),
            idle_timeout: Some(idle_timeout).filter(|time| !time.is_zero()),
            pre_warm: file.pre_warm.unwrap_or(0),
        })
    }
}

/// Maximum numbers of requests from one client address in 15 minutes; 0 is no limit. The defaults are those of Ash, but
/// only requests that fail count: a server of many agents may have one client address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RequestLimits {
    /// All requests, except for those below.
    pub requests: u32,
    /// Deployments of agents.
    pub deployments: u32,
    /// Starts of sessions.
    pub sessions: u32,
    /// Whether requests that succeed count too.
    pub count_successful: bool,
}

impl Default for RequestLimits {
    fn default() -> Self {
        RequestLimits { requests: 1500, deployments: 20, sessions: 20, count_successful: false }
    }
}

/// The effective settings.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The address and port to listen on; port 0 lets the kernel choose.
    pub listen: SocketAddr,
    /// The data directory, an absolute path.
    pub data_dir: PathBuf,
    /// The URL of the database; `None` selects the SQLite file in the data directory.
    pub database_url: Option<String>,
    /// The store of snapshots of sessions; `None` keeps them on this machine only.
    pub snapshot_url: Option<SnapshotUrl>,
    /// An API key of the tenant `default`, in addition to the keys in the database.
    pub api_key: Option<String>,
    /// The addresses that keys are sent to which sandboxes do not have.
    pub model_apis: ModelApis,
    /// The key that encrypts credentials; `None` selects the file `credential-key` in the data directory.
    pub credential_key: Option<String>,
    /// The secret of the internal routes; without it, they are disabled.
    pub internal_secret: Option<String>,
    /// Host names that requests may use, besides loopback and the local address.
    pub allowed_hosts: Vec<String>,
    /// Origins of web pages that may use the API, such as `https://app.example`.
    pub allowed_origins: Vec<String>,
    /// Limits on the requests of one client address.
    pub request_limits: RequestLimits,
    /// The path of the program `saggar`; `None` selects the default of [`Program::find`](crate::saggar::Program::find).
    pub saggar: Option<PathBuf>,
    /// Options for each `saggar session create`.
    pub sandbox_options: Vec<String>,
    /// The permission mode of sessions without one.
    pub permission_mode: PermissionMode,
    /// The certificate and the key of the server; without them, connections are not encrypted.
    pub tls: Option<TlsFiles>,
    /// Limits on sandboxes.
    pub sandbox_limits: SandboxLimits,
    /// How pods are created; without it, sessions run on this machine.
    pub kubernetes: Option<KubernetesSettings>,
    /// Maximum number of queue items that run at once.
    pub queue_workers: usize,
    /// Maximum sizes of request bodies.
    pub body_limits: BodyLimits,
    /// Maximum size of an attachment, in bytes.
    pub max_attachment_size: usize,
    /// Whether the web page is served.
    pub page: bool,
    /// The format of log lines on standard error.
    pub log_format: LogFormat,
    /// The collector of traces; without one, none are recorded.
    pub traces: Option<TraceEndpoint>,
}

impl Settings {
    /// Combines the command line, the environment and the settings file.
    ///
    /// # Errors
    /// Fails if a file cannot be read or a value is invalid.
    pub fn read(arguments: Arguments, environment: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let variable = |name: &str| environment(name).filter(|value| !value.is_empty());
        let file = match &arguments.config {
            Some(file) => read_settings_file(file)?,
            None => SettingsFile::default(),
        };
        let data = arguments
            .data
            .or_else(|| variable("ASH_DATA_DIR").map(PathBuf::from))
            .or(file.data)
            .or_else(|| default_data_directory(&variable))
            .ok_or_else(|| {
                Error::new("cannot choose a data directory: HOME is not set; name one with --data")
            })?;
        let api_key = match arguments.api_key_file {
            Some(file) => Some(read_key_file(&file)?),
            None => match (variable("ASH_API_KEY"), file.api_key_file) {
                (Some(key), _) => Some(key),
                (None, Some(file)) => Some(read_key_file(&file)?),
                (None, None) => None,
            },
        };
        let mut allowed_hosts = arguments.allowed_hosts;
        allowed_hosts.extend(file.allowed_hosts);
        let settings = Settings {
            listen: match arguments.listen {
                Some(listen) => listen,
                None => listen_address(variable("ASH_HOST"), variable("ASH_PORT"), file.listen)?,
            },
            data_dir: std::path::absolute(&data)
                .context(|| format!("cannot use data directory {}", data.display()))?,
            database_url: arguments
                .database_url
                .or_else(|| variable("ASH_DATABASE_URL"))
                .or(file.database_url),
            snapshot_url: arguments
                .snapshot_url
                .or_else(|| variable("ASH_SNAPSHOT_URL"))
                .or(file.snapshot_url)
                .map(|url| url.parse())
                .transpose()?,
            api_key,
            model_apis: ModelApis::read(file.credentials, variable)?,
            credential_key: variable("ASH_CREDENTIAL_KEY"),
            internal_secret: variable("ASH_INTERNAL_SECRET"),
            allowed_hosts,
            allowed_origins: allowed_origins(variable("ALLOWED_ORIGINS"), file.allowed_origins)?,
            body_limits: file.body_limit.check()?,
            request_limits: file.rate_limit,
            sandbox_limits: SandboxLimits::read(
                &file.sandbox,
                variable("ASH_MAX_SANDBOXES"),
                variable("ASH_IDLE_TIMEOUT_MS"),
            )?,
            tls: tls_files(
                arguments.tls_certificate.or(file.tls.certificate),
                arguments.tls_key.or(file.tls.key),
            )?,
            saggar: arguments.saggar.or(file.sandbox.program),
            sandbox_options: sandbox_options(file.sandbox.options, variable("ASH_SANDBOX_MEMORY_MB"))?,
            permission_mode: match variable("ASH_PERMISSION_MODE") {
                Some(mode) => mode.parse()?,
                None => file.sandbox.permission_mode.unwrap_or_default(),
            },
            queue_workers: file.queue_workers.map_or(QUEUE_WORKERS, NonZeroUsize::get),
            max_attachment_size: match variable("ASH_MAX_ATTACHMENT_SIZE") {
                Some(size) => attachment_size(&size)?,
                None => file.max_attachment_size.unwrap_or(MAX_ATTACHMENT_SIZE),
            },
            page: match variable("ASH_DASHBOARD_ENABLED") {
                Some(enabled) => enabled
                    .parse()
                    .context(|| format!("invalid ASH_DASHBOARD_ENABLED={enabled}: use true or false"))?,
                None => file.page.unwrap_or(true),
            },
            log_format: arguments.log_format.or(file.log_format).unwrap_or_default(),
            kubernetes: KubernetesSettings::read(file.kubernetes, variable)?,
            traces: TraceEndpoint::choose(arguments.otlp_endpoint, file.otlp_endpoint, variable)?,
        };
        settings.check_pods().map(|()| settings)
    }

    /// Refuses settings of sandboxes that pods do not have.
    fn check_pods(&self) -> Result<()> {
        let conflicts = [
            (
                self.snapshot_url.is_some(),
                "a snapshot store is set: the server has no files of a pod to copy",
            ),
            (!self.sandbox_options.is_empty(), "sandbox.options are those of saggar session create"),
            (self.permission_mode.allows_all_tools(), "bypassPermissions is for sandboxes of this machine"),
        ];
        match conflicts.into_iter().find(|(is_set, _)| *is_set).filter(|_| self.kubernetes.is_some()) {
            Some((_, why)) => Err(Error::new(format!("sessions run in pods (kubernetes.pod), and {why}"))),
            None => Ok(()),
        }
    }

    /// Creates the data directory with mode 0700.
    ///
    /// # Errors
    /// Fails if the directory cannot be created, or if another user owns it or can enter it.
    pub fn create_data_directory(&self) -> Result<PathBuf> {
        let data_dir = &self.data_dir;
        let context = || format!("cannot use data directory {}", data_dir.display());
        DirBuilder::new().recursive(true).mode(0o700).create(data_dir).context(context)?;
        let metadata = fs::metadata(data_dir).context(context)?;
        if metadata.uid() != rustix::process::geteuid().as_raw() {
            return Err(Error::new(format!(
                "{}: it belongs to another user; choose another with --data",
                context()
            )));
        }
        if metadata.permissions().mode() & 0o077 != 0 {
            return Err(Error::new(format!(
                "{}: it is accessible to other users; run chmod 700 {}",
                context(),
                data_dir.display()
            )));
        }
        Ok(data_dir.clone())
    }

    /// The scheme of the server's own URL.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Returns the URL of the database.
    pub fn database_url(&self, data_dir: &Path) -> String {
        match &self.database_url {
            Some(url) => url.clone(),
            None => format!("sqlite://{}?mode=rwc", percent_encoded(&data_dir.join("saggar.db"))),
        }
    }
}

/// A path in a URL: these characters would end it.
fn percent_encoded(path: &Path) -> String {
    path.to_string_lossy().replace('%', "%25").replace('?', "%3F").replace('#', "%23")
}

fn read_settings_file(file: &Path) -> Result<SettingsFile> {
    let text = fs::read_to_string(file).context(|| format!("cannot read settings {}", file.display()))?;
    toml::from_str(&text).context(|| format!("cannot read settings {}", file.display()))
}

/// Reads a key: the first line of a file that only its owner can access.
///
/// # Errors
/// Fails if the file cannot be read, is accessible to others or is empty.
pub(crate) fn read_key_file(file: &Path) -> Result<String> {
    let context = || format!("cannot use key file {}", file.display());
    let metadata = fs::metadata(file).context(context)?;
    if metadata.permissions().mode() & 0o077 != 0 {
        return Err(Error::new(format!(
            "{}: it is accessible to other users; run chmod 600 {}",
            context(),
            file.display()
        )));
    }
    let text = fs::read_to_string(file).context(context)?;
    match text.lines().next().map(str::trim).filter(|key| !key.is_empty()) {
        Some(key) => Ok(key.to_owned()),
        None => Err(Error::new(format!("{}: its first line contains no key", context()))),
    }
}

/// Returns the origins of `ALLOWED_ORIGINS`, a list with commas, and of the file.
fn allowed_origins(variable: Option<String>, file: Vec<String>) -> Result<Vec<String>> {
    let listed = variable.unwrap_or_default();
    let mut origins: Vec<String> = listed.split(',').map(|origin| origin.trim().to_owned()).collect();
    origins.retain(|origin| !origin.is_empty());
    origins.extend(file);
    let is_origin = |origin: &str| {
        let host = origin.split_once("://").map_or("", |(_, host)| host);
        !host.is_empty() && !host.contains('/') && !host.contains('*')
    };
    match origins.iter().find(|origin| !is_origin(origin)) {
        Some(origin) => Err(Error::new(format!(
            "invalid origin {origin:?} in ALLOWED_ORIGINS or allowed_origins: use SCHEME://HOST[:PORT]"
        ))),
        None => Ok(origins),
    }
}

/// Returns the files of TLS: both or none.
fn tls_files(certificate: Option<PathBuf>, key: Option<PathBuf>) -> Result<Option<TlsFiles>> {
    match (certificate, key) {
        (Some(certificate), Some(key)) => Ok(Some(TlsFiles { certificate, key })),
        (None, None) => Ok(None),
        (Some(_), None) => Err(Error::new("a TLS certificate needs a key; name its file with --tls-key")),
        (None, Some(_)) => {
            Err(Error::new("a TLS key needs a certificate; name its file with --tls-certificate"))
        }
    }
}

/// Returns the listening address: `ASH_HOST` and `ASH_PORT` override the file, which overrides loopback.
fn listen_address(
    host: Option<String>,
    port: Option<String>,
    file: Option<SocketAddr>,
) -> Result<SocketAddr> {
    let mut listen = file.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 4100)));
    if let Some(host) = host {
        let address = if host == "localhost" { "127.0.0.1" } else { &host };
        listen.set_ip(address.parse().context(|| format!("invalid ASH_HOST={host}: use an IP address"))?);
    }
    if let Some(port) = port {
        listen.set_port(port.parse().context(|| format!("invalid ASH_PORT={port}: use a port number"))?);
    }
    Ok(listen)
}

fn attachment_size(size: &str) -> Result<usize> {
    size.parse().context(|| format!("invalid ASH_MAX_ATTACHMENT_SIZE={size}: use a number of bytes"))
}

fn default_data_directory(variable: &impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from("/var/lib/saggar-server"));
    }
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join("saggar-server"))
}

/// The options of the file, after the limit of `ASH_SANDBOX_MEMORY_MB`. Refuses those that the server itself sets for each
/// session.
fn sandbox_options(options: Vec<String>, memory: Option<String>) -> Result<Vec<String>> {
    const SET_BY_SERVER: [&str; 10] = [
        "--session",
        "--json",
        "--policy",
        "--id",
        "--bridge-socket",
        "--control-socket",
        "--from",
        "--events",
        "--next-event",
        "--",
    ];
    let is_set = |option: &&String| SET_BY_SERVER.contains(&option.split('=').next().unwrap_or_default());
    match options.iter().find(is_set) {
        Some(option) => Err(Error::new(format!(
            "sandbox.options: the server sets {option} itself; use /etc/saggar/config.toml for a policy"
        ))),
        None => {
            let memory = memory_limit(memory)?;
            let sets_memory = |option: &String| option == "--memory" || option.starts_with("--memory=");
            if memory.is_some() && options.iter().any(sets_memory) {
                return Err(Error::new(
                    "ASH_SANDBOX_MEMORY_MB is set, and sandbox.options has --memory: remove one",
                ));
            }
            Ok(memory.into_iter().chain(options).collect())
        }
    }
}

/// The option for the value of `ASH_SANDBOX_MEMORY_MB`, a number of MiB.
fn memory_limit(value: Option<String>) -> Result<Option<String>> {
    let Some(value) = value else { return Ok(None) };
    let size: NonZeroU32 =
        value.parse().context(|| format!("invalid ASH_SANDBOX_MEMORY_MB={value}: use a number of MiB"))?;
    Ok(Some(format!("--memory={size}M")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arguments: &[&str], variables: &[(&str, &str)]) -> Result<Settings> {
        let arguments = std::iter::once("saggar-server").chain(arguments.iter().copied());
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        Settings::read(Arguments::try_parse_from(arguments).unwrap(), variable)
    }

    fn file(text: &str, mode: u32) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    #[test]
    fn snapshot_store_is_that_of_the_option_the_variable_or_the_file() {
        let file = file("snapshot_url = \"file:///file\"\n", 0o644);
        let config = file.path().to_str().unwrap();
        let directory = |path: &str| Some(SnapshotUrl::Directory(path.into()));
        let variable = [("ASH_SNAPSHOT_URL", "file:///variable"), ("HOME", "/h")];
        let option = ["--config", config, "--snapshot-url", "file:///option"];
        assert_eq!(read(&option, &variable).unwrap().snapshot_url, directory("/option"));
        assert_eq!(read(&option[..2], &variable).unwrap().snapshot_url, directory("/variable"));
        assert_eq!(read(&option[..2], &variable[1..]).unwrap().snapshot_url, directory("/file"));
        assert_eq!(read(&[], &variable[1..]).unwrap().snapshot_url, None);
        let error = read(&[], &[("ASH_SNAPSHOT_URL", "gs://b"), ("HOME", "/h")]).unwrap_err().to_string();
        assert!(error.contains("s3://BUCKET/PREFIX"), "{error}");
    }

    #[test]
    fn default_address_is_loopback() {
        let settings = read(&[], &[("HOME", "/home/ann")]).unwrap();
        assert_eq!(settings.listen.to_string(), "127.0.0.1:4100");
        assert!(settings.api_key.is_none() && settings.allowed_hosts.is_empty());
        assert!(settings.database_url(Path::new("/d")).starts_with("sqlite:///d/saggar.db"));
    }

    #[test]
    fn options_override_variables_and_variables_override_file() {
        let file = file(
            "listen = \"127.0.0.9:9\"\nqueue_workers = 2\ndata = \"/from/file\"\nallowed_hosts = [\"b\"]\n[sandbox]\noptions = [\"--pids\", \"9\"]\n",
            0o644,
        );
        let config = ["--config", file.path().to_str().unwrap()];
        let settings = read(&config, &[("ASH_PORT", "7"), ("ASH_API_KEY", "k")]).unwrap();
        assert_eq!(settings.listen.to_string(), "127.0.0.9:7");
        assert_eq!(settings.data_dir, Path::new("/from/file"));
        assert_eq!((settings.queue_workers, settings.max_attachment_size), (2, 10 << 20));
        assert_eq!((settings.api_key.as_deref(), settings.sandbox_options.len()), (Some("k"), 2));
        let flags =
            [&config[..], &["--listen", "[::1]:5", "--data", "/x", "--allowed-hosts", "a,c"]].concat();
        let settings = read(&flags, &[("ASH_PORT", "7"), ("ASH_DATA_DIR", "/y")]).unwrap();
        assert_eq!(
            (settings.listen.to_string().as_str(), settings.data_dir.as_path()),
            ("[::1]:5", Path::new("/x"))
        );
        assert_eq!(settings.allowed_hosts, ["a", "c", "b"]);
    }

    #[test]
    fn collector_of_traces_is_read() {
        let url = |arguments: &[&str], variables: &[(&str, &str)]| {
            let arguments = [&["--data", "/d"][..], arguments].concat();
            let traces = read(&arguments, variables).unwrap().traces;
            traces.map(|endpoint| endpoint.url().to_owned())
        };
        assert_eq!(url(&[], &[]), None);
        let file = file("otlp_endpoint = \"http://file:4318\"\n", 0o644);
        let config = ["--config", file.path().to_str().unwrap()];
        assert_eq!(url(&config, &[]).as_deref(), Some("http://file:4318/v1/traces"));
        let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://variable")];
        assert_eq!(url(&config, &variables).as_deref(), Some("http://variable/v1/traces"));
        let option = url(&["--otlp-endpoint", "https://option/"], &variables);
        assert_eq!(option.as_deref(), Some("https://option/v1/traces"));
    }

    #[test]
    fn limits_and_origins_are_read() {
        let settings = read(&["--data", "/d"], &[]).unwrap();
        assert_eq!(
            settings.request_limits,
            RequestLimits { requests: 1500, deployments: 20, sessions: 20, count_successful: false }
        );
        assert!(settings.allowed_origins.is_empty());
        let file = file("allowed_origins = [\"http://b:8\"]\n[rate_limit]\nsessions = 0\n", 0o644);
        let arguments = ["--data", "/d", "--config", file.path().to_str().unwrap()];
        let settings = read(&arguments, &[("ALLOWED_ORIGINS", "https://a, ")]).unwrap();
        assert_eq!((settings.request_limits.requests, settings.request_limits.sessions), (1500, 0));
        assert_eq!(settings.allowed_origins, ["https://a", "http://b:8"]);
        for origin in ["*", "a.example", "https://", "https://a/", "https://*.a"] {
            let error = read(&["--data", "/d"], &[("ALLOWED_ORIGINS", origin)]).unwrap_err().to_string();
            assert!(error.contains(origin), "{error}");
        }
    }

    #[test]
    fn limits_of_sandboxes_are_read() {
        let limits = read(&["--data", "/d"], &[]).unwrap().sandbox_limits;
        let defaults = SandboxLimits {
            max: 1000,
            max_wait: Duration::from_secs(10),
            idle_timeout: Some(Duration::from_secs(1800)),
            pre_warm: 0,
        };
        assert_eq!(limits, defaults);
        let file = file("[sandbox]\nmax = 3\nmax_wait = 0\nidle_timeout = 0\npre_warm = 2\n", 0o644);
        let arguments = ["--data", "/d", "--config", file.path().to_str().unwrap()];
        let limits = read(&arguments, &[]).unwrap().sandbox_limits;
        let from_file = SandboxLimits { max: 3, max_wait: Duration::ZERO, idle_timeout: None, pre_warm: 2 };
        assert_eq!(limits, from_file);
        let variables = [("ASH_MAX_SANDBOXES", "5"), ("ASH_IDLE_TIMEOUT_MS", "1500")];
        let limits = read(&arguments, &variables).unwrap().sandbox_limits;
        assert_eq!((limits.max, limits.idle_timeout), (5, Some(Duration::from_millis(1500))));
    }

    #[test]
    fn invalid_values_are_named() {
        let error_text = |arguments: &[&str], variables: &[(&str, &str)]| {
            read(arguments, variables).unwrap_err().to_string()
        };
        assert!(error_text(&[], &[("ASH_PORT", "x"), ("HOME", "/h")]).contains("ASH_PORT=x"));
        let variables = [("ASH_MAX_ATTACHMENT_SIZE", "10M"), ("HOME", "/h")];
        assert!(error_text(&[], &variables).contains("ASH_MAX_ATTACHMENT_SIZE=10M"));
        assert!(error_text(&[], &[("ASH_HOST", "here"), ("HOME", "/h")]).contains("ASH_HOST=here"));
        for variable in
            [("ASH_MAX_SANDBOXES", "0"), ("ASH_IDLE_TIMEOUT_MS", "30m"), ("ASH_DASHBOARD_ENABLED", "no")]
        {
            assert!(error_text(&[], &[variable, ("HOME", "/h")]).contains(variable.0));
        }
        let unknown = file("lisetn = 1\n", 0o644);
        assert!(error_text(&["--config", unknown.path().to_str().unwrap()], &[]).contains("lisetn"));
    }

    #[test]
    fn key_file_readable_by_others_is_rejected() {
        let key = |mode, text| {
            let file = file(text, mode);
            read(&["--data", "/d", "--api-key-file", file.path().to_str().unwrap()], &[])
        };
        assert_eq!(key(0o600, "  secret \nx\n").unwrap().api_key.as_deref(), Some("secret"));
        assert!(key(0o640, "secret").unwrap_err().to_string().contains("accessible to other users"));
        assert!(key(0o600, "\n").unwrap_err().to_string().contains("no key"));
    }

    #[test]
    fn data_directory_open_to_others_is_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("a/b");
        let settings = read(&["--data", data.to_str().unwrap()], &[]).unwrap();
        assert_eq!(
            fs::metadata(settings.create_data_directory().unwrap()).unwrap().permissions().mode() & 0o777,
            0o700
        );
        fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(settings.create_data_directory().unwrap_err().to_string().contains("chmod 700"));
    }
}
