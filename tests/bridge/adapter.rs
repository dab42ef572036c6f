//! The adapter `bridge`: an agent that listens on $ASH_BRIDGE_SOCKET, and ones that put something else there.

use std::os::unix::net::UnixListener;

use serde_json::json;

use super::served::Stage;
use crate::support::bridge_client::SESSION;

/// Speaks the bridge's protocol on its socket: says each query back as a message.
const AGENT: &str = r#"#!/usr/bin/python3
import json, os, socket
server = socket.socket(socket.AF_UNIX)
server.bind(os.environ["ASH_BRIDGE_SOCKET"])
server.listen(1)
print("this goes to the log")
peer, _ = server.accept()
peer.sendall(b'{"ev":"ready"}\n')
for line in peer.makefile("rb"):
    command = json.loads(line)
    if command["cmd"] == "query":
        peer.sendall(b'{"ev":"message","data":' + line.strip() + b'}\n')
        peer.sendall(json.dumps({"ev": "done", "sessionId": command["sessionId"]}).encode() + b"\n")
    elif command["cmd"] == "shutdown":
        break
"#;

as_each_caller! {
    /// BP-20, BP-07: each query reaches the agent as it came, and its events come out.
    fn an_agent_on_its_own_socket_is_relayed(caller) {
        let stage = Stage::new(caller);
        let served = stage.scripted("bridge", AGENT);
        let mut client = served.connect();
        for _ in 0..3 {
            let line = r#"{"cmd":"query","x":2.50,"sessionId":"test-session","prompt":["hello"],"traceContext":{}}"#;
            client.send_bytes(format!("{line}\n").as_bytes());
            assert_eq!(String::from_utf8(client.raw_event()).unwrap(), format!("{{\"ev\":\"message\",\"data\":{line}}}"));
            assert_eq!(client.event(), json!({"ev": "done", "sessionId": SESSION}));
        }
        served.shut_down(&mut client);
    }

    /// A link that leads to a socket of the host is not followed: the agent would speak as the supervisor.
    fn a_link_to_a_socket_of_the_host_leads_nowhere(caller) {
        let stage = Stage::new(caller);
        let host = stage.place.join("host.sock");
        let listener = UnixListener::bind(&host).unwrap();
        listener.set_nonblocking(true).unwrap();
        caller.own(&host);
        let served = stage.scripted("bridge", &format!(
            "#!/bin/sh\nln -s {} $ASH_BRIDGE_SOCKET && : > up\nexec sleep 1000\n", host.display()
        ));
        crate::support::wait::until_exists(&stage.work().join("up"));
        let mut client = served.connect();
        client.query("hi");
        let mut other = served.connect();
        for _ in 0..20 {
            other.send(&json!({"cmd": "exec", "command": "sleep 0.01"}));
            other.events_until(|event| event["ev"] == "done");
        }
        assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        served.shut_down(&mut other);
    }

    /// A FIFO, a directory, a socket whose queue is full, nothing: the supervisor waits for none of them.
    fn files_in_place_of_the_agent_socket_do_not_block_the_supervisor(caller) {
        let full = "#!/usr/bin/python3\nimport os, socket, time\nname = os.environ['ASH_BRIDGE_SOCKET']\n\
                    server = socket.socket(socket.AF_UNIX)\nserver.bind(name + 'x')\nserver.listen(0)\n\
                    first = socket.socket(socket.AF_UNIX)\nfirst.connect(name + 'x')\n\
                    os.rename(name + 'x', name)\nopen('up', 'w')\ntime.sleep(1000)\n";
        let deaf = "#!/usr/bin/python3\nimport os, socket, time\nname = os.environ['ASH_BRIDGE_SOCKET']\n\
                    server = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\nserver.bind(name)\n\
                    open('up', 'w')\ntime.sleep(1000)\n";
        for agent in [
            "#!/bin/sh\nmkfifo $ASH_BRIDGE_SOCKET && : > up\nexec sleep 1000\n",
            "#!/bin/sh\nmkdir $ASH_BRIDGE_SOCKET && : > up\nexec sleep 1000\n",
            "#!/bin/sh\n: > up\nexec sleep 1000\n",
            full,
            deaf,
        ] {
            let stage = Stage::new(caller);
            let served = stage.scripted("bridge", agent);
            crate::support::wait::until_exists(&stage.work().join("up"));
            let mut client = served.connect();
            client.query("hi");
            let mut other = served.connect();
            other.send(&json!({"cmd": "exec", "command": "sleep 0.1; echo alive"}));
            assert_eq!(other.event()["stdout"], "alive\n", "{agent}");
            assert_eq!(other.event()["ev"], "done");
            served.shut_down(&mut other);
        }
    }
}
