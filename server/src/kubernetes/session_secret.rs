//! What only the pod of a session gets: the folder that its workspace begins with, which can contain secrets of MCP
//! servers, and its environment variables.

use crate::error::{Context, Error, Result};
use crate::folder_archive::pack_folder_to;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use tokio::task::spawn_blocking;

/// The key, and the file, of the folder: an archive that tar(1) unpacks.
pub(super) const FOLDER_ARCHIVE: &str = "folder.tar.gz";
/// Maximum size of all values of a secret, in bytes (Kubernetes, Secrets).
const MAX_SIZE: usize = 1 << 20;

/// The content of a secret.
#[derive(Debug)]
pub(super) struct SessionSecret {
    archive: Vec<u8>,
    /// The variables, with the keys of their values.
    variables: Vec<(String, String, String)>,
}

impl SessionSecret {
    /// Packs a folder.
    ///
    /// # Errors
    /// Fails if the folder cannot be read, or if it is too large for a secret.
    pub(super) async fn new(folder: &Path, variables: &BTreeMap<String, String>) -> Result<Self> {
        let own = folder.to_owned();
        let packed = spawn_blocking(move || pack_folder_to(&own, Vec::new())).await;
        let context = || format!("cannot pack {}", folder.display());
        let archive = packed.context(context)?.context(context)?;
        let size = archive.len() + variables.values().map(String::len).sum::<usize>();
        if size > MAX_SIZE {
            return Err(Error::new(format!(
                "the folder of the agent and its variables have {size} bytes, packed, and a secret of Kubernetes \
                 has at most {MAX_SIZE}: move large files into the image of the pod"
            )));
        }
        // A key does not have the name of its variable: not each is a valid key.
        let entry = |(number, (name, value)): (usize, (&String, &String))| {
            (format!("variable-{number}"), name.clone(), value.clone())
        };
        Ok(SessionSecret { archive, variables: variables.iter().enumerate().map(entry).collect() })
    }

    /// The environment variables of a container, with references to the secret of this name.
    pub(super) fn variables(&self, secret: &str) -> impl Iterator<Item = Value> {
        let reference = move |key: &str| json!({ "secretKeyRef": { "name": secret, "key": key } });
        self.variables.iter().map(move |(key, name, _)| json!({ "name": name, "valueFrom": reference(key) }))
    }

    /// The secret of the pod with this name and uid: the API deletes it with the pod.
    pub(super) fn manifest(&self, pod: &str, uid: &str, labels: Value) -> Value {
        let encoded = |bytes: &[u8]| Value::String(STANDARD.encode(bytes));
        let values = self.variables.iter().map(|(key, _, value)| (key.clone(), encoded(value.as_bytes())));
        let archive = (FOLDER_ARCHIVE.to_owned(), encoded(&self.archive));
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": pod,
                "labels": labels,
                "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid }],
            },
            "immutable": true,
            "data": values.chain([archive]).collect::<Map<_, _>>(),
        })
    }
}

#[cfg(test)]
impl SessionSecret {
    /// One with these variables.
    pub(super) fn of_variables(names: &[&str]) -> Self {
        let variable = |(number, name): (usize, &&str)| {
            (format!("variable-{number}"), (*name).to_owned(), "the-value".to_owned())
        };
        SessionSecret { archive: Vec::new(), variables: names.iter().enumerate().map(variable).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[tokio::test]
    async fn values_are_in_the_secret_alone() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("CLAUDE.md"), "x").unwrap();
        let variables = BTreeMap::from([("A".to_owned(), "plum".to_owned())]);
        let secret = SessionSecret::new(folder.path(), &variables).await.unwrap();
        let expected =
            json!({ "name": "A", "valueFrom": { "secretKeyRef": { "name": "s", "key": "variable-0" } } });
        assert_eq!(secret.variables("s").collect::<Vec<_>>(), [expected]);
        let manifest = secret.manifest("s", "u", json!({}));
        assert_eq!(manifest["data"]["variable-0"], STANDARD.encode("plum"));
        let archive = STANDARD.decode(manifest["data"][FOLDER_ARCHIVE].as_str().unwrap()).unwrap();
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(&archive[..]));
        let names = archive.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().into_owned());
        assert!(names.collect::<Vec<_>>().contains(&"CLAUDE.md".into()));
        assert_eq!(manifest["metadata"]["ownerReferences"][0]["uid"], "u");
    }

    #[tokio::test]
    async fn what_is_too_large_for_a_secret_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let variables = BTreeMap::from([("A".to_owned(), "x".repeat(MAX_SIZE))]);
        let error = SessionSecret::new(folder.path(), &variables).await.unwrap_err().to_string();
        assert!(error.contains("move large files into the image"), "{error}");
        let missing = SessionSecret::new(&folder.path().join("missing"), &variables).await;
        assert!(missing.unwrap_err().to_string().contains("missing"));
    }
}
