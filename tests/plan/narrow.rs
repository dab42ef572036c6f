//! What stands for the network wall where no namespace is to be had.

use saggar::host::HostFacts;
use saggar::plan::agent::step::AgentStep;
use saggar::plan::agent::{self as plan, AgentPlan};
use saggar::spec::policy::SandboxProfile;
use saggar::spec::{NetworkSpec, RestrictedHostNetwork};
use saggar::sys::landlock::{BIND_TCP, CONNECT_TCP};

use super::{USER, host, spec};

/// The plan with such a network, on a kernel with this landlock ABI.
fn plan(profile: SandboxProfile, abi: u32, narrow: &RestrictedHostNetwork) -> Result<AgentPlan, String> {
    let mut spec = spec(profile, USER);
    spec.network = NetworkSpec::RestrictedHost(narrow.clone());
    plan::build(&spec, &HostFacts { landlock_abi: abi, ..host() }).map_err(|error| error.to_string())
}

fn narrow(ports: &[u16]) -> RestrictedHostNetwork {
    RestrictedHostNetwork {
        ports: ports.to_vec(),
        reason: "not here".to_owned(),
        unix_sockets: false,
        unix_listeners: false,
    }
}

/// The filters that are loaded before pid 1's own, by name.
fn filters(plan: &AgentPlan) -> Vec<&'static str> {
    let steps = plan.steps.as_slice();
    assert_eq!(steps.last(), Some(&AgentStep::Seccomp));
    let name = |step: &AgentStep| match step {
        AgentStep::RestrictHostNetwork(narrowing) => Some(narrowing.describe().name),
        _ => None,
    };
    steps.iter().filter_map(name).collect()
}

#[test]
fn landlock_and_a_filter_take_the_place_of_the_namespace() {
    for profile in [SandboxProfile::Strict, SandboxProfile::Nesting] {
        let plan = plan(profile, 6, &narrow(&[80, 443])).unwrap();
        assert_eq!(plan.namespaces & u64::from(libc::CLONE_NEWNET.cast_unsigned()), 0);
        assert!(
            !plan
                .steps
                .as_slice()
                .iter()
                .any(|step| matches!(step, AgentStep::MakeNetwork | AgentStep::JoinNetwork))
        );
        let domain = plan.landlock.as_ref().unwrap();
        assert_eq!(
            (domain.attr.access_net, domain.ports.as_slice()),
            (BIND_TCP | CONNECT_TCP, &[80, 443][..])
        );
        assert_eq!(domain.attr.scoped, 0b11);
        assert_eq!(filters(&plan), ["tcp"]);
        let degraded = plan.degraded.iter().find(|one| one.name == "network").unwrap();
        assert_eq!(
            degraded.reason,
            "no network namespace is available (not here): TCP to ports 80, 443 of any host is open instead, this \
             machine among them, and nothing listens"
        );
    }
}

#[test]
fn without_ports_a_filter_is_enough() {
    for (abi, expected) in [
        (7, vec!["offline"]),
        (6, vec!["offline"]),
        (5, vec!["offline", "pairs"]),
        (1, vec!["offline", "pairs"]),
    ] {
        let plan = plan(SandboxProfile::Strict, abi, &narrow(&[])).unwrap();
        assert_eq!(filters(&plan), expected, "ABI {abi}");
        let handled = if abi >= 4 { BIND_TCP | CONNECT_TCP } else { 0 };
        assert_eq!(plan.landlock.unwrap().attr.access_net, handled, "ABI {abi}");
    }
}

/// A wall that the kernel does not have is not left out.
#[test]
fn network_restriction_without_kernel_support_is_refused() {
    assert_eq!(filters(&plan(SandboxProfile::Strict, 4, &narrow(&[443])).unwrap()), ["tcp", "pairs"]);
    for (abi, what, word) in [
        (3, narrow(&[443]), "ABI 4 (Linux 6.7), which is 3 here"),
        (5, RestrictedHostNetwork { unix_sockets: true, ..narrow(&[]) }, "programs get no unix sockets"),
        (5, RestrictedHostNetwork { unix_listeners: true, ..narrow(&[]) }, "programs get no unix sockets"),
        (7, RestrictedHostNetwork { unix_listeners: true, ..narrow(&[443]) }, "programs cannot listen"),
    ] {
        let error = plan(SandboxProfile::Strict, abi, &what).unwrap_err();
        assert!(error.contains(word) && error.contains("not here"), "{error}");
    }
    for fine in [
        RestrictedHostNetwork { unix_sockets: true, ..narrow(&[443]) },
        RestrictedHostNetwork { unix_listeners: true, ..narrow(&[]) },
    ] {
        plan(SandboxProfile::Strict, 6, &fine).unwrap();
    }
}
