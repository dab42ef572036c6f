//! Hosts that somebody is asked about: the connection waits for the answer, wherever it comes from.

use serde_json::{Value, json};

use super::served::Served;
use crate::support::deadline::Deadline;

/// One call of a host, with curl's exit status behind what it says.
const GET: &str = "curl -sS -m 20 http://good.example/ 2>&1; echo $?";
const ASK: [&str; 2] = ["--ask-host", "*"];

as_each_caller! {
    /// RB-28 to RB-30: the question is one about a tool, and it is answered like any other.
    fn a_call_waits_for_its_answer(caller) {
        let network = network!(caller);
        let mut served = Served::new(&network, &ASK);
        served.begin(GET);
        let question = served.question();
        let request = &question["request"];
        assert_eq!(request["subtype"], "can_use_tool");
        assert_eq!(request["tool_name"], "SandboxNetworkAccess");
        assert_eq!(request["input"], json!({ "host": "good.example", "port": 80 }));
        let description = request["description"].as_str().unwrap();
        assert!(description.starts_with("curl (pid ") && description.ends_with("good.example:80"), "{description}");
        // Nobody was called or looked up yet.
        assert_eq!(network.contacts(), Vec::<String>::new());
        served.answer(&question, &json!({ "behavior": "allow" }));
        let said = served.ran();
        assert!(said.starts_with("hello to good.example at ") && said.ends_with("\n0\n"), "{said}");
        // It was for that one.
        served.begin(GET);
        let question = served.question();
        served.answer(&question, &json!({ "behavior": "deny", "message": "not today" }));
        let said = served.ran();
        assert!(!said.contains("hello"), "{said}");
        served.end();
        let refused = network.events("refused");
        assert_eq!(refused.len(), 1, "{refused:?}");
        assert_eq!((&refused[0]["host"], &refused[0]["port"]), (&json!("good.example"), &json!(80)));
        let why = refused[0]["why"].as_str().unwrap();
        assert!(why.contains("was denied") && why.contains("not today"), "{why}");
        assert_eq!(refused[0]["program"]["name"], "curl");
    }

    /// By taking the suggestion of the question; then it holds as long as the sandbox lives, at that port alone.
    fn allowed_connection_can_be_remembered(caller) {
        let network = network!(caller);
        let mut served = Served::new(&network, &ASK);
        served.begin(GET);
        let question = served.question();
        let suggestions = question["request"]["permission_suggestions"].clone();
        served.answer(&question, &json!({ "behavior": "allow", "updatedPermissions": suggestions }));
        assert!(served.ran().ends_with("\n0\n"));
        for _ in 0..3 {
            assert!(served.run(GET).ends_with("\n0\n"));
        }
        assert_eq!(served.control(&network).get("state")["network"]["consented"], json!(["good.example:80"]));
        served.begin("curl -sSk -m 20 https://good.example/ 2>&1; echo $?");
        assert_eq!(served.question()["request"]["input"]["port"], 443);
        served.end();
    }

    /// A session that goes on does not ask again; and a yes is none where the rules no longer say to ask.
    fn remembered_permission_lasts_as_long_as_the_session(caller) {
        let network = network!(caller);
        let session = ["--session", "kept"];
        let mut served = Served::new(&network, &[&ASK[..], &session].concat());
        served.begin(GET);
        let question = served.question();
        let suggestions = question["request"]["permission_suggestions"].clone();
        served.answer(&question, &json!({ "behavior": "allow", "updatedPermissions": suggestions }));
        assert!(served.ran().ends_with("\n0\n"));
        served.end();
        let session = ["--session", "kept", "--resume"];
        let mut again = Served::new(&network, &[&ASK[..], &session].concat());
        assert!(again.run(GET).ends_with("\n0\n"));
        assert_eq!(again.control(&network).get("state")["network"]["consented"], json!(["good.example:80"]));
        again.end();
        let denied = [&ASK[..], &["--deny-host", "good.example"]].concat();
        for rules in [&["--allow-host", "four.example"][..], &denied] {
            let mut other = Served::new(&network, &[rules, &session].concat());
            assert!(!other.run(GET).contains("hello"), "{rules:?}");
            other.end();
        }
    }

    /// RB-29, RB-31: what is no plain yes is none; and the first answer is the one that counts.
    fn malformed_reply_does_not_allow_a_connection(caller) {
        let network = network!(caller);
        let mut served = Served::new(&network, &ASK);
        served.begin(GET);
        let question = served.question();
        served.answer(&question, &json!({ "behavior": "maybe" }));
        served.server.events_until(|event| event["ev"] == "error");
        served.answer(&question, &json!({ "behavior": "deny" }));
        served.answer(&question, &json!({ "behavior": "allow" }));
        let said = served.ran();
        assert!(!said.contains("hello"), "{said}");
        served.end();
    }

    /// RB-34.
    fn unanswered_connection_request_is_denied_after_the_timeout(caller) {
        let network = network!(caller);
        let policy = network.wrap.place.make_file("p.toml", "permissions.timeout = '1s'");
        let mut served = Served::new(&network, &[&ASK[..], &["--policy", policy.to_str().unwrap()]].concat());
        let said = served.run(GET);
        assert!(!said.contains("hello"), "{said}");
        served.end();
        assert!(network.refused()[0].1.contains("no answer within 1s"));
    }

    /// Many connections to one port of a host are one question.
    fn connections_to_one_port_share_one_permission_request(caller) {
        let network = network!(caller);
        let mut served = Served::new(&network, &ASK);
        served.begin("for i in 1 2 3 4 5; do curl -sS -m 20 http://good.example/ & done; wait");
        let question = served.question();
        let mut control = served.control(&network);
        // All of them wait, by the kernel's account of what is connected inside.
        let deadline = Deadline::usual();
        let count = "grep -c '^ *[0-9]*: [0-9A-F]*:[0-9A-F]* [0-9A-F]*:0050 01 ' /proc/net/tcp6 /proc/net/tcp | cut -d: -f2 | paste -sd+";
        loop {
            let counted = control.call("exec", &json!({ "command": count }));
            let sum: u32 = counted["stdout"].as_str().unwrap().trim().split('+').map(|n| n.parse::<u32>().unwrap()).sum();
            if sum >= 5 {
                break;
            }
            assert!(!deadline.remaining().is_zero(), "{counted}");
        }
        assert_eq!(control.get("permission.list")["open"].as_array().unwrap().len(), 1);
        served.answer(&question, &json!({ "behavior": "allow" }));
        assert_eq!(served.ran().matches("hello").count(), 5);
        served.end();
    }

    /// RB-32: who has given up is not asked about any more.
    fn exited_program_cancels_its_permission_request(caller) {
        let network = network!(caller);
        let mut served = Served::new(&network, &ASK);
        let mut control = served.control(&network);
        served.begin("curl -sS -m 5 http://good.example/ 2>&1; echo $?");
        let question = served.question();
        let is_back = |event: &Value| event["data"]["type"] == "control_cancel_request";
        // The program may be known to have ended before.
        let events = served.server.events_until(is_back);
        assert_eq!(events.last().unwrap()["data"]["request_id"], question["request_id"]);
        let result = events.iter().find(|event| event["ev"] == "exec_result");
        let said = result.map_or_else(|| served.ran(), |result| result["stdout"].as_str().unwrap().to_owned());
        assert!(said.ends_with("\n28\n"), "{said}");
        assert_eq!(control.get("permission.list"), json!({ "open": [] }));
        served.answer(&question, &json!({ "behavior": "allow" }));
        assert_eq!(network.contacts(), Vec::<String>::new());
        served.end();
    }

    /// The control socket lists the question and answers it; the server of the bridge hears that it is closed.
    fn the_control_socket_answers(caller) {
        let network = network!(caller);
        let mut served = Served::new(&network, &ASK);
        let mut control = served.control(&network);
        control.get("events.subscribe");
        served.begin(GET);
        let told = std::iter::from_fn(|| Some(control.event())).find(|event| event["event"] == "permission_asked").unwrap();
        assert_eq!(told["question"]["tool"], "SandboxNetworkAccess");
        let answer = json!({ "id": told["question"]["id"], "response": { "behavior": "allow" } });
        control.call("permission.respond", &answer);
        assert!(served.ran().contains("hello"));
        served.end();
    }

    /// A connection to an address is asked about by the name that it says, or else by the address, where a rule asks
    /// about it; and never about what may not be anyway.
    fn addresses_are_asked_about_where_a_rule_has_them(caller) {
        let network = network!(caller);
        let mut served = Served::new(&network, &["--ask-host", "0.0.0.0/0:80,8080", "--ask-host", "four.example"]);
        served.begin("curl -sS -m 20 http://93.184.215.14/ 2>&1; echo $?");
        let question = served.question();
        assert_eq!(question["request"]["input"], json!({ "host": "93.184.215.14", "port": 80 }));
        served.answer(&question, &json!({ "behavior": "allow" }));
        assert!(served.ran().contains("hello"));
        served.begin("curl -sS -m 20 --connect-to four.example:80:93.184.215.14:80 http://four.example/ 2>&1; echo $?");
        let question = served.question();
        assert_eq!(question["request"]["input"], json!({ "host": "four.example", "port": 80 }));
        served.answer(&question, &json!({ "behavior": "allow" }));
        assert!(served.ran().contains("hello"));
        for never in ["169.254.169.254", "127.0.0.1:8080"] {
            let said = served.run(&format!("curl -sS -m 20 http://{never}/ 2>&1; echo $?"));
            assert!(!said.contains("hello"), "{said}");
        }
        served.end();
    }

    /// Where nobody can be asked, nothing is reached.
    fn wrap_denies_connections_that_need_a_permission(caller) {
        let network = network!(caller);
        let ended = network.run_with(&ASK, &["/bin/sh", "-c", GET]);
        assert!(!ended.stdout.contains("hello"), "{ended:?}");
        network.has_refused("good.example:80", "no client is connected");
        assert_eq!(network.contacts(), Vec::<String>::new());
    }

    /// What is allowed is not asked about, and what is denied neither.
    fn allowed_and_denied_hosts_cause_no_permission_request(caller) {
        let network = network!(caller);
        let options = ["--ask-host", "*", "--allow-host", "good.example", "--deny-host", "other.example"];
        let mut served = Served::new(&network, &options);
        let said = served.run(&format!("{GET}; curl -sS -m 20 http://other.example/ 2>&1; echo $?"));
        assert_eq!(said.matches("hello").count(), 1, "{said}");
        served.end();
        network.has_refused("other.example", "denied");
    }
}
