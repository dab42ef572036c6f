//! The whole program: the architecture, then a search tree over ranges of numbers.
//!
//! When a filter is loaded the kernel translates every instruction, and runs it once for every system call
//! number, to learn which calls are always allowed (seccomp_cache_prepare_bitmap, Linux 5.11). So both the
//! size and the depth count. Neighbours with one verdict are one range, and of all trees over the ranges we
//! take the cheapest.

use super::graph::{Graph, Id, Node};
use super::policy::Policy;
use super::rules::{IF_AT_LEAST, IF_EQUAL, LOAD};
use super::{Result, assemble, rules};
use seccompiler::BpfProgram;

/// Offsets in `struct seccomp_data` (linux/seccomp.h).
const NUMBER: u32 = 0;
const ARCH: u32 = 4;

/// What an instruction costs the load, in steps of one number through the tree. Measured on Linux 6.18: a
/// comparison takes 110 ns to translate and 2.4 ns to run.
const INSTRUCTION: u64 = 45;

/// Compiles `policy`.
pub(crate) fn compile(policy: &Policy) -> Result<BpfProgram> {
    let mut graph = Graph::default();
    let mut ranges = Vec::new();
    let starts = policy.ranges();
    for (index, (start, verdict)) in starts.iter().enumerate() {
        let end = starts.get(index + 1).map_or(1 << 32, |next| u64::from(next.0));
        // Numbers that no kernel has are not tried.
        let tried = end.min(policy.known().into()).saturating_sub((*start).into());
        let single = end - u64::from(*start) == 1;
        ranges.push(Range { start: *start, tried, single, verdict: graph.read(&rules::compile(verdict)?)? });
    }
    let search = Search::new(&ranges).build(&mut graph, 0, ranges.len());
    let number = graph.add(Node::Step(LOAD, NUMBER, search));
    let foreign = graph.add(Node::Return(policy.foreign.code()));
    let own = graph.branch(IF_EQUAL, policy.arch.audit(), number, foreign);
    let start = graph.add(Node::Step(LOAD, ARCH, own));
    assemble::assemble(&graph, start)
}

/// Neighbouring numbers with one verdict.
struct Range {
    start: u32,
    tried: u64,
    single: bool,
    verdict: Id,
}

/// How to find a number in a run of ranges.
#[derive(Clone, Copy)]
enum Plan {
    /// There is one range.
    Found,
    /// Compare: at least the start of this range?
    Split(usize),
    /// Every other range is a single number between ranges of the same verdict: ask for each.
    Exceptions,
}

/// The cheapest plan for every run of ranges, by dynamic programming.
struct Search<'a> {
    ranges: &'a [Range],
    /// By first range and length - 1: cost and plan.
    best: Vec<Vec<(u64, Plan)>>,
}

impl<'a> Search<'a> {
    fn new(ranges: &'a [Range]) -> Self {
        let mut search = Search { ranges, best: vec![Vec::new(); ranges.len()] };
        for length in 1..=ranges.len() {
            for first in 0..=ranges.len() - length {
                let best = search.cheapest(first, first + length);
                search.best[first].push(best);
            }
        }
        search
    }

    fn cost(&self, first: usize, end: usize) -> u64 {
        self.best[first][end - first - 1].0
    }

    fn tried(&self, first: usize, end: usize) -> u64 {
        self.ranges[first..end].iter().map(|range| range.tried).sum()
    }

    /// The cheapest plan for a run, when those for all shorter runs are known.
    fn cheapest(&self, first: usize, end: usize) -> (u64, Plan) {
        if end - first == 1 {
            return (0, Plan::Found);
        }
        let step = INSTRUCTION + self.tried(first, end);
        let splits = (first + 1..end)
            .map(|middle| (step + self.cost(first, middle) + self.cost(middle, end), Plan::Split(middle)));
        let exceptions = self.exceptions(first, end).map(|cost| (cost, Plan::Exceptions));
        splits.chain(exceptions).min_by_key(|(cost, _)| *cost).unwrap_or((0, Plan::Found))
    }

    /// What it costs to ask for each exception in turn, if the run is made like that.
    fn exceptions(&self, first: usize, end: usize) -> Option<u64> {
        let run = &self.ranges[first..end];
        let alike = run.iter().step_by(2).all(|range| range.verdict == run[0].verdict);
        let singles = run.iter().skip(1).step_by(2);
        if run.len().is_multiple_of(2) || !alike || !singles.clone().all(|range| range.single) {
            return None;
        }
        // The numbers still on their way shrink by one at each question.
        let tried = self.tried(first, end);
        Some(singles.zip(0..).map(|(_, asked)| INSTRUCTION + tried.saturating_sub(asked)).sum())
    }

    /// Adds the search in a run of ranges.
    fn build(&self, graph: &mut Graph, first: usize, end: usize) -> Id {
        let run = &self.ranges[first..end];
        match self.best[first][end - first - 1].1 {
            Plan::Found => run[0].verdict,
            Plan::Split(middle) => {
                let below = self.build(graph, first, middle);
                let from = self.build(graph, middle, end);
                graph.branch(IF_AT_LEAST, self.ranges[middle].start, from, below)
            }
            Plan::Exceptions => run.iter().skip(1).step_by(2).rev().fold(run[0].verdict, |rest, single| {
                graph.branch(IF_EQUAL, single.start, single.verdict, rest)
            }),
        }
    }
}
