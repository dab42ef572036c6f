//! A request as it goes on to the upstream, and an answer as it comes back. Pure.
//!
//! hyper has read the message and writes it anew, so that both sides have one idea of where it ends (RFC 9112,
//! section 6.3): no byte of a head that was sent inside is sent on. What is ours: the fields of one hop stay on their
//! hop, who is asked is the upstream, and who asks is our key and no other, since another key would be a way to bring
//! what is inside to somebody else's account.

use super::key::Key;
use crate::spec::Upstream;
use crate::spec::policy::api::is_plain_path;
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderName, HeaderValue, TE, TRAILER, TRANSFER_ENCODING,
    UPGRADE,
};
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Uri, Version};

/// What goes on. CONNECT and its like make other connections, and TRACE tells the key to who asks.
const METHODS: [Method; 7] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];

/// Fields of one hop, beside those that Connection names (RFC 9110, section 7.6.1).
const OF_THE_HOP: [HeaderName; 5] = [CONNECTION, TE, TRAILER, UPGRADE, HeaderName::from_static("keep-alive")];

/// Fields that say who asks.
const OF_WHO_ASKS: [&str; 2] = ["x-api-key", "authorization"];

/// Names of this machine inside, with which a client may call us.
const OURS: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Why a request does not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refused {
    /// What the client hears.
    pub(super) status: StatusCode,
    /// The same in words.
    pub(super) why: &'static str,
}

const fn refused(status: StatusCode, why: &'static str) -> Refused {
    Refused { status, why }
}

/// The request as it goes on.
///
/// # Errors
/// [`Refused`]
pub(super) fn outgoing<B>(
    request: Request<B>,
    upstream: &Upstream,
    key: &Key,
) -> Result<Request<B>, Refused> {
    let (mut head, body) = request.into_parts();
    if !METHODS.contains(&head.method) {
        return Err(refused(StatusCode::METHOD_NOT_ALLOWED, "this method does not go to the model API"));
    }
    if head.headers.contains_key(UPGRADE) {
        return Err(refused(
            StatusCode::NOT_IMPLEMENTED,
            "the model API is HTTP/1.1, and nothing is upgraded",
        ));
    }
    if head.headers.get_all(HOST).iter().count() > 1 {
        return Err(refused(StatusCode::BAD_REQUEST, "there is more than one Host"));
    }
    head.uri = target(&head.uri, &head.method, upstream)?;
    head.version = Version::HTTP_11;
    head.extensions.clear();
    let headers = &mut head.headers;
    leave_hop(headers);
    // hyper has said what there is to say to the client, and says anew how long the body is.
    for name in [EXPECT, CONTENT_LENGTH, TRANSFER_ENCODING] {
        headers.remove(name);
    }
    for name in OF_WHO_ASKS {
        headers.remove(name);
    }
    remove_all(headers, |name| name.as_str().starts_with("proxy-"));
    let host = HeaderValue::from_str(&upstream.authority())
        .map_err(|_| refused(StatusCode::BAD_GATEWAY, "the upstream has no name that can be said"))?;
    headers.insert(HOST, host);
    headers.insert(key.name.clone(), key.value.clone());
    Ok(Request::from_parts(head, body))
}

/// The answer as it comes back.
///
/// # Errors
/// [`Refused`] for a connection that becomes something else.
pub(super) fn incoming<B>(response: Response<B>) -> Result<Response<B>, Refused> {
    let (mut head, body) = response.into_parts();
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        return Err(refused(
            StatusCode::BAD_GATEWAY,
            "the upstream changes the protocol, and nobody has asked",
        ));
    }
    let headers = &mut head.headers;
    leave_hop(headers);
    // Of the two the coding counts.
    if headers.remove(TRANSFER_ENCODING).is_some() {
        headers.remove(CONTENT_LENGTH);
    }
    head.extensions.clear();
    Ok(Response::from_parts(head, body))
}

/// What is asked for, below the upstream's path.
fn target(uri: &Uri, method: &Method, upstream: &Upstream) -> Result<Uri, Refused> {
    if let Some(authority) = uri.authority() {
        let is_ours = OURS.contains(&authority.host()) || authority.as_str() == upstream.authority();
        let is_plain = !authority.as_str().contains('@');
        if !is_ours || !is_plain {
            return Err(refused(
                StatusCode::MISDIRECTED_REQUEST,
                "this leads to the model API and nowhere else",
            ));
        }
    }
    let bad = refused(StatusCode::BAD_REQUEST, "the path is none that goes to the model API");
    let path = uri.path();
    let is_whole_server = path == "*" && method == Method::OPTIONS && upstream.path.is_empty();
    if !(is_plain_path(path) || is_whole_server) {
        return Err(bad);
    }
    let query = uri.query().map_or_else(String::new, |query| format!("?{query}"));
    format!("{}{path}{query}", upstream.path).parse().map_err(|_| bad)
}

/// Takes out what is between the two ends of one connection.
fn leave_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        // How long the message is says hyper, whoever calls that a matter of the hop.
        .filter(|name| *name != CONTENT_LENGTH && *name != TRANSFER_ENCODING)
        .collect();
    for name in named.iter().chain(&OF_THE_HOP) {
        headers.remove(name);
    }
    headers.remove("proxy-connection");
}

fn remove_all(headers: &mut HeaderMap, which: impl Fn(&HeaderName) -> bool) {
    let names: Vec<HeaderName> = headers.keys().filter(|name| which(name)).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(request: Request<()>, to: &str) -> Result<String, Refused> {
        let key = Key { name: HeaderName::from_static("x-api-key"), value: HeaderValue::from_static("ours") };
        let request = outgoing(request, &to.parse().unwrap(), &key)?;
        let mut lines: Vec<String> = request
            .headers()
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        lines.sort();
        Ok(format!("{} {}\n{}", request.method(), request.uri(), lines.join("\n")))
    }

    fn get(uri: &str) -> hyper::http::request::Builder {
        Request::builder().uri(uri)
    }

    #[test]
    fn who_asks_and_whom_is_said_anew_and_the_rest_as_it_was() {
        let request = get("/v1/messages?beta=true")
            .method("POST")
            .header("host", "localhost")
            .header("X-Api-Key", "forged")
            .header("x-api-key", "twice")
            .header("authorization", "Bearer forged")
            .header("proxy-authorization", "Basic forged")
            .header("proxy-x", "forged")
            .header("content-length", "5")
            .header("expect", "100-continue")
            .header("connection", "close, x-mine, X-Api-Key, host")
            .header("x-mine", "1")
            .header("keep-alive", "timeout=5")
            .header("te", "trailers")
            .header("trailer", "x-api-key")
            .header("anthropic-beta", "a")
            .header("anthropic-beta", "b");
        assert_eq!(
            sent(request.body(()).unwrap(), "https://api.example:8443").unwrap(),
            "POST /v1/messages?beta=true\nanthropic-beta: a\nanthropic-beta: b\nhost: api.example:8443\nx-api-key: ours"
        );
    }

    #[test]
    fn a_request_stays_below_the_path_of_its_upstream() {
        let sent = |uri: &str| sent(get(uri).body(()).unwrap(), "http://proxy.example/a");
        for uri in ["/v1", "http://localhost:274/v1", "http://127.0.0.1/v1", "http://proxy.example/v1"] {
            assert!(sent(uri).unwrap().starts_with("GET /a/v1\n"), "{uri}");
        }
        for uri in ["http://other.example/v1", "http://proxy.example:8080/v1", "http://a@localhost/v1"] {
            assert_eq!(sent(uri).unwrap_err().status, StatusCode::MISDIRECTED_REQUEST, "{uri}");
        }
        for uri in ["/../b", "/v1/%2e%2E/b", "/v1/.%2e", "/v1%2f..%2fb", "/v1/..%5cb", "*"] {
            assert_eq!(sent(uri).unwrap_err().status, StatusCode::BAD_REQUEST, "{uri}");
        }
    }

    #[test]
    fn what_is_no_request_to_an_api_is_refused() {
        let status = |request: hyper::http::request::Builder| {
            sent(request.body(()).unwrap(), "http://api.example").unwrap_err().status.as_u16()
        };
        for method in ["CONNECT", "TRACE", "TRACK", "PRI", "PROPFIND"] {
            assert_eq!(status(get("/").method(method)), 405, "{method}");
        }
        assert_eq!(status(get("/").header("connection", "upgrade").header("upgrade", "websocket")), 501);
        assert_eq!(status(get("/").header("host", "a").header("host", "b")), 400);
    }

    #[test]
    fn an_answer_leaves_its_hop_and_keeps_the_rest() {
        let answer = |response: hyper::http::response::Builder| incoming(response.body(()).unwrap());
        let response = Response::builder()
            .status(302)
            .header("location", "https://elsewhere.example/")
            .header("connection", "keep-alive, x-hop")
            .header("x-hop", "1")
            .header("transfer-encoding", "chunked")
            .header("content-length", "5")
            .header("request-id", "r");
        let response = answer(response).unwrap();
        let names: Vec<_> = response.headers().keys().map(HeaderName::as_str).collect();
        assert_eq!((response.status().as_u16(), names), (302, vec!["location", "request-id"]));
        let response = answer(Response::builder().header("content-length", "5")).unwrap();
        assert!(response.headers().contains_key("content-length"), "an answer to HEAD has no other");
        assert!(answer(Response::builder().status(101)).is_err());
    }
}
