//! Objects of the snapshot store: files that are written whole and read with a check of their hash.

use super::copy::StoredObject;
use super::url::SnapshotUrl;
use crate::error::{Context, Error, Result};
use crate::http_client::HyperClient;
use futures_util::StreamExt;
use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::path::Path as Key;
use object_store::prefix::PrefixStore;
use object_store::{BackoffConfig, ObjectStore, ObjectStoreExt, RetryConfig};
use ring::digest::{Context as Hasher, SHA256};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::fs::OpenOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// Size of the parts of an upload, in bytes; smaller objects are one request.
const PART_SIZE: usize = 8 << 20;
/// How long a download may receive nothing.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a request is repeated, so that an unreachable store does not hold up a client.
const RETRY_TIME: Duration = Duration::from_secs(15);
const MAX_RETRIES: usize = 3;

/// The snapshot store.
#[derive(Debug, Clone)]
pub(super) struct Objects {
    store: Arc<dyn ObjectStore>,
}

impl Objects {
    /// Opens the store. A directory is created with mode 0700 if it does not exist. The settings of an S3 store are those
    /// of the environment (`AWS_…`); no request is sent yet.
    ///
    /// # Errors
    /// Fails if the directory belongs to another user or is accessible to others, or if a variable is invalid.
    pub(super) fn open(url: &SnapshotUrl) -> Result<Self> {
        let context = || "cannot use the snapshot store";
        let store: Arc<dyn ObjectStore> = match url {
            SnapshotUrl::Directory(directory) => {
                create_private_directory(directory)?;
                Arc::new(
                    LocalFileSystem::new_with_prefix(directory)
                        .context(context)?
                        .with_fsync(true)
                        .with_automatic_cleanup(true),
                )
            }
            SnapshotUrl::S3 { bucket, prefix } => {
                let retry = RetryConfig {
                    max_retries: MAX_RETRIES,
                    retry_timeout: RETRY_TIME,
                    backoff: BackoffConfig {
                        max_backoff: Duration::from_secs(2),
                        ..BackoffConfig::default()
                    },
                };
                let bucket = AmazonS3Builder::from_env()
                    .with_bucket_name(bucket)
                    .with_retry(retry)
                    // Not every API has it.
                    .with_disable_bulk_delete(true)
                    .with_http_connector(HyperClient::new()?)
                    .build()
                    .context(context)?;
                Arc::new(PrefixStore::new(bucket, prefix.as_str()))
            }
        };
        Ok(Objects { store })
    }

    /// Uploads a file under a key that no other object has.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or the object cannot be written.
    pub(super) async fn upload(&self, file: &Path, key: &Key) -> Result<StoredObject> {
        let context = || format!("cannot upload {key}");
        let mut file = tokio::fs::File::open(file).await.context(context)?;
        let (mut hasher, mut size) = (Hasher::new(&SHA256), 0);
        let first = read_part(&mut file, &mut hasher, &mut size).await.context(context)?;
        if first.len() < PART_SIZE {
            self.store.put(key, first.into()).await.context(context)?;
        } else {
            let mut parts = self.store.put_multipart(key).await.context(context)?;
            let sent = async {
                parts.put_part(first.into()).await.context(context)?;
                loop {
                    let part = read_part(&mut file, &mut hasher, &mut size).await.context(context)?;
                    if part.is_empty() {
                        return parts.complete().await.context(context);
                    }
                    parts.put_part(part.into()).await.context(context)?;
                }
            };
            let sent = sent.await;
            if let Err(error) = sent {
                // Else the store keeps the parts.
                let _ = parts.abort().await;
                return Err(error);
            }
        }
        Ok(StoredObject { key: key.to_string(), size, sha256: hexadecimal(hasher) })
    }

    /// Downloads an object into a new file with mode 0600.
    ///
    /// # Errors
    /// Fails if the object does not exist, or if its size or its hash is another one.
    pub(super) async fn download(&self, object: &StoredObject, file: &Path) -> Result<()> {
        let context = || format!("cannot download {}", object.key);
        let changed =
            || Error::new(format!("cannot use {}: it was changed in the snapshot store", object.key));
        let key = Key::parse(&object.key).context(context)?;
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(file).await.context(context)?;
        let mut content = self.store.get(&key).await.context(context)?.into_stream();
        let (mut hasher, mut size) = (Hasher::new(&SHA256), 0);
        while let Some(bytes) = timeout(READ_TIMEOUT, content.next()).await.context(context)? {
            let bytes = bytes.context(context)?;
            size += bytes.len() as u64;
            if size > object.size {
                return Err(changed());
            }
            hasher.update(&bytes);
            file.write_all(&bytes).await.context(context)?;
        }
        file.flush().await.context(context)?;
        if size != object.size || hexadecimal(hasher) != object.sha256 {
            return Err(changed());
        }
        Ok(())
    }

    /// Deletes objects. It is not an error if one does not exist.
    ///
    /// # Errors
    /// Fails if one cannot be deleted.
    pub(super) async fn delete(&self, keys: &[String]) -> Result<()> {
        for key in keys {
            let context = || format!("cannot delete {key}");
            match self.store.delete(&Key::parse(key).context(context)?).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(error).context(context),
            }
        }
        Ok(())
    }
}

/// Reads the next part of a file; it is empty at the end, and shorter than [`PART_SIZE`] only there.
async fn read_part(file: &mut tokio::fs::File, hasher: &mut Hasher, size: &mut u64) -> io::Result<Vec<u8>> {
    let mut part = Vec::new();
    file.take(PART_SIZE as u64).read_to_end(&mut part).await?;
    hasher.update(&part);
    *size += part.len() as u64;
    Ok(part)
}

pub(super) fn hexadecimal(hasher: Hasher) -> String {
    hasher.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Creates a directory with mode 0700, or checks that only its owner, who is the user of the server, can enter it: then
/// no other user can place a link in it.
fn create_private_directory(directory: &Path) -> Result<()> {
    let context = || format!("cannot use the snapshot store {}", directory.display());
    DirBuilder::new().recursive(true).mode(0o700).create(directory).context(context)?;
    let metadata = fs::metadata(directory).context(context)?;
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(Error::new(format!("{}: it belongs to another user", context())));
    }
    if metadata.permissions().mode() & 0o077 != 0 {
        let remedy = format!("run chmod 700 {}", directory.display());
        return Err(Error::new(format!("{}: it is accessible to other users; {remedy}", context())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn object_that_was_changed_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (store, file) = (directory.path().join("store"), directory.path().join("file"));
        fs::write(&file, "content").unwrap();
        let objects = Objects::open(&SnapshotUrl::Directory(store.clone())).unwrap();
        let object = objects.upload(&file, &Key::from_iter(["a b", "..", "x"])).await.unwrap();
        assert_eq!((object.size, object.key.as_str()), (7, "a b/%2E%2E/x"));
        objects.download(&object, &directory.path().join("first")).await.unwrap();
        assert_eq!(fs::read(directory.path().join("first")).unwrap(), b"content");
        let stored = store.join("a b/%2E%2E/x");
        for (number, changed) in ["CONTENT", "contentcontent", "con"].iter().enumerate() {
            fs::write(&stored, changed).unwrap();
            let error =
                objects.download(&object, &directory.path().join(number.to_string())).await.unwrap_err();
            assert!(error.to_string().contains("it was changed"), "{error}");
        }
        for _ in 0..2 {
            objects.delete(std::slice::from_ref(&object.key)).await.unwrap();
            // With the directories.
            assert_eq!(fs::read_dir(&store).unwrap().count(), 0);
        }
        assert!(objects.download(&object, &directory.path().join("last")).await.is_err());
    }

    #[test]
    fn directory_that_others_can_enter_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let url = SnapshotUrl::Directory(directory.path().to_owned());
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let error = Objects::open(&url).unwrap_err().to_string();
        assert!(error.contains("chmod 700"), "{error}");
    }
}
