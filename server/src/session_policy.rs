//! The policy of a session (saggar-policy(5)): its environment variables, a key that saggar holds outside the sandbox, and
//! whether saggar allows all calls of tools.
//!
//! They are in files of the session's directory. Other users of the machine could read a command line, and some variables
//! in saggar's own environment would configure saggar itself.

use crate::error::{Context, Result};
use crate::permission_mode::PermissionMode;
use saggar_policy::KeyHeader;
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The name of the policy in the directory of a session.
const POLICY_FILE: &str = "policy.toml";
/// The rule that matches every call.
const EVERY_TOOL: &str = "*";
/// The name of the file with the key.
const KEY_FILE: &str = "api-key";

/// What a session has beyond the policies of its host and of its agent.
#[derive(Clone, Default, PartialEq)]
pub struct SessionPolicy {
    /// Environment variables of the sandbox.
    pub variables: BTreeMap<String, String>,
    /// A key that is not inside the sandbox.
    pub held_key: Option<HeldKey>,
    /// Every call of a tool is allowed that no rule of the host or of the agent denies or asks about.
    pub allows_all_tools: bool,
}

impl fmt::Debug for SessionPolicy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Variables can be secrets.
        formatter.debug_struct("SessionPolicy").finish_non_exhaustive()
    }
}

/// A key that saggar adds to the requests of the sandbox, outside of it (saggar-policy(5), table `api`).
#[derive(Clone, PartialEq)]
pub struct HeldKey {
    /// The URL that the requests go to.
    pub upstream: String,
    /// The header field of the key.
    pub header: KeyHeader,
    /// Printable ASCII characters without spaces.
    pub key: String,
}

impl fmt::Debug for HeldKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("HeldKey").field("upstream", &self.upstream).finish_non_exhaustive()
    }
}

/// The policy as text: the file of a session, or what its copy in the snapshot store has.
#[derive(Default, Serialize, Deserialize)]
struct PolicyText {
    #[serde(default)]
    env: EnvTable,
    #[serde(skip_serializing_if = "Option::is_none")]
    api: Option<ApiTable>,
    #[serde(skip_serializing_if = "Option::is_none")]
    permissions: Option<PermissionsTable>,
}

#[derive(Default, Serialize, Deserialize)]
struct EnvTable {
    #[serde(default)]
    set: BTreeMap<String, String>,
}

#[derive(Serialize, Deserialize)]
struct ApiTable {
    upstream: String,
    #[serde(serialize_with = "as_text")]
    header: KeyHeader,
    /// In the file of a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    key_file: Option<PathBuf>,
    /// In a copy, which another machine can restore in another directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
}

/// Rules for permission requests.
#[derive(Serialize, Deserialize)]
struct PermissionsTable {
    allow: Vec<String>,
}

impl SessionPolicy {
    /// A policy with these variables.
    pub fn of_variables(variables: BTreeMap<String, String>) -> Self {
        SessionPolicy { variables, ..SessionPolicy::default() }
    }

    /// The same policy for a session with this mode.
    #[must_use]
    pub fn with_permission_mode(self, mode: PermissionMode) -> Self {
        SessionPolicy { allows_all_tools: mode.allows_all_tools(), ..self }
    }

    /// What only saggar itself can give a session, and not a pod; `None` if there are variables alone.
    pub fn needs_saggar(&self) -> Option<&'static str> {
        match self {
            SessionPolicy { held_key: Some(_), .. } => Some("a key that is held outside the sandbox"),
            SessionPolicy { allows_all_tools: true, .. } => Some("the permission mode bypassPermissions"),
            _ => None,
        }
    }

    /// Writes the policy to the directory of a session that has none, and returns the path for `saggar session create`;
    /// `None` if there is nothing to write.
    ///
    /// # Errors
    /// Fails if a file exists or cannot be written.
    pub fn write(&self, directory: &Path) -> io::Result<Option<PathBuf>> {
        if *self == SessionPolicy::default() {
            return Ok(None);
        }
        // saggar accepts no path with `..`.
        let key_file = directory.canonicalize()?.join(KEY_FILE);
        if let Some(held) = &self.held_key {
            write_private(&key_file, &held.key)?;
        }
        let file = directory.join(POLICY_FILE);
        write_private(&file, &self.encode(Some(key_file))?)?;
        Ok(Some(file))
    }

    /// Reads the policy in the directory of a session; `None` if it has none.
    ///
    /// # Errors
    /// Fails if a file cannot be read or is invalid.
    pub fn read(directory: &Path) -> io::Result<Option<Self>> {
        let text = match fs::read_to_string(directory.join(POLICY_FILE)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        let key_file = directory.join(KEY_FILE);
        let read_key = || {
            let key = fs::read_to_string(&key_file);
            key.map_err(|error| io::Error::other(format!("cannot read {}: {error}", key_file.display())))
        };
        SessionPolicy::decode(&text, read_key).map(Some)
    }

    /// The policy with the key as one text, for a copy. It is secret.
    ///
    /// # Errors
    /// Fails if it cannot be encoded.
    pub fn to_secret_text(&self) -> io::Result<String> {
        self.encode(None)
    }

    /// Parses the text of a copy.
    ///
    /// # Errors
    /// Fails if it is invalid.
    pub fn parse_secret_text(text: &str) -> Result<Self> {
        let no_key = || Err(io::Error::other("the key is missing"));
        SessionPolicy::decode(text, no_key).context(|| "invalid policy of a session")
    }

    /// The text has the key itself, unless that is in a file.
    fn encode(&self, key_file: Option<PathBuf>) -> io::Result<String> {
        let api = self.held_key.as_ref().map(|held| ApiTable {
            upstream: held.upstream.clone(),
            header: held.header,
            key: key_file.is_none().then(|| held.key.clone()),
            key_file,
        });
        let permissions =
            self.allows_all_tools.then(|| PermissionsTable { allow: vec![EVERY_TOOL.to_owned()] });
        let text = PolicyText { env: EnvTable { set: self.variables.clone() }, api, permissions };
        // A path that is not UTF-8 cannot be written.
        toml::to_string(&text).map_err(io::Error::other)
    }

    /// `read_key` returns the key if it is not in the text.
    fn decode(text: &str, read_key: impl FnOnce() -> io::Result<String>) -> io::Result<Self> {
        let PolicyText { env, api, permissions } = toml::from_str(text).map_err(|_| {
            // Without the text of the error, which quotes the line.
            io::Error::other("it is no policy")
        })?;
        let held_key = match api {
            Some(ApiTable { upstream, header, key, .. }) => {
                Some(HeldKey { upstream, header, key: key.map_or_else(read_key, Ok)? })
            }
            None => None,
        };
        Ok(SessionPolicy {
            variables: env.set,
            held_key,
            allows_all_tools: permissions
                .is_some_and(|rules| rules.allow.iter().any(|rule| rule == EVERY_TOOL)),
        })
    }
}

fn as_text<S: Serializer>(header: &KeyHeader, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_str(header)
}

/// Creates a file with mode 0600: it contains secrets.
fn write_private(file: &Path, text: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::PermissionsExt;

    fn with_key() -> SessionPolicy {
        let key = "sk-1".to_owned();
        SessionPolicy {
            variables: BTreeMap::from([("A".to_owned(), "1".to_owned())]),
            held_key: Some(HeldKey { upstream: "https://api".into(), header: KeyHeader::Authorization, key }),
            allows_all_tools: true,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn variables_survive_files_and_copies(
            set in proptest::collection::btree_map("[A-Z_]{1,8}", any::<String>(), 0..5), has_key in any::<bool>(), allows_all_tools in any::<bool>()) {
            let mut policy = SessionPolicy::of_variables(set);
            policy.held_key = with_key().held_key.filter(|_| has_key);
            policy.allows_all_tools = allows_all_tools;
            prop_assert_eq!(&SessionPolicy::parse_secret_text(&policy.to_secret_text().unwrap()).unwrap(), &policy);
            let directory = tempfile::tempdir().unwrap();
            let written = policy.write(directory.path()).unwrap();
            let read = SessionPolicy::read(directory.path()).unwrap();
            prop_assert_eq!(written.is_some(), read.is_some());
            prop_assert_eq!(read.unwrap_or_default(), policy);
        }
    }

    #[test]
    fn key_is_in_a_file_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let file = with_key().write(directory.path()).unwrap().unwrap();
        let text = fs::read_to_string(&file).unwrap();
        let key_file = directory.path().canonicalize().unwrap().join(KEY_FILE);
        assert!(text.contains(key_file.to_str().unwrap()) && !text.contains("sk-1"), "{text}");
        for file in [file, key_file] {
            assert_eq!(
                fs::metadata(&file).unwrap().permissions().mode() & 0o777,
                0o600,
                "{}",
                file.display()
            );
        }
    }

    #[test]
    fn invalid_text_is_refused_without_being_quoted() {
        for text in ["[env.set]\nA = sk-secret", "[api]\nupstream = \"sk-secret\"\nheader = \"x-api-key\""] {
            let error = SessionPolicy::parse_secret_text(text).unwrap_err().to_string();
            assert!(!error.contains("sk-secret"), "{error}");
        }
    }
}
