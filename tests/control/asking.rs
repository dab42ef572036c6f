//! Questions of the agent, answered by the control socket (DECISIONS 19).

use serde_json::json;

use super::client::{ControlClient, serve, socket};
use crate::bridge::served::Stage;

as_each_caller! {
    /// RB-29 to RB-31: by the bridge's own name alone, once, and never by accident; the server of the turn hears that
    /// it is closed.
    fn a_question_is_answered_here(caller) {
        let stage = Stage::new(caller);
        let served = serve(&stage, &["--adapter", "demo"]);
        let mut client = ControlClient::connect(&socket(&stage));
        client.get("events.subscribe");
        let mut server = served.connect();
        for (behavior, ran) in [("deny", false), ("allow", true)] {
            server.query("ask: echo ran >> ran");
            let told = client.event();
            assert_eq!(told["event"], "permission_asked", "{told}");
            let open = client.get("permission.list")["open"].take();
            assert_eq!(open, json!([told["question"]]));
            let (id, agent_id) = (open[0]["id"].clone(), open[0]["agentId"].clone());
            assert!(id.is_string() && id != agent_id && open[0]["tool"].is_string(), "{open}");
            let time = |name: &str| open[0][name].as_u64().unwrap_or_else(|| panic!("{open}"));
            assert!(time("asked") > 1_700_000_000_000 && time("deadline") > time("asked"), "{open}");
            let answer = |id: &serde_json::Value, body: serde_json::Value| json!({ "id": id, "response": body });
            for wrong in [json!({ "behavior": "maybe" }), json!({}), json!("allow"), json!(null)] {
                assert_eq!(client.refused("permission.respond", &answer(&id, wrong)).0, "params");
            }
            let right = json!({ "behavior": behavior, "message": "because" });
            assert_eq!(client.refused("permission.respond", &answer(&agent_id, right.clone())).0, "state");
            assert_eq!(client.get("permission.list")["open"].as_array().unwrap().len(), 1);
            assert_eq!(client.call("permission.respond", &answer(&id, right.clone())), json!({}));
            assert_eq!(client.event(), json!({ "event": "permission_closed", "question": { "id": id } }));
            assert_eq!(client.refused("permission.respond", &answer(&id, right)).0, "state");
            let outcome = server.outcome();
            assert!(outcome.is_done(), "{outcome:?}");
            assert_eq!(outcome.of_type("control_request").count(), 1);
            assert_eq!(outcome.of_type("control_cancel_request").count(), 1);
            assert_eq!(stage.work().join("ran").exists(), ran);
        }
        assert_eq!(client.get("permission.list"), json!({ "open": [] }));
        served.shut_down(&mut server);
    }
}
