//! From the graph to instructions.
//!
//! Jumps go forward only and skip at most 255 instructions. The program is put together from its end, so
//! that every target is placed before the jump to it; one that is out of reach gets a stepping stone.

use super::Result;
use super::graph::{Graph, Id, Node};
use super::rules::{JA, RET};
use seccompiler::{BpfProgram, sock_filter};
use std::collections::BTreeMap;

/// The longest program the kernel takes (linux/bpf_common.h, BPF_MAXINSNS).
const LONGEST: usize = 4096;

/// The instructions of `graph` from `start` on.
pub(crate) fn assemble(graph: &Graph, start: Id) -> Result<BpfProgram> {
    let mut assembler = Assembler { graph, code: Vec::new(), places: BTreeMap::new() };
    assembler.place(start)?;
    assembler.within_reach(start, 0)?;
    let mut program = assembler.code;
    program.reverse();
    match program.len() {
        length if length > LONGEST => Err(format!("{length} instructions, the kernel takes {LONGEST}")),
        _ => Ok(program),
    }
}

struct Assembler<'a> {
    graph: &'a Graph,
    /// Last instruction first.
    code: BpfProgram,
    /// Where in `code` each node is that is placed: the copy that was placed last.
    places: BTreeMap<Id, usize>,
}

impl Assembler<'_> {
    fn push(&mut self, id: Id, code: u16, jt: u8, jf: u8, k: u32) {
        self.places.insert(id, self.code.len());
        self.code.push(sock_filter { code, jt, jf, k });
    }

    /// Sees to it that `id`, and all that comes after it, is in the program.
    fn place(&mut self, id: Id) -> Result<()> {
        if self.places.contains_key(&id) {
            return Ok(());
        }
        match self.graph.node(id) {
            Node::Return(k) => self.push(id, RET, 0, 0, k),
            Node::Step(code, k, next) => {
                self.place(next)?;
                self.within_reach(next, 0)?;
                self.push(id, code, 0, 0, k);
            }
            Node::If(code, k, yes, no) => {
                self.place(yes)?;
                self.place(no)?;
                // A stone for the second target pushes the first one away by one more.
                self.within_reach(yes, 254)?;
                self.within_reach(no, 255)?;
                self.push(id, code, self.skip(yes)?, self.skip(no)?, k);
            }
        }
        Ok(())
    }

    /// How many instructions the next one must skip to get to `id`.
    fn skip<T: TryFrom<usize>>(&self, id: Id) -> Result<T> {
        let skip = self.code.len() - 1 - self.places[&id];
        T::try_from(skip).map_err(|_| format!("a jump over {skip} instructions"))
    }

    /// Places a stepping stone to `id` unless the next instruction can get there by skipping `limit`.
    fn within_reach(&mut self, id: Id, limit: usize) -> Result<()> {
        if self.skip::<usize>(id)? <= limit {
            return Ok(());
        }
        match self.graph.node(id) {
            Node::Return(k) => self.push(id, RET, 0, 0, k),
            _ => {
                let skip = self.skip(id)?;
                self.push(id, JA, 0, 0, skip);
            }
        }
        Ok(())
    }
}
