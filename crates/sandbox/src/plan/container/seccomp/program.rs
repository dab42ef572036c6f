//! Builds the whole filter: the check of the architecture, the search for the number, the checks of arguments.

use super::calls::{self, ArchCalls, CallAction};
use super::checks;
use super::order::{self, RuleConflict};
use saggar_seccomp::arch::{Arch, X32_BIT};
use saggar_seccomp::bpf::{ARCH, IF_EQUAL, Instruction, LOAD, LONGEST, NUMBER, ret};
use saggar_seccomp::graph::{Graph, Id, Node};
use saggar_seccomp::search::{self, Range};
use saggar_seccomp::{Result, assemble};

/// The end of the range of numbers that the kernel tries when it loads a filter: past the newest call of any
/// architecture.
const TRIED: u32 = 480;

/// Builds the program. `all` has one member for each architecture; there is at least one.
pub(super) fn build(
    all: &[ArchCalls],
    default: u32,
    newer: u32,
    warnings: &mut Vec<String>,
) -> Result<Vec<Instruction>> {
    let mut graph = Graph::default();
    let mut builder = FilterBuilder {
        default: graph.add(Node::Return(default)),
        newer: graph.add(Node::Return(newer)),
        // libseccomp's action for an architecture that the profile does not list.
        foreign: graph.add(Node::Return(libc::SECCOMP_RET_KILL_THREAD)),
        graph,
        return_nodes: Vec::new(),
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
            // A tracer sets the number to -1 to skip a call (ptrace(2)): that is not a call of x32.
            starts.push((u32::MAX, past));
        }
        let tree = search::build(&mut builder.graph, &ranges(starts));
        let number = builder.graph.add(Node::Step(LOAD, NUMBER, tree));
        choice = builder.graph.branch(IF_EQUAL, calls.arch.audit(), number, choice);
    }
    let start = builder.graph.add(Node::Step(LOAD, ARCH, choice));
    assemble(&builder.graph, start)
}

struct FilterBuilder<'a> {
    graph: Graph,
    default: Id,
    newer: Id,
    foreign: Id,
    return_nodes: Vec<(u32, Id)>,
    default_action: u32,
    warnings: &'a mut Vec<String>,
}

impl FilterBuilder<'_> {
    fn starts(&mut self, calls: &ArchCalls) -> Result<Vec<(u32, Id)>> {
        let mut starts: Vec<(u32, Id)> = Vec::new();
        for (start, verdict) in calls.starts() {
            let id = match verdict {
                None => self.newer,
                Some(CallAction::Unlisted) => self.default,
                Some(CallAction::Always(action, _)) => self.return_node(*action),
                Some(CallAction::Checked(name, rules)) => self.checked(name, rules, calls.wide())?,
            };
            // Adjacent far numbers start twice: first as newer ones, then with their own action.
            starts.pop_if(|last| last.0 == start);
            starts.push((start, id));
        }
        Ok(starts)
    }

    /// Returns the node that returns `action`. A profile has few actions for hundreds of calls.
    fn return_node(&mut self, action: u32) -> Id {
        let known = self.return_nodes.iter().find(|(known, _)| *known == action);
        known.map(|(_, id)| *id).unwrap_or_else(|| {
            let id = self.graph.add(Node::Return(action));
            self.return_nodes.push((action, id));
            id
        })
    }

    fn checked(&mut self, name: &str, rules: &[order::CallRule], wide: bool) -> Result<Id> {
        let too_long = || {
            format!(
                "the rules for {name} take more than {LONGEST} instructions, which is all that the kernel takes"
            )
        };
        // Each rule has at least one comparison of its own.
        if rules.len() > LONGEST {
            return Err(too_long());
        }
        let (rules, clashes) = order::order(rules, wide);
        for clash in clashes {
            match clash {
                RuleConflict::Contradiction(one, other) => {
                    return Err(format!(
                        "linux.seccomp.syscalls[{one}] and linux.seccomp.syscalls[{other}] want different \
                         actions for {name} with the same arguments"
                    ));
                }
                RuleConflict::Unreachable(by, entry) => {
                    self.warnings.push(calls::unreachable(name, entry, by))
                }
            }
        }
        let mut program = Vec::new();
        for rule in rules {
            checks::emit_checks(&mut program, &rule.checks, wide, 1)?;
            program.push(ret(rule.action));
        }
        program.push(ret(self.default_action));
        // A check takes at least two instructions, when the word is loaded already.
        if program.len() > 4 * LONGEST { Err(too_long()) } else { self.graph.read(&program) }
    }
}

/// Converts starts of ranges to ranges; merges adjacent ones with the same verdict.
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
