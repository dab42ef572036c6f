//! Podman, as root and as an ordinary user. It has no daemon: each container has its conmon.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::ground::{Ground, is_systemd};
use super::{Engine, IMAGE, Kind};
use crate::account::Account;
use crate::image;

/// Limits are those that a host without CAP_SYS_RESOURCE can give.
const CONFIGURATION: &str = r#"
[containers]
netns = "none"
cgroupns = "private"
log_driver = "k8s-file"
default_ulimits = ["nofile=1024:4096", "nproc=1024:2048"]
[engine]
events_logger = "file"
"#;

/// Podman with storage of its own.
#[derive(Debug)]
pub(crate) struct Podman {
    ground: Ground,
    rootless: bool,
}

impl Podman {
    pub(crate) fn rootful(runtime: &Path) -> Self {
        Podman::new(Account::current(), runtime, false)
    }

    pub(crate) fn rootless(runtime: &Path) -> Self {
        Podman::new(Account::ordinary(), runtime, true)
    }

    fn new(account: Account, runtime: &Path, rootless: bool) -> Self {
        let ground = Ground::new(account, runtime);
        let manager = if is_systemd() { "systemd" } else { "cgroupfs" };
        let configuration = format!("{CONFIGURATION}cgroup_manager = \"{manager}\"\n");
        fs::write(ground.path().join("containers.conf"), configuration).unwrap();
        let layer = image::layer(ground.path());
        let podman = Podman { ground, rootless };
        podman.run(&["import", layer.to_str().unwrap(), IMAGE]).exits(0);
        podman
    }
}

impl Engine for Podman {
    fn kind(&self) -> Kind {
        Kind::Podman
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let ground = &self.ground;
        let mut command = ground.command("podman");
        command
            .env("CONTAINERS_CONF", ground.at("containers.conf"))
            .args([
                "--root",
                &ground.at("storage"),
                "--runroot",
                &ground.at("run/roots"),
                "--tmpdir",
                &ground.at("run/tmp"),
            ])
            .args(["--storage-driver", if self.rootless { "vfs" } else { "overlay" }])
            .args(["--runtime", ground.runtime.to_str().unwrap()]);
        let (verb, rest) = arguments.split_first().unwrap();
        command.arg(verb);
        if ["run", "create"].contains(verb) && is_systemd() {
            command.args(["--cgroup-parent", &ground.cgroup]);
        } else if ["run", "create"].contains(verb) && !self.rootless {
            command.args(["--cgroup-parent", &format!("/{}", ground.cgroup)]);
        }
        command.args(rest);
        command
    }

    fn dir(&self) -> &Path {
        self.ground.path()
    }

    fn is_rootless(&self) -> bool {
        self.rootless
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        let removed = self.run(&["rm", "--all", "--force", "--time", "0"]);
        if self.rootless {
            // Ends the process that keeps the user namespace.
            self.run(&["system", "migrate"]);
            // Files of subordinate ids are removed where those ids are root's.
            self.run(&["unshare", "rm", "-rf", &self.ground.at("storage")]);
        } else {
            self.run(&["system", "reset", "--force"]);
        }
        let left = self.ground.leftovers();
        assert!(left.is_empty() && removed.code() == 0, "left: {left:#?}\n{removed}");
    }
}
