//! The messages of the container runtime interface that the scenarios use, with the fields that they need: version v1,
//! `runtime.v1` of the Kubernetes CRI API. Numbers of fields are those of its `api.proto`.

use std::collections::HashMap;

/// A method of a service, by its request.
pub(crate) trait Method: prost::Message + 'static {
    /// `/SERVICE/METHOD`.
    const PATH: &'static str;
    type Response: prost::Message + Default + 'static;
}

macro_rules! methods {
    ($service:literal: $($name:literal $request:ty => $response:ty;)+) => { $(
        impl Method for $request {
            const PATH: &'static str = concat!("/runtime.v1.", $service, "/", $name);
            type Response = $response;
        }
    )+ };
}

methods! { "RuntimeService":
    "RunPodSandbox" RunPod => Pod;
    "StopPodSandbox" StopPod => Empty;
    "RemovePodSandbox" RemovePod => Empty;
    "CreateContainer" CreateContainer => Container;
    "StartContainer" StartContainer => Empty;
    "StopContainer" StopContainer => Empty;
    "RemoveContainer" RemoveContainer => Empty;
    "ContainerStatus" ContainerStatusRequest => ContainerStatusResponse;
    "UpdateContainerResources" UpdateResources => Empty;
    "ExecSync" ExecSync => ExecResult;
}

methods! { "ImageService":
    "ImageStatus" ImageStatusRequest => ImageStatusResponse;
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Empty {}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RunPod {
    #[prost(message, optional, tag = "1")]
    pub(crate) config: Option<PodConfig>,
    #[prost(string, tag = "2")]
    pub(crate) runtime_handler: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PodConfig {
    #[prost(message, optional, tag = "1")]
    pub(crate) metadata: Option<PodMetadata>,
    #[prost(string, tag = "3")]
    pub(crate) log_directory: String,
    #[prost(map = "string, string", tag = "7")]
    pub(crate) annotations: HashMap<String, String>,
    #[prost(message, optional, tag = "8")]
    pub(crate) linux: Option<LinuxPod>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PodMetadata {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) uid: String,
    #[prost(string, tag = "3")]
    pub(crate) namespace: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LinuxPod {
    #[prost(string, tag = "1")]
    pub(crate) cgroup_parent: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) security_context: Option<PodSecurity>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PodSecurity {
    #[prost(message, optional, tag = "1")]
    pub(crate) namespaces: Option<Namespaces>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Namespaces {
    #[prost(enumeration = "NamespaceMode", tag = "1")]
    pub(crate) network: i32,
    #[prost(enumeration = "NamespaceMode", tag = "2")]
    pub(crate) pid: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum NamespaceMode {
    Pod = 0,
    Container = 1,
    Node = 2,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Pod {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct StopPod {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RemovePod {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CreateContainer {
    #[prost(string, tag = "1")]
    pub(crate) pod: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) config: Option<ContainerConfig>,
    #[prost(message, optional, tag = "3")]
    pub(crate) pod_config: Option<PodConfig>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ContainerConfig {
    #[prost(message, optional, tag = "1")]
    pub(crate) metadata: Option<ContainerMetadata>,
    #[prost(message, optional, tag = "2")]
    pub(crate) image: Option<ImageSpec>,
    #[prost(string, repeated, tag = "3")]
    pub(crate) command: Vec<String>,
    #[prost(string, tag = "5")]
    pub(crate) working_dir: String,
    #[prost(message, repeated, tag = "6")]
    pub(crate) envs: Vec<Variable>,
    #[prost(message, repeated, tag = "7")]
    pub(crate) mounts: Vec<Mount>,
    #[prost(string, tag = "11")]
    pub(crate) log_path: String,
    #[prost(message, optional, tag = "15")]
    pub(crate) linux: Option<LinuxContainer>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Variable {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Mount {
    #[prost(string, tag = "1")]
    pub(crate) container_path: String,
    #[prost(string, tag = "2")]
    pub(crate) host_path: String,
    #[prost(bool, tag = "3")]
    pub(crate) readonly: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ContainerMetadata {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ImageSpec {
    #[prost(string, tag = "1")]
    pub(crate) image: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LinuxContainer {
    #[prost(message, optional, tag = "1")]
    pub(crate) resources: Option<Resources>,
    #[prost(message, optional, tag = "2")]
    pub(crate) security_context: Option<ContainerSecurity>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ContainerSecurity {
    #[prost(message, optional, tag = "3")]
    pub(crate) namespaces: Option<Namespaces>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Resources {
    /// In bytes.
    #[prost(int64, tag = "4")]
    pub(crate) memory: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Container {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct StartContainer {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct StopContainer {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    /// In seconds.
    #[prost(int64, tag = "2")]
    pub(crate) timeout: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RemoveContainer {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ContainerStatusRequest {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ContainerStatusResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) status: Option<ContainerStatus>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ContainerStatus {
    #[prost(enumeration = "ContainerState", tag = "3")]
    pub(crate) state: i32,
    #[prost(int32, tag = "7")]
    pub(crate) exit_code: i32,
    #[prost(string, tag = "10")]
    pub(crate) reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum ContainerState {
    Created = 0,
    Running = 1,
    Exited = 2,
    Unknown = 3,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct UpdateResources {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) resources: Option<Resources>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ExecSync {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(string, repeated, tag = "2")]
    pub(crate) command: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ExecResult {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) stdout: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) stderr: Vec<u8>,
    #[prost(int32, tag = "3")]
    pub(crate) exit_code: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ImageStatusRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) image: Option<ImageSpec>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ImageStatusResponse {
    /// An image of the store.
    #[prost(message, optional, tag = "1")]
    pub(crate) image: Option<Empty>,
}
