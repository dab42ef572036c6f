//! The table `kubernetes` of the settings file (saggar-server(8), KUBERNETES).

use super::template::PodTemplate;
use super::yaml;
use crate::error::{Context, Error, Result};
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where a pod has the account of its service.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The defaults of the table `relay`.
const RELAY_PORT: u16 = 4101;
const RELAY_NAME: &str = "saggar-relay";
/// The default of `start_timeout`: an image may have to be pulled.
const START_TIMEOUT: Duration = Duration::from_secs(300);

/// The table as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KubernetesTable {
    pod: Option<PathBuf>,
    namespace: Option<String>,
    /// In seconds.
    start_timeout: Option<u64>,
    api: Option<String>,
    token_file: Option<PathBuf>,
    certificate_authority: Option<PathBuf>,
    #[serde(default)]
    relay: RelayTable,
}

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct RelayTable {
    port: Option<u16>,
    name: Option<String>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    certificate_authority: Option<PathBuf>,
}

/// How the server reaches the relays of the nodes.
#[derive(Debug, Clone)]
pub(super) struct RelaySettings {
    pub(super) port: u16,
    /// The name in their certificates.
    pub(super) name: String,
    /// The certificate of the server, which they ask for, and its key.
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
    /// The certificate authorities of their certificates.
    pub(super) certificate_authority: PathBuf,
}

/// How the server creates pods.
#[derive(Debug, Clone)]
pub struct KubernetesSettings {
    /// The manifest that each pod begins with.
    pub(super) template: PodTemplate,
    /// The namespace of the pods.
    pub(super) namespace: String,
    /// How long a pod may take until its agent runs.
    pub(super) start_timeout: Duration,
    /// The URL of the Kubernetes API, without a slash at the end.
    pub(super) api: String,
    /// The file of the token; it is read for each request, since the kubelet replaces it. `None` sends no token.
    pub(super) token_file: Option<PathBuf>,
    /// The certificate authorities of the API; `None` are those of the system.
    pub(super) certificate_authority: Option<PathBuf>,
    pub(super) relay: RelaySettings,
}

impl KubernetesSettings {
    /// Reads the manifest, and fills in what a pod of Kubernetes knows about its cluster. Returns `None` for an empty table.
    ///
    /// # Errors
    /// Fails if the manifest cannot be read or used, or if a setting is missing and unknown.
    pub fn read(
        table: KubernetesTable,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<KubernetesSettings>> {
        let Some(pod) = &table.pod else {
            return match table.is_empty() {
                true => Ok(None),
                false => Err(Error::new("kubernetes.pod is missing: name the file of a manifest of a pod")),
            };
        };
        let account = Path::new(SERVICE_ACCOUNT);
        let in_cluster = |name: &str| Some(account.join(name)).filter(|file| file.exists());
        let own_namespace = || Some(fs::read_to_string(account.join("namespace")).ok()?.trim().to_owned());
        let token_file = table.token_file.or_else(|| in_cluster("token").filter(|_| table.api.is_none()));
        if token_file.is_some() && table.api.as_ref().is_some_and(|url| url.starts_with("http://")) {
            return Err(Error::new("kubernetes.api: the token would not be encrypted: use https"));
        }
        Ok(Some(KubernetesSettings {
            template: read_template(pod)?,
            namespace: table.namespace.or_else(own_namespace).unwrap_or_else(|| "default".to_owned()),
            start_timeout: table.start_timeout.map_or(START_TIMEOUT, Duration::from_secs),
            token_file,
            certificate_authority: table
                .certificate_authority
                .or_else(|| in_cluster("ca.crt").filter(|_| table.api.is_none())),
            api: match table.api {
                Some(url) => checked_url(&url)?,
                None => cluster_url(variable)?,
            },
            relay: table.relay.settings()?,
        }))
    }
}

impl KubernetesTable {
    fn is_empty(&self) -> bool {
        let KubernetesTable { pod, namespace, start_timeout, api, token_file, certificate_authority, relay } =
            self;
        [pod, token_file, certificate_authority].iter().all(|path| path.is_none())
            && [namespace, api].iter().all(|text| text.is_none())
            && start_timeout.is_none()
            && *relay == RelayTable::default()
    }
}

impl RelayTable {
    fn settings(self) -> Result<RelaySettings> {
        let missing = |name: &str| Error::new(format!("kubernetes.relay.{name} is missing: name its file"));
        Ok(RelaySettings {
            port: self.port.unwrap_or(RELAY_PORT),
            name: self.name.unwrap_or_else(|| RELAY_NAME.to_owned()),
            certificate: self.certificate.ok_or_else(|| missing("certificate"))?,
            key: self.key.ok_or_else(|| missing("key"))?,
            certificate_authority: self
                .certificate_authority
                .ok_or_else(|| missing("certificate_authority"))?,
        })
    }
}

fn read_template(file: &Path) -> Result<PodTemplate> {
    let context = || format!("cannot use the manifest {}", file.display());
    let text = fs::read_to_string(file).context(context)?;
    yaml::parse(&text).and_then(PodTemplate::new).context(context)
}

fn checked_url(url: &str) -> Result<String> {
    let url = url.trim_end_matches('/');
    let host = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    match host.is_some_and(|host| !host.is_empty() && !host.contains(['/', '@', '?', '#'])) {
        true => Ok(url.to_owned()),
        false => Err(Error::new(format!("kubernetes.api = {url:?}: use https://HOST[:PORT]"))),
    }
}

/// The URL that each pod of a cluster has in its environment.
fn cluster_url(variable: impl Fn(&str) -> Option<String>) -> Result<String> {
    let missing = || Error::new("kubernetes.api is missing, and no KUBERNETES_SERVICE_HOST is set");
    let host = variable("KUBERNETES_SERVICE_HOST").ok_or_else(missing)?;
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let port = variable("KUBERNETES_SERVICE_PORT").unwrap_or_else(|| "443".to_owned());
    Ok(format!("https://{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const POD: &str = "spec:\n  containers: [{name: agent, image: i}]\n";

    const RELAY: &str = "[relay]\ncertificate = '/s'\nkey = '/k'\ncertificate_authority = '/c'";

    fn read(rest: &str, variables: &[(&str, &str)]) -> Result<Option<KubernetesSettings>> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(POD.as_bytes()).unwrap();
        let text = rest.replace("POD", file.path().to_str().unwrap());
        let variable =
            |name: &str| variables.iter().find(|(is, _)| *is == name).map(|(_, value)| (*value).to_owned());
        KubernetesSettings::read(toml::from_str(&text).unwrap(), variable)
    }

    #[test]
    fn cluster_is_that_of_the_environment_or_of_the_file() {
        assert!(read("", &[]).unwrap().is_none());
        let variables = [("KUBERNETES_SERVICE_HOST", "fd00::1"), ("KUBERNETES_SERVICE_PORT", "6443")];
        let settings = read(&format!("pod = 'POD'\n{RELAY}"), &variables).unwrap().unwrap();
        assert_eq!(
            (settings.api.as_str(), settings.namespace.as_str()),
            ("https://[fd00::1]:6443", "default")
        );
        assert_eq!((settings.relay.port, settings.relay.name.as_str()), (4101, "saggar-relay"));
        let file = format!(
            "pod = 'POD'\nnamespace = 'a'\napi = 'https://h:1/'\nstart_timeout = 9\n{RELAY}\nport = 7"
        );
        let settings = read(&file, &variables).unwrap().unwrap();
        assert_eq!((settings.api.as_str(), settings.relay.port), ("https://h:1", 7));
        assert_eq!((settings.start_timeout, settings.namespace.as_str()), (Duration::from_secs(9), "a"));
    }

    #[test]
    fn what_is_missing_or_invalid_is_named() {
        let api = "api = 'https://h'";
        for (text, name) in [
            ("namespace = 'n'".to_owned(), "kubernetes.pod"),
            ("[relay]\nport = 1".to_owned(), "kubernetes.pod"),
            (format!("pod = 'POD'\n{RELAY}"), "KUBERNETES_SERVICE_HOST"),
            (format!("pod = '/nonexistent'\n{api}\n{RELAY}"), "/nonexistent"),
            (format!("pod = 'POD'\napi = 'h:1'\n{RELAY}"), "kubernetes.api"),
            (format!("pod = 'POD'\napi = 'https://h/path'\n{RELAY}"), "kubernetes.api"),
            (format!("pod = 'POD'\napi = 'http://h'\ntoken_file = '/t'\n{RELAY}"), "would not be encrypted"),
            (format!("pod = 'POD'\n{api}"), "kubernetes.relay.certificate "),
            (format!("pod = 'POD'\n{api}\n[relay]\ncertificate = '/s'"), "kubernetes.relay.key"),
            (
                format!("pod = 'POD'\n{api}\n[relay]\ncertificate = '/s'\nkey = '/k'"),
                "kubernetes.relay.certificate_authority",
            ),
        ] {
            let error = read(&text, &[]).unwrap_err().to_string();
            assert!(error.contains(name), "{text}: {error}");
        }
    }
}
