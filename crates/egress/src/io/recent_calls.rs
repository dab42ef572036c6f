//! Recent calls to ports without a listener. The kernel forgets such a connection at once, so its program is
//! determined while it still waits in connect(2) ([`super::seccomp_notify`]).

use super::socket_owner::CallingProgram;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The rejection of a call arrives within this time.
const CALL_LIFETIME: Duration = Duration::from_secs(1);
/// Maximum number of recorded calls within that time.
const MAX_CALLS: usize = 64;

/// The recent calls of programs.
#[derive(Debug, Default)]
pub(super) struct RecentCalls(Vec<RecentCall>);

#[derive(Debug)]
struct RecentCall {
    to: SocketAddr,
    thread: i32,
    program: CallingProgram,
    called_at: Instant,
}

impl RecentCalls {
    /// Records a call of a thread to this address. `program` finds its program, unless it is already known.
    pub(super) fn record(
        &mut self,
        to: SocketAddr,
        thread: i32,
        now: Instant,
        program: impl FnOnce() -> Option<CallingProgram>,
    ) {
        self.0.retain(|caller| now.saturating_duration_since(caller.called_at) < CALL_LIFETIME);
        if self.0.len() < MAX_CALLS && !self.0.iter().any(|caller| (caller.to, caller.thread) == (to, thread))
        {
            self.0.extend(program().map(|program| RecentCall { to, thread, program, called_at: now }));
        }
    }

    /// The program that called this address, if it is unambiguous.
    pub(super) fn find_program(&self, to: SocketAddr) -> Option<CallingProgram> {
        let mut programs = self.0.iter().filter(|caller| caller.to == to).map(|caller| &caller.program);
        let first = programs.next()?;
        programs.all(|other| other == first).then(|| first.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(pid: i32) -> Option<CallingProgram> {
        Some(CallingProgram { pid, name: "curl".into() })
    }

    fn at(port: u16) -> SocketAddr {
        ([93, 184, 215, 14], port).into()
    }

    #[test]
    fn a_program_is_known_while_it_is_the_only_one() {
        let (mut callers, begin) = (RecentCalls::default(), Instant::now());
        for thread in [7, 8] {
            callers.record(at(81), thread, begin, || program(7));
        }
        callers.record(at(82), 9, begin, || None);
        assert_eq!(callers.find_program(at(81)), program(7));
        assert_eq!(callers.find_program(at(82)), None);
        callers.record(at(81), 9, begin, || program(9));
        assert_eq!(callers.find_program(at(81)), None, "one of two");
        callers.record(at(83), 9, begin + CALL_LIFETIME, || program(9));
        callers.record(at(81), 9, begin + CALL_LIFETIME, || program(9));
        assert_eq!(callers.find_program(at(81)), program(9));
    }

    #[test]
    fn a_flood_is_bounded() {
        let (mut callers, begin, mut looked) = (RecentCalls::default(), Instant::now(), 0);
        for port in 1..10_000 {
            callers.record(at(port), 7, begin, || {
                looked += 1;
                program(7)
            });
            callers.record(at(port), 7, begin, || unreachable!("it is known or there are too many"));
        }
        assert_eq!(looked, MAX_CALLS);
    }
}
