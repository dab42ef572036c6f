//! The addresses of model APIs for credentials whose keys are not inside sandboxes.

use crate::error::{Error, Result};
use saggar_policy::ApiUpstream;
use serde::Deserialize;

const ANTHROPIC_URL: &str = "https://api.anthropic.com";

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
    /// Combines the table `credentials` of the settings and the environment, which sandboxes inherit.
    ///
    /// # Errors
    /// Fails if a URL of the table cannot be `api.upstream` (saggar-policy(5)).
    pub(crate) fn read(table: ModelApisTable, variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let checked = |key: &str, url: Option<String>| match url {
            Some(url) if url.is_empty() => Ok(None),
            Some(url) if !is_upstream(&url) => Err(Error::new(format!(
                // Without the value, which can contain a password.
                "invalid credentials.{key}: use a URL such as {ANTHROPIC_URL}, with no user and nothing after its path; or \
                 \"\", so that sandboxes have the keys"
            ))),
            url => Ok(url),
        };
        let anthropic = match (table.anthropic_api, variable("ANTHROPIC_BASE_URL")) {
            (Some(url), _) => checked("anthropic_api", Some(url))?,
            // Another way to the API, for all sandboxes.
            (None, _) if variable("ANTHROPIC_UNIX_SOCKET").is_some() => None,
            (None, Some(gateway)) => Some(gateway).filter(|url| is_upstream(url)),
            (None, None) => Some(ANTHROPIC_URL.to_owned()),
        };
        // Only on request: a sandbox with such a key cannot use the other service.
        Ok(ModelApis { anthropic, openai: checked("openai_api", table.openai_api)? })
    }
}

fn is_upstream(url: &str) -> bool {
    url.parse::<ApiUpstream>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(
        anthropic: Option<&str>,
        openai: Option<&str>,
        environment: &[(&str, &str)],
    ) -> Result<ModelApis> {
        let table = ModelApisTable {
            anthropic_api: anthropic.map(str::to_owned),
            openai_api: openai.map(str::to_owned),
        };
        ModelApis::read(table, |name| {
            environment.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn settings_stand_over_the_environment_and_that_over_the_default() {
        let anthropic = |setting, environment: &[(&str, &str)]| {
            let apis = read(setting, None, environment).unwrap();
            assert_eq!(apis.openai, None);
            apis.anthropic
        };
        let gateway = ("ANTHROPIC_BASE_URL", "http://10.0.0.1/a");
        assert_eq!(anthropic(None, &[]).as_deref(), Some(ANTHROPIC_URL));
        assert_eq!(anthropic(None, &[gateway]).as_deref(), Some(gateway.1));
        assert_eq!(anthropic(None, &[("ANTHROPIC_BASE_URL", "no URL")]), None);
        assert_eq!(anthropic(None, &[gateway, ("ANTHROPIC_UNIX_SOCKET", "/s")]), None);
        assert_eq!(anthropic(Some("http://127.0.0.1:9"), &[gateway]).as_deref(), Some("http://127.0.0.1:9"));
        assert_eq!(anthropic(Some(""), &[gateway]), None);
        let openai = read(None, Some("https://api.openai.com"), &[]).unwrap().openai;
        assert_eq!(openai.as_deref(), Some("https://api.openai.com"));
    }

    #[test]
    fn url_that_saggar_refuses_is_an_error() {
        for bad in
            ["api.anthropic.com", "ftp://a", "https://", "https://u:secret@a", "https://a?b", "https://a:0"]
        {
            let error = read(Some(bad), None, &[]).unwrap_err().to_string();
            assert!(error.contains("credentials.anthropic_api") && !error.contains("secret"), "{error}");
        }
        assert!(read(None, Some("x"), &[]).unwrap_err().to_string().contains("openai_api"));
    }
}
