//! The last part of the way to a program: settings of the process, the filter, execve.

use super::program_args::ProgramArgs;
use super::wire::{ChildNeed, ChildReport, ChildRequest};
use crate::plan::container::{ContainerFilter, NAMESPACES};
use crate::stage::wire::LEN;
use saggar_sys::file::{self, Resolve};
use saggar_sys::{Errno, SysResult, clone, process, scm, seccomp};
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};

/// Room for `HOME=` and a path.
pub(super) type HomeVariable = [u8; 1024];

/// Gives pipes among the standard streams to the user, who could write to them and yet not open /dev/stdout. Files of
/// the caller stay its own, and a terminal has been given away when it was made. What cannot be given stays as it is:
/// a pipe of somebody who has no id in our user namespace.
pub(super) fn chown_pipes(uid: u32, gid: u32) -> SysResult<()> {
    for number in 0..3 {
        let stream = file::borrow_number(number);
        let Ok(stat) = nix::sys::stat::fstat(stream.as_fd()) else { continue };
        if stat.st_mode & libc::S_IFMT == libc::S_IFIFO && stat.st_uid != uid {
            match file::set_owner(stream.as_fd(), uid, gid) {
                Ok(()) | Err(Errno::EPERM | Errno::EINVAL | Errno::EROFS) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
    Ok(())
}

/// The home directory of `uid` by the container's own passwd(5), as `HOME=…`; `/` for somebody it does not know.
pub(super) fn find_home(uid: u32, variable: &mut HomeVariable) {
    const NAME: &[u8] = b"HOME=";
    *variable = [0; 1024];
    variable[..NAME.len()].copy_from_slice(NAME);
    let room = &mut variable[NAME.len()..1023];
    room[0] = b'/';
    let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY;
    let Ok(passwd) = file::open(file::cwd(), c"/etc/passwd", flags, 0, Resolve::Ordinary) else { return };
    let is_file = nix::sys::stat::fstat(&passwd).is_ok_and(|s| s.st_mode & libc::S_IFMT == libc::S_IFREG);
    if !is_file {
        return;
    }
    let mut buffer = [0u8; 4096];
    let (mut len, mut skipping) = (0, false);
    while let Ok(got) = nix::unistd::read(&passwd, &mut buffer[len..]) {
        len += got;
        let mut at = 0;
        while let Some(end) = buffer[at..len].iter().position(|b| *b == b'\n') {
            if !skipping && read_home(&buffer[at..at + end], uid, room) {
                return;
            }
            skipping = false;
            at += end + 1;
        }
        if got == 0 {
            if !skipping {
                read_home(&buffer[at..len], uid, room);
            }
            return;
        }
        buffer.copy_within(at..len, 0);
        len -= at;
        if len == buffer.len() {
            // A line longer than any that passwd(5) knows.
            (len, skipping) = (0, true);
        }
    }
}

/// `name:password:uid:gid:comment:home:shell`
fn read_home(line: &[u8], uid: u32, room: &mut [u8]) -> bool {
    let mut fields = line.split(|b| *b == b':');
    let number = fields.nth(2).and_then(|field| std::str::from_utf8(field).ok()).and_then(|t| t.parse().ok());
    if number != Some(uid) {
        return false;
    }
    if let Some(home) = fields.nth(2).filter(|home| home.first() == Some(&b'/') && home.len() < room.len()) {
        room.fill(0);
        room[..home.len()].copy_from_slice(home);
    }
    true
}

/// The first candidate that can be executed. A name without a slash that no directory has is ENOENT with no
/// candidate; what is wrong with a path is told with it.
pub(super) fn find_program(image: &ProgramArgs) -> SysResult<usize> {
    let candidates = image.candidates();
    for (index, path) in candidates.iter().enumerate() {
        match check_executable(path) {
            Ok(()) => return Ok(index),
            Err(errno) if candidates.len() == 1 => return Err(errno),
            Err(_) => {}
        }
    }
    Err(Errno::ENOENT)
}

fn check_executable(path: &CStr) -> SysResult<()> {
    let stat = nix::sys::stat::stat(path)?;
    if stat.st_mode & libc::S_IFMT == libc::S_IFDIR {
        return Err(Errno::EISDIR);
    }
    use nix::unistd::AccessFlags;
    nix::unistd::faccessat(file::cwd(), path, AccessFlags::X_OK, nix::fcntl::AtFlags::AT_EACCESS)
}

/// Enters the working directory; one that is not below our root is a descriptor of somebody else's tree
/// (CVE-2024-21626).
pub(super) fn enter_working_directory(path: &CStr) -> SysResult<()> {
    nix::unistd::chdir(path)?;
    if process::working_directory_is_inside()? { Ok(()) } else { Err(Errno::EXDEV) }
}

/// Says that everything is applied, waits until the runtime has written that down, and then for `start`: what it
/// says comes by the connection that this gives.
pub(super) fn await_start(
    control: BorrowedFd<'_>,
    start_socket: BorrowedFd<'_>,
    proc: BorrowedFd<'_>,
    die_with_runtime: bool,
) -> SysResult<OwnedFd> {
    if !die_with_runtime {
        // Before the runtime may leave: it would be the end of us. Until it lets us go, the end of its stream is.
        process::prctl(libc::PR_SET_PDEATHSIG, 0, 0, 0)?;
    }
    scm::send(control, &ChildReport::Created.encode(), &[])?;
    super::await_go(control)?;
    loop {
        let flags = nix::sys::socket::SockFlag::SOCK_CLOEXEC;
        let connection = match nix::sys::socket::accept4(start_socket.as_raw_fd(), flags) {
            Err(Errno::EINTR | Errno::ECONNABORTED) => continue,
            // SAFETY: accept4 has just made this descriptor for us.
            other => unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(other?) },
        };
        loop {
            let mut buffer = [0; LEN];
            let received = scm::receive(connection.as_fd(), &mut buffer);
            match received.map(|received| ChildRequest::decode(&buffer[..received.len])) {
                Ok(Some(ChildRequest::Go)) => return Ok(connection),
                Ok(Some(ChildRequest::SendNamespaces))
                    if send_namespaces(connection.as_fd(), proc).is_ok() => {}
                // Whoever went away without a word wanted nothing.
                _ => break,
            }
        }
    }
}

/// Hands the files of our namespaces over, for hooks to be run in.
pub(super) fn send_namespaces(control: BorrowedFd<'_>, proc: BorrowedFd<'_>) -> SysResult<()> {
    let mut files = [const { None }; NAMESPACES.len()];
    let mut numbers = [0; NAMESPACES.len()];
    for ((slot, number), (path, _)) in files.iter_mut().zip(&mut numbers).zip(NAMESPACES) {
        let file = file::open(proc, path, libc::O_RDONLY, 0, Resolve::Ordinary)?;
        *number = file.as_raw_fd();
        *slot = Some(file);
    }
    scm::send(control, &ChildReport::Needs(ChildNeed::Hooks).encode(), &numbers)
}

/// Loads the filter. With a listener its descriptor is handed over by a thread that the filter does not hold:
/// from the load to execve this thread makes no call.
pub(super) fn load_filter(filter: &ContainerFilter, control: BorrowedFd<'_>) -> SysResult<()> {
    if filter.listener.is_none() {
        return seccomp::load_with(&filter.program, u64::from(filter.flags))
            .map(drop)
            .map_err(Errno::from_raw);
    }
    const STACK: usize = 64 << 10;
    let stack = clone::ChildStack::new(STACK)?;
    let messenger = ListenerHandoff { control: control.as_raw_fd(), listener: AtomicI32::new(WAITING) };
    let argument = std::ptr::from_ref(&messenger).cast_mut().cast();
    // SAFETY: the thread uses its own stack, the messenger until it says it is done, and calls that fail only
    // while this thread makes none; the stack is never given back.
    unsafe { clone::thread(&stack, send_listener, argument)? };
    std::mem::forget(stack);
    // There is one thread to hold: the others are to go on.
    let alone = libc::SECCOMP_FILTER_FLAG_TSYNC | libc::SECCOMP_FILTER_FLAG_TSYNC_ESRCH;
    let flags = filter.flags & !u32::try_from(alone).unwrap_or(0);
    let with_listener = u32::try_from(libc::SECCOMP_FILTER_FLAG_NEW_LISTENER).unwrap_or(0);
    let loaded = seccomp::load_with(&filter.program, u64::from(flags | with_listener))
        .map(|listener| listener.map_or(NOTHING, IntoRawFd::into_raw_fd));
    messenger.listener.store(loaded.unwrap_or(NOTHING), Ordering::Release);
    let number = loaded.map_err(Errno::from_raw)?;
    while messenger.listener.load(Ordering::Acquire) == number {
        std::hint::spin_loop();
    }
    if messenger.listener.load(Ordering::Acquire) == DONE { Ok(()) } else { Err(Errno::EPIPE) }
}

const WAITING: i32 = -1;
const NOTHING: i32 = -2;
const DONE: i32 = -3;
const FAILED: i32 = -4;

/// What the two threads share: the number of the listener's descriptor, or one of the words above.
struct ListenerHandoff {
    control: i32,
    listener: AtomicI32,
}

extern "C" fn send_listener(argument: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `load` keeps the messenger until it hears of the end.
    let messenger = unsafe { &*argument.cast::<ListenerHandoff>() };
    let number = loop {
        match messenger.listener.load(Ordering::Acquire) {
            WAITING => {
                let _ = nix::sched::sched_yield();
            }
            NOTHING => clone::end_thread(),
            number => break number,
        }
    };
    // SAFETY: the number of the open socket that `load` was given.
    let control = unsafe { BorrowedFd::borrow_raw(messenger.control) };
    let sent = scm::send(control, &ChildReport::Listener.encode(), &[number]);
    messenger.listener.store(if sent.is_ok() { DONE } else { FAILED }, Ordering::Release);
    clone::end_thread()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_home_of_a_user_is_in_its_line_and_nowhere_else() {
        let home = |line: &str, uid| {
            let mut room = [0u8; 16];
            room[0] = b'/';
            let found = read_home(line.as_bytes(), uid, &mut room);
            (found, CStr::from_bytes_until_nul(&room).unwrap().to_str().unwrap().to_owned())
        };
        assert_eq!(home("a:x:7:8::/home/a:/bin/sh", 7), (true, "/home/a".to_owned()));
        assert_eq!(home("a:x:7:8::/home/a:/bin/sh", 8), (false, "/".to_owned()));
        assert_eq!(home("a:x:7:8::relative:/bin/sh", 7), (true, "/".to_owned()));
        assert_eq!(home("a:x:7:8::/longer/than/the/room:", 7), (true, "/".to_owned()));
        assert_eq!(home("a:x:7", 7), (true, "/".to_owned()));
    }
}
