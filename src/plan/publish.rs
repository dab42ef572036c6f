//! What of the published ports cannot be.

use super::PROXIES;
use crate::error::{Code, Error, Result};
use crate::spec::policy::hosts::DNS_PORT;
use crate::spec::{Network, Publish, SandboxSpec};

/// The most ports that a sandbox publishes: each is a listening socket or two of its supervisor.
const MOST: usize = 64;

/// Refuses what leads nowhere, or back to saggar itself.
///
/// # Errors
/// [`Code::Invalid`], naming the port.
pub(super) fn check(spec: &SandboxSpec) -> Result<()> {
    let wrong =
        |publish: &Publish, why: String| Err(Error::new(Code::Invalid, format!("publish {publish}: {why}")));
    let Some((first, origin)) = spec.publish.first() else { return Ok(()) };
    if spec.network == Network::Host {
        let why = format!("it is not needed with the network of the host (asked for by {origin})");
        let hint = "the ports of the programs are the host's: leave --publish out, or say --net none";
        return wrong(first, why).map_err(|error| error.hint(hint));
    }
    if let Network::Narrow(narrow) = &spec.network {
        let why = format!("it takes a network namespace, and none is to be had: {}", narrow.why);
        return wrong(first, why).map_err(|error| error.hint("see saggar doctor"));
    }
    if spec.publish.len() > MOST {
        let message = format!("publish {} ports: {MOST} are the most", spec.publish.len());
        return Err(
            Error::new(Code::Invalid, message).hint("one port can lead to many servers behind a proxy")
        );
    }
    for (at, (publish, _)) in spec.publish.iter().enumerate() {
        let mut earlier = spec.publish.iter().take(at).map(|(earlier, _)| earlier);
        if let Some(earlier) = earlier.find(|earlier| earlier.collides(publish)) {
            let hint = "choose another HOSTPORT for one of them, or 0 for any free one";
            let error = wrong(publish, format!("{earlier} has this port of the host already"));
            return error.map_err(|error| error.hint(hint));
        }
        // There saggar itself answers whoever calls: no server can listen, and the call would come back to us.
        if let Network::Policy(rules) = &spec.network
            && (publish.port == DNS_PORT
                || PROXIES.contains(&publish.port)
                || rules.ports().contains(&publish.port))
        {
            let why = format!("the network by policy takes the calls to port {} inside itself", publish.port);
            let hint = "let the server inside listen on another port, or allow no host at this one";
            return wrong(publish, why).map_err(|error| error.hint(hint));
        }
    }
    Ok(())
}
