//! What the resolvers of the host are asked, and how: by datagram, and over TCP where an answer does not fit one.

use super::{Network, ended_cut, told};
use crate::isolation::wrapped::Ended;

/// Runs a script in a sandbox that may reach every name, where the host has this resolv.conf.
fn run_with_conf(network: &Network, conf: &str, script: &str) -> Ended {
    let starter = format!("printf '{conf}' >resolv.conf; exec \"$@\" 3>events");
    let options = ["--allow-host", "*.example"];
    network.run_by(&["/bin/sh", "-c", &starter, "sh"], &options, &["/bin/sh", "-c", script])
}

/// Has this name called in vain, and asserts why it was not reached.
fn is_not_reached(network: &Network, conf: &str, name: &str, why: &str) {
    let ended = run_with_conf(network, conf, &format!("curl -sS -m 20 http://{name}.example/ 2>&1; echo $?"));
    assert!(ended_cut(&ended), "{name}: {ended:?}");
    cannot_be_looked_up(network, name, why);
    assert_eq!(network.calls(), Vec::<String>::new());
}

fn cannot_be_looked_up(network: &Network, name: &str, why: &str) {
    let told: Vec<_> = network.events("unreachable").iter().map(told).collect();
    let [(whom, reason)] = &told[..] else { panic!("{name}: {told:?}") };
    assert_eq!(*whom, format!("{name}.example:80"));
    assert_eq!(*reason, format!("its name could not be looked up: {why}"));
    assert_eq!(network.refused(), []);
}

const PATIENT: &str = "nameserver 93.184.215.53\\noptions timeout:10 attempts:1\\n";

as_each_caller! {
    /// By a resolver that answers all questions of a connection, and by one that ends it after the first.
    fn a_long_answer_is_asked_for_over_tcp(caller) {
        let network = network!(caller);
        for name in ["long.example", "once.example"] {
            let ended = run_with_conf(&network, PATIENT, &format!("curl -sS -m 20 http://{name}/"));
            assert_eq!(ended.success(), format!("hello to {name} at 93.184.215.14\n"));
            assert_eq!(network.refused(), []);
            let contacts = network.contacts();
            assert!(contacts.contains(&format!("name {name} over tcp")), "{contacts:?}");
        }
    }

    fn a_resolver_without_tcp_has_no_long_answer(caller) {
        let network = network!(caller);
        let conf = "nameserver 93.184.215.15\\noptions timeout:10 attempts:1\\n";
        is_not_reached(&network, conf, "long", "a resolver takes no connection for a long answer");
    }

    /// The next one is asked, and has it.
    fn another_resolver_has_the_long_answer(caller) {
        let network = network!(caller);
        let conf = "nameserver 93.184.215.15\\nnameserver 93.184.215.53\\noptions timeout:10 attempts:1\\n";
        let ended = run_with_conf(&network, conf, "curl -sS -m 20 http://long.example/");
        assert_eq!(ended.success(), "hello to long.example at 93.184.215.14\n");
    }

    /// Neither its time nor anybody else's connection waits for the stream.
    fn slow_dns_reply_over_tcp_blocks_no_other_connection(caller) {
        let network = network!(caller);
        let conf = "nameserver 93.184.215.53\\noptions timeout:2 attempts:1\\n";
        let script = "{ curl -sS -m 20 http://slow.example/ 2>&1; echo $?; } & slow=$!
            until grep -q 'slow.example over tcp' contacts; do :; done
            curl -sS -m 20 http://good.example/; wait $slow";
        let ended = run_with_conf(&network, conf, script);
        assert!(ended.stdout.starts_with("hello to good.example at "), "{ended:?}");
        assert!(ended_cut(&ended), "{ended:?}");
        cannot_be_looked_up(&network, "slow", "no resolver answers");
    }

    /// What is said over TCP is believed as little as a datagram.
    fn invalid_dns_reply_over_tcp_is_ignored(caller) {
        let network = network!(caller);
        for (name, why) in [
            ("cut", "a resolver ends the connection before its answer"),
            ("short", "a resolver answers what it was not asked"),
            ("empty", "a resolver answers what it was not asked"),
            ("stranger", "a resolver answers what it was not asked"),
            ("truncated", "an answer is too long"),
            ("endless", "an answer is too long"),
        ] {
            is_not_reached(&network, PATIENT, name, why);
        }
    }

    /// resolv.conf(5): `use-vc`.
    fn a_host_that_wants_tcp_has_it_from_the_start(caller) {
        let network = network!(caller);
        let conf = "nameserver 93.184.215.53\\noptions timeout:10 use-vc\\n";
        let ended = run_with_conf(&network, conf, "curl -sS -m 20 http://four.example/");
        assert_eq!(ended.success(), "hello to four.example at 93.184.215.14\n");
        let contacts = network.contacts();
        assert!(contacts.contains(&"name four.example over tcp".into()), "{contacts:?}");
        assert!(!contacts.contains(&"name four.example".into()), "{contacts:?}");
    }
}
