//! What stands for the network wall where no namespace is to be had.

use saggar::host::Host;
use saggar::plan::step::Step;
use saggar::plan::{self, Plan};
use saggar::spec::policy::Profile;
use saggar::spec::{Narrow, Network};
use saggar::sys::landlock::{BIND_TCP, CONNECT_TCP};

use super::{USER, host, spec};

/// The plan with such a network, on a kernel with this landlock ABI.
fn plan(profile: Profile, abi: u32, narrow: &Narrow) -> Result<Plan, String> {
    let mut spec = spec(profile, USER);
    spec.network = Network::Narrow(narrow.clone());
    plan::build(&spec, &Host { landlock_abi: abi, ..host() }).map_err(|error| error.to_string())
}

fn narrow(ports: &[u16]) -> Narrow {
    Narrow { ports: ports.to_vec(), why: "not here".to_owned(), sockets: false, listens: false }
}

/// The filters that are loaded before pid 1's own, by name.
fn filters(plan: &Plan) -> Vec<&'static str> {
    let steps = plan.steps.as_slice();
    assert_eq!(steps.last(), Some(&Step::Seccomp));
    let name = |step: &Step| match step {
        Step::Narrow(narrowing) => Some(narrowing.describe().name),
        _ => None,
    };
    steps.iter().filter_map(name).collect()
}

#[test]
fn landlock_and_a_filter_take_the_place_of_the_namespace() {
    for profile in [Profile::Strict, Profile::Nesting] {
        let plan = plan(profile, 6, &narrow(&[80, 443])).unwrap();
        assert_eq!(plan.namespaces & u64::from(libc::CLONE_NEWNET.cast_unsigned()), 0);
        assert!(
            !plan.steps.as_slice().iter().any(|step| matches!(step, Step::MakeNetwork | Step::JoinNetwork))
        );
        let domain = plan.landlock.as_ref().unwrap();
        assert_eq!(
            (domain.attr.access_net, domain.ports.as_slice()),
            (BIND_TCP | CONNECT_TCP, &[80, 443][..])
        );
        assert_eq!(domain.attr.scoped, 0b11);
        assert_eq!(filters(&plan), ["tcp"]);
        let degraded = plan.degraded.iter().find(|one| one.what == "network").unwrap();
        assert_eq!(
            degraded.why,
            "no network namespace is to be had (not here): TCP to ports 80, 443 of any host is open instead, this \
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
        let plan = plan(Profile::Strict, abi, &narrow(&[])).unwrap();
        assert_eq!(filters(&plan), expected, "ABI {abi}");
        let handled = if abi >= 4 { BIND_TCP | CONNECT_TCP } else { 0 };
        assert_eq!(plan.landlock.unwrap().attr.access_net, handled, "ABI {abi}");
    }
}

/// A wall that the kernel does not have is not left out.
#[test]
fn what_the_kernel_cannot_wall_off_is_refused() {
    assert_eq!(filters(&plan(Profile::Strict, 4, &narrow(&[443])).unwrap()), ["tcp", "pairs"]);
    for (abi, what, word) in [
        (3, narrow(&[443]), "ABI 4 (Linux 6.7), which is 3 here"),
        (5, Narrow { sockets: true, ..narrow(&[]) }, "programs get no unix sockets"),
        (5, Narrow { listens: true, ..narrow(&[]) }, "programs get no unix sockets"),
        (7, Narrow { listens: true, ..narrow(&[443]) }, "programs cannot listen"),
    ] {
        let error = plan(Profile::Strict, abi, &what).unwrap_err();
        assert!(error.contains(word) && error.contains("not here"), "{error}");
    }
    for fine in [Narrow { sockets: true, ..narrow(&[443]) }, Narrow { listens: true, ..narrow(&[]) }] {
        plan(Profile::Strict, 6, &fine).unwrap();
    }
}
