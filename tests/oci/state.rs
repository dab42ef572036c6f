//! runtime.md, State and Query State.

use super::bundle::Bench;
use serde_json::json;

as_each_caller! {
    fn state_without_an_id_is_an_error(caller) {
        let bench = Bench::new(caller);
        bench.say(&["state"]).fails("ID");
    }

    fn state_of_an_unknown_id_is_an_error(caller) {
        let bench = Bench::new(caller);
        bench.say(&["state", "nobody"]).fails("does not exist");
    }

    fn state_has_version_id_status_pid_bundle_and_annotations(caller) {
        let bench = Bench::new(caller);
        bench.configure(|config| config["annotations"] = json!({ "a.b": "c" }));
        let id = bench.id();
        bench.create(&id).ok();
        let state = bench.state(&id);
        assert_eq!(state["id"], id.as_str());
        assert_eq!(state["ociVersion"], "1.3.0");
        assert_eq!(state["status"], "created");
        assert_eq!(state["bundle"], bench.bundle().to_str().unwrap());
        assert_eq!(state["annotations"], json!({ "a.b": "c" }));
        let pid = state["pid"].as_i64().unwrap();
        assert!(std::path::Path::new(&format!("/proc/{pid}")).exists());
        bench.say(&["start", &id]).ok();
        bench.status_is(&id, "running");
        assert_eq!(bench.state(&id)["pid"], pid);
        bench.say(&["kill", &id, "KILL"]).ok();
        bench.wait_stopped(&id);
        bench.status_is(&id, "stopped");
    }

    fn the_bundle_is_absolute_however_it_was_given(caller) {
        let bench = Bench::new(caller);
        let id = bench.id();
        let mut command = bench.command(&["create", &id]);
        command.current_dir(bench.bundle());
        bench.finish(command).ok();
        assert_eq!(bench.state(&id)["bundle"], bench.bundle().to_str().unwrap());
    }
}
