//! The filters, against their meaning and against the kernel.

use super::{Profile, load, program};

#[test]
fn the_agent_filter_loads() {
    std::thread::spawn(|| {
        // SAFETY: prctl with this option takes numbers only.
        assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
        assert_eq!(load(program(Profile::Agent)), Ok(()));
    })
    .join()
    .unwrap();
}
