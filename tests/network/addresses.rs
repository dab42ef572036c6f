//! A name that is allowed does not open every address that its owner lets it have.

use super::{ended_cut, told};

as_each_caller! {
    fn names_of_private_and_forbidden_addresses_are_refused(caller) {
        let network = network!(caller);
        let names = [
            ("private", "a private address, and no rule names it"),
            ("metadata", "metadata"),
            ("loopback", "loopback"),
            ("mapped", "loopback"),
            ("own", "an address of this machine"),
        ];
        for (name, why) in names {
            let ended = network.run(&["*"], &format!("curl -sS -m 20 http://{name}.example/ 2>&1; echo $?"));
            assert!(ended_cut(&ended), "{name}: {ended:?}");
            network.has_refused(&format!("{name}.example:80"), why);
            assert_eq!(network.calls(), Vec::<String>::new(), "{name}");
            // A line at the end names what would allow it, if anything does.
            let allows = ended.stderr.contains("to allow ");
            assert_eq!(allows, name == "private", "{name}: {ended:?}");
        }
        let ended = network.run(&["private.example", "10.77.0.1:80"], "curl -sS -m 20 http://private.example/");
        assert!(!ended.stderr.contains("to allow ") && ended.success().starts_with("hello"));
    }

    /// Not even by a rule: what of this machine listens there trusts whoever can call it.
    fn forbidden_addresses_have_no_rule_that_opens_them(caller) {
        let network = network!(caller);
        let rules = ["169.254.0.0/16", "metadata.example", "loopback.example", "127.0.0.0/8"];
        let script = "for host in 169.254.169.254 metadata.example loopback.example; do
            curl -sS -m 20 http://$host/ 2>&1; done; true";
        let ended = network.run(&rules, script);
        assert!(!ended.stdout.contains("hello"), "{ended:?}");
        assert_eq!(network.calls(), Vec::<String>::new());
        assert_eq!(network.refused().len(), 3, "{:?}", network.refused());
    }

    /// Addresses that stand for names inside are somebody's outside, in a lab or behind a resolver that makes them up: a
    /// rule about them holds for what a name resolves to, and not for who calls one.
    fn a_name_of_a_stand_in_address_needs_a_rule_of_addresses(caller) {
        let network = network!(caller);
        let script = "curl -sS -m 20 http://lab.example/ 2>&1; curl -sS -m 20 http://198.18.7.7/ 2>&1; true";
        let ended = network.run(&["lab.example", "198.18.0.0/15"], script);
        assert!(ended.stdout.starts_with("hello to lab.example at 198.18.7.7\n"), "{ended:?}");
        assert_eq!(network.calls(), ["198.18.7.7 80"]);
        let refused = network.refused();
        let [(whom, why)] = &refused[..] else { panic!("{refused:?}") };
        assert!(whom == ":80" && why.contains("connect to the host by its name"), "{whom} {why}");
        for rules in [&["lab.example"][..], &["lab.example", "198.18.7.8"]] {
            assert!(!network.run(rules, script).stdout.contains("hello"));
        }
        let ended = network.run_with(
            &["--allow-host", "lab.example", "--allow-host", "198.18.0.0/15", "--deny-host", "198.18.7.7"],
            &["/bin/sh", "-c", script],
        );
        assert!(!ended.stdout.contains("hello"), "{ended:?}");
    }

    /// inet_aton(3) reads all of these, and curl with it.
    fn other_notations_of_forbidden_addresses_are_refused(caller) {
        let network = network!(caller);
        let hosts = ["2852039166", "0xa9.254.169.254", "[::ffff:169.254.169.254]", "0251.0376.0251.0376", "127.1", "[::ffff:127.0.0.1]", "0"];
        let script = hosts.map(|host| format!("curl -g -sS -m 20 'http://{host}/' 2>&1")).join("\n") + "\ntrue";
        let ended = network.run(&["*"], &script);
        assert!(!ended.stdout.contains("hello"), "{ended:?}");
        assert_eq!(network.contacts(), Vec::<String>::new());
    }

    /// What listens there trusts whoever is on this machine.
    fn an_address_of_this_machine_is_never_reached(caller) {
        let network = network!(caller);
        network.run(&["93.184.214.0/24", "93.184.214.1"], "curl -sS -m 20 http://93.184.214.1/ 2>&1; true").success();
        network.has_refused("93.184.214.1:80", "an address of this machine");
    }

    /// A resolver that loops or says nothing costs the connection, and soon enough.
    fn a_name_that_cannot_be_looked_up_is_not_reached(caller) {
        let network = network!(caller);
        for (name, why) in [("loop", "could not be looked up"), ("silent", "could not be looked up"), ("nobody", "no such name")] {
            let ended = network.run(&["*"], &format!("curl -sS -m 20 http://{name}.example/ 2>&1; echo $?"));
            assert!(ended_cut(&ended), "{name}: {ended:?}");
            let told: Vec<_> = network.events("unreachable").iter().map(told).collect();
            let [(whom, reason)] = &told[..] else { panic!("{told:?}") };
            assert!(*whom == format!("{name}.example:80") && reason.contains(why), "{whom}: {reason}");
            assert_eq!(network.refused(), []);
            // A client that knows of the proxy is told whose fault it was.
            let ended = network.run(&["*"], &format!("curl -sS -m 20 -x http://127.0.0.1:3128 http://{name}.example/"));
            assert!(ended.stdout.contains("not reached") && ended.stdout.contains(why), "{name}: {ended:?}");
        }
    }
}
