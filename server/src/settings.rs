//! What the server is told: by flags, by variables with the names of the seeds' server (`ASH_…`), and by a TOML file, the
//! earlier of which stands over the later.

use crate::error::{Context, Error, Result};
use clap::{Parser, ValueEnum};
use serde::Deserialize;
use std::fs::{self, DirBuilder};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The flags.
#[derive(Debug, Default, Parser)]
#[command(name = "saggar-server", version, about = "Serve agents in sandboxes over HTTP")]
pub struct Arguments {
    /// Listen on this address [default: 127.0.0.1:4100]
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<SocketAddr>,
    /// Keep all data in DIR [default: /var/lib/saggar-server, or ~/.local/state/saggar-server]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Use this database: sqlite://PATH or postgres://… [default: a SQLite file in the data directory]
    #[arg(long, value_name = "URL")]
    pub database_url: Option<String>,
    /// Accept the API key in FILE, which only its owner can read, beside the keys in the database
    #[arg(long, value_name = "FILE")]
    pub api_key_file: Option<PathBuf>,
    /// Accept requests for these names of the server, beside loopback and the address of the connection
    #[arg(long, value_name = "HOST,…", value_delimiter = ',')]
    pub allowed_hosts: Vec<String>,
    /// Start sandboxes with this program [default: saggar next to this program, or of PATH]
    #[arg(long, value_name = "PROGRAM")]
    pub saggar: Option<PathBuf>,
    /// Read FILE for what no flag and no variable sets
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Set the format of log lines on standard error [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
}

/// How a log line is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// A line of text.
    #[default]
    Text,
    /// A JSON object.
    Json,
}

/// The file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct SettingsFile {
    listen: Option<SocketAddr>,
    data: Option<PathBuf>,
    database_url: Option<String>,
    api_key_file: Option<PathBuf>,
    #[serde(default)]
    allowed_hosts: Vec<String>,
    log_format: Option<LogFormat>,
    #[serde(default)]
    sandbox: SandboxTable,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct SandboxTable {
    program: Option<PathBuf>,
    #[serde(default)]
    options: Vec<String>,
}

/// What the server was told.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where it listens.
    pub listen: SocketAddr,
    /// The data directory.
    pub data: PathBuf,
    /// The database, if not the SQLite file in the data directory.
    pub database_url: Option<String>,
    /// A key of the tenant `default` that is in no database.
    pub api_key: Option<String>,
    /// Names of the server.
    pub allowed_hosts: Vec<String>,
    /// The program `saggar`.
    pub saggar: Option<PathBuf>,
    /// Options of each `saggar session create`.
    pub sandbox_options: Vec<String>,
    /// How log lines are written.
    pub log_format: LogFormat,
}

impl Settings {
    /// Reads the flags, the environment and the file.
    ///
    /// # Errors
    /// A file cannot be read, or a value is not one of its kind.
    pub fn read(arguments: Arguments, environment: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let variable = |name: &str| environment(name).filter(|value| !value.is_empty());
        let file = match &arguments.config {
            Some(file) => read_file(file)?,
            None => SettingsFile::default(),
        };
        let data = arguments
            .data
            .or_else(|| variable("ASH_DATA_DIR").map(PathBuf::from))
            .or(file.data)
            .or_else(|| default_data(&variable))
            .ok_or_else(|| Error::new("there is no directory for data: name one with --data"))?;
        let api_key = match arguments.api_key_file {
            Some(file) => Some(read_key(&file)?),
            None => match (variable("ASH_API_KEY"), file.api_key_file) {
                (Some(key), _) => Some(key),
                (None, Some(file)) => Some(read_key(&file)?),
                (None, None) => None,
            },
        };
        let mut allowed_hosts = arguments.allowed_hosts;
        allowed_hosts.extend(file.allowed_hosts);
        Ok(Settings {
            listen: match arguments.listen {
                Some(listen) => listen,
                None => listen_of(variable("ASH_HOST"), variable("ASH_PORT"), file.listen)?,
            },
            data: std::path::absolute(&data).context(|| format!("data directory {}", data.display()))?,
            database_url: arguments
                .database_url
                .or_else(|| variable("ASH_DATABASE_URL"))
                .or(file.database_url),
            api_key,
            allowed_hosts,
            saggar: arguments.saggar.or(file.sandbox.program),
            sandbox_options: file.sandbox.options,
            log_format: arguments.log_format.or(file.log_format).unwrap_or_default(),
        })
    }

    /// Makes the data directory, which only its owner can enter.
    ///
    /// # Errors
    /// It cannot be made, or another user can write to it.
    pub fn prepare_data(&self) -> Result<PathBuf> {
        let data = &self.data;
        let failed = || format!("data directory {}", data.display());
        DirBuilder::new().recursive(true).mode(0o700).create(data).context(failed)?;
        let metadata = fs::metadata(data).context(failed)?;
        if metadata.uid() != rustix::process::geteuid().as_raw() {
            return Err(Error::new(format!(
                "{} belongs to another user; choose another with --data",
                failed()
            )));
        }
        if metadata.permissions().mode() & 0o077 != 0 {
            return Err(Error::new(format!(
                "{} is open to other users: chmod 700 {}",
                failed(),
                data.display()
            )));
        }
        Ok(data.clone())
    }

    /// The URL of the database.
    pub fn database_url(&self, data: &Path) -> String {
        match &self.database_url {
            Some(url) => url.clone(),
            None => format!("sqlite://{}?mode=rwc", data.join("saggar.db").display()),
        }
    }
}

fn read_file(file: &Path) -> Result<SettingsFile> {
    let text = fs::read_to_string(file).context(|| format!("settings {}", file.display()))?;
    toml::from_str(&text).context(|| format!("settings {}", file.display()))
}

/// The first line of a file that only its owner can read.
fn read_key(file: &Path) -> Result<String> {
    let failed = || format!("API key file {}", file.display());
    let metadata = fs::metadata(file).context(failed)?;
    if metadata.permissions().mode() & 0o077 != 0 {
        return Err(Error::new(format!("{} is open to other users: chmod 600 it", failed())));
    }
    let text = fs::read_to_string(file).context(failed)?;
    match text.lines().next().map(str::trim).filter(|key| !key.is_empty()) {
        Some(key) => Ok(key.to_owned()),
        None => Err(Error::new(format!("{} has no key in its first line", failed()))),
    }
}

/// `ASH_HOST` and `ASH_PORT`, then what the file says, then loopback.
fn listen_of(host: Option<String>, port: Option<String>, file: Option<SocketAddr>) -> Result<SocketAddr> {
    let mut listen = file.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 4100)));
    if let Some(host) = host {
        let address = if host == "localhost" { "127.0.0.1" } else { &host };
        listen.set_ip(address.parse().context(|| format!("ASH_HOST={host}: give an address"))?);
    }
    if let Some(port) = port {
        listen.set_port(port.parse().context(|| format!("ASH_PORT={port}: give a port"))?);
    }
    Ok(listen)
}

fn default_data(variable: &impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from("/var/lib/saggar-server"));
    }
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join("saggar-server"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arguments: &[&str], variables: &[(&str, &str)]) -> Result<Settings> {
        let words = std::iter::once("saggar-server").chain(arguments.iter().copied());
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        Settings::read(Arguments::try_parse_from(words).unwrap(), variable)
    }

    fn file(text: &str, mode: u32) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    #[test]
    fn nothing_set_is_loopback() {
        let settings = read(&[], &[("HOME", "/home/ann")]).unwrap();
        assert_eq!(settings.listen.to_string(), "127.0.0.1:4100");
        assert!(settings.api_key.is_none() && settings.allowed_hosts.is_empty());
        assert!(settings.database_url(Path::new("/d")).starts_with("sqlite:///d/saggar.db"));
    }

    #[test]
    fn a_flag_stands_over_a_variable_and_a_variable_over_the_file() {
        let file = file(
            "listen = \"127.0.0.9:9\"\ndata = \"/from/file\"\nallowed_hosts = [\"b\"]\n[sandbox]\noptions = [\"--pids\", \"9\"]\n",
            0o644,
        );
        let config = ["--config", file.path().to_str().unwrap()];
        let settings = read(&config, &[("ASH_PORT", "7"), ("ASH_API_KEY", "k")]).unwrap();
        assert_eq!(settings.listen.to_string(), "127.0.0.9:7");
        assert_eq!(settings.data, Path::new("/from/file"));
        assert_eq!((settings.api_key.as_deref(), settings.sandbox_options.len()), (Some("k"), 2));
        let flags =
            [&config[..], &["--listen", "[::1]:5", "--data", "/x", "--allowed-hosts", "a,c"]].concat();
        let settings = read(&flags, &[("ASH_PORT", "7"), ("ASH_DATA_DIR", "/y")]).unwrap();
        assert_eq!(
            (settings.listen.to_string().as_str(), settings.data.as_path()),
            ("[::1]:5", Path::new("/x"))
        );
        assert_eq!(settings.allowed_hosts, ["a", "c", "b"]);
    }

    #[test]
    fn bad_values_are_named() {
        let failure = |arguments: &[&str], variables: &[(&str, &str)]| {
            read(arguments, variables).unwrap_err().to_string()
        };
        assert!(failure(&[], &[("ASH_PORT", "x"), ("HOME", "/h")]).contains("ASH_PORT=x"));
        assert!(failure(&[], &[("ASH_HOST", "here"), ("HOME", "/h")]).contains("ASH_HOST=here"));
        let unknown = file("lisetn = 1\n", 0o644);
        assert!(failure(&["--config", unknown.path().to_str().unwrap()], &[]).contains("lisetn"));
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let key = |mode, text| {
            let file = file(text, mode);
            read(&["--data", "/d", "--api-key-file", file.path().to_str().unwrap()], &[])
        };
        assert_eq!(key(0o600, "  secret \nx\n").unwrap().api_key.as_deref(), Some("secret"));
        assert!(key(0o640, "secret").unwrap_err().to_string().contains("open to other users"));
        assert!(key(0o600, "\n").unwrap_err().to_string().contains("no key"));
    }

    #[test]
    fn a_data_directory_that_others_can_enter_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("a/b");
        let settings = read(&["--data", data.to_str().unwrap()], &[]).unwrap();
        assert_eq!(
            fs::metadata(settings.prepare_data().unwrap()).unwrap().permissions().mode() & 0o777,
            0o700
        );
        fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(settings.prepare_data().unwrap_err().to_string().contains("chmod 700"));
    }
}
