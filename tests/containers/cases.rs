//! The cases.

use super::Caller::{self, Ordinary, Root};
use super::bundle::Bundle;

type Case = (&'static str, &'static [Caller], fn(Caller));

const BOTH: &[Caller] = &[Root, Ordinary];

pub(crate) const ALL: &[Case] = &[("a container runs", BOTH, runs)];

fn runs(caller: Caller) {
    let bundle = Bundle::new(
        caller,
        "echo pid $$; id -u; hostname; ls /; ls -l /dev; cat /proc/self/mountinfo; cat /proc/self/status; ls -l /proc/self/fd; env",
    );
    let said = bundle.said();
    println!("{said}");
}
