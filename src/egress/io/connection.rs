//! One connection of a program: who is meant, whether that may be, and then its bytes.
//!
//! ```text
//! New ─┬─ a stand-in address ──> Finding ──> Dialling ──> Open
//!      ├─ an address with a rule ──────────────^
//!      ├─ any other ──> Unnamed: its first bytes must name a host ──> Finding
//!      └─ a proxy of ours ──> Proxied: the client says whom it wants ──> Finding, Dialling
//! ```
//! What the program says first is looked at before the host gets it, piece by piece; what the host says is not, and in
//! some protocols it begins.

use super::dial::{self, Dialled};
use super::proxy::{Proxy, Said};
use super::pump::{Flow, Pump, again};
use super::refusals::Refusal;
use super::{name_of, wrong_address};
use crate::egress::address;
use crate::egress::names::Names;
use crate::egress::sniff::{self, Sniffed};
use crate::spec::policy::hosts::{DnsName, Rules, Verdict};
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use std::io::{Read, Result, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// How long a host may take to answer, and a program to say whom it means once it has begun to.
const PATIENCE: Duration = Duration::from_secs(10);
/// Addresses of one name that are tried.
const TRIES: usize = 6;

/// What a lookup has found.
#[derive(Debug, Clone)]
pub(super) enum Found {
    /// These, in the order in which they were told.
    Addresses(Vec<IpAddr>),
    /// There is no such name, or it has no address.
    Nothing,
    /// Nobody could say, and why.
    Failed(String),
}

/// What a connection needs to go on.
#[derive(Debug)]
pub(super) enum Need {
    /// That something happens on one of its streams, or with its lookup.
    Events,
    /// Another turn: it could move more.
    Turn,
    /// The addresses of this name.
    Addresses(DnsName),
    /// Nothing: it is over.
    Nothing,
    /// Nothing: it may not be.
    Refusal(Refusal),
}

/// Where a connection stands.
#[derive(Debug)]
enum State {
    /// Nothing is known but the address that was called.
    New,
    /// The address says nothing: the first bytes must.
    Unnamed,
    /// The client of a proxy has not said whom it wants.
    Proxied,
    /// Its name is looked up.
    Finding,
    /// It was.
    Found(Found),
    /// The host is called; the addresses that are left, the next one last.
    Dialling { stream: TcpStream, at: SocketAddr, rest: Vec<SocketAddr>, until: Instant },
    /// Both speak.
    Open(TcpStream),
}

/// A connection of a program.
#[derive(Debug)]
pub(super) struct Connection {
    client: TcpStream,
    outer: Token,
    meant: IpAddr,
    port: u16,
    name: Option<DnsName>,
    /// Where the client knows that we are between.
    proxy: Option<Proxy>,
    /// The address is that of the proxy.
    called_proxy: bool,
    /// What it hears when its host is there, and when it will not be.
    granted: Vec<u8>,
    farewell: Vec<u8>,
    /// The stand-in address that is not to be given to another name.
    held: Option<IpAddr>,
    state: State,
    /// The program's first bytes, until it is known whom they name; how many of them the host has.
    head: Option<Vec<u8>>,
    passed: usize,
    head_until: Option<Instant>,
    client_ended: bool,
    out: Pump,
    back: Pump,
    broken: bool,
}

impl Connection {
    /// Takes a connection over that called this address and port.
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    pub(super) fn new(
        mut client: TcpStream,
        meant: IpAddr,
        port: u16,
        registry: &Registry,
        (inner, outer): (Token, Token),
    ) -> Result<Self> {
        dial::to_program(&client);
        registry.register(&mut client, inner, Interest::READABLE | Interest::WRITABLE)?;
        Ok(Connection {
            client,
            outer,
            meant,
            port,
            name: None,
            proxy: None,
            called_proxy: false,
            granted: Vec::new(),
            farewell: Vec::new(),
            held: None,
            state: State::New,
            head: Some(Vec::new()),
            passed: 0,
            head_until: None,
            client_ended: false,
            out: Pump::default(),
            back: Pump::default(),
            broken: false,
        })
    }

    /// When it has waited long enough for what it waits for.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Dialling { until, .. } => Some(*until),
            _ => self.head_until,
        }
    }

    /// Whether something that the program has sent is still on its way.
    pub(super) fn has_unsent(&self) -> bool {
        !self.out.is_over()
    }

    /// Goes as far as it goes now.
    pub(super) fn go_on(
        &mut self,
        rules: &Rules,
        names: &mut Names,
        chunk: &mut [u8],
        registry: &Registry,
    ) -> Need {
        let went = match self.state {
            State::New => self.begin(rules, names, registry),
            State::Unnamed => self.learn_name(rules, chunk),
            State::Proxied => self.hear_client(rules, chunk),
            State::Finding => Ok(Need::Events),
            State::Found(_) => self.choose(rules, registry),
            State::Dialling { .. } => self.dial(rules, chunk, registry),
            State::Open(_) => self.relay(rules, chunk),
        };
        went.unwrap_or_else(|_| {
            self.broken = true;
            Need::Nothing
        })
    }

    /// Its streams end, and what it held is free again.
    pub(super) fn end(self, names: &mut Names) {
        if let Some(held) = self.held {
            names.release(held);
        }
        let whole = matches!(self.state, State::Open(_)) && !self.broken;
        if !self.farewell.is_empty() {
            // A few bytes on a stream that has taken nearly nothing yet.
            let _ = (&self.client).write(&self.farewell);
        } else if !whole {
            dial::reset(self.client);
            if let State::Open(stream) = self.state {
                dial::reset(stream);
            }
        }
    }

    fn begin(&mut self, rules: &Rules, names: &mut Names, registry: &Registry) -> Result<Need> {
        if self.meant.is_loopback() && self.proxy.is_none() {
            self.proxy = Proxy::on(self.port);
            if self.proxy.is_some() {
                self.called_proxy = true;
                self.state = State::Proxied;
                self.head_until = Some(Instant::now() + PATIENCE);
                return Ok(Need::Turn);
            }
        }
        if Names::is_synthetic(self.meant) {
            let Some(name) = names.name_of(self.meant).and_then(name_of) else {
                return Ok(self.refuse("this address stands for no name any more".into(), None));
            };
            if !names.hold(self.meant) {
                return Ok(self.refuse("too many names are in use".into(), None));
            }
            self.held = Some(self.meant);
            return Ok(self.by_name(name, rules));
        }
        match rules.address(self.meant, self.port) {
            Verdict::Denied(rule) => {
                let rule = rule.to_string();
                Ok(self.refuse("it is denied".into(), Some(rule)))
            }
            Verdict::Allowed(_) => match wrong_address(rules, self.meant, self.port) {
                Some((why, rule)) => Ok(self.refuse(why, rule)),
                None => self.call(vec![SocketAddr::new(self.meant, self.port)], registry),
            },
            // The client of a proxy says nothing to its host before that is there.
            Verdict::Unnamed if self.proxy.is_some() => Ok(self.refuse("no rule names it".into(), None)),
            Verdict::Unnamed => {
                self.state = State::Unnamed;
                self.head_until = Some(Instant::now() + PATIENCE);
                Ok(Need::Turn)
            }
        }
    }

    /// The name is known now; whether it may be called.
    fn by_name(&mut self, name: DnsName, rules: &Rules) -> Need {
        let verdict = match rules.name(&name, self.port) {
            Verdict::Allowed(_) => None,
            Verdict::Denied(rule) => Some(("it is denied", Some(rule.to_string()))),
            Verdict::Unnamed => Some(("no rule names it with this port", None)),
        };
        self.name = Some(name.clone());
        match verdict {
            Some((why, rule)) => self.refuse(why.into(), rule),
            None => {
                self.state = State::Finding;
                self.head_until = None;
                Need::Addresses(name)
            }
        }
    }

    /// Reads what the program says first. An address without a rule needs a name that has one.
    fn learn_name(&mut self, rules: &Rules, chunk: &mut [u8]) -> Result<Need> {
        const NO_RULE: &str = "no rule names this address, and the connection names no host";
        let more = self.read_head(chunk)?;
        match self.head.as_deref().map_or(Sniffed::More, sniff::sniff) {
            Sniffed::More if self.client_ended || self.is_late() => Ok(self.refuse(NO_RULE.into(), None)),
            Sniffed::More if more => Ok(Need::Turn),
            Sniffed::More => Ok(Need::Events),
            Sniffed::Name { name, .. } => match name_of(&name) {
                Some(name) => Ok(self.by_name(name, rules)),
                None => Ok(self.refuse(NO_RULE.into(), None)),
            },
            Sniffed::Nameless(_) => Ok(self.refuse(NO_RULE.into(), None)),
            Sniffed::Wrong(why) => Ok(self.refuse(why.into(), None)),
        }
    }

    /// Hears the client of a proxy until it has said whom it wants.
    fn hear_client(&mut self, rules: &Rules, chunk: &mut [u8]) -> Result<Need> {
        let more = self.read_head(chunk)?;
        let is_over = self.client_ended || self.is_late();
        let (Some(proxy), Some(head)) = (&mut self.proxy, &mut self.head) else { return Ok(Need::Nothing) };
        match proxy.hear(head) {
            Said::More if is_over => Ok(Need::Nothing),
            Said::More if more => Ok(Need::Turn),
            Said::More => Ok(Need::Events),
            Said::Greeting { consumed, answer } => {
                head.drain(..consumed.min(head.len()));
                // Far less than any buffer for it.
                (&self.client).write_all(&answer)?;
                Ok(Need::Turn)
            }
            Said::Wrong(why) => Ok(self.refuse(why.into(), None)),
            Said::Host { consumed, host, port, request } => {
                head.drain(..consumed.min(head.len()));
                match request {
                    None => self.granted = proxy.granted(),
                    Some(request) => {
                        self.out.push(&request);
                        self.out.push(head);
                        self.head = None;
                        if self.client_ended {
                            self.out.end();
                        }
                    }
                }
                self.head_until = None;
                self.port = port;
                if let Ok(address) = host.parse() {
                    self.meant = address::plain(address);
                    self.called_proxy = false;
                    self.state = State::New;
                    return Ok(Need::Turn);
                }
                match name_of(&host) {
                    Some(name) => Ok(self.by_name(name, rules)),
                    None => Ok(self.refuse("it is no name of a host".into(), None)),
                }
            }
        }
    }

    /// Takes what a lookup has found for [`Need::Addresses`].
    pub(super) fn found(&mut self, found: Found) {
        self.state = State::Found(found);
    }

    /// Calls the addresses of its name that may be called.
    fn choose(&mut self, rules: &Rules, registry: &Registry) -> Result<Need> {
        let State::Found(found) = std::mem::replace(&mut self.state, State::Finding) else {
            return Ok(Need::Events);
        };
        let addresses = match found {
            Found::Addresses(addresses) => addresses,
            Found::Nothing => return Ok(self.refuse("there is no such name".into(), None)),
            Found::Failed(why) => {
                return Ok(self.refuse(format!("its name could not be looked up: {why}"), None));
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
    fn call(&mut self, mut addresses: Vec<SocketAddr>, registry: &Registry) -> Result<Need> {
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
            Some((at, error)) => self.refuse(format!("connect to {at}: {error}"), None),
            None => Need::Nothing,
        })
    }

    fn dial(&mut self, rules: &Rules, chunk: &mut [u8], registry: &Registry) -> Result<Need> {
        let State::Dialling { stream, at, rest, until } = std::mem::replace(&mut self.state, State::Finding)
        else {
            return Ok(Need::Events);
        };
        let late = || std::io::Error::from(std::io::ErrorKind::TimedOut);
        let failure = match dial::progress(&stream) {
            Dialled::Stands => {
                self.back.push(&std::mem::take(&mut self.granted));
                self.state = State::Open(stream);
                return self.relay(rules, chunk);
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
            Ok(self.refuse(format!("connect to {at}: {failure}"), None))
        } else {
            self.call(rest, registry)
        }
    }

    /// Moves bytes.
    fn relay(&mut self, rules: &Rules, chunk: &mut [u8]) -> Result<Need> {
        if let Some(refusal) = self.pass_head(rules, chunk)? {
            return Ok(refusal);
        }
        let State::Open(host) = &self.state else { return Ok(Need::Events) };
        let out = match self.head {
            Some(_) => Flow::Waits,
            None => self.out.flow(&self.client, host, chunk)?,
        };
        // What a host has said before it takes nothing more may be why.
        let out = if out == Flow::Refused { self.out.give_up() } else { out };
        let back = self.back.flow(host, &self.client, chunk)?;
        Ok(match (out, back) {
            (_, Flow::Refused) => {
                self.broken = true;
                Need::Nothing
            }
            (Flow::Over, Flow::Over) => Need::Nothing,
            (Flow::Goes, _) | (_, Flow::Goes) => Need::Turn,
            _ => Need::Events,
        })
    }

    /// Passes on what the program says first, each piece when all up to its end names nobody else: whoever names
    /// another host never gets to the end of its request. Nothing is held back, since it may be a protocol that says
    /// little before it hears something.
    fn pass_head(&mut self, rules: &Rules, chunk: &mut [u8]) -> Result<Option<Need>> {
        loop {
            let State::Open(host) = &self.state else { return Ok(None) };
            let Some(length) = self.head.as_ref().map(Vec::len) else { return Ok(None) };
            match self.out.write(host) {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(_) => {
                    self.head = None;
                    self.out.give_up();
                    return Ok(None);
                }
            }
            if length == self.passed && !self.client_ended && !self.read_head(chunk)? {
                return Ok(None);
            }
            let decided = match self.judge_head(rules) {
                Ok(decided) => decided,
                Err(refusal) => return Ok(Some(refusal)),
            };
            let head = self.head.as_deref().unwrap_or_default();
            self.out.push(head.get(self.passed..).unwrap_or_default());
            self.passed = head.len();
            if decided {
                self.head = None;
                if self.client_ended {
                    self.out.end();
                }
            }
        }
    }

    /// Whether the first bytes have named the host that is called, or nobody; not yet, where that may come.
    fn judge_head(&mut self, rules: &Rules) -> std::result::Result<bool, Need> {
        let mut head = self.head.as_deref().unwrap_or_default();
        // For many servers a head ends where the stream does.
        let ended = if self.client_ended { [head, b"\r\n\r\n"].concat() } else { Vec::new() };
        let first = match sniff::sniff(head) {
            Sniffed::More if self.client_ended => {
                head = &ended;
                sniff::sniff(head)
            }
            first => first,
        };
        let (protocol, name) = match first {
            Sniffed::More => return Ok(self.client_ended),
            Sniffed::Wrong(why) => return Err(self.refuse(why.into(), None)),
            Sniffed::Nameless(protocol) => (protocol, None),
            Sniffed::Name { protocol, name } => (protocol, Some(name)),
        };
        let further = sniff::sniff_on(head, protocol);
        if let Some(name) = name {
            self.judge_name(&name, rules)?;
        }
        match further {
            None | Some(Sniffed::Nameless(_)) => Ok(true),
            Some(Sniffed::More) => Ok(self.client_ended),
            Some(Sniffed::Wrong(why)) => Err(self.refuse(why.into(), None)),
            Some(Sniffed::Name { name, .. }) => self.judge_name(&name, rules).map(|()| true),
        }
    }

    /// Refuses a connection that names another host than the one that is called, or one that is denied.
    fn judge_name(&mut self, said: &str, rules: &Rules) -> std::result::Result<(), Need> {
        match (&self.name, name_of(said)) {
            (Some(name), _) if name.as_str() == said => Ok(()),
            (Some(_), _) => Err(self.refuse(format!("the connection names another host, {said}"), None)),
            // The address has a rule; a rule against the name stands above it.
            (None, Some(said)) => match rules.name(&said, self.port) {
                Verdict::Denied(rule) => {
                    let rule = rule.to_string();
                    self.name = Some(said);
                    Err(self.refuse("it is denied".into(), Some(rule)))
                }
                Verdict::Allowed(_) | Verdict::Unnamed => Ok(()),
            },
            (None, None) if said.parse::<IpAddr>().is_ok() => Ok(()),
            (None, None) => {
                Err(self.refuse(format!("the connection names {said}, which is no name of a host"), None))
            }
        }
    }

    /// Takes in some of what the program says first; whether there was something, or the end of it.
    fn read_head(&mut self, chunk: &mut [u8]) -> Result<bool> {
        let mut client = &self.client;
        match again(|| client.read(chunk))? {
            None => return Ok(false),
            Some(0) => self.client_ended = true,
            Some(count) => {
                self.head.get_or_insert_default().extend_from_slice(chunk.get(..count).unwrap_or_default());
            }
        }
        Ok(true)
    }

    fn is_late(&self) -> bool {
        self.head_until.is_some_and(|until| until <= Instant::now())
    }

    fn refuse(&mut self, why: String, rule: Option<String>) -> Need {
        let name = self.name.as_ref().map(|name| name.as_str().to_owned());
        // A stand-in says nothing to anybody outside, nor where our own proxy is.
        let stands_in = Names::is_synthetic(self.meant) || self.called_proxy;
        let address = Some(self.meant).filter(|_| !stands_in);
        let refusal = Refusal { name, address, port: Some(self.port), why, rule, ..Refusal::default() };
        self.broken = true;
        if let Some(proxy) = self.proxy.as_ref().filter(|_| !matches!(self.state, State::Open(_))) {
            self.farewell = proxy.refused(&refusal.to_string());
        }
        Need::Refusal(refusal)
    }
}
