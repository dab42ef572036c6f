//! The program as a graph of decisions, in which what is equal is there once.
//!
//! A run of checks loads an argument anew for each condition and has a `ret` for each rule. Read into a graph
//! it loses both: a load of what the accumulator holds is skipped, and endings that are equal, of one call or
//! of several, are the same node.

use crate::Result;
use crate::bpf::{AND, IF_AT_LEAST, IF_EQUAL, IF_GREATER, Instruction, JA, LOAD, RET};
use std::collections::HashMap;

/// A node's name in its graph.
pub type Id = usize;

/// One step of the machine, and what comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Node {
    /// Give this answer.
    Return(u32),
    /// Do this instruction (a load or an and) with this operand.
    Step(u16, u32, Id),
    /// Compare with this instruction and operand: then, else.
    If(u16, u32, Id, Id),
}

/// What the accumulator holds: a word of `seccomp_data`, and the mask that was laid over it.
type Known = Option<(u32, Option<u32>)>;

/// Nodes, each once. A node's successors are older than itself.
#[derive(Debug, Default)]
pub struct Graph {
    nodes: Vec<Node>,
    ids: HashMap<Node, Id>,
}

impl Graph {
    /// The node with this name.
    pub fn node(&self, id: Id) -> Node {
        self.nodes[id]
    }

    /// The name of `node`, which is added if it is new.
    pub fn add(&mut self, node: Node) -> Id {
        *self.ids.entry(node).or_insert_with(|| {
            self.nodes.push(node);
            self.nodes.len() - 1
        })
    }

    /// Adds a comparison, unless both ways lead to the same place.
    pub fn branch(&mut self, code: u16, k: u32, yes: Id, no: Id) -> Id {
        if yes == no { yes } else { self.add(Node::If(code, k, yes, no)) }
    }

    /// Adds a straight program and returns its first node.
    ///
    /// Jumps go forward only. So one pass from the start finds what the accumulator can hold at each
    /// instruction, and one from the end makes a node for each of these cases.
    pub fn read(&mut self, program: &[Instruction]) -> Result<Id> {
        let mut cases: Vec<Vec<Known>> = vec![Vec::new(); program.len()];
        cases.first_mut().ok_or("an empty program")?.push(None);
        for at in 0..program.len() {
            for case in 0..cases[at].len() {
                for (next, known) in moves(program, at, cases[at][case])?.ahead().into_iter().flatten() {
                    let there = cases.get_mut(next).ok_or("a jump past the end of a program")?;
                    if !there.contains(&known) {
                        there.push(known);
                    }
                }
            }
        }
        let mut ids: Vec<Vec<Id>> = vec![Vec::new(); program.len()];
        for at in (0..program.len()).rev() {
            for known in &cases[at] {
                let id = |(next, known): (usize, Known)| {
                    let case = cases[next].iter().position(|other| *other == known);
                    case.map(|case| ids[next][case]).ok_or_else(|| "a case was overlooked".to_owned())
                };
                let id = match moves(program, at, *known)? {
                    Move::Return(k) => self.add(Node::Return(k)),
                    Move::Pass(next) => id(next)?,
                    Move::Step(code, k, next) => {
                        let next = id(next)?;
                        self.add(Node::Step(code, k, next))
                    }
                    Move::If(code, k, yes, no) => {
                        let (yes, no) = (id(yes)?, id(no)?);
                        self.branch(code, k, yes, no)
                    }
                };
                ids[at].push(id);
            }
        }
        Ok(ids[0][0])
    }
}

/// What an instruction does, given what the accumulator holds; and where it leads, with what.
enum Move {
    Return(u32),
    Pass((usize, Known)),
    Step(u16, u32, (usize, Known)),
    If(u16, u32, (usize, Known), (usize, Known)),
}

impl Move {
    fn ahead(&self) -> [Option<(usize, Known)>; 2] {
        match *self {
            Move::Return(_) => [None, None],
            Move::Pass(next) | Move::Step(_, _, next) => [Some(next), None],
            Move::If(_, _, yes, no) => [Some(yes), Some(no)],
        }
    }
}

fn moves(program: &[Instruction], at: usize, known: Known) -> Result<Move> {
    let Instruction { code, jt, jf, k } = program[at];
    let next = at + 1;
    Ok(match code {
        RET => Move::Return(k),
        JA => Move::Pass((next + usize::try_from(k).map_err(|error| error.to_string())?, known)),
        IF_EQUAL | IF_GREATER | IF_AT_LEAST => {
            Move::If(code, k, (next + usize::from(jt), known), (next + usize::from(jf), known))
        }
        LOAD if known == Some((k, None)) => Move::Pass((next, known)),
        LOAD => match program.get(next) {
            Some(and) if and.code == AND && known == Some((k, Some(and.k))) => Move::Pass((next + 1, known)),
            _ => Move::Step(code, k, (next, Some((k, None)))),
        },
        AND => {
            let masked = known.and_then(|(word, mask)| mask.is_none().then_some((word, Some(k))));
            Move::Step(code, k, (next, masked))
        }
        other => return Err(format!("instruction {other:#x} is not one that rules are made of")),
    })
}
