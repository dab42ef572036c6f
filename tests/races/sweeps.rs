//! Starts beside sweeps: what is just being made is not taken for what a dead sandbox has left.

use std::path::PathBuf;

use super::*;

/// The runtime directory of the sandbox `id`.
fn runtime(raced: &Raced, caller: Caller, id: &str) -> PathBuf {
    if caller.is_root() { Path::new("/run/saggar").join(id) } else { raced.place.join("run/saggar").join(id) }
}

as_each_caller! {
    /// `gc` runs before each system call of the start, from the one that makes its directory to the record in it; while
    /// that is empty only once, since it removes it then, and the start makes it again.
    fn a_start_goes_on_though_what_it_makes_is_swept(caller) {
        own_mounts();
        let raced = Raced::new(caller);
        let id = format!("swept-{}", raced.place.path().file_name().unwrap().display());
        let directory = runtime(&raced, caller, &id);
        let command = raced.command(&["wrap", "--id", &id, "--", "true"]);
        let (mut swept, mut emptied, output) = (0, false, raced.place.join("output"));
        let status = stepped(&raced.place, &command, &output, |_| {
            let is_being_made = directory.exists() && !directory.join("guard.json").exists();
            if is_being_made && (directory.join("lock").exists() || !std::mem::replace(&mut emptied, true)) {
                swept += 1;
                let ended = raced.run(&["gc"]);
                assert_eq!(ended.code(), 0, "{ended:?}");
            }
        });
        let text = fs::read(&output).unwrap_or_default();
        assert_eq!(status, Some(0), "{}", String::from_utf8_lossy(&text));
        assert!(swept > 3, "the sweeps came too late");
        assert!(!directory.exists());
    }
}
