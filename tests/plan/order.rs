//! An order of steps that would not protect is refused, whoever made it.

use proptest::prelude::*;
use saggar::plan::step::{OrderError, Phase, Step, Steps};
use saggar::spec::policy::Profile;

use super::{ROOT, USER, plan_of};

/// What the kernel refuses to a process without capabilities over its user namespace; written down here by
/// itself, not taken from the phases that it checks.
fn needs_a_capability(step: &Step) -> bool {
    match step {
        Step::AwaitMaps
        | Step::DieWithParent
        | Step::ReceiveTrees { .. }
        | Step::Rlimit { .. }
        | Step::NewKeyring { .. }
        | Step::OpenTerminal
        | Step::ShowWorkspace { .. }
        | Step::NoNewPrivs
        | Step::Landlock
        | Step::HideMemory
        | Step::Narrow(_)
        | Step::Seccomp => false,
        Step::BecomeUser { .. }
        | Step::NewRoot { .. }
        | Step::Mkdir { .. }
        | Step::Touch { .. }
        | Step::Symlink { .. }
        | Step::WriteFile { .. }
        | Step::Bind { .. }
        | Step::Pin { .. }
        | Step::Tmpfs { .. }
        | Step::Overlay { .. }
        | Step::Proc { .. }
        | Step::Quota { .. }
        | Step::Devpts { .. }
        | Step::Mqueue { .. }
        | Step::MaskFile { .. }
        | Step::MaskDirectory { .. }
        | Step::Seal { .. }
        | Step::ChangeRoot
        | Step::SealRoot
        | Step::MakeNetwork
        | Step::JoinNetwork
        | Step::CatchNetwork { .. }
        | Step::OfferApi { .. }
        | Step::Hostname { .. }
        // Of the bounding set.
        | Step::DropCapabilities => true,
    }
}

/// The safety of an order, said without phases.
fn protects(steps: &[Step]) -> Result<(), String> {
    let place = |wanted: fn(&Step) -> bool| steps.iter().position(wanted);
    let drop = place(|step| *step == Step::DropCapabilities).ok_or("capabilities stay")?;
    let root = place(|step| *step == Step::ChangeRoot).ok_or("the host's root stays")?;
    let privs = place(|step| *step == Step::NoNewPrivs).ok_or("privileges can be gained")?;
    let birth = place(|step| matches!(step, Step::BecomeUser { .. })).ok_or("nobody")?;
    if let Some(late) = steps[drop + 1..].iter().find(|step| needs_a_capability(step)) {
        return Err(format!("{late} comes after the capabilities are gone"));
    }
    let landlock = place(|step| *step == Step::Landlock).ok_or("files have no second wall")?;
    if landlock < root || landlock < privs {
        return Err("landlock's rules would be of the host's files, or it is not allowed".into());
    }
    place(|step| *step == Step::HideMemory).ok_or("pid 1 can be looked into")?;
    let seccomp = place(|step| *step == Step::Seccomp).ok_or("every call is open")?;
    if seccomp != steps.len() - 1 || seccomp < privs {
        return Err("the filter would refuse what comes after it".into());
    }
    // A change of ids clears the parent-death signal.
    let bond = place(|step| *step == Step::DieWithParent).ok_or("it may outlive its supervisor")?;
    if bond < birth { Err("the bond to the supervisor is cleared".into()) } else { Ok(()) }
}

#[test]
fn every_plan_protects() {
    for profile in [Profile::Strict, Profile::Nesting] {
        for map in [ROOT, USER] {
            let plan = plan_of(profile, map);
            assert_eq!(protects(plan.steps.as_slice()), Ok(()), "{profile:?} {map:?}");
        }
    }
}

/// As a plan of the strict profile makes them, whose domain is to be entered.
fn steps_of(steps: Vec<Step>) -> Result<Steps, OrderError> {
    Steps::new(steps, plan_of(Profile::Strict, ROOT).landlock.as_ref())
}

fn valid() -> Vec<Step> {
    plan_of(Profile::Strict, ROOT).steps.as_slice().to_vec()
}

#[test]
fn nothing_indispensable_is_left_out() {
    for (gone, phase) in [
        (Step::ChangeRoot, Phase::Root),
        (Step::NoNewPrivs, Phase::NoNewPrivs),
        (Step::Landlock, Phase::Landlock),
        (Step::DropCapabilities, Phase::Capabilities),
        (Step::HideMemory, Phase::Hidden),
        (Step::Seccomp, Phase::Seccomp),
    ] {
        let steps = valid().into_iter().filter(|step| *step != gone).collect();
        assert_eq!(steps_of(steps), Err(OrderError::Missing(phase)));
    }
}

/// What is caught is the sandbox's own network: claimed before, the addresses would be the host's.
#[test]
fn a_network_is_listened_in_when_it_is_joined() {
    listened_in(Step::CatchNetwork { ports: vec![443] });
    listened_in(Step::OfferApi { path: c"run/api.sock".into(), port: Some(274) });
}

fn listened_in(caught: Step) {
    let joined = valid().iter().position(|step| *step == Step::JoinNetwork).unwrap();
    let mut after = valid();
    after.insert(joined + 1, caught.clone());
    assert!(steps_of(after).is_ok());
    let mut before = valid();
    before.insert(joined, caught.clone());
    assert_eq!(steps_of(before), Err(OrderError::Network));
    let own = |step: &Step| !matches!(step, Step::MakeNetwork | Step::JoinNetwork);
    let mut of_the_host: Vec<Step> = valid().into_iter().filter(own).collect();
    let at = of_the_host.iter().position(|step| *step == Step::NoNewPrivs).unwrap();
    of_the_host.insert(at, caught);
    assert_eq!(steps_of(of_the_host), Err(OrderError::Network));
}

#[test]
fn two_neighbours_of_different_phases_do_not_change_places() {
    for at in 1..valid().len() {
        let mut steps = valid();
        steps.swap(at - 1, at);
        let backwards = steps[at].phase() < steps[at - 1].phase();
        match steps_of(steps) {
            Err(OrderError::Backwards { index, .. }) => assert!(backwards && index == at),
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
        let birth = moved.phase() == Phase::Birth;
        steps.insert(to, moved);
        if let Ok(taken) = steps_of(steps) {
            // Within the first phase the order is the plan's own affair: `every_plan_protects`.
            prop_assert!(birth || protects(taken.as_slice()).is_ok(), "{:?}", protects(taken.as_slice()));
        }
    }
    /// Any steps left out: what is taken has every wall still.
    #[test]
    fn any_steps_left_out_are_missed_or_no_wall(keep in proptest::collection::vec(any::<bool>(), valid().len())) {
        let walls = |step: &Step| step.phase() == Phase::Birth;
        let steps = valid().into_iter().zip(keep).filter(|(step, keep)| *keep || walls(step)).map(|(step, _)| step);
        if let Ok(taken) = steps_of(steps.collect()) {
            prop_assert_eq!(protects(taken.as_slice()), Ok(()));
        }
    }
}
