//! containerd with its runc shim, driven by ctr; and a containerd for Docker.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::ground::{Ground, is_systemd};
use super::{Engine, IMAGE, Kind};
use crate::account::Account;
use crate::daemon::Daemon;
use crate::image;

/// A containerd of this run.
#[derive(Debug)]
pub(crate) struct Containerd {
    daemon: Option<Daemon>,
    ground: Ground,
}

/// Starts a daemon in `ground`; its socket is `run/containerd.sock`.
pub(crate) fn daemon(ground: &Ground) -> Daemon {
    let socket = ground.at("run/containerd.sock");
    let configuration = format!(
        "version = 2\nroot = \"{}\"\nstate = \"{}\"\noom_score = 0\n\
         disabled_plugins = [\"io.containerd.grpc.v1.cri\", \"io.containerd.internal.v1.opt\"]\n\
         [grpc]\naddress = \"{socket}\"\n[ttrpc]\naddress = \"{socket}.ttrpc\"\n",
        ground.at("containerd"),
        ground.at("run/containerd"),
    );
    fs::write(ground.at("containerd.toml"), configuration).unwrap();
    let mut command = ground.command("containerd");
    command.args(["--config", &ground.at("containerd.toml")]);
    Daemon::start(&command, ground.at("containerd.log").into(), Path::new(&socket))
}

impl Containerd {
    pub(crate) fn start(runtime: &Path) -> Self {
        let ground = Ground::new(Account::current(), runtime);
        let archive = image::archive(ground.path(), IMAGE);
        let daemon = Some(daemon(&ground));
        let containerd = Containerd { daemon, ground };
        containerd.run(&["image", "import", archive.to_str().unwrap()]).exits(0).mentions(IMAGE);
        containerd
    }
}

impl Engine for Containerd {
    fn kind(&self) -> Kind {
        Kind::Containerd
    }

    /// `run` and `create` are given the runtime, and a name for cgroups below ours: the last argument but the
    /// program's that starts without a dash is the image, and the next the container's name.
    fn command(&self, arguments: &[&str]) -> Command {
        let ground = &self.ground;
        let mut command = ground.command("ctr");
        command.args(["--address", &ground.at("run/containerd.sock")]);
        let (verb, rest) = arguments.split_first().unwrap();
        command.arg(verb);
        if *verb == "run" {
            let name = rest.iter().position(|argument| *argument == IMAGE).map(|at| rest[at + 1]).unwrap();
            command.args([
                "--runc-binary",
                ground.runtime.to_str().unwrap(),
                "--runc-root",
                &ground.at("state"),
            ]);
            match is_systemd() {
                true => command.args([
                    "--runc-systemd-cgroup",
                    "--cgroup",
                    &format!("{}:ctr:{name}", ground.cgroup),
                ]),
                false => command.args(["--cgroup", &format!("/{}/{name}", ground.cgroup)]),
            };
        }
        command.args(rest);
        command
    }

    fn dir(&self) -> &Path {
        self.ground.path()
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        let mut refused = Vec::new();
        for task in self.run(&["task", "list", "--quiet"]).stdout.lines() {
            self.run(&["task", "delete", "--force", task]);
        }
        for container in self.run(&["container", "list", "--quiet"]).stdout.lines() {
            let removed = self.run(&["container", "delete", container]);
            refused.extend((removed.code() != 0).then(|| removed.to_string()));
        }
        self.run(&["image", "remove", "--sync", IMAGE]);
        self.daemon = None;
        let left = self.ground.leftovers();
        assert!(left.is_empty() && refused.is_empty(), "left: {left:#?}\n{refused:#?}");
    }
}
