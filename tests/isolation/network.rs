//! KC-14: the host's network, its sockets and the rarer families of sockets are out of reach.

use std::fs;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use super::probe::{self, probe};
use super::wrapped::Wrap;

/// Fails unless nobody has connected.
fn untouched<T>(accepted: std::io::Result<T>) {
    match accepted {
        Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        Ok(_) => panic!("somebody has connected"),
    }
}

const CONNECT: &str = "import socket, sys
for kind, address in ((socket.AF_INET, ('127.0.0.1', int(sys.argv[1]))),
                      (socket.AF_UNIX, '\\0' + sys.argv[2]), (socket.AF_UNIX, sys.argv[3]), (socket.AF_UNIX, sys.argv[4])):
    try:
        socket.socket(kind, socket.SOCK_STREAM).connect(address)
        print('connected to', address)
    except OSError as error:
        print(error.strerror)
";

as_each_caller! {
    /// KC-14: with the sandbox started where these services are, not in a network of the test's own.
    fn services_of_the_host_are_unreachable(caller) {
        let wrap = Wrap::new(caller);
        let name = format!("saggar-test-{}", wrap.place.path().file_name().unwrap().display());
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let abstracted = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let tmp = tempfile::Builder::new().prefix("saggar-").tempdir_in("/tmp").unwrap();
        let (in_tmp, in_place) = (tmp.path().join("s"), wrap.place.join("s"));
        fs::set_permissions(tmp.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let (below_tmp, beside) = (UnixListener::bind(&in_tmp).unwrap(), UnixListener::bind(&in_place).unwrap());
        for path in [&in_tmp, &in_place] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        }
        for listener in [&abstracted, &below_tmp, &beside] {
            listener.set_nonblocking(true).unwrap();
        }
        tcp.set_nonblocking(true).unwrap();

        wrap.place.make_file("work/connect.py", CONNECT);
        let port = tcp.local_addr().unwrap().port().to_string();
        let arguments =
            ["/usr/bin/python3", "connect.py", &port, &name, in_tmp.to_str().unwrap(), in_place.to_str().unwrap()];
        // Not `Wrap::run`: that starts saggar in a network of its own.
        let output = wrap.command(&[], &arguments).output().unwrap();
        let answers = String::from_utf8(output.stdout).unwrap();
        let missing = "No such file or directory\n";
        assert_eq!(answers, format!("Connection refused\nConnection refused\n{missing}{missing}"), "{:?}", String::from_utf8_lossy(&output.stderr));
        untouched(tcp.accept());
        for listener in [&abstracted, &below_tmp, &beside] {
            untouched(listener.accept());
        }
    }

    /// With the host's network, landlock's scope still keeps its abstract sockets out (ABI 6). Before that nothing does, and
    /// the manual says so.
    fn abstract_sockets_of_the_host_are_unreachable_even_in_its_network(caller) {
        let wrap = Wrap::new(caller);
        let name = format!("saggar-test-{}", wrap.place.path().file_name().unwrap().display());
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        listener.set_nonblocking(true).unwrap();
        let script = "import socket, sys\ntry: socket.socket(socket.AF_UNIX).connect('\\0' + sys.argv[1])\n\
            except OSError as error: print(error.strerror)";
        let arguments = ["/usr/bin/python3", "-c", script, &name];
        let output = wrap.command(&["--net", "host"], &arguments).output().unwrap();
        let answer = String::from_utf8(output.stdout).unwrap();
        if saggar::sys::landlock::abi() < 6 {
            assert!(answer.is_empty() && listener.accept().is_ok(), "{answer}");
            return;
        }
        assert_eq!(answer, "Operation not permitted\n", "{}", String::from_utf8_lossy(&output.stderr));
        untouched(listener.accept());
    }

    fn only_unix_tcp_udp_and_route_sockets_are_made(caller) {
        let probe = probe!();
        let wrap = Wrap::new(caller);
        probe::expect_all(&wrap, probe, "ok", &["unix", "tcp", "udp", "netlink_route"]);
        probe::expect_all(&wrap, probe, "EAFNOSUPPORT", &[
            "vsock", "packet", "packet_dgram", "alg", "bluetooth", "xdp", "key", "tipc",
        ]);
        probe::expect_all(&wrap, probe, "EPROTONOSUPPORT", &[
            "mptcp", "mptcp6", "sctp", "ping", "netlink_netfilter", "netlink_generic", "netlink_uevent",
            "netlink_audit", "netlink_diag", "netlink_xfrm",
        ]);
        probe::expect(&wrap, probe, &[], &[("raw", "EPERM"), ("ulp", "ENOPROTOOPT"), ("interface_up", "EPERM")]);
    }

    fn the_only_interface_is_a_loopback_that_is_up(caller) {
        let wrap = Wrap::new(caller);
        let devices = wrap.sh("tail -n +3 /proc/net/dev | cut -d: -f1; cat /proc/net/route | tail -n +2").success();
        assert_eq!(devices.split_ascii_whitespace().collect::<Vec<_>>(), ["lo"]);
    }
}
