//! No words are put into the mouth of whoever reads a terminal.

use super::probe::{self, probe};
use super::wrapped::Wrap;

as_each_caller! {
    /// CVE-2017-5226, and CVE-2019-10063 and CVE-2023-28100: garbage in the high half of the request, and the
    /// other call that pastes. The terminal is the program's own, so nothing but the filter refuses.
    fn input_is_not_faked(caller) {
        let probe = probe!();
        let wrap = Wrap::new(caller);
        probe::expect(&wrap, probe, &[], &[("own_terminal", "ok")]);
        let pasting = ["tiocsti", "tiocsti_high", "tioclinux", "tioclinux_high", "tiocsetd"];
        probe::expect_all(&wrap, probe, "EPERM", &pasting);
    }
}
