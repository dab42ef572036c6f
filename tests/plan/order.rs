//! An order of steps that would not protect is refused, whoever made it.

use proptest::prelude::*;
use saggar::plan::agent::step::{AgentPhase, AgentStep, AgentStepOrderError, AgentSteps, SandboxService};
use saggar::spec::policy::SandboxProfile;

use super::{ROOT, USER, plan_of};

/// What the kernel refuses to a process without capabilities over its user namespace; written down here by
/// itself, not taken from the phases that it checks.
fn needs_a_capability(step: &AgentStep) -> bool {
    match step {
        AgentStep::AwaitMaps
        | AgentStep::DieWithParent
        | AgentStep::ReceiveTrees { .. }
        | AgentStep::Rlimit { .. }
        | AgentStep::NewKeyring { .. }
        | AgentStep::OpenTerminal
        | AgentStep::SendWorkspace { .. }
        | AgentStep::NoNewPrivs
        | AgentStep::Landlock
        | AgentStep::HideMemory
        | AgentStep::RestrictHostNetwork(_)
        | AgentStep::Seccomp => false,
        AgentStep::BecomeUser { .. }
        | AgentStep::NewRoot { .. }
        | AgentStep::Mkdir { .. }
        | AgentStep::Touch { .. }
        | AgentStep::Symlink { .. }
        | AgentStep::WriteFile { .. }
        | AgentStep::Bind { .. }
        | AgentStep::Pin { .. }
        | AgentStep::Tmpfs { .. }
        | AgentStep::Overlay { .. }
        | AgentStep::ReplaceIndex { .. }
        | AgentStep::Proc { .. }
        | AgentStep::OuterProc { .. }
        | AgentStep::NamespaceLimit { .. }
        | AgentStep::Devpts { .. }
        | AgentStep::Mqueue { .. }
        | AgentStep::MaskFile { .. }
        | AgentStep::MaskDirectory { .. }
        | AgentStep::HideFile { .. }
        | AgentStep::HideDirectory { .. }
        | AgentStep::Seal { .. }
        | AgentStep::ChangeRoot
        | AgentStep::SealRoot
        | AgentStep::MakeNetwork
        | AgentStep::JoinNetwork
        | AgentStep::RedirectNetwork { .. }
        | AgentStep::Listen { .. }
        | AgentStep::Hostname { .. }
        // Of the bounding set.
        | AgentStep::DropCapabilities => true,
    }
}

/// The safety of an order, said without phases.
fn protects(steps: &[AgentStep]) -> Result<(), String> {
    let place = |wanted: fn(&AgentStep) -> bool| steps.iter().position(wanted);
    let drop = place(|step| *step == AgentStep::DropCapabilities).ok_or("capabilities stay")?;
    let root = place(|step| *step == AgentStep::ChangeRoot).ok_or("the host's root stays")?;
    let privs = place(|step| *step == AgentStep::NoNewPrivs).ok_or("privileges can be gained")?;
    let birth = place(|step| matches!(step, AgentStep::BecomeUser { .. })).ok_or("nobody")?;
    if let Some(late) = steps[drop + 1..].iter().find(|step| needs_a_capability(step)) {
        return Err(format!("{late} comes after the capabilities are gone"));
    }
    let landlock = place(|step| *step == AgentStep::Landlock).ok_or("files have no second wall")?;
    if landlock < root || landlock < privs {
        return Err("landlock's rules would be of the host's files, or it is not allowed".into());
    }
    place(|step| *step == AgentStep::HideMemory).ok_or("pid 1 can be looked into")?;
    let seccomp = place(|step| *step == AgentStep::Seccomp).ok_or("every call is open")?;
    if seccomp != steps.len() - 1 || seccomp < privs {
        return Err("the filter would refuse what comes after it".into());
    }
    // A change of ids clears the parent-death signal.
    let bond = place(|step| *step == AgentStep::DieWithParent).ok_or("it may outlive its supervisor")?;
    if bond < birth { Err("the bond to the supervisor is cleared".into()) } else { Ok(()) }
}

#[test]
fn every_plan_protects() {
    for profile in [SandboxProfile::Strict, SandboxProfile::Nesting] {
        for map in [ROOT, USER] {
            let plan = plan_of(profile, map);
            assert_eq!(protects(plan.steps.as_slice()), Ok(()), "{profile:?} {map:?}");
        }
    }
}

/// As a plan of the strict profile makes them, whose domain is to be entered.
fn steps_of(steps: Vec<AgentStep>) -> Result<AgentSteps, AgentStepOrderError> {
    AgentSteps::new(steps, plan_of(SandboxProfile::Strict, ROOT).landlock.as_ref())
}

fn valid() -> Vec<AgentStep> {
    plan_of(SandboxProfile::Strict, ROOT).steps.as_slice().to_vec()
}

#[test]
fn plan_without_a_required_step_is_refused() {
    for (gone, phase) in [
        (AgentStep::ChangeRoot, AgentPhase::Root),
        (AgentStep::NoNewPrivs, AgentPhase::NoNewPrivs),
        (AgentStep::Landlock, AgentPhase::Landlock),
        (AgentStep::DropCapabilities, AgentPhase::Capabilities),
        (AgentStep::HideMemory, AgentPhase::HiddenMemory),
        (AgentStep::Seccomp, AgentPhase::Seccomp),
    ] {
        let steps = valid().into_iter().filter(|step| *step != gone).collect();
        assert_eq!(steps_of(steps), Err(AgentStepOrderError::Missing(phase)));
    }
}

/// What is caught is the sandbox's own network: claimed before, the addresses would be the host's.
#[test]
fn a_network_is_listened_in_when_it_is_joined() {
    listened_in(AgentStep::RedirectNetwork { ports: vec![443] });
    listened_in(AgentStep::Listen {
        service: SandboxService::ModelApi,
        path: c"run/api.sock".into(),
        port: Some(274),
    });
}

fn listened_in(caught: AgentStep) {
    let joined = valid().iter().position(|step| *step == AgentStep::JoinNetwork).unwrap();
    let mut after = valid();
    after.insert(joined + 1, caught.clone());
    assert!(steps_of(after).is_ok());
    let mut before = valid();
    before.insert(joined, caught.clone());
    assert_eq!(steps_of(before), Err(AgentStepOrderError::Network));
    let own = |step: &AgentStep| !matches!(step, AgentStep::MakeNetwork | AgentStep::JoinNetwork);
    let mut of_the_host: Vec<AgentStep> = valid().into_iter().filter(own).collect();
    let at = of_the_host.iter().position(|step| *step == AgentStep::NoNewPrivs).unwrap();
    of_the_host.insert(at, caught);
    assert_eq!(steps_of(of_the_host), Err(AgentStepOrderError::Network));
}

#[test]
fn two_neighbours_of_different_phases_do_not_change_places() {
    for at in 1..valid().len() {
        let mut steps = valid();
        steps.swap(at - 1, at);
        let backwards = steps[at].phase() < steps[at - 1].phase();
        match steps_of(steps) {
            Err(AgentStepOrderError::Backwards { index, .. }) => assert!(backwards && index == at),
            Ok(_) => assert!(!backwards),
            Err(other) => panic!("{other}"),
        }
    }
}

proptest! {
    /// Any permutation: refused when a phase comes too early, and whatever is taken protects but for the order
    /// within a phase.
    #[test]
    fn an_order_with_a_phase_out_of_place_is_refused(steps in Just(valid()).prop_shuffle()) {
        let monotone = steps.windows(2).all(|pair| pair[0].phase() <= pair[1].phase());
        prop_assert_eq!(steps_of(steps).is_ok(), monotone);
    }

    /// One step moved anywhere: what is taken has nothing that needs a capability after their end, landlock
    /// after the root change, and the filter last.
    #[test]
    fn one_step_moved_is_refused_or_harmless(from in 0..valid().len(), to in 0..valid().len()) {
        let mut steps = valid();
        let moved = steps.remove(from);
        let birth = moved.phase() == AgentPhase::Namespaces;
        steps.insert(to, moved);
        if let Ok(taken) = steps_of(steps) {
            // Within the first phase the order is the plan's own affair: `every_plan_protects`.
            prop_assert!(birth || protects(taken.as_slice()).is_ok(), "{:?}", protects(taken.as_slice()));
        }
    }
    /// Any steps left out: what is taken has every wall still.
    #[test]
    fn any_steps_left_out_are_missed_or_no_wall(keep in proptest::collection::vec(any::<bool>(), valid().len())) {
        let walls = |step: &AgentStep| step.phase() == AgentPhase::Namespaces;
        let steps = valid().into_iter().zip(keep).filter(|(step, keep)| *keep || walls(step)).map(|(step, _)| step);
        if let Ok(taken) = steps_of(steps.collect()) {
            prop_assert_eq!(protects(taken.as_slice()), Ok(()));
        }
    }
}
