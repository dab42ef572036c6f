//! The call to a host: which of its addresses, and whether somebody answers.

use super::super::dial::{self, Dialled};
use super::super::pump::Room;
use super::super::wrong_address;
use super::{Connection, Found, Need, PATIENCE, State};
use crate::spec::policy::hosts::Rules;
use mio::net::TcpStream;
use mio::{Interest, Registry};
use std::io::Result;
use std::net::SocketAddr;
use std::time::Instant;

/// Addresses of one name that are tried.
const TRIES: usize = 6;

impl Connection {
    /// Takes what a lookup has found for [`Need::Addresses`].
    pub(in crate::egress::io) fn found(&mut self, found: Found) {
        self.state = State::Found(found);
    }

    /// Calls the addresses of its name that may be called.
    pub(super) fn choose(&mut self, rules: &Rules, registry: &Registry) -> Result<Need> {
        let State::Found(found) = std::mem::replace(&mut self.state, State::Finding) else {
            return Ok(Need::Events);
        };
        let addresses = match found {
            Found::Addresses(addresses) => addresses,
            Found::Nothing => return Ok(self.unreachable("there is no such name".into())),
            Found::Failed(why) => {
                return Ok(self.unreachable(format!("its name could not be looked up: {why}")));
            }
        };
        let mut wrong = None;
        let mut good: Vec<SocketAddr> = Vec::new();
        for address in &addresses {
            match wrong_address(rules, *address, self.port) {
                Some(why) => wrong = Some(why),
                None => good.push(SocketAddr::new(*address, self.port)),
            }
        }
        if good.is_empty() {
            let (why, rule) = wrong.unwrap_or_else(|| ("it has no address".into(), None));
            return Ok(self.refuse(why, rule));
        }
        good.sort_by_cached_key(|address| !dial::has_route(*address));
        good.truncate(TRIES);
        good.reverse();
        self.call(good, registry)
    }

    /// Calls the last of these, or the one before it, and so on.
    pub(super) fn call(&mut self, mut addresses: Vec<SocketAddr>, registry: &Registry) -> Result<Need> {
        let mut failure = None;
        while let Some(at) = addresses.pop() {
            match TcpStream::connect(at) {
                Ok(mut stream) => {
                    registry.register(&mut stream, self.outer, Interest::READABLE | Interest::WRITABLE)?;
                    dial::to_host(&stream);
                    let until = Instant::now() + PATIENCE;
                    self.state = State::Dialling { stream, at, rest: addresses, until };
                    return Ok(Need::Events);
                }
                Err(error) => failure = Some((at, error)),
            }
        }
        Ok(match failure {
            Some((at, error)) => self.unreachable(format!("connect to {at}: {error}")),
            None => Need::Nothing,
        })
    }

    pub(super) fn dial(&mut self, rules: &Rules, room: &mut Room, registry: &Registry) -> Result<Need> {
        let State::Dialling { stream, at, rest, until } = std::mem::replace(&mut self.state, State::Finding)
        else {
            return Ok(Need::Events);
        };
        let late = || std::io::Error::from(std::io::ErrorKind::TimedOut);
        let failure = match dial::progress(&stream) {
            Dialled::Stands => {
                self.back.push(&std::mem::take(&mut self.granted));
                self.state = State::Open(stream);
                return self.relay(rules, room);
            }
            Dialled::Waits if Instant::now() < until => {
                self.state = State::Dialling { stream, at, rest, until };
                return Ok(Need::Events);
            }
            Dialled::Waits => late(),
            Dialled::Failed(error) => error,
        };
        drop(stream);
        if rest.is_empty() {
            Ok(self.unreachable(format!("connect to {at}: {failure}")))
        } else {
            self.call(rest, registry)
        }
    }
}
