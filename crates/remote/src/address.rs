//! The address of a server: an URL with the scheme `http` or `https`, and a path below which the API is.

use saggar_sys::error::{Code, Error, Result};
use std::fmt;
use std::net::IpAddr;
use ureq::http::Uri;

/// The address of a server, without a slash at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAddress {
    url: String,
    host: String,
    is_encrypted: bool,
}

impl ServerAddress {
    /// Parses an address such as `https://agents.example:4100`.
    ///
    /// # Errors
    /// [`Code::Usage`] for another scheme, a missing host, and for a user, a query or a fragment.
    pub fn parse(text: &str) -> Result<Self> {
        // Without the text, which can have a password.
        let invalid = |reason: &str| {
            Error::new(Code::Usage, format!("invalid address of a server: {reason}"))
                .hint("an address is like https://agents.example or http://127.0.0.1:4100")
        };
        let uri: Uri = text.parse().map_err(|_| invalid("not a URL"))?;
        let is_encrypted = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(invalid("its scheme must be http or https")),
        };
        let authority = uri.authority().ok_or_else(|| invalid("it has no host"))?;
        if authority.host().is_empty() {
            return Err(invalid("it has no host"));
        }
        // The parser of the library drops a fragment.
        if authority.as_str().contains('@') || uri.query().is_some() || text.contains('#') {
            return Err(invalid("it must not have a user, a query or a fragment"));
        }
        let scheme = if is_encrypted { "https" } else { "http" };
        let url = format!("{scheme}://{authority}{}", uri.path().trim_end_matches('/'));
        Ok(ServerAddress { url, host: authority.host().to_owned(), is_encrypted })
    }

    /// The URL, without a slash at its end.
    pub fn as_str(&self) -> &str {
        &self.url
    }

    /// Whether nobody between this host and the server can read a key: the connection is encrypted, or stays on this
    /// host.
    pub fn is_confidential(&self) -> bool {
        self.is_encrypted || self.is_loopback()
    }

    /// Whether the server is on this host, by its name or its address.
    pub fn is_loopback(&self) -> bool {
        let host = self.host.trim_start_matches('[').trim_end_matches(']');
        host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_one_form() {
        for (text, url) in [
            ("http://127.0.0.1:4100", "http://127.0.0.1:4100"),
            ("http://localhost:4100/", "http://localhost:4100"),
            ("https://agents.example/saggar//", "https://agents.example/saggar"),
            ("HTTPS://agents.example", "https://agents.example"),
            ("http://[::1]:4100", "http://[::1]:4100"),
        ] {
            assert_eq!(ServerAddress::parse(text).unwrap().as_str(), url, "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "localhost:4100",
            "agents.example",
            "/api",
            "ftp://agents.example",
            "http://",
            "http://:80",
            "https://user:secret@agents.example",
            "https://agents.example/?key=secret",
            "https://agents.example/#top",
            "https://agents example",
        ] {
            let error = ServerAddress::parse(text).unwrap_err();
            assert_eq!(error.code(), Code::Usage, "{text}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_key_is_confidential_on_this_host_and_over_tls() {
        for (text, is_confidential) in [
            ("http://127.0.0.1:4100", true),
            ("http://127.1.2.3", true),
            ("http://[::1]:4100", true),
            ("http://LOCALHOST", true),
            ("https://agents.example", true),
            ("http://agents.example", false),
            ("http://10.0.0.1", false),
            ("http://localhost.agents.example", false),
            ("http://127.0.0.1.agents.example", false),
            ("http://[::2]", false),
        ] {
            assert_eq!(ServerAddress::parse(text).unwrap().is_confidential(), is_confidential, "{text}");
        }
    }
}
