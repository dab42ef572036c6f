//! A search tree over ranges of numbers.
//!
//! When a filter is loaded the kernel translates every instruction, and runs it once for every system call
//! number, to learn which calls are always allowed (seccomp_cache_prepare_bitmap, Linux 5.11). So both the
//! size and the depth count. Neighbours with one verdict are one range. Where all else has one verdict, a few
//! single numbers are asked for in turn, at one comparison each; a split of what lies around them takes two.

use crate::bpf::{IF_AT_LEAST, IF_EQUAL};
use crate::graph::{Graph, Id};

/// What an instruction costs the load, in steps of one number through the tree. Measured on Linux 6.18: a
/// comparison takes 110 ns to translate and 2.4 ns to run.
const INSTRUCTION: u64 = 45;

/// Neighbouring numbers with one verdict.
#[derive(Debug, Clone, Copy)]
pub struct Range {
    /// The first of them.
    pub start: u32,
    /// Whether there is no other.
    pub single: bool,
    /// How many of them the kernel tries when it loads the filter.
    pub tried: u32,
    /// What they lead to.
    pub verdict: Id,
}

/// How far from the middle a split may be, in ranges.
const WINDOW: usize = 6;

/// Adds the search in `ranges`, which are in order and touch each other; there is at least one. Numbers
/// before the first and after the last do not come.
pub fn build(graph: &mut Graph, ranges: &[Range]) -> Id {
    let run = Run::of(ranges);
    if let Some(asked) = run.asked {
        // Nothing is cheaper than two questions.
        let two = 2 * (INSTRUCTION + run.weight);
        if asked <= two || split(ranges, run.weight).is_none_or(|(cost, _)| asked <= cost) {
            let exceptions = ranges.iter().rev().filter(|range| range.verdict != run.common);
            return exceptions
                .fold(run.common, |rest, range| graph.branch(IF_EQUAL, range.start, range.verdict, rest));
        }
    }
    let at = split(ranges, run.weight).map_or(1, |(_, at)| at);
    let (low, high) = ranges.split_at(at);
    let below = build(graph, low);
    let from = build(graph, high);
    graph.branch(IF_AT_LEAST, high[0].start, from, below)
}

/// Where to compare, and about what the search costs then.
fn split(ranges: &[Range], weight: u64) -> Option<(u64, usize)> {
    let mut below = 0;
    let middle = ranges.iter().position(|range| {
        below += range.weight();
        below > weight / 2
    })?;
    let near = middle.saturating_sub(WINDOW).max(1)..(middle + WINDOW).min(ranges.len());
    let cost = |at| INSTRUCTION + weight + Run::of(&ranges[..at]).cost() + Run::of(&ranges[at..]).cost();
    near.map(|at| (cost(at), at)).min()
}

impl Range {
    /// One more than the kernel tries keeps the tree balanced where it tries nothing.
    fn weight(&self) -> u64 {
        u64::from(self.tried) + 1
    }
}

/// What matters of a run of ranges.
struct Run {
    length: u64,
    weight: u64,
    /// The verdict of all ranges that are not single numbers, if they have one.
    common: Id,
    /// What it costs to ask for one number after the other, where that is possible.
    asked: Option<u64>,
}

impl Run {
    fn of(ranges: &[Range]) -> Self {
        let common = ranges.iter().find(|range| !range.single).unwrap_or(&ranges[0]).verdict;
        let (mut length, mut weight, mut exceptions, mut possible) = (0, 0, 0, true);
        for range in ranges {
            length += 1;
            weight += range.weight();
            if range.verdict != common {
                exceptions += 1;
                possible &= range.single;
            }
        }
        Run { length, weight, common, asked: possible.then_some(exceptions * (INSTRUCTION + weight)) }
    }

    /// About what the search costs.
    fn cost(&self) -> u64 {
        let splits = (self.length - 1) * INSTRUCTION + self.weight * u64::from(self.length.ilog2());
        self.asked.map_or(splits, |asked| asked.min(splits))
    }
}
