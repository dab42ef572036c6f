//! How a child receives the trees that its parent made.

use super::wire::LEN;
use saggar_sys::{Errno, SysResult, process, scm};
use std::os::fd::{BorrowedFd, OwnedFd};

/// Receives `count` trees in order into `trees`, several beside each message that `is_trees` recognises. Any other
/// message, or the end of the stream, means that the parent gave up: then this process ends.
///
/// # Errors
/// Those of recvmsg(2); E2BIG for more trees than there are places.
pub(super) fn receive_trees(
    control: BorrowedFd<'_>,
    count: usize,
    is_trees: impl Fn(&[u8]) -> bool,
    trees: &mut [Option<OwnedFd>],
) -> SysResult<()> {
    let mut next = 0;
    while next < count {
        let mut buffer = [0; LEN];
        let received = scm::receive(control, &mut buffer)?;
        if !is_trees(&buffer[..received.len]) {
            process::exit_now(125);
        }
        for tree in received.fds.into_iter().flatten() {
            *trees.get_mut(next).ok_or(Errno::E2BIG)? = Some(tree);
            next += 1;
        }
    }
    Ok(())
}
