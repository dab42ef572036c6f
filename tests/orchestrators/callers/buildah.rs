//! Buildah with `--isolation oci`, which calls the runtime by itself: no conmon, no daemon.

use std::path::Path;
use std::process::Command;

use super::ground::Ground;
use super::{Engine, IMAGE, Kind};
use crate::account::Account;
use crate::image;

/// Buildah with storage of its own, and the image there.
#[derive(Debug)]
pub(crate) struct Buildah {
    ground: Ground,
    rootless: bool,
}

impl Buildah {
    pub(crate) fn rootful(runtime: &Path) -> Self {
        Buildah::new(Account::current(), runtime, false)
    }

    pub(crate) fn rootless(runtime: &Path) -> Self {
        Buildah::new(Account::ordinary(), runtime, true)
    }

    fn new(account: Account, runtime: &Path, rootless: bool) -> Self {
        let buildah = Buildah { ground: Ground::new(account, runtime), rootless };
        let layer = image::layer(buildah.ground.path());
        let made = buildah.run(&["from", "scratch"]).says();
        buildah.run(&["add", &made, layer.to_str().unwrap(), "/"]).exits(0);
        buildah.run(&["config", "--env", "PATH=/bin", "--cmd", "sh", &made]).exits(0);
        buildah.run(&["commit", "--rm", &made, IMAGE]).exits(0);
        buildah
    }
}

impl Engine for Buildah {
    fn kind(&self) -> Kind {
        Kind::Buildah
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let ground = &self.ground;
        let mut command = ground.command("buildah");
        command
            .env("BUILDAH_ISOLATION", if self.rootless { "rootless" } else { "oci" })
            .env("BUILDAH_RUNTIME", &ground.runtime)
            .args(["--root", &ground.at("storage"), "--runroot", &ground.at("run/roots")])
            .args(["--storage-driver", if self.rootless { "vfs" } else { "overlay" }]);
        let (verb, rest) = arguments.split_first().unwrap();
        command.arg(verb);
        if *verb == "run" {
            command.args(["--runtime-flag", &format!("root={}", ground.at("state"))]);
        }
        if self.rootless && ["run", "build"].contains(verb) && !rest.contains(&"--network") {
            // A network of its own would take slirp4netns, and /dev/net/tun.
            command.args(["--network", "none"]);
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

impl Drop for Buildah {
    fn drop(&mut self) {
        let removed = self.run(&["rm", "--all"]);
        self.run(&["rmi", "--all", "--force"]);
        if self.rootless {
            self.run(&["unshare", "rm", "-rf", &self.ground.at("storage")]);
        }
        let left = self.ground.leftovers();
        assert!(left.is_empty() && removed.code() == 0, "left: {left:#?}\n{removed}");
    }
}
