//! Whatever a client of a proxy says, cut wherever: the cuts make no difference, it names a host that is one, and what
//! a server gets is one request.
#![no_main]

use libfuzzer_sys::fuzz_target;
use saggar::egress::dns::{Kind, query};
use saggar::egress::sniff::{Protocol, Sniffed, sniff};
use saggar::egress::{connect, socks};
use std::net::IpAddr;

fuzz_target!(|data: &[u8]| {
    let [cut, data @ ..] = data else { return };
    let cut = usize::from(*cut) + 1;
    let (told, step) = talk(data, cut);
    assert_eq!((told, step.clone()), talk(data, data.len().max(1)), "a cut changes what is told");
    if let socks::Step::Connect { host, port, .. } = step {
        check(&host, port);
    }
    match connect::next(data) {
        connect::Step::Connect { consumed, host, port } => {
            assert!(consumed <= data.len());
            check(&host, port);
        }
        connect::Step::Request { consumed, host, port, head } => {
            assert!(consumed <= data.len());
            check(&host, port);
            assert_eq!(sniff(&head), Sniffed::Name { protocol: Protocol::Http, name: host });
        }
        connect::Step::More | connect::Step::Wrong(_) => {}
    }
});

fn check(host: &str, port: u16) {
    assert!(port != 0 && (host.parse::<IpAddr>().is_ok() || query(0, host, Kind::A).is_some()), "{host:?}");
}

/// What a client is told, and where it ends, when its bytes come in such pieces.
fn talk(data: &[u8], cut: usize) -> (Vec<u8>, socks::Step) {
    let (mut client, mut told, mut done, mut came) = (socks::Socks::new(), Vec::new(), 0, 0);
    loop {
        match client.next(&data[done..came]) {
            socks::Step::More if came < data.len() => came = (came + cut).min(data.len()),
            socks::Step::Reply { consumed, bytes } => {
                done += consumed;
                told.extend(bytes);
            }
            step => return (told, step),
        }
    }
}
