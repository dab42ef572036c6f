//! Who is inside does not reach the sockets of his own sandbox, wherever these are.

use serde_json::json;

use super::client::ControlClient;
use crate::bridge::served::{Served, Stage};

/// Says what either socket answers to somebody inside.
const CALLS: &str = r#"
import socket, sys
for path in sys.argv[1:]:
    said = b""
    try:
        s = socket.socket(socket.AF_UNIX)
        s.connect(path)
        s.sendall(b'{"jsonrpc":"2.0","id":1,"method":"hello","params":{"version":1}}\n')
        said = s.recv(1)
    except (BrokenPipeError, ConnectionResetError, PermissionError):
        pass
    print("answered" if said else "refused")
"#;

as_each_caller! {
    fn programs_inside_are_refused_at_sockets_in_shared_directories(caller) {
        let stage = Stage::new(caller);
        let calls = stage.place.make_file("work/calls.py", CALLS);
        let other = stage.place.make_dir("other", 0o755);
        let (bridge, control) = (stage.work().join("b.sock"), other.join("c.sock"));
        let mut command = stage.command(&["--adapter", "demo", "--ready-fd", "1", "--rw", other.to_str().unwrap()]);
        command.arg("--bridge-socket").arg(&bridge).arg("--control-socket").arg(&control);
        let served = Served::start(&stage.place, command, &bridge);
        // Whoever is outside is heard at both.
        drop(served.connect());
        let mut client = ControlClient::connect(&control);
        let (program, bridge, own) = (calls.display(), bridge.display(), control.display());
        let script = format!("/usr/bin/python3 {program} {bridge} {own}; (/usr/bin/python3 {program} {own} &) | cat");
        let said = client.call("exec", &json!({ "command": script }));
        assert_eq!(said["stdout"], "refused\nrefused\nrefused\n", "{said}");
        client.get("shutdown");
        assert!(served.end().0.success());
    }
}
