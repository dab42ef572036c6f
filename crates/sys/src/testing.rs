//! What the unit tests of several crates share.

#![allow(clippy::unwrap_used, reason = "for tests")]

pub mod machine;

use nix::time::ClockId;
use std::time::Duration;

// How the cost of documents grows with their size. It is counted in CPU time and compared with that of a smaller document:
// neither a busy machine nor a build without optimisation fails a test.

/// What a cost may exceed its share by: a quadratic cost at eight times the size is twice what is allowed.
const TOLERANCE: u32 = 4;
/// Cost that says nothing.
const FLOOR: Duration = Duration::from_millis(20);
/// A measurement may be off: page faults and caches are counted too.
const TRIES: usize = 3;

/// Fails if the cost of `act` on what `prepare` makes of a size grows faster than the size.
#[track_caller]
pub fn grows_linearly<T>(
    what: &str,
    [small, large]: [usize; 2],
    prepare: impl Fn(usize) -> T,
    act: impl Fn(T),
) {
    let times = u32::try_from(large / small).unwrap();
    compare(what, times, || [small, large].map(|size| cost(&prepare, &act, size)));
}

/// Fails if the cost of `act` on what `prepare` makes of a size grows with the size.
#[track_caller]
pub fn does_not_grow<T>(
    what: &str,
    [small, large]: [usize; 2],
    prepare: impl Fn(usize) -> T,
    act: impl Fn(T),
) {
    compare(what, 1, || [small, large].map(|size| cost(&prepare, &act, size)));
}

#[track_caller]
fn compare(what: &str, times: u32, measure: impl Fn() -> [Duration; 2]) {
    let mut costs = Vec::new();
    let is_allowed = |[small, large]: [Duration; 2]| large <= small * times * TOLERANCE + FLOOR;
    let mut attempt = || {
        costs.push(measure());
        costs.last().copied().is_some_and(is_allowed)
    };
    if !(0..TRIES).any(|_| attempt()) {
        panic!("{what}: allowed is {times} times the cost, but it is {costs:?}");
    }
}

fn cost<T>(prepare: impl Fn(usize) -> T, act: impl Fn(T), size: usize) -> Duration {
    let prepared = prepare(size);
    let begun = now();
    act(prepared);
    now() - begun
}

/// CPU time of this thread.
fn now() -> Duration {
    ClockId::CLOCK_THREAD_CPUTIME_ID.now().unwrap().into()
}

/// How many random cases a property is tried on: `many` with SAGGAR_TEST_LONG=1 (`.ci/full loops`), and a fifth of them
/// otherwise.
pub fn cases(many: u32) -> u32 {
    if std::env::var_os("SAGGAR_TEST_LONG").is_some_and(|wanted| wanted == "1") { many } else { many / 5 }
}
