//! A pod and its containers, through the calls of a kubelet.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

use crate::callers::cri::Cri;
use crate::callers::cri::messages::{
    ContainerConfig, ContainerMetadata, ContainerSecurity, ContainerState, ContainerStatus,
    ContainerStatusRequest, CreateContainer, ExecResult, ExecSync, ImageSpec, LinuxContainer, LinuxPod,
    NamespaceMode, Namespaces, PodConfig, PodMetadata, PodSecurity, RemovePod, Resources, RunPod,
    StartContainer, StopPod,
};
use crate::callers::{Engine, IMAGE, fresh_name};
use crate::scenarios::eventually;

/// A pod with the network of the host; it and its containers are gone when dropped.
pub(super) struct Pod<'a> {
    pub(super) cri: &'a Cri,
    pub(super) id: String,
    config: PodConfig,
}

impl<'a> Pod<'a> {
    #[track_caller]
    pub(super) fn run(engine: &'a dyn Engine) -> Self {
        Pod::with_annotations(engine, HashMap::new())
    }

    #[track_caller]
    pub(super) fn with_annotations(engine: &'a dyn Engine, annotations: HashMap<String, String>) -> Self {
        let (cri, name) = (engine.cri(), fresh_name());
        let security_context = Some(PodSecurity { namespaces: Some(namespaces()) });
        let mut config = PodConfig {
            metadata: Some(PodMetadata { name: name.clone(), uid: name, namespace: "default".into() }),
            log_directory: String::new(),
            annotations,
            linux: Some(LinuxPod { cgroup_parent: cri.cgroup_parent(), security_context }),
        };
        let logs = cri.directory_of(&config);
        fs::create_dir(&logs).unwrap();
        config.log_directory = logs.to_str().unwrap().to_owned();
        let request = RunPod { config: Some(config.clone()), runtime_handler: cri.handler().to_owned() };
        Pod { cri, id: cri.call(request).unwrap().id, config }
    }

    /// The directory of its logs and volumes.
    pub(super) fn directory(&self) -> PathBuf {
        self.cri.directory_of(&self.config)
    }

    /// A container, created and not started.
    pub(super) fn create(&self, config: ContainerConfig) -> Result<Started<'_>, String> {
        let log = self.directory().join(&config.log_path);
        let request = CreateContainer {
            pod: self.id.clone(),
            config: Some(config),
            pod_config: Some(self.config.clone()),
        };
        Ok(Started { cri: self.cri, id: self.cri.call(request)?.id, log })
    }

    #[track_caller]
    pub(super) fn start(&self, config: ContainerConfig) -> Started<'_> {
        let container = self.create(config).unwrap();
        container.cri.call(StartContainer { id: container.id.clone() }).unwrap();
        container
    }

    /// A container that runs a line of shell.
    #[track_caller]
    pub(super) fn shell(&self, line: &str) -> Started<'_> {
        self.start(container(&fresh_name(), &shell(line), 0))
    }
}

impl Drop for Pod<'_> {
    fn drop(&mut self) {
        let stopped = self.cri.call(StopPod { id: self.id.clone() });
        let removed = self.cri.call(RemovePod { id: self.id.clone() });
        if !std::thread::panicking() {
            stopped.and(removed).unwrap();
        }
    }
}

/// A container of a pod; removed with it.
pub(super) struct Started<'a> {
    pub(super) cri: &'a Cri,
    pub(super) id: String,
    log: PathBuf,
}

impl Started<'_> {
    #[track_caller]
    pub(super) fn status(&self) -> ContainerStatus {
        self.cri.call(ContainerStatusRequest { id: self.id.clone() }).unwrap().status.unwrap()
    }

    /// Waits for its end.
    #[track_caller]
    pub(super) fn wait(&self) -> ContainerStatus {
        eventually("the end of a container", || {
            let status = self.status();
            if status.state() == ContainerState::Exited { Ok(status) } else { Err(format!("{status:?}")) }
        })
    }

    /// Its output so far: of each line the stream and the text, as the log of a kubelet has them.
    fn logged(&self) -> Vec<(String, String)> {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let parse = |line: &str| {
            let mut words = line.splitn(4, ' ').skip(1);
            let (stream, _, text) = (words.next()?, words.next()?, words.next()?);
            Some((stream.to_owned(), text.to_owned()))
        };
        log.lines().filter_map(parse).collect()
    }

    #[track_caller]
    pub(super) fn expect(&self, stream: &str, text: &str) {
        eventually(text, || {
            let logged = self.logged();
            let found = logged.iter().any(|line| line.0 == stream && line.1.contains(text));
            if found { Ok(()) } else { Err(format!("{logged:?}")) }
        });
    }

    #[track_caller]
    pub(super) fn exec(&self, line: &str) -> ExecResult {
        self.cri.call(ExecSync { id: self.id.clone(), command: shell(line) }).unwrap()
    }
}

/// A container of the image that runs a command, with this limit in bytes or none.
pub(super) fn container(name: &str, command: &[String], memory: i64) -> ContainerConfig {
    let security_context = Some(ContainerSecurity { namespaces: Some(namespaces()) });
    ContainerConfig {
        metadata: Some(ContainerMetadata { name: name.to_owned() }),
        image: Some(ImageSpec { image: IMAGE.to_owned() }),
        command: command.to_vec(),
        log_path: format!("{name}.log"),
        linux: Some(LinuxContainer { resources: Some(Resources { memory }), security_context }),
        ..ContainerConfig::default()
    }
}

/// The command of a line of shell.
pub(super) fn shell(line: &str) -> Vec<String> {
    ["sh", "-c", line].map(str::to_owned).to_vec()
}

/// No network plugin is needed on the host's network. Each container has processes of its own.
fn namespaces() -> Namespaces {
    Namespaces { network: NamespaceMode::Node.into(), pid: NamespaceMode::Container.into() }
}
