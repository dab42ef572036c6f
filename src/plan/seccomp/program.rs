//! The whole filter: the architecture, then the search for the number, then the checks of arguments.

use super::calls::{self, Calls, Verdict};
use super::checks;
use super::order::{self, Clash};
use super::shared::arch::{Arch, X32_BIT};
use super::shared::bpf::{ARCH, IF_EQUAL, Instruction, LOAD, LONGEST, NUMBER, ret};
use super::shared::graph::{Graph, Id, Node};
use super::shared::search::{self, Range};
use super::shared::{Result, assemble};

/// Up to where the kernel tries numbers when it loads a filter: past the newest call of any architecture.
const TRIED: u32 = 480;

/// Makes the program. `all` has one member for each architecture; there is at least one.
pub(super) fn build(
    all: &[Calls],
    default: u32,
    newer: u32,
    warnings: &mut Vec<String>,
) -> Result<Vec<Instruction>> {
    let mut graph = Graph::default();
    let mut builder = Builder {
        default: graph.add(Node::Return(default)),
        newer: graph.add(Node::Return(newer)),
        // What libseccomp answers to an architecture that the profile does not list.
        foreign: graph.add(Node::Return(libc::SECCOMP_RET_KILL_THREAD)),
        graph,
        answers: Vec::new(),
        default_action: default,
        warnings,
    };
    let x32 = all.iter().find(|calls| calls.arch == Arch::X32);
    let mut choice = builder.foreign;
    for calls in all.iter().rev().filter(|calls| calls.arch != Arch::X32) {
        let mut starts = builder.starts(calls)?;
        if calls.arch == Arch::X86_64 {
            let past = starts.last().map_or(builder.default, |last| last.1);
            match x32 {
                Some(x32) => starts.extend(builder.starts(x32)?),
                None => starts.push((X32_BIT, builder.foreign)),
            }
            // A tracer sets the number to -1 to skip a call (ptrace(2)): no call of x32.
            starts.push((u32::MAX, past));
        }
        let tree = search::build(&mut builder.graph, &ranges(starts));
        let number = builder.graph.add(Node::Step(LOAD, NUMBER, tree));
        choice = builder.graph.branch(IF_EQUAL, calls.arch.audit(), number, choice);
    }
    let start = builder.graph.add(Node::Step(LOAD, ARCH, choice));
    assemble::assemble(&builder.graph, start)
}

struct Builder<'a> {
    graph: Graph,
    default: Id,
    newer: Id,
    foreign: Id,
    answers: Vec<(u32, Id)>,
    default_action: u32,
    warnings: &'a mut Vec<String>,
}

impl Builder<'_> {
    fn starts(&mut self, calls: &Calls) -> Result<Vec<(u32, Id)>> {
        let mut starts: Vec<(u32, Id)> = Vec::new();
        for (start, verdict) in calls.starts() {
            let id = match verdict {
                None => self.newer,
                Some(Verdict::Unlisted) => self.default,
                Some(Verdict::Always(action, _)) => self.answer(*action),
                Some(Verdict::Checked(name, rules)) => self.checked(name, rules, calls.wide())?,
            };
            // Neighbours of far numbers start twice: as newer ones, then as what they are.
            starts.pop_if(|last| last.0 == start);
            starts.push((start, id));
        }
        Ok(starts)
    }

    /// The node that returns `action`. A profile has a few of them for hundreds of calls.
    fn answer(&mut self, action: u32) -> Id {
        let known = self.answers.iter().find(|(known, _)| *known == action);
        known.map(|(_, id)| *id).unwrap_or_else(|| {
            let id = self.graph.add(Node::Return(action));
            self.answers.push((action, id));
            id
        })
    }

    fn checked(&mut self, name: &str, rules: &[order::Rule], wide: bool) -> Result<Id> {
        let too_long = || {
            format!(
                "the rules for {name} take more than {LONGEST} instructions, which is all that the kernel takes"
            )
        };
        // Each rule has a comparison of its own at least.
        if rules.len() > LONGEST {
            return Err(too_long());
        }
        let (rules, clashes) = order::order(rules, wide);
        for clash in clashes {
            match clash {
                Clash::Contradiction(one, other) => {
                    return Err(format!(
                        "linux.seccomp.syscalls[{one}] and linux.seccomp.syscalls[{other}] want different \
                         actions for {name} with the same arguments"
                    ));
                }
                Clash::Unreachable(by, entry) => self.warnings.push(calls::unreachable(name, entry, by)),
            }
        }
        let mut program = Vec::new();
        for rule in rules {
            checks::emit(&mut program, &rule.checks, wide, 1)?;
            program.push(ret(rule.action));
        }
        program.push(ret(self.default_action));
        // A check takes two instructions where the word is loaded already, at least.
        if program.len() > 4 * LONGEST { Err(too_long()) } else { self.graph.read(&program) }
    }
}

/// The starts of ranges as ranges, without those that go on as before.
fn ranges(mut starts: Vec<(u32, Id)>) -> Vec<Range> {
    starts.dedup_by_key(|(_, verdict)| *verdict);
    let range = |index: usize| {
        let (start, verdict) = starts[index];
        let end = starts.get(index + 1).map(|next| next.0);
        let single = end == start.checked_add(1);
        Range { start, single, tried: end.unwrap_or(u32::MAX).min(TRIED).saturating_sub(start), verdict }
    };
    (0..starts.len()).map(range).collect()
}
