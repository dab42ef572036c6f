//! `saggar remote login`, `logout` and `status`, and which server and key the other commands use.

use super::hidden_input::HiddenInput;
use crate::cli::remote::{LoginArgs, RemoteServerArgs, RemoteShowArgs};
use crate::cmd::{print_raw, print_text};
use crate::error::{Code, Error, Result};
use crate::spec::policy;
use saggar_remote::login::{check_confidential, file_in};
use saggar_remote::{ApiKey, Connection, Login, ServerAddress};
use serde_json::Value;
use std::io::{BufRead, Read, Write};
use std::path::{Path, PathBuf};

/// Maximum size of a key, in bytes, with the line break at its end.
const MAX_KEY: u64 = 4096;
/// The variable with the address.
const URL_VARIABLE: &str = "SAGGAR_REMOTE_URL";
/// The variable with the key.
const KEY_VARIABLE: &str = "SAGGAR_REMOTE_KEY";

/// Connects to the server of the options, the variables or the login, in this order.
pub(super) fn connect(args: &RemoteServerArgs) -> Result<Connection> {
    let saved = Login::load(&login_file()?)?;
    let named =
        args.server.clone().or_else(|| std::env::var(URL_VARIABLE).ok().filter(|url| !url.is_empty()));
    let Some(url) = named.or_else(|| saved.as_ref().map(|login| login.url.clone())) else {
        return Err(Error::new(Code::Usage, "no server is known").hint("saggar remote login URL"));
    };
    let address = ServerAddress::parse(&url)?;
    // A saved key goes to the server that it was saved for, and to no other one.
    let saved = saved.filter(|login| login.url == address.as_str());
    let key = match std::env::var(KEY_VARIABLE).ok().filter(|key| !key.is_empty()) {
        Some(key) => ApiKey::parse(&key)?,
        None => saved.as_ref().map(|login| login.key.clone()).ok_or_else(|| {
            Error::new(Code::Usage, format!("no API key is known for {address}"))
                .hint(format!("saggar remote login {address}, or set {KEY_VARIABLE}"))
        })?,
    };
    let plain_http = args.plain_http || saved.as_ref().is_some_and(|login| login.plain_http);
    check_confidential(&address, plain_http)?;
    let ca_file = args.ca_file.as_deref().or_else(|| saved.as_ref()?.ca_file.as_deref());
    Connection::new(address, &key, ca_file)
}

pub(super) fn login(server: &RemoteServerArgs, args: &LoginArgs) -> Result<u8> {
    if server.server.is_some() {
        return Err(Error::new(Code::Usage, "--server with login: the address is its argument"));
    }
    let address = ServerAddress::parse(&args.url)?;
    check_confidential(&address, server.plain_http)?;
    let ca_file = match &server.ca_file {
        Some(file) => Some(std::path::absolute(file).map_err(|e| Error::system("find the directory", e))?),
        None => None,
    };
    let key = read_key(args.key_file.as_deref())?;
    let connection = Connection::new(address.clone(), &key, ca_file.as_deref())?;
    // Any key may list sessions.
    connection.get(&["api", "sessions"], &[("limit", "1")])?;
    let login = Login { url: address.as_str().to_owned(), key, ca_file, plain_http: server.plain_http };
    let file = login_file()?;
    login.save(&file)?;
    print_text(&format!("logged in to {address}; the key is in {}\n", file.display()))?;
    Ok(0)
}

pub(super) fn logout() -> Result<u8> {
    let removed = Login::remove(&login_file()?)?;
    print_text(if removed {
        "logged out; the key remains valid on the server\n"
    } else {
        "not logged in\n"
    })?;
    Ok(0)
}

pub(super) fn status(server: &Connection, args: &RemoteShowArgs) -> Result<u8> {
    let health = server.get(&["health"], &[])?;
    if args.json {
        print_raw(&super::json_line(&health))?;
        return Ok(0);
    }
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let pool = &health["pool"];
    let rows = [
        ("server", server.address().to_string()),
        ("status", super::shown(&health, "status")),
        ("version", super::shown(&health, "version")),
        ("uptime", format!("{} s", number(&health["uptime"]))),
        ("sessions", format!("{} active", number(&health["activeSessions"]))),
        ("sandboxes", format!("{} of at most {}", number(&pool["total"]), number(&pool["maxCapacity"]))),
    ];
    print_text(&rows.map(|(name, value)| format!("{name:<11} {value}\n")).concat())?;
    Ok(0)
}

/// The file with the login of the user.
fn login_file() -> Result<PathBuf> {
    policy::user_directory().map(|directory| file_in(&directory)).ok_or_else(|| {
        Error::new(Code::Unsupported, "there is no directory for the login")
            .hint("set HOME or XDG_CONFIG_HOME")
    })
}

/// Reads the first line of a file or of standard input; a terminal does not show it.
fn read_key(file: Option<&Path>) -> Result<ApiKey> {
    let mut line = String::new();
    match file {
        Some(file) => {
            let fail = |error| Error::system(format_args!("read {}", file.display()), error);
            let opened = std::fs::File::open(file).map_err(fail)?;
            std::io::BufReader::new(opened.take(MAX_KEY)).read_line(&mut line).map_err(fail)?;
        }
        None => {
            let fail = |error| Error::system("read the key from standard input", error);
            let stdin = std::io::stdin();
            let hidden = HiddenInput::begin();
            if hidden.is_some() {
                let _ = std::io::stderr().write_all(b"API key: ");
            }
            std::io::BufReader::new(stdin.lock().take(MAX_KEY)).read_line(&mut line).map_err(fail)?;
            if hidden.is_some() {
                let _ = std::io::stderr().write_all(b"\n");
            }
        }
    }
    ApiKey::parse(line.trim_end_matches(['\r', '\n']))
}
