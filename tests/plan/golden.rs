//! The whole plan, compared with what was looked at and found right: no privilege is needed, and a change of
//! any wall shows in the diff.

use std::fmt::Write;

use insta::assert_snapshot;
use saggar::plan::agent::step::AgentStep;
use saggar::plan::agent::{AgentPlan, TreeMode};
use saggar::spec::policy::SandboxProfile;

use super::{ROOT, USER, plan_of};

/// A plan in words, with the numbers that its steps do not say.
fn words(plan: &AgentPlan) -> String {
    let mut text = format!("namespaces {:#x}\n", plan.namespaces);
    let maps = |map: &str| map.trim_end().replace('\n', ", ");
    writeln!(text, "uid map {}\ngid map {}", maps(&plan.maps.uid), maps(&plan.maps.gid)).unwrap();
    writeln!(text, "setgroups denied: {}", plan.maps.deny_setgroups).unwrap();
    for (index, slot) in plan.slots.iter().enumerate() {
        writeln!(
            text,
            "slot {index}: {}{}",
            slot.path.display(),
            match slot.tree {
                TreeMode::None => "",
                TreeMode::Mapped => " as a mapped tree",
                TreeMode::Plain { .. } => " as it is",
            }
        )
        .unwrap();
    }
    for (index, step) in plan.steps.as_slice().iter().enumerate() {
        write!(text, "{:3} {:?}: {step}", index + 1, step.phase()).unwrap();
        match step {
            AgentStep::Tmpfs { inodes, mode, .. } => write!(text, ", {inodes:?} inodes, mode {mode:?}"),
            AgentStep::Proc { hide_foreign: hide, .. } => write!(text, ", hiding others: {hide}"),
            AgentStep::NewKeyring { required } => write!(text, ", required: {required}"),
            _ => Ok(()),
        }
        .unwrap();
        text.push('\n');
    }
    match &plan.landlock {
        None => text.push_str("no landlock\n"),
        Some(domain) => {
            writeln!(text, "landlock ABI {}: {:?}", domain.abi, domain.attr).unwrap();
            for rule in &domain.rules {
                writeln!(text, "  {}: {:#x} {}", rule.path.to_string_lossy(), rule.access, rule.description)
                    .unwrap();
            }
        }
    }
    writeln!(text, "programs: {:?}, pid 1: {:?}", plan.program_filter, plan.init_filter).unwrap();
    writeln!(text, "degraded: {:?}", plan.degraded).unwrap();
    text
}

#[test]
fn strict_as_root() {
    assert_snapshot!(words(&plan_of(SandboxProfile::Strict, ROOT)));
}

#[test]
fn strict_as_an_ordinary_user() {
    assert_snapshot!(words(&plan_of(SandboxProfile::Strict, USER)));
}

#[test]
fn nesting_as_root() {
    assert_snapshot!(words(&plan_of(SandboxProfile::Nesting, ROOT)));
}

#[test]
fn nesting_as_an_ordinary_user() {
    assert_snapshot!(words(&plan_of(SandboxProfile::Nesting, USER)));
}
