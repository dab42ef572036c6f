//! The whole program: the architecture, then a search tree over ranges of numbers.
//!
//! When a filter is loaded the kernel runs it once for every system call number, to learn which calls are
//! always allowed (seccomp_cache_prepare_bitmap, Linux 5.11); and it translates every instruction. So both
//! the depth and the size count. Neighbours with one verdict are one range, verdicts that are equal share
//! their instructions, and the tree is split where the numbers are, not where the ranges are.
//!
//! Jumps go forward only and reach 255 instructions. The program is put together from its end, so that
//! every target is placed before the jump to it; one that is out of reach gets a stepping stone.

use super::Result;
use super::policy::{Policy, Verdict};
use super::rules::{self, JA, RET};
use seccompiler::{BpfProgram, sock_filter};
use std::collections::BTreeMap;

/// `A = word at k of seccomp_data`: BPF_LD | BPF_W | BPF_ABS.
const LOAD: u16 = 0x20;
/// `if A == k`: BPF_JMP | BPF_JEQ | BPF_K.
const IF_EQUAL: u16 = 0x15;
/// `if A >= k`: BPF_JMP | BPF_JGE | BPF_K.
const IF_AT_LEAST: u16 = 0x35;
/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
/// The longest program the kernel takes (linux/bpf_common.h, BPF_MAXINSNS).
const LONGEST: usize = 4096;

/// Compiles `policy`.
pub(crate) fn compile(policy: &Policy) -> Result<BpfProgram> {
    let ranges = policy.ranges();
    let mut assembler = Assembler::default();
    for (_, verdict) in &ranges {
        assembler.define(verdict)?;
    }
    let tree = assembler.tree(&ranges, policy.known())?;
    assembler.within_reach(tree, 0)?;
    let foreign = rules::ret(policy.foreign);
    let own = sock_filter { code: IF_EQUAL, jt: 1, jf: 0, k: policy.arch.audit() };
    assembler.code.extend([load(NUMBER), foreign, own, load(ARCH)]);
    assembler.code.reverse();
    match assembler.code.len() {
        length if length > LONGEST => Err(format!("{length} instructions, the kernel takes {LONGEST}")),
        _ => Ok(assembler.code),
    }
}

fn load(offset: u32) -> sock_filter {
    sock_filter { code: LOAD, jt: 0, jf: 0, k: offset }
}

/// Where to split `ranges`: the index that best halves the numbers below `known`.
fn middle(ranges: &[(u32, Verdict)], known: u32) -> usize {
    let start = |index: usize| ranges.get(index).map_or(known, |range| range.0.min(known));
    let (first, last) = (start(0), start(ranges.len()));
    let uneven = |&index: &usize| (start(index) - first).abs_diff(last - start(index));
    let off_centre = |&index: &usize| (2 * index).abs_diff(ranges.len());
    (1..ranges.len()).min_by_key(|index| (uneven(index), off_centre(index))).unwrap_or(1)
}

/// A place in the program: how many instructions come after it.
type Place = usize;

/// The program so far, last instruction first.
#[derive(Default)]
struct Assembler {
    code: BpfProgram,
    places: BTreeMap<Verdict, Place>,
}

impl Assembler {
    fn push(&mut self, instruction: sock_filter) -> Place {
        self.code.push(instruction);
        self.code.len() - 1
    }

    /// Places the instructions of `verdict`, unless they are there already.
    fn define(&mut self, verdict: &Verdict) -> Result<()> {
        if !self.places.contains_key(verdict) {
            self.code.extend(rules::compile(verdict)?.into_iter().rev());
            self.places.insert(verdict.clone(), self.code.len() - 1);
        }
        Ok(())
    }

    /// Places the search for a number in `ranges`.
    fn tree(&mut self, ranges: &[(u32, Verdict)], known: u32) -> Result<Place> {
        if let [(_, verdict)] = ranges {
            return Ok(self.places[verdict]);
        }
        let (below, from) = ranges.split_at(middle(ranges, known));
        let at_least = self.tree(from, known)?;
        let less = self.tree(below, known)?;
        // A stone for the second target pushes the first one away by one more.
        let at_least = self.within_reach(at_least, 254)?;
        let less = self.within_reach(less, 255)?;
        let (jt, jf) = (self.offset(at_least)?, self.offset(less)?);
        Ok(self.push(sock_filter { code: IF_AT_LEAST, jt, jf, k: from[0].0 }))
    }

    /// How many instructions the next one must skip to get to `place`.
    fn distance(&self, place: Place) -> usize {
        self.code.len() - 1 - place
    }

    fn offset<T: TryFrom<usize>>(&self, place: Place) -> Result<T> {
        let distance = self.distance(place);
        T::try_from(distance).map_err(|_| format!("a jump over {distance} instructions"))
    }

    /// A place that does the same as `place` and that the next instruction can reach by skipping `limit`.
    fn within_reach(&mut self, place: Place, limit: usize) -> Result<Place> {
        if self.distance(place) <= limit { Ok(place) } else { self.stone(place) }
    }

    /// Places an instruction that does the same as `place`; later jumps to that verdict use it too.
    fn stone(&mut self, place: Place) -> Result<Place> {
        let instruction = match self.code[place].code {
            RET => self.code[place].clone(),
            _ => sock_filter { code: JA, jt: 0, jf: 0, k: self.offset(place)? },
        };
        let stone = self.push(instruction);
        self.places.values_mut().filter(|known| **known == place).for_each(|known| *known = stone);
        Ok(stone)
    }
}
