//! From the graph to instructions.
//!
//! Jumps go forward only and skip at most 255 instructions. The program is put together from its end, so
//! that every target is placed before the jump to it; one that is out of reach gets a stepping stone.

use crate::Result;
use crate::bpf::{Instruction, JA, LONGEST, ret};
use crate::graph::{Graph, Id, Node};

/// The instructions of `graph` from `start` on.
pub fn assemble(graph: &Graph, start: Id) -> Result<Vec<Instruction>> {
    let mut assembler = Assembler { graph, code: Vec::new(), places: vec![None; start + 1] };
    // Successors are older: the order of age places each target before the jumps to it.
    for id in reachable(graph, start) {
        assembler.place(id)?;
        if assembler.code.len() > LONGEST {
            return Err(format!("more than {LONGEST} instructions, which is all that the kernel takes"));
        }
    }
    let mut program = assembler.code;
    program.reverse();
    Ok(program)
}

/// `start` and all that comes after it, the oldest first.
fn reachable(graph: &Graph, start: Id) -> impl Iterator<Item = Id> {
    let mut wanted = vec![false; start + 1];
    wanted[start] = true;
    for id in (0..=start).rev() {
        if wanted[id] {
            match graph.node(id) {
                Node::Return(_) => {}
                Node::Step(_, _, next) => wanted[next] = true,
                Node::If(_, _, yes, no) => {
                    wanted[yes] = true;
                    wanted[no] = true;
                }
            }
        }
    }
    (0..=start).filter(move |id| wanted[*id])
}

struct Assembler<'a> {
    graph: &'a Graph,
    /// Last instruction first.
    code: Vec<Instruction>,
    /// Where in `code` each node is that is placed: the copy that was placed last.
    places: Vec<Option<usize>>,
}

impl Assembler<'_> {
    fn push(&mut self, id: Id, instruction: Instruction) {
        self.places[id] = Some(self.code.len());
        self.code.push(instruction);
    }

    /// Adds `id`, whose successors are there.
    fn place(&mut self, id: Id) -> Result<()> {
        match self.graph.node(id) {
            Node::Return(k) => self.push(id, ret(k)),
            Node::Step(code, k, next) => {
                self.within_reach(next, 0)?;
                self.push(id, Instruction { code, jt: 0, jf: 0, k });
            }
            Node::If(code, k, yes, no) => {
                // A stone for the second target pushes the first one away by one more.
                self.within_reach(yes, 254)?;
                self.within_reach(no, 255)?;
                let (jt, jf) = (self.skip(yes)?, self.skip(no)?);
                self.push(id, Instruction { code, jt, jf, k });
            }
        }
        Ok(())
    }

    /// How many instructions the next one must skip to get to `id`.
    fn skip<T: TryFrom<usize>>(&self, id: Id) -> Result<T> {
        let place = self.places[id].ok_or("a jump to what is not there yet")?;
        let skip = self.code.len() - 1 - place;
        T::try_from(skip).map_err(|_| format!("a jump over {skip} instructions"))
    }

    /// Places a stepping stone to `id` unless the next instruction can get there by skipping `limit`.
    fn within_reach(&mut self, id: Id, limit: usize) -> Result<()> {
        if self.skip::<usize>(id)? <= limit {
            return Ok(());
        }
        let stone = match self.graph.node(id) {
            Node::Return(k) => ret(k),
            _ => Instruction { code: JA, jt: 0, jf: 0, k: self.skip(id)? },
        };
        self.push(id, stone);
        Ok(())
    }
}
