//! runtime.md, Start.

use super::bundle::Bench;
use serde_json::Value;

as_each_caller! {
    fn start_without_an_id_is_an_error(caller) {
        Bench::new(caller).say(&["start"]).fails("ID");
    }

    fn start_of_an_unknown_id_is_an_error(caller) {
        Bench::new(caller).say(&["start", "nobody"]).fails("does not exist");
    }

    fn start_of_a_container_that_is_not_created_is_an_error_without_effect(caller) {
        let bench = Bench::new(caller);
        let id = bench.start();
        let pid = bench.pid(&id);
        bench.say(&["start", &id]).fails("running");
        bench.status_is(&id, "running");
        assert_eq!(bench.pid(&id), pid);
        bench.say(&["kill", &id, "KILL"]).ok();
        bench.wait_stopped(&id);
        bench.say(&["start", &id]).fails("stopped");
        bench.status_is(&id, "stopped");
    }

    fn start_without_a_process_is_an_error(caller) {
        let bench = Bench::new(caller);
        bench.configure(|config| config["process"] = Value::Null);
        bench.configure(|config| drop(config.as_object_mut().unwrap().remove("process")));
        let id = bench.id();
        bench.create(&id).ok();
        bench.status_is(&id, "created");
        bench.say(&["start", &id]).fails("process");
        bench.status_is(&id, "created");
    }
}
