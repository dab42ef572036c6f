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
        let [first, rest @ ..] = program else { return Err("a program without a ret".to_owned()) };
        self.read_from(first, rest, None)
    }

    fn read_from(&mut self, first: &sock_filter, rest: &[sock_filter], known: Known) -> Result<Id> {
        let sock_filter { code, jt, jf, k } = *first;
        let mut go = |skip: usize, known: Known| match rest.get(skip..) {
            Some([next, after @ ..]) => self.read_from(next, after, known),
            _ => Err("a jump past the end of a program".to_owned()),
        };
        match code {
            RET => Ok(self.add(Node::Return(k))),
            JA => go(usize::try_from(k).map_err(|error| error.to_string())?, known),
            IF_EQUAL | IF_GREATER | IF_AT_LEAST => {
                let (yes, no) = (go(jt.into(), known)?, go(jf.into(), known)?);
                Ok(self.branch(code, k, yes, no))
            }
            LOAD if known == Some((k, None)) => go(0, known),
            LOAD => match rest.first() {
                Some(and) if and.code == AND && known == Some((k, Some(and.k))) => go(1, known),
                _ => {
                    let next = go(0, Some((k, None)))?;
                    Ok(self.add(Node::Step(code, k, next)))
                }
            },
            AND => {
                let masked = known.and_then(|(word, mask)| mask.is_none().then_some((word, Some(k))));
                let next = go(0, masked)?;
                Ok(self.add(Node::Step(code, k, next)))
            }
            other => Err(format!("instruction {other:#x} is not one that seccompiler makes")),
        }
    }
}
