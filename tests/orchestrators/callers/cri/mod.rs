//! containerd as a kubelet calls it: the container runtime interface, with the handler of `packaging/runtimes`.

pub(crate) mod messages;
mod service;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use yaml_rust2::{Yaml, YamlLoader};

use super::containerd::{CRI_PLUGIN, daemon_with, socket};
use super::ground::{Ground, is_systemd};
use super::{Engine, IMAGE, Kind};
use crate::account::Account;
use crate::daemon::Daemon;
use crate::image;
use crate::scenarios::eventually;
use messages::{ImageSpec, ImageStatusRequest, Method, PodConfig};
use service::Service;

/// The runtime's `--root`. Short: the ids of containers have 64 digits, and the path of a socket 107 bytes.
const RUNTIME_ROOT: &str = "r";

/// The directory of the sockets of named bridges.
const SOCKETS: &str = "sockets";

/// An agent that speaks stream-json, by the name of a real one. It answers each message with the process that it has.
const AGENT: (&str, &str) = (
    "claude",
    r#"#!/bin/sh
echo "started with $*"
while IFS= read -r line; do
  case $line in *'"type":"user"'*)
    echo '{"type":"system","subtype":"init","session_id":"s"}'
    echo "{\"type\":\"assistant\",\"pid\":$$,\"heard\":$line}"
    echo '{"type":"result","subtype":"success","is_error":false,"session_id":"s"}' ;;
  esac
done
"#,
);

/// A containerd of this run with the CRI plugin.
#[derive(Debug)]
pub(crate) struct Cri {
    service: Service,
    daemon: Option<Daemon>,
    ground: Ground,
    handler: String,
}

impl Cri {
    pub(crate) fn start(runtime: &Path) -> Self {
        let ground = Ground::new(Account::current(), runtime);
        // The container that keeps the namespaces of a pod runs the program of the image.
        let config = ground.make("home/saggar").join("config.toml");
        fs::write(config, format!("bridge.directory = {:?}\n", ground.make(SOCKETS))).unwrap();
        let archive = image::archive_with_program(ground.path(), IMAGE, AGENT, &["sleep", "2147483647"]);
        let daemon = Some(daemon_with(&ground, settings(&ground)));
        let service = Service::new(socket(&ground));
        let handler = text(&manifest("kubernetes-runtimeclass.yaml")["handler"]);
        let cri = Cri { service, daemon, ground, handler };
        cri.run(&["image", "import", archive.to_str().unwrap()]).exits(0).mentions(IMAGE);
        eventually("the image in the store of the plugin", || {
            let image = Some(ImageSpec { image: IMAGE.to_owned() });
            let found = cri.call(ImageStatusRequest { image })?.image;
            found.map(drop).ok_or_else(|| "it is not there".to_owned())
        });
        cri
    }

    /// Calls a method.
    pub(crate) fn call<M: Method>(&self, request: M) -> Result<M::Response, String> {
        self.service.call(&request)
    }

    /// The handler that a RuntimeClass names.
    pub(crate) fn handler(&self) -> &str {
        &self.handler
    }

    /// The parent of the cgroups of pods.
    pub(crate) fn cgroup_parent(&self) -> String {
        match is_systemd() {
            true => self.ground.cgroup.clone(),
            false => format!("/{}", self.ground.cgroup),
        }
    }

    /// The directory of a container below the runtime's `--root`.
    pub(crate) fn state_of(&self, container: &str) -> PathBuf {
        self.ground.path().join(RUNTIME_ROOT).join("k8s.io").join(container)
    }

    /// The directory for the logs and the volumes of a pod.
    pub(crate) fn directory_of(&self, config: &PodConfig) -> PathBuf {
        self.ground.path().join("share").join(&config.metadata.as_ref().unwrap().uid)
    }

    /// The operator's directory for the sockets of bridges, `bridge.directory`.
    pub(crate) fn sockets(&self) -> PathBuf {
        self.ground.path().join(SOCKETS)
    }

    /// The runtime that containerd calls.
    pub(crate) fn runtime(&self) -> &Path {
        &self.ground.runtime
    }

    /// A program on this ground.
    pub(crate) fn program(&self, program: &Path) -> Command {
        self.ground.command(program.to_str().unwrap())
    }
}

impl Engine for Cri {
    fn kind(&self) -> Kind {
        Kind::Cri
    }

    /// ctr, in the namespace of pods.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.ground.command("ctr");
        command.args(["--address", &socket(&self.ground), "--namespace", "k8s.io"]).args(arguments);
        command
    }

    fn dir(&self) -> &Path {
        self.ground.path()
    }

    fn cri(&self) -> &Cri {
        self
    }
}

impl Drop for Cri {
    fn drop(&mut self) {
        self.run(&["image", "remove", "--sync", IMAGE]);
        self.daemon = None;
        let left = self.ground.leftovers();
        assert!(left.is_empty(), "left: {left:#?}");
    }
}

/// The configuration of `packaging/runtimes`, with the places of this run and what this machine cannot do.
fn settings(ground: &Ground) -> toml::Table {
    let mut settings: toml::Table = packaged("containerd.toml").parse().unwrap();
    let plugin = settings["plugins"][CRI_PLUGIN].as_table_mut().unwrap();
    plugin.extend(toml::toml! {
        disable_apparmor = true
        restrict_oom_score_adj = true
        tolerate_missing_hugetlb_controller = true
        disable_tcp_service = true
    });
    plugin.insert("sandbox_image".to_owned(), IMAGE.into());
    let cni = [("bin_dir", "cni"), ("conf_dir", "cni")]
        .map(|(key, place)| (key.to_owned(), ground.at(place).into()));
    plugin.insert("cni".to_owned(), toml::Table::from_iter(cni).into());
    let options = plugin["containerd"]["runtimes"]["saggar"]["options"].as_table_mut().unwrap();
    assert_eq!(options["BinaryName"].as_str(), Some("/usr/bin/saggar"));
    options.insert("BinaryName".to_owned(), ground.runtime.to_str().unwrap().into());
    options.insert("Root".to_owned(), ground.at(RUNTIME_ROOT).into());
    options.insert("SystemdCgroup".to_owned(), is_systemd().into());
    settings
}

/// The pod of an agent, as `packaging/runtimes` has it.
pub(crate) fn agent_manifest() -> Yaml {
    manifest("kubernetes-agent-pod.yaml")
}

/// The annotations of a manifest.
pub(crate) fn annotations(manifest: &Yaml) -> HashMap<String, String> {
    let annotations = manifest["metadata"]["annotations"].as_hash().unwrap();
    annotations.iter().map(|(name, value)| (text(name), text(value))).collect()
}

/// The text of a value.
pub(crate) fn text(value: &Yaml) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value:?} is not a text")).to_owned()
}

/// The file of this name in the settings of the server, as `packaging/runtimes` has it.
pub(crate) fn server_file(name: &str) -> String {
    let objects = YamlLoader::load_from_str(&packaged("kubernetes-server.yaml")).unwrap();
    let settings = objects.iter().find(|object| object["kind"].as_str() == Some("ConfigMap")).unwrap();
    text(&settings["data"][name])
}

fn manifest(name: &str) -> Yaml {
    YamlLoader::load_from_str(&packaged(name)).unwrap().remove(0)
}

fn packaged(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/runtimes").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
