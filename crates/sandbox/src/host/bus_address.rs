//! Where systemd listens: on a message bus, or on a socket of its own. This module only looks.

use std::path::PathBuf;

/// An address to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusAddress {
    /// The socket path; an abstract socket if it begins with a NUL.
    pub socket: PathBuf,
    /// Whether it is a message bus, which needs a Hello call and destination names.
    pub is_message_bus: bool,
}

/// The unix sockets of a list of server addresses (D-Bus Specification, "Server Addresses").
fn parse_addresses(text: &str) -> Vec<BusAddress> {
    let one = |address: &str| {
        let pairs = address.strip_prefix("unix:")?;
        pairs.split(',').find_map(|pair| {
            let (key, value) = pair.split_once('=')?;
            let value = unescape(value)?;
            match key {
                "path" => Some(PathBuf::from(value)),
                "abstract" => Some(PathBuf::from(format!("\0{value}"))),
                _ => None,
            }
        })
    };
    text.split(';').filter_map(one).map(|socket| BusAddress { socket, is_message_bus: true }).collect()
}

/// Decodes `%HH`.
fn unescape(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

/// The addresses of systemd in order of preference: the message bus, then systemd's own socket for hosts without a bus.
pub fn addresses(user: bool) -> Vec<BusAddress> {
    let variable = if user { "DBUS_SESSION_BUS_ADDRESS" } else { "DBUS_SYSTEM_BUS_ADDRESS" };
    let given = std::env::var(variable).map(|text| parse_addresses(&text)).unwrap_or_default();
    let run = match std::env::var_os("XDG_RUNTIME_DIR").filter(|_| user) {
        Some(directory) => PathBuf::from(directory),
        None if user => PathBuf::from(format!("/run/user/{}", nix::unistd::geteuid())),
        None => PathBuf::from("/run"),
    };
    let bus = run.join(if user { "bus" } else { "dbus/system_bus_socket" });
    let usual = [
        BusAddress { socket: bus, is_message_bus: true },
        BusAddress { socket: run.join("systemd/private"), is_message_bus: false },
    ];
    match given.is_empty() {
        true => usual.into_iter().filter(BusAddress::exists).collect(),
        false => given,
    }
}

impl BusAddress {
    /// Whether there is a socket; of an abstract one that is not known.
    pub fn exists(&self) -> bool {
        self.socket.starts_with("\0") || self.socket.exists()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_paths_and_abstract_names() {
        let sockets =
            |text: &str| parse_addresses(text).into_iter().map(|one| one.socket).collect::<Vec<_>>();
        assert_eq!(
            sockets("unix:path=/run/a%20b,guid=1;tcp:host=x;unix:abstract=/tmp/y"),
            [PathBuf::from("/run/a b"), PathBuf::from("\0/tmp/y")]
        );
        assert_eq!(sockets("unix:path=/a%2"), Vec::<PathBuf>::new());
        assert_eq!(sockets(""), Vec::<PathBuf>::new());
    }
}
