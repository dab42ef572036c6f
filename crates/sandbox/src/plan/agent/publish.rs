//! Checks the published ports of a sandbox.

use crate::spec::policy::hosts::DNS_PORT;
use crate::spec::policy::publish::PROXY_PORTS;
use crate::spec::{NetworkSpec, PublishedPort, SandboxSpec};
use saggar_sys::error::{Code, Error, Result};

/// The most ports that a sandbox publishes: each is a listening socket or two of its supervisor.
const MAX_PORTS: usize = 64;

/// Rejects published ports that lead nowhere, or back to saggar itself.
///
/// # Errors
/// [`Code::Invalid`] with the port.
pub(super) fn check(spec: &SandboxSpec) -> Result<()> {
    let wrong = |publish: &PublishedPort, why: String| {
        Err(Error::new(Code::Invalid, format!("publish {publish}: {why}")))
    };
    let Some((first, origin)) = spec.published_ports.first() else { return Ok(()) };
    if spec.network == NetworkSpec::Host {
        let why = format!("it is not needed with the network of the host (asked for by {origin})");
        let hint = "the ports of the programs are the host's: leave --publish out, or use --net none";
        return wrong(first, why).map_err(|error| error.hint(hint));
    }
    if let NetworkSpec::RestrictedHost(narrow) = &spec.network {
        let why = format!("it needs a network namespace, and none is available: {}", narrow.reason);
        return wrong(first, why).map_err(|error| error.hint("see saggar doctor"));
    }
    if spec.published_ports.len() > MAX_PORTS {
        let message = format!("publish {} ports: {MAX_PORTS} are the most", spec.published_ports.len());
        return Err(
            Error::new(Code::Invalid, message).hint("one port can lead to many servers behind a proxy")
        );
    }
    for (at, (publish, _)) in spec.published_ports.iter().enumerate() {
        let mut earlier = spec.published_ports.iter().take(at).map(|(earlier, _)| earlier);
        if let Some(earlier) = earlier.find(|earlier| earlier.conflicts_with(publish)) {
            let hint = "choose another HOSTPORT for one of them, or 0 for any free one";
            let error = wrong(publish, format!("{earlier} has this port of the host already"));
            return error.map_err(|error| error.hint(hint));
        }
        // saggar itself accepts connections at these ports: no server can listen there, and a connection would loop
        // back.
        if let NetworkSpec::Policy(rules) = &spec.network
            && (publish.sandbox_port == DNS_PORT
                || PROXY_PORTS.contains(&publish.sandbox_port)
                || rules.reachable_ports().contains(&publish.sandbox_port))
        {
            let why = format!(
                "the network by policy takes the calls to port {} inside itself",
                publish.sandbox_port
            );
            let hint = "let the server inside listen on another port, or allow no host at this one";
            return wrong(publish, why).map_err(|error| error.hint(hint));
        }
    }
    Ok(())
}
