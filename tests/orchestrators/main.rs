//! Podman, Buildah, containerd and Docker start containers through an OCI runtime, as on the machines of users; and
//! containerd as a kubelet calls it.
//!
//! A scenario is what a user does with one of them; it knows nothing of the runtime. All state of a caller, its
//! daemons and sockets too, is in a directory of this run, and is gone in the end.
//!
//! - `SAGGAR_TEST_RUNTIME=PATH` names another runtime, such as /usr/sbin/runc, to tell the caller's ways from ours.
//! - Arguments are parts of names, as in `podman_as_root::exec`; `--list` prints all names.
//! - What fails here with runc as well is the machine's doing: it is skipped, with runc's reason. In a guest
//!   (`SAGGAR_GUEST`, see tests/vm/run) and with `SAGGAR_TEST_ALL=1` nothing is skipped.
//! - In the guest with systemd, Podman, containerd and Docker have it make the cgroups.
//! - Pods have the network of the host: no plugin that makes one is needed.
//!
//! It has no test harness: a caller's daemons are started once for its scenarios, and ended after them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

#[path = "../support/binary.rs"]
mod binary;
#[path = "../support/deadline.rs"]
#[allow(dead_code)] // what the other tests use of it
mod deadline;

#[path = "../support/bridge_client.rs"]
#[allow(dead_code)]
mod bridge_client;
#[path = "../support/certificate.rs"]
mod certificate;
#[path = "../support/kubernetes_api.rs"]
#[allow(dead_code)] // what the tests of the server use of it
mod kubernetes_api;
#[path = "../support/lines.rs"]
#[allow(dead_code)]
mod lines;
#[path = "../support/wait.rs"]
#[allow(dead_code)]
mod wait;

mod account;
mod callers;
mod daemon;
mod image;
mod output;
mod report;
mod scenarios;
mod terminal;

use std::env;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let list = arguments.iter().any(|argument| argument == "--list");
    let filters: Vec<String> = arguments.into_iter().filter(|argument| !argument.starts_with('-')).collect();
    if list {
        report::list(&callers::all());
        return ExitCode::SUCCESS;
    }
    report::run(&callers::all(), &filters)
}
