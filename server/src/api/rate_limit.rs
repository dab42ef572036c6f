//! Limits on the number of requests from one client address in a period of 15 minutes.

use super::error::ApiError;
use super::reject::reject;
use super::{App, Connection};
use crate::mutex::lock;
use crate::settings::RequestLimits;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::Response;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PERIOD: Duration = Duration::from_secs(15 * 60);
/// Maximum number of counters. Further addresses share one for each class.
const MAX_COUNTERS: usize = 100_000;
/// Expired counters are removed at most this often.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(60);

/// Requests that are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum RequestClass {
    Deployment,
    NewSession,
    Other,
}

impl RequestClass {
    fn of(method: &Method, path: &str) -> Self {
        match (method, path) {
            (&Method::POST, "/api/agents") => RequestClass::Deployment,
            (&Method::POST, "/api/sessions") => RequestClass::NewSession,
            _ => RequestClass::Other,
        }
    }
}

/// The counters of all client addresses.
#[derive(Debug)]
pub struct RequestLimiter {
    limits: RequestLimits,
    counters: Mutex<ClientCounters>,
}

#[derive(Debug)]
struct ClientCounters {
    /// `None` is the address of all clients beyond [`MAX_COUNTERS`].
    by_client: HashMap<(Option<IpAddr>, RequestClass), ClientCounter>,
    next_cleanup: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct ClientCounter {
    requests: u32,
    period_end: Instant,
}

/// The state of a counter after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Quota {
    limit: u32,
    remaining: u32,
    /// Seconds until the end of the period, rounded up.
    reset: u64,
    is_exceeded: bool,
}

impl RequestLimiter {
    /// Creates a limiter without counts.
    pub fn new(limits: RequestLimits) -> Self {
        let counters = ClientCounters { by_client: HashMap::new(), next_cleanup: None };
        RequestLimiter { limits, counters: Mutex::new(counters) }
    }

    /// Adds `count` requests; `None` if their class has no limit.
    fn add(&self, count: u32, client: IpAddr, class: RequestClass, now: Instant) -> Option<Quota> {
        let limit = match class {
            RequestClass::Deployment => self.limits.deployments,
            RequestClass::NewSession => self.limits.sessions,
            RequestClass::Other => self.limits.requests,
        };
        if limit == 0 {
            return None;
        }
        let mut counters = lock(&self.counters);
        let counter = counters.counter((Some(client_network(client)), class), now);
        let is_exceeded = counter.requests >= limit;
        counter.requests = counter.requests.saturating_add(count).min(limit);
        let left = counter.period_end.saturating_duration_since(now);
        let reset = left.as_secs() + u64::from(left.subsec_nanos() > 0);
        Some(Quota { limit, remaining: limit - counter.requests, reset, is_exceeded })
    }
}

impl ClientCounters {
    fn counter(&mut self, mut key: (Option<IpAddr>, RequestClass), now: Instant) -> &mut ClientCounter {
        if self.next_cleanup.is_none_or(|next| next <= now) {
            self.by_client.retain(|_, counter| counter.period_end > now);
            self.next_cleanup = Some(now + CLEANUP_INTERVAL);
        }
        if self.by_client.len() >= MAX_COUNTERS && !self.by_client.contains_key(&key) {
            key.0 = None;
        }
        let new = ClientCounter { requests: 0, period_end: now + PERIOD };
        let counter = self.by_client.entry(key).or_insert(new);
        if counter.period_end <= now {
            *counter = new;
        }
        counter
    }
}

/// A client of IPv6 usually has a network of 64 bits to choose its address from.
fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address => address,
    }
}

/// Rejects a request beyond the limit, before authentication, and adds the state of the counter to each response. Unless
/// all requests count, those count that fail by a fault of the client.
pub(super) async fn limit_requests(
    State(app): State<Arc<App>>,
    ConnectInfo(connection): ConnectInfo<Connection>,
    request: Request,
    next: Next,
) -> Response {
    let class = RequestClass::of(request.method(), request.uri().path());
    let (limiter, client) = (&app.request_limiter, connection.peer.ip());
    let counts_all = limiter.limits.count_successful;
    let Some(mut quota) = limiter.add(u32::from(counts_all), client, class, Instant::now()) else {
        return next.run(request).await;
    };
    let mut response = if quota.is_exceeded {
        let text = format!("Rate limit exceeded, retry in {}", duration_text(quota.reset));
        reject(request, ApiError::TooManyRequests(text)).await
    } else {
        let response = next.run(request).await;
        if !counts_all && response.status().is_client_error() {
            let counted = limiter.add(1, client, class, Instant::now());
            quota = Quota { is_exceeded: false, ..counted.unwrap_or(quota) };
        }
        response
    };
    add_headers(response.headers_mut(), quota);
    response
}

fn add_headers(headers: &mut HeaderMap, quota: Quota) {
    let mut add = |name, value| headers.insert(HeaderName::from_static(name), value);
    add("x-ratelimit-limit", quota.limit.into());
    add("x-ratelimit-remaining", quota.remaining.into());
    add("x-ratelimit-reset", HeaderValue::from(quota.reset));
    if quota.is_exceeded {
        add("retry-after", HeaderValue::from(quota.reset));
    }
}

/// A duration in minutes, or in seconds if it is shorter than one.
fn duration_text(seconds: u64) -> String {
    let (count, unit) = if seconds < 60 { (seconds, "second") } else { (seconds.div_ceil(60), "minute") };
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: RequestLimits =
        RequestLimits { requests: 3, deployments: 1, sessions: 0, count_successful: true };

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn requests_are_counted_by_address_class_and_period() {
        let (limiter, start) = (RequestLimiter::new(LIMITS), Instant::now());
        let client = address("192.0.2.1");
        let remaining = |client, class, now| {
            let quota = limiter.add(1, client, class, now).unwrap();
            (quota.remaining, quota.is_exceeded)
        };
        for expected in [(2, false), (1, false), (0, false), (0, true), (0, true)] {
            assert_eq!(remaining(client, RequestClass::Other, start), expected);
        }
        assert_eq!(remaining(address("192.0.2.2"), RequestClass::Other, start), (2, false));
        assert_eq!(remaining(client, RequestClass::Deployment, start), (0, false));
        assert_eq!(remaining(client, RequestClass::Deployment, start), (0, true));
        assert_eq!(limiter.add(1, client, RequestClass::NewSession, start), None);
        let later = start + PERIOD - Duration::from_millis(1);
        let quota = limiter.add(1, client, RequestClass::Other, later).unwrap();
        assert_eq!((quota.reset, quota.is_exceeded, quota.limit), (1, true, 3));
        assert_eq!(remaining(client, RequestClass::Other, start + PERIOD), (2, false));
    }

    #[test]
    fn addresses_of_one_ipv6_network_share_a_counter() {
        let (limiter, now) = (RequestLimiter::new(LIMITS), Instant::now());
        let count = |text| limiter.add(1, address(text), RequestClass::Other, now).unwrap().remaining;
        assert_eq!((count("2001:db8::1"), count("2001:db8::ffff:1"), count("2001:db8:0:1::1")), (2, 1, 2));
        assert_eq!((count("::ffff:192.0.2.1"), count("192.0.2.1"), count("192.0.2.2")), (2, 1, 2));
    }

    #[test]
    fn number_of_counters_is_bounded() {
        let (limiter, now) = (RequestLimiter::new(LIMITS), Instant::now());
        let client = |number: usize| IpAddr::from(u32::try_from(number).unwrap().to_be_bytes());
        for number in 0..MAX_COUNTERS + 2 {
            limiter.add(1, client(number), RequestClass::Other, now);
        }
        assert_eq!(limiter.counters.lock().unwrap().by_client.len(), MAX_COUNTERS + 1);
        let shared = limiter.add(1, client(MAX_COUNTERS + 9), RequestClass::Other, now).unwrap();
        assert_eq!(shared.remaining, 0);
        limiter.add(1, client(1), RequestClass::Other, now + PERIOD);
        assert_eq!(limiter.counters.lock().unwrap().by_client.len(), 1);
    }

    #[test]
    fn durations_are_in_minutes_or_seconds() {
        for (seconds, text) in
            [(900, "15 minutes"), (61, "2 minutes"), (60, "1 minute"), (59, "59 seconds"), (1, "1 second")]
        {
            assert_eq!(duration_text(seconds), text);
        }
    }
}
