//! API keys: their form and scope, and the initial key, which a server creates when no other key exists.

use crate::digest::sha256_hex;
use crate::error::{Context, Error, Result};
use crate::settings::Settings;
use crate::store::Store;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use utoipa::ToSchema;

/// The tenant of the configured key and of the initial key.
pub const DEFAULT_TENANT: &str = "default";

/// What requests with an API key may do. Each scope includes those before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum KeyScope {
    /// Read agents, sessions and usage.
    Read,
    /// Also start and use sessions.
    Agent,
    /// Everything, also deployments, API keys and credentials.
    #[default]
    Admin,
}

const SCOPE_NAMES: [(KeyScope, &str); 3] =
    [(KeyScope::Read, "read"), (KeyScope::Agent, "agent"), (KeyScope::Admin, "admin")];

impl fmt::Display for KeyScope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = SCOPE_NAMES.iter().find(|(scope, _)| scope == self).map_or("", |(_, name)| name);
        formatter.write_str(name)
    }
}

impl FromStr for KeyScope {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let found = SCOPE_NAMES.iter().find(|(_, known)| *known == name);
        found
            .map(|(scope, _)| *scope)
            .ok_or_else(|| Error::new(format!("unknown scope {name:?} of an API key")))
    }
}

/// A configured secret, to compare with the secrets of requests in constant time.
#[derive(Clone)]
pub struct SecretVerifier {
    key: hmac::Key,
    tag: hmac::Tag,
}

impl SecretVerifier {
    /// Creates a verifier of this secret. The secret itself is not kept.
    pub fn new(secret: &str) -> Self {
        // The key need not be secret: the comparison of tags takes the same time for all tags.
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"saggar-server secret");
        let tag = hmac::sign(&key, secret.as_bytes());
        SecretVerifier { key, tag }
    }

    /// Whether this is the secret.
    pub fn matches(&self, secret: &str) -> bool {
        hmac::verify(&self.key, secret.as_bytes(), self.tag.as_ref()).is_ok()
    }
}

impl fmt::Debug for SecretVerifier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SecretVerifier").finish_non_exhaustive()
    }
}

/// The API key that the server created at this start.
#[derive(Debug)]
pub struct InitialKey {
    /// The key in plain text; the database stores only its hash.
    pub key: String,
    /// The file that contains the key, with mode 0600.
    pub file: PathBuf,
}

/// Creates an API key if the database contains no key and the settings name none, and writes it to `initial-api-key` in
/// the data directory. Without it, a new server would have to accept every request or none.
///
/// # Errors
/// Fails if the database or the file cannot be written.
pub async fn create_initial_key(
    store: &Store,
    settings: &Settings,
    data_dir: &Path,
) -> Result<Option<InitialKey>> {
    if settings.api_key.is_some() || store.has_api_key().await? {
        return Ok(None);
    }
    let (key, file) = (generate_key()?, data_dir.join("initial-api-key"));
    let context = || format!("cannot write {}", file.display());
    // A start that failed before the database had the key can have left this file.
    match std::fs::remove_file(&file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error).context(context),
        _ => {}
    }
    let mut output =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file).context(context)?;
    writeln!(output, "{key}").and_then(|()| output.sync_all()).context(context)?;
    store.insert_api_key(DEFAULT_TENANT, &hash_key(&key), "initial key").await?;
    Ok(Some(InitialKey { key, file }))
}

/// Generates a key: `ash_` and 24 random bytes in base64url.
///
/// # Errors
/// Fails if the kernel returns no random bytes.
pub fn generate_key() -> Result<String> {
    let mut bytes = [0; 24];
    SystemRandom::new().fill(&mut bytes).context(|| "cannot generate an API key")?;
    Ok(format!("ash_{}", URL_SAFE_NO_PAD.encode(bytes)))
}

/// Hashes a key for storage: SHA-256 in hexadecimal digits. Generated keys have 192 random
/// bits, so that the hash needs no salt.
pub fn hash_key(key: &str) -> String {
    sha256_hex(key.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_ordered_and_named() {
        assert!(KeyScope::Read < KeyScope::Agent && KeyScope::Agent < KeyScope::Admin);
        for (scope, name) in SCOPE_NAMES {
            assert_eq!((name.parse::<KeyScope>().unwrap(), scope.to_string()), (scope, name.to_owned()));
            assert_eq!(serde_json::to_value(scope).unwrap(), name);
        }
        assert!("root".parse::<KeyScope>().is_err());
    }

    #[test]
    fn verifier_matches_only_its_secret_and_does_not_print_it() {
        let verifier = SecretVerifier::new("secret");
        assert!(verifier.matches("secret"));
        for other in ["", "secre", "secret ", "Secret"] {
            assert!(!verifier.matches(other), "{other:?}");
        }
        assert_eq!(format!("{verifier:?}"), "SecretVerifier { .. }");
    }

    #[test]
    fn generated_keys_are_unique_and_have_form_of_ash() {
        let (one, other) = (generate_key().unwrap(), generate_key().unwrap());
        assert_ne!(one, other);
        assert!(one.starts_with("ash_") && one.len() == 36, "{one}");
        assert_eq!(hash_key("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
