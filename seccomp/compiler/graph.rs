//! The program as a graph of decisions, in which what is equal is there once.
//!
//! seccompiler's runs of instructions load an argument anew for each condition and have a `ret` for each
//! rule. Read into a graph they lose both: a load of what the accumulator holds is skipped, and endings that
//! are equal, of one call or of several, are the same node.

use super::Result;
use super::rules::{AND, IF_AT_LEAST, IF_EQUAL, IF_GREATER, JA, LOAD, RET};
use seccompiler::sock_filter;
use std::collections::BTreeMap;

/// A node's name in its graph.
pub(crate) type Id = usize;

/// One step of the machine, and what comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Node {
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
pub(crate) struct Graph {
    nodes: Vec<Node>,
    ids: BTreeMap<Node, Id>,
}

impl Graph {
    /// The node with this name.
    pub(crate) fn node(&self, id: Id) -> Node {
        self.nodes[id]
    }

    /// The name of `node`, which is added if it is new.
    pub(crate) fn add(&mut self, node: Node) -> Id {
        *self.ids.entry(node).or_insert_with(|| {
            self.nodes.push(node);
            self.nodes.len() - 1
        })
    }

    /// Adds a comparison, unless both ways lead to the same place.
    pub(crate) fn branch(&mut self, code: u16, k: u32, yes: Id, no: Id) -> Id {
        if yes == no { yes } else { self.add(Node::If(code, k, yes, no)) }
    }

    /// Adds a straight program and returns its first node.
    pub(crate) fn read(&mut self, program: &[sock_filter]) -> Result<Id> {
        Reader { graph: self, program, seen: BTreeMap::new() }.node(0, None)
    }
}

/// Reads one program into a graph.
struct Reader<'a> {
    graph: &'a mut Graph,
    program: &'a [sock_filter],
    /// What was read before: a chain of rules has many more paths than instructions.
    seen: BTreeMap<(usize, Known), Id>,
}

impl Reader<'_> {
    fn node(&mut self, at: usize, known: Known) -> Result<Id> {
        if let Some(id) = self.seen.get(&(at, known)) {
            return Ok(*id);
        }
        let id = self.read(at, known)?;
        self.seen.insert((at, known), id);
        Ok(id)
    }

    fn read(&mut self, at: usize, known: Known) -> Result<Id> {
        let past = || "a jump past the end of a program".to_owned();
        let sock_filter { code, jt, jf, k } = *self.program.get(at).ok_or_else(past)?;
        let next = at + 1;
        match code {
            RET => Ok(self.graph.add(Node::Return(k))),
            JA => self.node(next + usize::try_from(k).map_err(|error| error.to_string())?, known),
            IF_EQUAL | IF_GREATER | IF_AT_LEAST => {
                let yes = self.node(next + usize::from(jt), known)?;
                let no = self.node(next + usize::from(jf), known)?;
                Ok(self.graph.branch(code, k, yes, no))
            }
            LOAD if known == Some((k, None)) => self.node(next, known),
            LOAD => match self.program.get(next) {
                Some(and) if and.code == AND && known == Some((k, Some(and.k))) => self.node(next + 1, known),
                _ => self.step(code, k, next, Some((k, None))),
            },
            AND => {
                let masked = known.and_then(|(word, mask)| mask.is_none().then_some((word, Some(k))));
                self.step(code, k, next, masked)
            }
            other => Err(format!("instruction {other:#x} is not one that seccompiler makes")),
        }
    }

    fn step(&mut self, code: u16, k: u32, next: usize, known: Known) -> Result<Id> {
        let next = self.node(next, known)?;
        Ok(self.graph.add(Node::Step(code, k, next)))
    }
}
