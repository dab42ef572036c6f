//! The constants that profiles may name, with the kernel header each comes from.
//!
//! They are written down here, not taken from libc, because a build script runs on the machine that
//! builds and the values are those of the machine that runs. All are the same on x86_64 and aarch64.

use crate::Result;

/// Name and value of each constant.
pub const VALUES: &[(&str, u64)] = &[
    // linux/sched.h
    ("CLONE_NEWTIME", 0x80),
    ("CLONE_NEWNS", 0x0002_0000),
    ("CLONE_NEWCGROUP", 0x0200_0000),
    ("CLONE_NEWUTS", 0x0400_0000),
    ("CLONE_NEWIPC", 0x0800_0000),
    ("CLONE_NEWUSER", 0x1000_0000),
    ("CLONE_NEWPID", 0x2000_0000),
    ("CLONE_NEWNET", 0x4000_0000),
    // linux/stat.h
    ("S_ISUID", 0o4000),
    ("S_ISGID", 0o2000),
    // asm-generic/fcntl.h; O_TMPFILE is __O_TMPFILE with O_DIRECTORY, and the kernel wants both
    ("O_CREAT", 0o100),
    ("__O_TMPFILE", 0o20_000_000),
    // asm-generic/ioctls.h
    ("TIOCSTI", 0x5412),
    ("TIOCLINUX", 0x541c),
    ("TIOCSETD", 0x5423),
    // linux/fcntl.h; delegations since Linux 6.19
    ("F_SETLEASE", 1024),
    ("F_NOTIFY", 1026),
    ("F_SETDELEG", 1040),
    // linux/socket.h, linux/net.h, linux/in.h, linux/tcp.h, linux/netlink.h
    ("AF_UNIX", 1),
    ("AF_INET", 2),
    ("AF_INET6", 10),
    ("AF_NETLINK", 16),
    ("SOCK_TYPE_MASK", 0xf),
    ("SOCK_STREAM", 1),
    ("SOCK_DGRAM", 2),
    ("SOCK_RAW", 3),
    ("SOCK_PACKET", 10),
    ("IPPROTO_IP", 0),
    ("IPPROTO_TCP", 6),
    ("IPPROTO_UDP", 17),
    ("IPPROTO_MPTCP", 262),
    ("TCP_ULP", 31),
    ("NETLINK_ROUTE", 0),
    ("NETLINK_SOCK_DIAG", 4),
    ("MSG_FASTOPEN", 0x2000_0000),
    // linux/in.h, linux/in6.h, linux/netlink.h: sizes
    ("sockaddr_in", 16),
    ("sockaddr_in6", 28),
    ("sockaddr_nl", 12),
    // linux/resource.h, linux/ioprio.h
    ("PRIO_USER", 2),
    ("RLIMIT_CORE", 4),
    ("IOPRIO_WHO_USER", 3),
    // linux/prctl.h
    ("PR_SET_MM", 35),
    ("PR_SCHED_CORE", 62),
    ("PR_FUTEX_HASH", 78),
    ("PR_SET_VMA", 0x5356_4d41),
    ("PR_SET_PTRACER", 0x5961_6d61),
    // linux/personality.h
    ("PER_LINUX", 0),
    // linux/seccomp.h
    ("SECCOMP_FILTER_FLAG_NEW_LISTENER", 8),
];

/// Name and number of each error that a profile may answer with (asm-generic/errno-base.h and errno.h).
pub const ERRORS: &[(&str, u16)] = &[
    // No error: the kernel does nothing, and says that it is done.
    ("done", 0),
    ("EPERM", 1),
    ("EACCES", 13),
    ("EINVAL", 22),
    ("ENOSYS", 38),
    ("ENOPROTOOPT", 92),
    ("EPROTONOSUPPORT", 93),
    ("EOPNOTSUPP", 95),
    ("EAFNOSUPPORT", 97),
];

/// The value of `text`: a number in decimal or `0x` form, a name, or several joined by `|`.
pub fn value(text: &str) -> Result<u64> {
    text.split('|').try_fold(0, |all, word| Ok(all | single(word.trim())?))
}

fn single(word: &str) -> Result<u64> {
    if let Some((_, value)) = VALUES.iter().find(|(name, _)| *name == word) {
        return Ok(*value);
    }
    let number = match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => word.parse(),
    };
    number.map_err(|_| format!("{word:?} is neither a number nor a constant of seccomp/src/names.rs"))
}
