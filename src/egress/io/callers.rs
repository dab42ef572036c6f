//! Who calls a port that nobody hears. The kernel forgets such a connection at once, so its program is looked for
//! while it still waits to call ([`super::asker`]).

use super::owner::Program;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// What came to such a call is known in less than this time.
const GOOD: Duration = Duration::from_secs(1);
/// Programs that are looked for in that time.
const MOST: usize = 64;

/// Those who have called of late.
#[derive(Debug, Default)]
pub(super) struct Callers(Vec<Caller>);

#[derive(Debug)]
struct Caller {
    to: SocketAddr,
    thread: i32,
    program: Program,
    at: Instant,
}

impl Callers {
    /// A thread calls this address; `program` looks for its program, where it is not known yet.
    pub(super) fn add(
        &mut self,
        to: SocketAddr,
        thread: i32,
        now: Instant,
        program: impl FnOnce() -> Option<Program>,
    ) {
        self.0.retain(|caller| now.saturating_duration_since(caller.at) < GOOD);
        if self.0.len() < MOST && !self.0.iter().any(|caller| (caller.to, caller.thread) == (to, thread)) {
            self.0.extend(program().map(|program| Caller { to, thread, program, at: now }));
        }
    }

    /// The program that has called this address, where it is one.
    pub(super) fn of(&self, to: SocketAddr) -> Option<Program> {
        let mut programs = self.0.iter().filter(|caller| caller.to == to).map(|caller| &caller.program);
        let first = programs.next()?;
        programs.all(|other| other == first).then(|| first.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(pid: i32) -> Option<Program> {
        Some(Program { pid, name: "curl".into() })
    }

    fn at(port: u16) -> SocketAddr {
        ([93, 184, 215, 14], port).into()
    }

    #[test]
    fn a_program_is_known_while_it_is_the_only_one() {
        let (mut callers, begin) = (Callers::default(), Instant::now());
        for thread in [7, 8] {
            callers.add(at(81), thread, begin, || program(7));
        }
        callers.add(at(82), 9, begin, || None);
        assert_eq!(callers.of(at(81)), program(7));
        assert_eq!(callers.of(at(82)), None);
        callers.add(at(81), 9, begin, || program(9));
        assert_eq!(callers.of(at(81)), None, "one of two");
        callers.add(at(83), 9, begin + GOOD, || program(9));
        callers.add(at(81), 9, begin + GOOD, || program(9));
        assert_eq!(callers.of(at(81)), program(9));
    }

    #[test]
    fn a_flood_is_bounded() {
        let (mut callers, begin, mut looked) = (Callers::default(), Instant::now(), 0);
        for port in 1..10_000 {
            callers.add(at(port), 7, begin, || {
                looked += 1;
                program(7)
            });
            callers.add(at(port), 7, begin, || unreachable!("it is known or there are too many"));
        }
        assert_eq!(looked, MOST);
    }
}
