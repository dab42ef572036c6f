//! The address of the collector, from the command line, the variables of OpenTelemetry and the settings file.

use super::variables::check_variables;
use crate::error::{Error, Result};
use axum::http::Uri;
use axum::http::uri::Authority;

/// The path of traces below the address of a collector.
const TRACES_PATH: &str = "/v1/traces";

/// Where traces are sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceEndpoint {
    url: String,
    authority: Authority,
}

impl TraceEndpoint {
    /// Chooses the endpoint: `option` is that of the command line, `file` that of the settings file. `None` if traces are
    /// not exported.
    ///
    /// # Errors
    /// Fails if the address is invalid, or a variable of OpenTelemetry is invalid or not supported.
    pub fn choose(
        option: Option<String>,
        file: Option<String>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>> {
        let has =
            |name: &str, value: &str| variable(name).is_some_and(|text| text.eq_ignore_ascii_case(value));
        if has("OTEL_SDK_DISABLED", "true") || has("OTEL_TRACES_EXPORTER", "none") {
            return Ok(None);
        }
        let base = |name: &str, url: String| {
            let url = format!("{}{TRACES_PATH}", url.trim_end_matches('/'));
            TraceEndpoint::parse(name, url).map(Some)
        };
        let endpoint = if let Some(url) = option {
            base("--otlp-endpoint", url)?
        } else if let Some(url) = variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") {
            // The only one that is a whole URL, as OpenTelemetry specifies.
            Some(TraceEndpoint::parse("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", url)?)
        } else if let Some(url) = variable("OTEL_EXPORTER_OTLP_ENDPOINT") {
            base("OTEL_EXPORTER_OTLP_ENDPOINT", url)?
        } else if let Some(url) = file {
            base("otlp_endpoint", url)?
        } else {
            return Ok(None);
        };
        check_variables(&variable)?;
        Ok(endpoint)
    }

    fn parse(name: &str, url: String) -> Result<Self> {
        // Without the URL, which can have a password.
        let invalid = |reason: &str| {
            Error::new(format!(
                "invalid {name}: {reason}; use a URL such as http://localhost:4318, and \
                 OTEL_EXPORTER_OTLP_HEADERS for a key"
            ))
        };
        let uri: Uri = url.parse().map_err(|_| invalid("it is not a URL"))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err(invalid("its scheme must be http or https"));
        }
        let authority = uri.authority().filter(|authority| !authority.host().is_empty());
        let authority = authority.ok_or_else(|| invalid("it has no host"))?.clone();
        // The sandboxes inherit the variable, and the parser drops a fragment.
        if authority.as_str().contains('@') || uri.query().is_some() || url.contains('#') {
            return Err(invalid("it must not have a user, a query or a fragment"));
        }
        Ok(TraceEndpoint { url, authority })
    }

    /// The URL to which spans are posted.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The host, and the port if the URL has one.
    pub(super) fn authority(&self) -> &str {
        self.authority.as_str()
    }

    /// Whether connections are encrypted.
    pub(super) fn is_encrypted(&self) -> bool {
        self.url.starts_with("https:")
    }

    /// Whether the collector is on this host: then no proxy is used.
    pub(super) fn is_loopback(&self) -> bool {
        let host = self.authority.host().trim_start_matches('[').trim_end_matches(']');
        host.eq_ignore_ascii_case("localhost")
            || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(option: &str, file: &str, variables: &[(&str, &str)]) -> Result<Option<String>> {
        let own = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        let endpoint = TraceEndpoint::choose(own(option), own(file), variable)?;
        Ok(endpoint.map(|endpoint| endpoint.url().to_owned()))
    }

    #[test]
    fn option_overrides_variables_and_variables_override_file() {
        let all = [
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces/x"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://all/"),
        ];
        let chosen = |option, file, variables: &[(&str, &str)]| choose(option, file, variables).unwrap();
        assert_eq!(chosen("", "", &[]), None);
        assert_eq!(chosen("", "http://file", &[]).as_deref(), Some("http://file/v1/traces"));
        assert_eq!(chosen("", "http://file", &all[1..]).as_deref(), Some("http://all/v1/traces"));
        assert_eq!(chosen("", "http://file", &all).as_deref(), Some("http://traces/x"));
        assert_eq!(chosen("https://o:1/p", "", &all).as_deref(), Some("https://o:1/p/v1/traces"));
        for off in [("OTEL_SDK_DISABLED", "TRUE"), ("OTEL_TRACES_EXPORTER", "none")] {
            assert_eq!(chosen("http://o", "", &[off]), None);
        }
    }

    #[test]
    fn invalid_endpoints_are_named_without_their_password() {
        for url in
            ["localhost:4318", "ftp://a", "/v1", "http://u:secret@a", "http://a?k=secret", "http://a#secret"]
        {
            let error = choose(url, "", &[]).unwrap_err().to_string();
            assert!(error.contains("invalid --otlp-endpoint") && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn other_variables_are_checked_if_there_is_a_collector() {
        let invalid = [("OTEL_TRACES_SAMPLER", "nonsense")];
        let error = choose("http://a", "", &invalid).unwrap_err().to_string();
        assert!(error.contains("OTEL_TRACES_SAMPLER=nonsense is not supported"), "{error}");
        assert!(choose("", "", &invalid).unwrap().is_none());
    }
}
