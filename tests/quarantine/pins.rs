//! A rename on the host takes a pin away with the old file (DECISIONS 34): the sandbox ends.

use std::path::Path;

use super::told::{events, telling};
use crate::isolation::wrapped::{Wrap, finish};
use crate::kill::alive_in;
use crate::support::bridge_client::BridgeClient;
use crate::support::process::Process;
use crate::support::wait;

use super::told::Session;

const REPOSITORY: &str = "git init -q -b main .";
/// What takes the pin of the configuration away: git writes a new file and renames it.
const UNDO: &str = "git config x.y z";

/// Undoes a pin while the sandbox runs, and asserts that nothing of it lives.
fn ends_by_policy(wrap: &Wrap, process: Process, up: &Path) {
    wait::until_exists(up);
    wrap.outside(UNDO);
    let ended = finish(process);
    assert_eq!(ended.code(), 125, "{ended:?}");
    assert!(ended.stderr.contains(".git/config"), "{}", ended.stderr);
    assert_eq!(alive_in(&wrap.work()), [0; 0]);
    let exited = events(&wrap.place, "exited");
    assert_eq!(exited.len(), 1, "{exited:?}");
    assert_eq!(exited[0]["reason"], "policy", "{exited:?}");
}

as_each_caller! {
    fn wrap_ends_by_policy(caller) {
        let wrap = Wrap::new(caller);
        wrap.outside(REPOSITORY);
        let saggar = wrap.command(&[], &["/bin/sh", "-c", "setsid sleep 1000 & : > up; exec sleep 1000"]);
        let process = Process::start(&wrap.place, telling(&wrap.place, &saggar));
        ends_by_policy(&wrap, process, &wrap.work().join("up"));
    }

    fn agent_ends_by_policy(caller) {
        let wrap = Wrap::new(caller);
        let _session = Session::of(&wrap.place);
        wrap.outside(REPOSITORY);
        wrap.place.make_file("work/CLAUDE.md", "# test");
        let socket = wrap.place.join("run/b.sock");
        let mut saggar = wrap.place.saggar();
        saggar.args(["agent", "--adapter", "demo", "--workspace", ".", "--bridge-socket"]).arg(&socket).arg(".");
        let process = Process::start(&wrap.place, telling(&wrap.place, &saggar));
        let mut client = BridgeClient::connect_when_listening(&socket);
        assert!(client.turn("run: : > up").is_done());
        ends_by_policy(&wrap, process, &wrap.work().join("up"));
    }
}
