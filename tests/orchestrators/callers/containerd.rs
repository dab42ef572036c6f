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

/// The plugin that a kubelet calls.
pub(crate) const CRI_PLUGIN: &str = "io.containerd.grpc.v1.cri";

/// The path of the daemon's socket.
pub(crate) fn socket(ground: &Ground) -> String {
    ground.at("run/containerd.sock")
}

/// Starts a daemon in `ground`.
pub(crate) fn daemon(ground: &Ground) -> Daemon {
    let disabled = vec![CRI_PLUGIN, "io.containerd.internal.v1.opt"];
    daemon_with(ground, toml::Table::from_iter([("disabled_plugins".to_owned(), disabled.into())]))
}

/// Starts a daemon with these settings, besides those of its places.
pub(crate) fn daemon_with(ground: &Ground, mut settings: toml::Table) -> Daemon {
    let socket = socket(ground);
    settings.extend(toml::toml! { version = 2 oom_score = 0 });
    for (name, place) in [("root", "containerd"), ("state", "run/containerd")] {
        settings.insert(name.to_owned(), ground.at(place).into());
    }
    for (name, address) in [("grpc", socket.clone()), ("ttrpc", format!("{socket}.ttrpc"))] {
        settings
            .insert(name.to_owned(), toml::Table::from_iter([("address".to_owned(), address.into())]).into());
    }
    fs::write(ground.at("containerd.toml"), settings.to_string()).unwrap();
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
        command.args(["--address", &socket(ground)]);
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
