//! Docker: a dockerd and a containerd of this run, without bridge and packet filter.

use std::fs;
use std::path::Path;
use std::process::Command;

use nix::mount::{MntFlags, umount2};
use serde_json::json;

use super::ground::{Ground, is_systemd};
use super::{Engine, IMAGE, Kind, containerd};
use crate::account::Account;
use crate::daemon::Daemon;
use crate::image;

/// dockerd and what it stands on, in the order in which they end.
#[derive(Debug)]
pub(crate) struct Docker {
    dockerd: Option<Daemon>,
    containerd: Option<Daemon>,
    ground: Ground,
}

impl Docker {
    pub(crate) fn start(runtime: &Path) -> Self {
        let ground = Ground::new(Account::current(), runtime);
        let layer = image::layer(ground.path());
        let containerd = Some(containerd::daemon(&ground));
        let (driver, parent) = match is_systemd() {
            true => ("systemd", ground.cgroup.clone()),
            false => ("cgroupfs", format!("/{}", ground.cgroup)),
        };
        let configuration = json!({
            "bridge": "none", "iptables": false, "ip6tables": false, "ip-forward": false, "ip-masq": false,
            "containerd": ground.at("run/containerd.sock"), "containerd-namespace": "moby",
            "data-root": ground.at("docker"), "exec-root": ground.at("run/docker"),
            "pidfile": ground.at("run/docker.pid"), "hosts": [format!("unix://{}", ground.at("run/docker.sock"))],
            "storage-driver": "overlay2", "cgroup-parent": parent,
            "exec-opts": [format!("native.cgroupdriver={driver}")], "oom-score-adjust": 0,
            "runtimes": {"tested": {"path": ground.runtime}}, "default-runtime": "tested",
            "default-ulimits": {"nofile": {"Name": "nofile", "Soft": 1024, "Hard": 4096}},
        });
        fs::write(ground.at("docker.json"), configuration.to_string()).unwrap();
        let mut command = ground.command("dockerd");
        command.args(["--config-file", &ground.at("docker.json")]);
        let socket = ground.at("run/docker.sock");
        let dockerd = Some(Daemon::start(&command, ground.at("docker.log").into(), Path::new(&socket)));
        let docker = Docker { dockerd, containerd, ground };
        docker.run(&["import", layer.to_str().unwrap(), IMAGE]).exits(0);
        docker
    }
}

impl Engine for Docker {
    fn kind(&self) -> Kind {
        Kind::Docker
    }

    fn command(&self, arguments: &[&str]) -> Command {
        // Debian's: another docker on PATH may be of another version.
        let mut command = self.ground.command("/usr/bin/docker");
        command.env("DOCKER_BUILDKIT", "0");
        command.args(["--host", &format!("unix://{}", self.ground.at("run/docker.sock"))]).args(arguments);
        command
    }

    fn dir(&self) -> &Path {
        self.ground.path()
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        let containers = self.run(&["ps", "--all", "--quiet"]).stdout;
        let mut refused = Vec::new();
        for container in containers.lines() {
            let removed = self.run(&["rm", "--force", container]);
            refused.extend((removed.code() != 0).then(|| removed.to_string()));
        }
        self.dockerd = None;
        self.containerd = None;
        // The network namespace of `--network host`, which dockerd leaves.
        let _ = umount2(self.ground.at("run/docker/netns/default").as_str(), MntFlags::MNT_DETACH);
        let left = self.ground.leftovers();
        assert!(left.is_empty() && refused.is_empty(), "left: {left:#?}\n{refused:#?}");
    }
}
