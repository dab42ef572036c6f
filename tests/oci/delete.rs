//! runtime.md, Delete.

use super::bundle::Bench;
use crate::support::process::Watch;

as_each_caller! {
    fn delete_without_an_id_is_an_error(caller) {
        Bench::new(caller).say(&["delete"]).fails("ID");
    }

    fn delete_of_an_unknown_id_is_an_error_unless_it_is_forced(caller) {
        let bench = Bench::new(caller);
        bench.say(&["delete", "nobody"]).fails("does not exist");
        bench.say(&["delete", "--force", "nobody"]).ok();
        bench.say(&["delete", "--force", "../nobody"]).fails("id");
    }

    fn delete_of_a_container_that_is_not_stopped_is_an_error_without_effect(caller) {
        let bench = Bench::new(caller);
        let id = bench.id();
        bench.create(&id).ok();
        bench.say(&["delete", &id]).fails("created");
        bench.status_is(&id, "created");
        bench.say(&["start", &id]).ok();
        bench.say(&["delete", &id]).fails("running");
        bench.status_is(&id, "running");
    }

    fn delete_removes_all_that_create_made_and_the_id_can_be_used_again(caller) {
        let bench = Bench::new(caller);
        let id = bench.start();
        for _ in 0..2 {
            bench.say(&["kill", &id, "KILL"]).ok();
            bench.wait_stopped(&id);
            bench.say(&["delete", &id]).ok();
            bench.is_clean(&id);
            bench.say(&["state", &id]).fails("does not exist");
            bench.create(&id).ok();
            bench.say(&["start", &id]).ok();
        }
    }

    fn delete_force_ends_what_is_created_and_what_runs(caller) {
        let bench = Bench::new(caller);
        for start in [false, true] {
            let id = bench.id();
            bench.create(&id).ok();
            if start {
                bench.say(&["start", &id]).ok();
            }
            let watch = Watch::of(bench.pid(&id)).unwrap();
            bench.say(&["delete", "--force", &id]).ok();
            watch.wait_gone("the container");
            bench.is_clean(&id);
        }
    }
}
