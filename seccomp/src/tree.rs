//! The whole program: the architecture, then the search for the number, then the checks of arguments.

use crate::bpf::{ARCH, IF_EQUAL, Instruction, LOAD, NUMBER};
use crate::graph::{Graph, Node};
use crate::policy::Policy;
use crate::search::{self, Range};
use crate::{Result, assemble, rules};

/// Compiles `policy`.
pub fn compile(policy: &Policy) -> Result<Vec<Instruction>> {
    let mut graph = Graph::default();
    let mut ranges = Vec::new();
    let starts = policy.ranges();
    for (index, (start, verdict)) in starts.iter().enumerate() {
        let end = starts.get(index + 1).map(|next| next.0);
        // Numbers that no kernel has are not tried.
        let tried = end.unwrap_or(u32::MAX).min(policy.known()).saturating_sub(*start);
        let single = end == start.checked_add(1);
        ranges.push(Range { start: *start, single, tried, verdict: graph.read(&rules::compile(verdict)?)? });
    }
    let search = search::build(&mut graph, &ranges);
    let number = graph.add(Node::Step(LOAD, NUMBER, search));
    let foreign = graph.add(Node::Return(policy.foreign.code()));
    let own = graph.branch(IF_EQUAL, policy.arch.audit(), number, foreign);
    let start = graph.add(Node::Step(LOAD, ARCH, own));
    assemble(&graph, start)
}
