//! Uploads, and the deletion of objects that no copy has: those of former copies, of deleted sessions and agents, and of
//! uploads that did not complete. The database has their keys before they are written, so that none remains.

use super::Persisted;
use super::copy::StoredObject;
use super::upload::CopyOutcome;
use crate::error::{Context, Result};
use object_store::path::Path as Key;
use serde_json::{Value, json};
use std::path::Path;
use tracing::debug;
use uuid::Uuid;

/// Objects of one copy that are being uploaded.
#[derive(Debug)]
pub(super) struct Upload {
    pub(super) id: Uuid,
    prefix: Key,
}

impl Upload {
    fn key(&self, name: &str) -> Key {
        self.prefix.clone().join(format!("{}-{name}", self.id))
    }
}

impl Persisted {
    /// Begins an upload of objects with these names.
    pub(super) async fn begin_upload(&self, prefix: Key, names: &[&str]) -> Result<Upload> {
        let upload = Upload { id: Uuid::new_v4(), prefix };
        let keys: Vec<String> = names.iter().map(|name| upload.key(name).to_string()).collect();
        self.store.begin_upload(upload.id, &json!(keys).to_string()).await?;
        Ok(upload)
    }

    pub(super) async fn upload_file(&self, upload: &Upload, name: &str, file: &Path) -> Result<StoredObject> {
        self.objects.upload(file, &upload.key(name)).await
    }

    /// Ends an upload: `stored` is whether the database has its copy. If it has not, the objects are deleted.
    pub(super) async fn end_upload(&self, upload: &Upload, stored: Result<bool>) -> Result<CopyOutcome> {
        if !matches!(stored, Ok(true))
            && let Err(error) = self.store.abandon_upload(upload.id).await
        {
            // The next start deletes its objects.
            debug!("cannot store that an upload failed: {error}");
        }
        self.changes.add_removals();
        Ok(if stored? { CopyOutcome::Copied } else { CopyOutcome::NotHere })
    }

    /// Deletes the objects of all removals that are due.
    pub(super) async fn remove_objects(&self) -> Result<CopyOutcome> {
        for (id, objects) in self.store.due_removals().await? {
            let objects: Value = serde_json::from_str(&objects).context(|| "cannot read a removal")?;
            let mut keys = Vec::new();
            add_keys(&objects, &mut keys);
            self.objects.delete(&keys).await?;
            self.store.finish_removal(&id).await?;
        }
        Ok(CopyOutcome::Unchanged)
    }
}

/// Adds the keys in a list of them, in an object of the store or in a copy.
fn add_keys(value: &Value, keys: &mut Vec<String>) {
    match value {
        Value::Array(list) => keys.extend(list.iter().filter_map(Value::as_str).map(str::to_owned)),
        Value::Object(members) => {
            keys.extend(members.get("key").and_then(Value::as_str).map(str::to_owned));
            members.values().filter(|member| member.is_object()).for_each(|member| add_keys(member, keys));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_a_list_an_object_or_a_copy() {
        let object = |key: &str| json!({ "key": key, "size": 1, "sha256": "x" });
        let copy = json!({ "snapshot": object("a"), "policy": { "ciphertext": "c" }, "last_event": 1, "events": object("b") });
        for (value, expected) in
            [(json!(["a", "b"]), vec!["a", "b"]), (object("a"), vec!["a"]), (copy, vec!["a", "b"])]
        {
            let mut keys = Vec::new();
            add_keys(&value, &mut keys);
            keys.sort();
            assert_eq!(keys, expected, "{value}");
        }
    }
}
