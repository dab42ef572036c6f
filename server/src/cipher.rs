//! Encryption in the database: AES-256-GCM with keys that PBKDF2 derives from the key of the server. Each credential has
//! a key of its own, from a random salt, as in Ash; the variables of agents share one, so that a start does not wait for
//! its derivation.

use crate::error::{Context, Error, Result};
use crate::settings::{Settings, read_key_file};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::error::Unspecified;
use ring::pbkdf2::{self, PBKDF2_HMAC_SHA256};
use ring::rand::{SecureRandom, SystemRandom};
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::num::NonZeroU32;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use uuid::Uuid;

/// The number of rounds of PBKDF2. It slows down guesses of a key that a person has chosen.
const ROUNDS: NonZeroU32 = NonZeroU32::new(100_000).expect("not zero");
const SALT_LEN: usize = 16;
/// Makes the key for variables differ from those of credentials.
const VARIABLES_SALT: &[u8] = b"saggar-server: variables of agents";
const KEY_LEN: usize = 32;

/// An encrypted text. All fields are base64.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedText {
    /// The ciphertext, as long as the text.
    pub ciphertext: String,
    /// The nonce of AES-GCM, 12 bytes.
    pub nonce: String,
    /// The authentication tag of AES-GCM, 16 bytes.
    pub tag: String,
    /// The salt of PBKDF2, 16 bytes.
    pub salt: String,
}

/// Encrypts and decrypts texts with the key of the server.
#[derive(Clone)]
pub struct CredentialCipher {
    secret: Arc<[u8]>,
    /// Derived at the first use.
    variables_key: Arc<OnceLock<LessSafeKey>>,
}

impl fmt::Debug for CredentialCipher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("CredentialCipher").finish_non_exhaustive()
    }
}

impl CredentialCipher {
    /// Uses the key of the settings, else the file `credential-key` in the data directory, which the first start
    /// creates with mode 0600 and 32 random bytes in base64.
    ///
    /// # Errors
    /// Fails if the file cannot be read or created, or if other users can access it.
    pub fn load(settings: &Settings, data_dir: &Path) -> Result<Self> {
        let secret = match &settings.credential_key {
            Some(key) => key.clone(),
            None => read_or_create_key(&data_dir.join("credential-key"))?,
        };
        Ok(CredentialCipher::with_secret(&secret))
    }

    pub(crate) fn with_secret(secret: &str) -> Self {
        CredentialCipher { secret: secret.as_bytes().into(), variables_key: Arc::default() }
    }

    /// Encrypts a text. `owner` identifies its row: the text cannot be decrypted as that of another row. It takes some
    /// 10 milliseconds.
    ///
    /// # Errors
    /// Fails if the kernel returns no random bytes.
    pub fn seal(&self, owner: &str, text: &str) -> Result<SealedText> {
        let mut salt = [0; SALT_LEN];
        SystemRandom::new().fill(&mut salt).context(|| "cannot encrypt a credential")?;
        let encrypted = encrypt(&self.derive_key(&salt)?, owner, text);
        let (nonce, mut content) = encrypted.context(|| "cannot encrypt a credential")?;
        let tag = content.split_off(text.len());
        Ok(SealedText {
            ciphertext: STANDARD.encode(content),
            nonce: STANDARD.encode(nonce),
            tag: STANDARD.encode(tag),
            salt: STANDARD.encode(salt),
        })
    }

    /// Decrypts a text of this owner. It takes some 10 milliseconds.
    ///
    /// # Errors
    /// Fails if the key is another one than when the text was encrypted, or if the text was changed.
    pub fn open(&self, owner: &str, sealed: &SealedText) -> Result<String> {
        let failed = || Error::new("cannot decrypt a credential: the key of the server has changed");
        let decode = |text: &str| STANDARD.decode(text).map_err(|_| failed());
        let (nonce, mut content) =
            (decode(&sealed.nonce)?, [decode(&sealed.ciphertext)?, decode(&sealed.tag)?].concat());
        let key = self.derive_key(&decode(&sealed.salt)?)?;
        decrypt(&key, owner, &nonce, &mut content).ok_or_else(failed)
    }

    /// Encrypts variables of this owner as base64 of the nonce, the ciphertext and the tag.
    ///
    /// # Errors
    /// Fails if the kernel returns no random bytes.
    pub fn seal_variables(&self, owner: &str, text: &str) -> Result<String> {
        let encrypted = encrypt(self.variables_key()?, owner, text);
        let (nonce, content) = encrypted.context(|| "cannot encrypt variables")?;
        Ok(STANDARD.encode([&nonce[..], &content].concat()))
    }

    /// Decrypts variables of this owner.
    ///
    /// # Errors
    /// Fails if the key is another one than when they were encrypted, or if they were changed.
    pub fn open_variables(&self, owner: &str, sealed: &str) -> Result<String> {
        let failed = || Error::new("cannot decrypt variables: the key of the server has changed");
        let mut bytes = STANDARD.decode(sealed).map_err(|_| failed())?;
        let (nonce, content) = bytes.split_at_mut_checked(NONCE_LEN).ok_or_else(failed)?;
        decrypt(self.variables_key()?, owner, nonce, content).ok_or_else(failed)
    }

    fn variables_key(&self) -> Result<&LessSafeKey> {
        match self.variables_key.get() {
            Some(key) => Ok(key),
            None => {
                let key = self.derive_key(VARIABLES_SALT)?;
                Ok(self.variables_key.get_or_init(|| key))
            }
        }
    }

    fn derive_key(&self, salt: &[u8]) -> Result<LessSafeKey> {
        let mut key = [0; KEY_LEN];
        pbkdf2::derive(PBKDF2_HMAC_SHA256, ROUNDS, salt, &self.secret, &mut key);
        let key = UnboundKey::new(&AES_256_GCM, &key);
        key.map(LessSafeKey::new).context(|| "cannot derive the key of a credential")
    }
}

/// Returns a new nonce, and the ciphertext with the tag at its end.
fn encrypt(
    key: &LessSafeKey,
    owner: &str,
    text: &str,
) -> std::result::Result<([u8; NONCE_LEN], Vec<u8>), Unspecified> {
    let (mut nonce, mut content) = ([0; NONCE_LEN], text.as_bytes().to_vec());
    SystemRandom::new().fill(&mut nonce)?;
    let aad = Aad::from(owner.as_bytes());
    key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut content)?;
    Ok((nonce, content))
}

/// Decrypts a ciphertext with the tag at its end.
fn decrypt(key: &LessSafeKey, owner: &str, nonce: &[u8], content: &mut [u8]) -> Option<String> {
    let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
    let text = key.open_in_place(nonce, Aad::from(owner.as_bytes()), content).ok()?;
    String::from_utf8(text.to_vec()).ok()
}

fn read_or_create_key(file: &Path) -> Result<String> {
    match fs::symlink_metadata(file) {
        Ok(_) => read_key_file(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut bytes = [0; KEY_LEN];
            SystemRandom::new().fill(&mut bytes).context(|| "cannot generate the key of credentials")?;
            let key = STANDARD.encode(bytes);
            create_key_file(file, &key).context(|| format!("cannot write {}", file.display()))?;
            Ok(key)
        }
        Err(error) => Err(error).context(|| format!("cannot read {}", file.display())),
    }
}

/// Creates the file with its content at once: a start that fails must not leave an empty key.
fn create_key_file(file: &Path, key: &str) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let new = file.with_file_name(format!(".{}", Uuid::new_v4()));
    let mut output = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    let written = writeln!(output, "{key}")
        .and_then(|()| output.sync_all())
        .and_then(|()| Ok(renameat_with(CWD, &new, CWD, file, RenameFlags::NOREPLACE)?));
    if written.is_err() {
        fs::remove_file(&new)?;
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_same_key_and_owner_decrypt_variables() {
        let [cipher, other] = ["secret", "other"].map(CredentialCipher::with_secret);
        let sealed = cipher.seal_variables("t/a", "text").unwrap();
        assert_eq!(cipher.open_variables("t/a", &sealed).unwrap(), "text");
        assert_ne!(sealed, cipher.seal_variables("t/a", "text").unwrap());
        let short = STANDARD.encode([0; NONCE_LEN - 1]);
        for (cipher, owner, sealed) in
            [(&cipher, "t/b", &sealed), (&other, "t/a", &sealed), (&cipher, "t/a", &short)]
        {
            let error = cipher.open_variables(owner, sealed).unwrap_err().to_string();
            assert!(error.contains("cannot decrypt"), "{error}");
        }
    }

    #[test]
    fn only_same_key_and_owner_decrypt() {
        let [cipher, other] = ["secret", "other"].map(CredentialCipher::with_secret);
        for text in ["sk-ant-1", "", "ü\n"] {
            let sealed = cipher.seal("t/1", text).unwrap();
            assert_eq!(cipher.open("t/1", &sealed).unwrap(), text);
            assert!(cipher.open("t/2", &sealed).is_err() && other.open("t/1", &sealed).is_err());
        }
        let (one, two) = (cipher.seal("a", "same").unwrap(), cipher.seal("a", "same").unwrap());
        assert!(one.ciphertext != two.ciphertext && one.salt != two.salt && one.nonce != two.nonce);
        let change = |apply: &dyn Fn(&mut SealedText)| {
            let mut changed = one.clone();
            apply(&mut changed);
            changed
        };
        for changed in [
            change(&|text| text.tag.clone_from(&two.tag)),
            change(&|text| text.salt.clone_from(&two.salt)),
            change(&|text| text.ciphertext = "x".into()),
            change(&|text| text.nonce.clear()),
        ] {
            let error = cipher.open("a", &changed).unwrap_err().to_string();
            assert!(error.contains("cannot decrypt") && !error.contains("secret"), "{error}");
        }
        assert!(!format!("{cipher:?}").contains("secret"));
    }

    #[test]
    fn key_file_is_created_once_for_owner_only() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("credential-key");
        let key = read_or_create_key(&file).unwrap();
        assert_eq!(STANDARD.decode(&key).unwrap().len(), KEY_LEN);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(read_or_create_key(&file).unwrap(), key);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(read_or_create_key(&file).unwrap_err().to_string().contains("chmod 600"));
    }
}
