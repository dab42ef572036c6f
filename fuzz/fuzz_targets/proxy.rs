//! Whatever a client of a proxy says, cut wherever: the cuts make no difference, it names a host that is one, and what
//! a server gets is one request.
#![no_main]

use libfuzzer_sys::fuzz_target;
use saggar::egress::dns::{RecordType, encode_query};
use saggar::egress::sniff::{ClientProtocol, SniffResult, sniff};
use saggar::egress::{http_proxy, socks};
use std::net::IpAddr;

fuzz_target!(|data: &[u8]| {
    let [cut, data @ ..] = data else { return };
    let cut = usize::from(*cut) + 1;
    let (told, step) = talk(data, cut);
    assert_eq!((told, step.clone()), talk(data, data.len().max(1)), "a cut changes what is told");
    if let socks::SocksStep::Connect { host, port, .. } = step {
        check(&host, port);
    }
    match http_proxy::next_step(data) {
        http_proxy::HttpProxyStep::Connect { consumed, host, port } => {
            assert!(consumed <= data.len());
            check(&host, port);
        }
        http_proxy::HttpProxyStep::Request { consumed, host, port, head, .. } => {
            assert!(consumed <= data.len());
            check(&host, port);
            assert_eq!(sniff(&head), SniffResult::Name { protocol: ClientProtocol::Http, name: host });
        }
        http_proxy::HttpProxyStep::NeedMore | http_proxy::HttpProxyStep::Malformed(_) => {}
    }
});

fn check(host: &str, port: u16) {
    assert!(port != 0 && (host.parse::<IpAddr>().is_ok() || encode_query(0, host, RecordType::A).is_some()), "{host:?}");
}

/// What a client is told, and where it ends, when its bytes come in such pieces.
fn talk(data: &[u8], cut: usize) -> (Vec<u8>, socks::SocksStep) {
    let (mut client, mut told, mut done, mut came) = (socks::SocksHandshake::new(), Vec::new(), 0, 0);
    loop {
        match client.next_step(&data[done..came]) {
            socks::SocksStep::NeedMore if came < data.len() => came = (came + cut).min(data.len()),
            socks::SocksStep::Reply { consumed, bytes } => {
                done += consumed;
                told.extend(bytes);
            }
            step => return (told, step),
        }
    }
}
