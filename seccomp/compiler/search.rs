//! A search tree over ranges of numbers.
//!
//! When a filter is loaded the kernel translates every instruction, and runs it once for every system call
//! number, to learn which calls are always allowed (seccomp_cache_prepare_bitmap, Linux 5.11). So both the
//! size and the depth count. Neighbours with one verdict are one range. Where all else has one verdict, a few
//! single numbers are asked for in turn, at one comparison each; a split of what lies around them takes two.

use super::bpf::{IF_AT_LEAST, IF_EQUAL};
use super::graph::{Graph, Id};

/// What an instruction costs the load, in steps of one number through the tree. Measured on Linux 6.18: a
/// comparison takes 110 ns to translate and 2.4 ns to run.
const INSTRUCTION: u64 = 45;

/// Neighbouring numbers with one verdict.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range {
    /// The first of them.
    pub(crate) start: u32,
    /// Whether there is no other.
    pub(crate) single: bool,
    /// How many of them the kernel tries when it loads the filter.
    pub(crate) tried: u32,
    /// What they lead to.
    pub(crate) verdict: Id,
}

/// How far from the middle a split may be, in ranges.
const WINDOW: usize = 6;

/// Adds the search in `ranges`, which are in order and touch each other; there is at least one. Numbers
/// before the first and after the last do not come.
pub(crate) fn build(graph: &mut Graph, ranges: &[Range]) -> Id {
    if ranges.len() == 1 {
        return ranges[0].verdict;
    }
    let middle = middle(ranges);
    let near = middle.saturating_sub(WINDOW).max(1)..(middle + WINDOW).min(ranges.len());
    let split = near.map(|at| (cost(&ranges[..at]) + cost(&ranges[at..]), at)).min();
    match (questions(ranges), split) {
        (Some(asked), Some((cost, at))) if INSTRUCTION + weight(ranges) + cost < asked => {
            divide(graph, ranges, at)
        }
        (None, Some((_, at))) => divide(graph, ranges, at),
        _ => {
            let common = common(ranges);
            let exceptions = ranges.iter().rev().filter(|range| range.verdict != common);
            exceptions.fold(common, |rest, range| graph.branch(IF_EQUAL, range.start, range.verdict, rest))
        }
    }
}

/// Adds a comparison with the start of range `at`, and the searches on both sides.
fn divide(graph: &mut Graph, ranges: &[Range], at: usize) -> Id {
    let (low, high) = ranges.split_at(at);
    let below = build(graph, low);
    let from = build(graph, high);
    graph.branch(IF_AT_LEAST, high[0].start, from, below)
}

/// How many numbers the kernel tries in `ranges`; one more for each range keeps the tree balanced where
/// it tries nothing.
fn weight(ranges: &[Range]) -> u64 {
    ranges.iter().map(|range| u64::from(range.tried) + 1).sum()
}

/// Where half of the weight lies on each side.
fn middle(ranges: &[Range]) -> usize {
    let (half, mut below) = (weight(ranges) / 2, 0);
    let place = ranges.iter().position(|range| {
        below += u64::from(range.tried) + 1;
        below > half
    });
    place.unwrap_or(0)
}

/// The verdict of all ranges that are not single numbers, if they have one.
fn common(ranges: &[Range]) -> Id {
    ranges.iter().find(|range| !range.single).unwrap_or(&ranges[0]).verdict
}

/// What it costs to ask for one number after the other, where that is possible.
fn questions(ranges: &[Range]) -> Option<u64> {
    let common = common(ranges);
    let mut exceptions = ranges.iter().filter(|range| range.verdict != common);
    let count: u64 = exceptions.clone().map(|_| 1).sum();
    exceptions.all(|range| range.single).then(|| count * (INSTRUCTION + weight(ranges)))
}

/// About what the search in `ranges` costs.
fn cost(ranges: &[Range]) -> u64 {
    let count = ranges.len() as u64;
    let splits = (count - 1) * INSTRUCTION + weight(ranges) * u64::from(count.ilog2());
    questions(ranges).map_or(splits, |asked| asked.min(splits))
}
