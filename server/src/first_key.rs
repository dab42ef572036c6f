//! The key of a server that has none: without one, nobody could use it, and without a check everybody could.

use crate::error::{Context, Result};
use crate::settings::Settings;
use crate::store::Store;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::{SecureRandom, SystemRandom};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The tenant of the configured key and of the first one.
pub const DEFAULT_TENANT: &str = "default";

/// A key that was made at this start.
#[derive(Debug)]
pub struct FirstKey {
    /// The key.
    pub key: String,
    /// The file that it is kept in.
    pub file: PathBuf,
}

/// Makes a key if the database has none and none is configured, and keeps it in `initial-api-key` of the data directory,
/// which only the owner can read.
///
/// # Errors
/// The database or the file cannot be written.
pub async fn ensure(store: &Store, settings: &Settings, data: &Path) -> Result<Option<FirstKey>> {
    if settings.api_key.is_some() || store.has_api_key().await? {
        return Ok(None);
    }
    let (key, file) = (new_key()?, data.join("initial-api-key"));
    let failed = || format!("write {}", file.display());
    // One of an earlier start that got no further.
    match std::fs::remove_file(&file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error).context(failed),
        _ => {}
    }
    let mut written =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file).context(failed)?;
    writeln!(written, "{key}").and_then(|()| written.sync_all()).context(failed)?;
    store.insert_api_key(DEFAULT_TENANT, &hash(&key), "first key").await?;
    Ok(Some(FirstKey { key, file }))
}

/// A key: `ash_` and 24 random bytes in base64url.
///
/// # Errors
/// The kernel gives no random bytes.
pub fn new_key() -> Result<String> {
    let mut bytes = [0; 24];
    SystemRandom::new().fill(&mut bytes).context(|| "get random bytes")?;
    Ok(format!("ash_{}", URL_SAFE_NO_PAD.encode(bytes)))
}

/// What is kept of a key: its SHA-256 in hexadecimal digits. Comparing two of these tells nothing of a key.
pub fn hash(key: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, key.as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_and_have_the_form_of_the_seeds() {
        let (one, other) = (new_key().unwrap(), new_key().unwrap());
        assert_ne!(one, other);
        assert!(one.starts_with("ash_") && one.len() == 36, "{one}");
        assert_eq!(hash("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
