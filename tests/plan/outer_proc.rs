//! The `/proc` of the container around saggar, in place of a new one.

use saggar::host::HostFacts;
use saggar::plan::agent as plan;
use saggar::plan::agent::step::AgentStep;
use saggar::spec::policy::SandboxProfile;

use super::{USER, host, plan_of, spec};

/// Read-only, with the same masks, and without the limits that are written to a new one.
#[test]
fn it_is_the_last_resort_of_the_profile_container() {
    let words = |profile| {
        let mut host = host();
        host.user_limits.inotify_instances = Some(128);
        let plan = plan::build(&spec(profile, USER), &host).unwrap();
        plan.steps.as_slice().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let (strict, container) = (words(SandboxProfile::Strict), words(SandboxProfile::Container));
    let differ = |all: &[String], others: &[String]| {
        all.iter().filter(|step| !others.contains(step)).cloned().collect::<Vec<_>>()
    };
    assert_eq!(
        differ(&strict, &container),
        [
            "mount proc on /proc",
            "write 28 to /proc/sys/user/max_inotify_instances",
            "write /etc/hosts, 48 bytes"
        ]
    );
    // The host name of the container, which the sandbox has if it cannot be set, is in hosts as well.
    assert_eq!(
        differ(&container, &strict),
        ["mount the /proc of the container on /proc, read-only", "write /etc/hosts, 60 bytes"]
    );
    let plan = plan_of(SandboxProfile::Container, USER);
    assert_eq!(plan.degraded.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["proc"]);
    assert!(plan.steps.as_slice().iter().any(|step| matches!(step, AgentStep::Landlock)));
}

/// Nothing else keeps programs from the memory of the processes that they see, whatever the policy prefers.
#[test]
fn it_is_refused_without_landlock() {
    let mut spec = spec(SandboxProfile::Container, USER);
    for (_, strength, _) in &mut spec.protections {
        *strength = saggar::spec::policy::ProtectionStrength::Prefer;
    }
    let error = plan::build(&spec, &HostFacts { landlock_abi: 0, ..host() }).unwrap_err();
    assert!(error.to_string().contains("without landlock"), "{error}");
    assert!(error.hint_text().unwrap().contains("unmasked /proc"), "{error:?}");
}
