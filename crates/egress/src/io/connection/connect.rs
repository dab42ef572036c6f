//! Connects to a host: the choice of the address, and the progress of the connect.

use super::super::address_denial;
use super::super::dial::{self, ConnectProgress};
use super::super::pump::RelayBuffer;
use super::{CONNECT_TIMEOUT, ConnectionNeed, LookupResult, RelayedConnection, RelayedConnectionState};
use mio::net::TcpStream;
use mio::{Interest, Registry};
use saggar_policy::hosts::HostRules;
use std::io::Result;
use std::net::SocketAddr;
use std::time::Instant;

/// Maximum number of addresses of one name to try.
const MAX_TRIES: usize = 6;

impl RelayedConnection {
    /// Takes the result of a lookup for [`ConnectionNeed::Lookup`].
    pub(in crate::io) fn on_lookup_result(&mut self, found: LookupResult) {
        self.state = RelayedConnectionState::LookedUp(found);
    }

    /// Connects to the found addresses that the rules allow.
    pub(super) fn connect_to_found(
        &mut self,
        rules: &HostRules,
        registry: &Registry,
    ) -> Result<ConnectionNeed> {
        let RelayedConnectionState::LookedUp(found) =
            std::mem::replace(&mut self.state, RelayedConnectionState::LookingUp)
        else {
            return Ok(ConnectionNeed::Events);
        };
        let addresses = match found {
            LookupResult::Addresses(addresses) => addresses,
            LookupResult::NoAddress => return Ok(self.deny_unreachable("there is no such name".into())),
            LookupResult::Failed(why) => {
                return Ok(self.deny_unreachable(format!("its name could not be looked up: {why}")));
            }
        };
        let mut wrong = None;
        let mut good: Vec<SocketAddr> = Vec::new();
        for address in &addresses {
            match address_denial(rules, *address, self.port) {
                Some(why) => wrong = Some(why),
                None => good.push(SocketAddr::new(*address, self.port)),
            }
        }
        if good.is_empty() {
            let (why, rule) = wrong.unwrap_or_else(|| ("it has no address".into(), None));
            return Ok(self.deny(why, rule));
        }
        good.sort_by_cached_key(|address| !dial::has_route(*address));
        good.truncate(MAX_TRIES);
        good.reverse();
        self.connect(good, registry)
    }

    /// Connects to the last of these addresses, or on failure to the one before it, and so on.
    pub(super) fn connect(
        &mut self,
        mut addresses: Vec<SocketAddr>,
        registry: &Registry,
    ) -> Result<ConnectionNeed> {
        let mut failure = None;
        while let Some(at) = addresses.pop() {
            match TcpStream::connect(at) {
                Ok(mut stream) => {
                    registry.register(
                        &mut stream,
                        self.host_token,
                        Interest::READABLE | Interest::WRITABLE,
                    )?;
                    dial::configure_host_stream(&stream);
                    let until = Instant::now() + CONNECT_TIMEOUT;
                    self.state = RelayedConnectionState::Connecting {
                        stream,
                        address: at,
                        remaining: addresses,
                        deadline: until,
                    };
                    return Ok(ConnectionNeed::Events);
                }
                Err(error) => failure = Some((at, error)),
            }
        }
        Ok(match failure {
            Some((at, error)) => self.deny_unreachable(format!("connect to {at}: {error}")),
            None => ConnectionNeed::Closed,
        })
    }

    pub(super) fn check_connect(
        &mut self,
        rules: &HostRules,
        buffer: &mut RelayBuffer,
        registry: &Registry,
    ) -> Result<ConnectionNeed> {
        let RelayedConnectionState::Connecting { stream, address: at, remaining: rest, deadline: until } =
            std::mem::replace(&mut self.state, RelayedConnectionState::LookingUp)
        else {
            return Ok(ConnectionNeed::Events);
        };
        let late = || std::io::Error::from(std::io::ErrorKind::TimedOut);
        let failure = match dial::connect_progress(&stream) {
            ConnectProgress::Connected => {
                self.inbound.queue(&std::mem::take(&mut self.success_reply));
                self.state = RelayedConnectionState::Open(stream);
                return self.relay(rules, buffer);
            }
            ConnectProgress::Pending if Instant::now() < until => {
                self.state = RelayedConnectionState::Connecting {
                    stream,
                    address: at,
                    remaining: rest,
                    deadline: until,
                };
                return Ok(ConnectionNeed::Events);
            }
            ConnectProgress::Pending => late(),
            ConnectProgress::Failed(error) => error,
        };
        drop(stream);
        if rest.is_empty() {
            Ok(self.deny_unreachable(format!("connect to {at}: {failure}")))
        } else {
            self.connect(rest, registry)
        }
    }
}
