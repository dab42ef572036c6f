//! The callers: how each is started with everything of its own, and how it is told which runtime to take.

mod buildah;
mod containerd;
pub(crate) mod cri;
mod docker;
mod ground;
mod podman;

pub(crate) use ground::{is_systemd, is_unified};

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::output::{Output, Running};
use crate::scenarios;

/// What a user does with a caller; a panic is a failure.
pub(crate) type Scenario = fn(&dyn Engine);

/// A caller as one kind of user.
pub(crate) struct Caller {
    pub(crate) name: &'static str,
    /// Starts it with the runtime at this path.
    pub(crate) start: fn(&Path) -> Box<dyn Engine>,
    pub(crate) scenarios: &'static [(&'static str, Scenario)],
}

/// All callers that are tried as whoever runs this: root can be an ordinary user as well.
pub(crate) fn all() -> Vec<Caller> {
    let rootless = [
        Caller {
            name: "podman_as_ordinary_user",
            start: |runtime| Box::new(podman::Podman::rootless(runtime)),
            scenarios: scenarios::PODMAN_ROOTLESS,
        },
        Caller {
            name: "buildah_as_ordinary_user",
            start: |runtime| Box::new(buildah::Buildah::rootless(runtime)),
            scenarios: scenarios::BUILDAH,
        },
    ];
    let rootful = [
        Caller {
            name: "podman_as_root",
            start: |runtime| Box::new(podman::Podman::rootful(runtime)),
            scenarios: scenarios::PODMAN,
        },
        Caller {
            name: "buildah_as_root",
            start: |runtime| Box::new(buildah::Buildah::rootful(runtime)),
            scenarios: scenarios::BUILDAH,
        },
        Caller {
            name: "containerd",
            start: |runtime| Box::new(containerd::Containerd::start(runtime)),
            scenarios: scenarios::CONTAINERD,
        },
        Caller {
            name: "cri",
            start: |runtime| Box::new(cri::Cri::start(runtime)),
            scenarios: scenarios::CRI,
        },
        Caller {
            name: "docker",
            start: |runtime| Box::new(docker::Docker::start(runtime)),
            scenarios: scenarios::DOCKER,
        },
    ];
    // In a guest the user runs this again, in a session with cgroups of its own.
    let in_guest = std::env::var_os("SAGGAR_GUEST").is_some();
    if nix::unistd::geteuid().is_root() && in_guest {
        rootful.into_iter().collect()
    } else if nix::unistd::geteuid().is_root() {
        rootful.into_iter().chain(rootless).collect()
    } else {
        rootless.into_iter().collect()
    }
}

/// The kinds of callers, where a scenario has to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Podman,
    Buildah,
    Containerd,
    Cri,
    Docker,
}

/// A caller that is up. Dropping it ends all that it has started, and panics when something is left.
pub(crate) trait Engine {
    /// The kind.
    fn kind(&self) -> Kind;

    /// Its client with these arguments.
    fn command(&self, arguments: &[&str]) -> Command;

    /// A directory that the caller may use, and containers may be given.
    fn dir(&self) -> &Path;

    /// The service that a kubelet calls.
    fn cri(&self) -> &cri::Cri {
        panic!("{:?} is not called by a kubelet", self.kind());
    }

    /// Whether an ordinary user calls.
    fn is_rootless(&self) -> bool {
        false
    }

    /// Its client, to the end.
    fn run(&self, arguments: &[&str]) -> Output {
        self.feed(arguments, "")
    }

    /// As `run`, with this on its stdin.
    fn feed(&self, arguments: &[&str], stdin: &str) -> Output {
        self.begin(arguments, stdin).wait()
    }

    /// Its client, started.
    fn begin(&self, arguments: &[&str], stdin: &str) -> Running {
        Running::start(self.command(arguments), stdin.as_bytes())
    }
}

/// The one image.
pub(crate) const IMAGE: &str = "localhost/saggar-test:latest";

/// A name that nobody in this run has.
pub(crate) fn fresh_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("c{}", COUNT.fetch_add(1, Ordering::Relaxed))
}
