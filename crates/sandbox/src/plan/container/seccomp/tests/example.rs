//! Tests the filter of the configuration that `spec` prints.

use super::meaning::numbers;
use super::{filter, run};
use crate::plan::container::seccomp::Arch;
use crate::spec::oci::example_config;
use libc::SECCOMP_RET_ALLOW as ALLOW;
use serde_json::Value;

const EAFNOSUPPORT: u32 = libc::SECCOMP_RET_ERRNO | libc::EAFNOSUPPORT.cast_unsigned();
const EPROTONOSUPPORT: u32 = libc::SECCOMP_RET_ERRNO | libc::EPROTONOSUPPORT.cast_unsigned();

/// Bits of an argument that socket(2) does not read.
const UNREAD: u64 = 0xdead_beef << 32;

#[test]
fn sockets_are_those_that_wrap_permits() {
    let config: Value = serde_json::from_str(&example_config(None, u64::MAX)).unwrap();
    let filter = filter(&config["linux"]["seccomp"]);
    assert_eq!(filter.warnings, [""; 0]);
    let number = numbers(Arch::X86_64)["socket"];
    let socket = |family: u64, protocol: u64| {
        let calls = [0, UNREAD].map(|unread| {
            let args = [family | unread, 1, protocol | unread];
            run(&filter, Arch::X86_64.audit(), number, &args)
        });
        // With unread bits a call may be refused, and never permitted.
        assert!(calls[1] == calls[0] || calls[1] == EPROTONOSUPPORT, "{family} {protocol}: {calls:x?}");
        calls[0]
    };
    // The kernel has none from 46 on (AF_MAX), and refuses 0 itself.
    for family in 1..64 {
        let answer = match i32::try_from(family).unwrap() {
            libc::AF_UNIX | libc::AF_INET | libc::AF_INET6 | libc::AF_NETLINK => ALLOW,
            _ => EAFNOSUPPORT,
        };
        assert_eq!(socket(family, 0), answer, "family {family}");
    }
    let netlink = u64::try_from(libc::AF_NETLINK).unwrap();
    for protocol in
        [libc::NETLINK_XFRM, libc::NETLINK_AUDIT, libc::NETLINK_NETFILTER, libc::NETLINK_SOCK_DIAG]
    {
        assert_eq!(socket(netlink, u64::try_from(protocol).unwrap()), EPROTONOSUPPORT, "netlink {protocol}");
    }
    for family in [libc::AF_INET, libc::AF_INET6] {
        let ask = |protocol: i32| socket(u64::try_from(family).unwrap(), u64::try_from(protocol).unwrap());
        assert_eq!([ask(libc::IPPROTO_TCP), ask(libc::IPPROTO_UDP)], [ALLOW; 2]);
        // IPPROTO_SMC (Linux 6.11) is AF_SMC by another name.
        assert_eq!([ask(libc::IPPROTO_MPTCP), ask(256)], [EPROTONOSUPPORT; 2]);
    }
    let pair = numbers(Arch::X86_64)["socketpair"];
    for family in 1..64 {
        let answer = if family == 1 { ALLOW } else { EAFNOSUPPORT };
        for unread in [0, UNREAD] {
            assert_eq!(
                run(&filter, Arch::X86_64.audit(), pair, &[family | unread, 1, 0]),
                answer,
                "pair {family}"
            );
        }
    }
}
