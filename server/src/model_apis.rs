//! The addresses of model APIs for credentials whose keys are not inside sandboxes.

use crate::error::{Error, Result};
use serde::Deserialize;

/// The table `credentials` of the settings.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModelApisTable {
    anthropic_api: Option<String>,
    openai_api: Option<String>,
}

/// The URLs that the requests of sandboxes go to with the keys of credentials, which are not inside. Without a URL, keys of
/// the service are variables of the sandbox.
#[derive(Debug, Clone)]
pub struct ModelApis {
    /// For credentials of the type `anthropic`.
    pub anthropic: Option<String>,
    /// For credentials of the type `openai`.
    pub openai: Option<String>,
}

impl ModelApis {
    /// Reads the table `credentials` of the settings.
    ///
    /// # Errors
    /// Fails if a URL cannot be `api.upstream`.
    pub(crate) fn read(table: ModelApisTable) -> Result<Self> {
        let url = |key: &str, url: Option<String>, default: &str| match url {
            None => Ok(Some(default.to_owned())),
            Some(url) if url.is_empty() => Ok(None),
            Some(url) if is_upstream(&url) => Ok(Some(url)),
            // Without the value, which can contain a password.
            Some(_) => Err(Error::new(format!(
                "invalid credentials.{key}: use a URL such as {default}, without a user and without ? or #; or \"\", \
                 so that sandboxes have the keys"
            ))),
        };
        Ok(ModelApis {
            anthropic: url("anthropic_api", table.anthropic_api, "https://api.anthropic.com")?,
            openai: url("openai_api", table.openai_api, "https://api.openai.com")?,
        })
    }
}

/// Whether a URL can be `api.upstream` (saggar-policy(5)).
fn is_upstream(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else { return false };
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"?#@\\".contains(&byte);
    matches!(scheme, "http" | "https")
        && !rest.is_empty()
        && !rest.starts_with('/')
        && rest.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_defaults_and_can_be_disabled() {
        let read = |anthropic: Option<&str>| {
            let table = ModelApisTable { anthropic_api: anthropic.map(str::to_owned), openai_api: None };
            ModelApis::read(table).map(|apis| apis.anthropic)
        };
        assert_eq!(read(None).unwrap().as_deref(), Some("https://api.anthropic.com"));
        assert_eq!(read(Some("")).unwrap(), None);
        assert_eq!(read(Some("http://127.0.0.1:9/x")).unwrap().as_deref(), Some("http://127.0.0.1:9/x"));
        for bad in [
            "api.anthropic.com",
            "ftp://a",
            "https://",
            "https:///a",
            "https://u:secret@a",
            "https://a?b",
            "https://a b",
        ] {
            let error = read(Some(bad)).unwrap_err().to_string();
            assert!(error.contains("credentials.anthropic_api") && !error.contains("secret"), "{error}");
        }
    }
}
