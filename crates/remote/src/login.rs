//! The server and the key that a user has saved by `saggar remote login`: a file that only the user can read.

use crate::address::ServerAddress;
use nix::unistd::Uid;
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::replace_file::{SyncPolicy, Writers, replace_file};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The name of the file.
const FILE_NAME: &str = "remote.json";
/// Maximum size of the file, in bytes.
const MAX_SIZE: u64 = 64 << 10;

/// A key of the API. It is not shown by `Debug`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ApiKey(String);

impl ApiKey {
    /// Checks that the text can be sent in a header: printable ASCII characters without spaces.
    ///
    /// # Errors
    /// [`Code::Invalid`], without the text.
    pub fn parse(text: &str) -> Result<Self> {
        match !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()) {
            true => Ok(ApiKey(text.to_owned())),
            false => Err(Error::new(Code::Invalid, "the API key is empty or has characters that no key has")),
        }
    }

    /// The key itself.
    pub fn secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(***)")
    }
}

/// What is saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Login {
    /// The URL of the server.
    pub url: String,
    /// The key.
    pub key: ApiKey,
    /// A file with certificates of authorities, instead of those of the host. Absolute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// Whether the key may be sent to another host without encryption.
    #[serde(default)]
    pub plain_http: bool,
}

/// The path of the file in a directory of configuration, which is that of the user: $XDG_CONFIG_HOME/saggar.
pub fn file_in(directory: &Path) -> PathBuf {
    directory.join(FILE_NAME)
}

impl Login {
    /// Reads the file, if there is one.
    ///
    /// # Errors
    /// [`Code::Refused`] for a file that others can read or that another user owns, [`Code::Invalid`] for one that is
    /// not a login, [`Code::System`].
    pub fn load(file: &Path) -> Result<Option<Login>> {
        let fail = |error: io::Error| Error::system(format_args!("read {}", file.display()), error);
        let opened = match File::open(file) {
            Ok(opened) => opened,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(fail(error)),
        };
        let metadata = opened.metadata().map_err(fail)?;
        if metadata.mode() & 0o077 != 0 || metadata.uid() != Uid::effective().as_raw() {
            let message = format!("{} contains a key, and other users can read or write it", file.display());
            return Err(Error::new(Code::Refused, message)
                .hint("remove the file, delete the key on the server, and log in with a new one"));
        }
        let mut text = String::new();
        opened.take(MAX_SIZE).read_to_string(&mut text).map_err(fail)?;
        // Without the message of the parser, which can quote the key.
        serde_json::from_str(&text).map(Some).map_err(|_| {
            Error::new(Code::Invalid, format!("{} is not a saved login", file.display()))
                .hint("saggar remote login URL")
        })
    }

    /// Writes the file with mode 0600, and creates its directory.
    ///
    /// # Errors
    /// [`Code::System`].
    pub fn save(&self, file: &Path) -> Result<()> {
        let fail = |error: io::Error| Error::system(format_args!("write {}", file.display()), error);
        let text = serde_json::to_string_pretty(self).map_err(|error| fail(error.into()))?;
        if let Some(directory) = file.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(fail)?;
        }
        replace_file(file, Writers::Many, 0o600, SyncPolicy::Content, |file| {
            file.write_all(text.as_bytes())?;
            file.write_all(b"\n")
        })
        .map_err(fail)
    }

    /// Removes the file; true if there was one.
    ///
    /// # Errors
    /// [`Code::System`].
    pub fn remove(file: &Path) -> Result<bool> {
        match std::fs::remove_file(file) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Error::system(format_args!("remove {}", file.display()), error)),
        }
    }
}

/// Whether the key may be sent to the address.
///
/// # Errors
/// [`Code::Refused`] for another host without encryption, unless `plain_http`.
pub fn check_confidential(address: &ServerAddress, plain_http: bool) -> Result<()> {
    if address.is_confidential() || plain_http {
        return Ok(());
    }
    Err(Error::new(Code::Refused, format!("the API key would be sent to {address} without encryption"))
        .hint("use an https address; --plain-http permits this in a trusted network"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn login() -> Login {
        Login {
            url: "https://agents.example".into(),
            key: ApiKey::parse("ash_secret").unwrap(),
            ca_file: Some("/etc/ca.pem".into()),
            plain_http: false,
        }
    }

    #[test]
    fn a_login_is_saved_for_its_user_alone() {
        let directory = tempfile::tempdir().unwrap();
        let file = file_in(&directory.path().join("saggar"));
        assert_eq!(Login::load(&file).unwrap(), None);
        login().save(&file).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(file.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(Login::load(&file).unwrap(), Some(login()));
        assert!(Login::remove(&file).unwrap());
        assert!(!Login::remove(&file).unwrap());
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = file_in(directory.path());
        login().save(&file).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(Login::load(&file).unwrap_err().code(), Code::Refused);
    }

    #[test]
    fn no_error_and_no_debug_output_has_the_key() {
        assert!(!format!("{:?}", login()).contains("secret"));
        assert!(!ApiKey::parse("secret key").unwrap_err().to_string().contains("secret"));
        let directory = tempfile::tempdir().unwrap();
        let file = file_in(directory.path());
        login().save(&file).unwrap();
        fs::write(&file, "{\"key\": \"secret\", \"url\": 1}").unwrap();
        let error = Login::load(&file).unwrap_err();
        assert!(!format!("{error} {:?}", error.hint_text()).contains("secret"), "{error}");
    }

    #[test]
    fn keys_go_unencrypted_to_this_host_alone() {
        let check = |url, plain_http| check_confidential(&ServerAddress::parse(url).unwrap(), plain_http);
        check("http://localhost:4100", false).unwrap();
        check("https://agents.example", false).unwrap();
        check("http://agents.example", true).unwrap();
        assert_eq!(check("http://agents.example", false).unwrap_err().code(), Code::Refused);
    }
}
