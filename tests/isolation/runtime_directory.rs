//! SAGGAR_RUNTIME_DIR: where saggar records what runs, if it may not write to /run.

use super::wrapped::Wrap;
use crate::oci::bundle::Bench;
use crate::support::wait::until_exists;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;

as_each_caller! {
    /// Sandboxes are recorded there, by every command that has the variable.
    fn a_named_runtime_directory_has_the_sandboxes(caller) {
        let wrap = Wrap::new(caller);
        let runtime = wrap.place.join("runtime");
        let start = |program: &str| {
            let mut command = wrap.place.saggar();
            command.env("SAGGAR_RUNTIME_DIR", &runtime).current_dir(wrap.work());
            command.args(["wrap", "--id", "named", "--", "sh", "-c", program]);
            command
        };
        let mut child = start(": > up; while [ ! -e end ]; do sleep 0.01; done").stderr(Stdio::null()).spawn().unwrap();
        until_exists(&wrap.work().join("up"));
        let meta = fs::metadata(&runtime).unwrap();
        assert_eq!((meta.mode() & 0o7777, meta.uid()), (0o700, caller.uid().as_raw()));
        assert!(runtime.join("named/lock").exists());
        let again = start("true").output().unwrap();
        let told = String::from_utf8_lossy(&again.stderr).into_owned();
        assert!(!again.status.success() && told.contains("a sandbox of this name is running"), "{told}");
        fs::write(wrap.work().join("end"), "").unwrap();
        assert!(child.wait().unwrap().success());
        assert!(!runtime.join("named").exists());
        // Another directory is not taken for it, and nothing in it is removed.
        let foreign = wrap.place.make_dir("foreign", 0o700);
        wrap.place.make_dir("foreign/empty", 0o700);
        wrap.place.make_dir("foreign/locked", 0o700);
        wrap.place.make_file("foreign/locked/lock", "data");
        for program in [&["--id", "named"][..], &[]] {
            let mut command = wrap.place.saggar();
            command.env("SAGGAR_RUNTIME_DIR", &foreign).current_dir(wrap.work());
            let said = command.arg("wrap").args(program).args(["--", "true"]).output().unwrap();
            let told = String::from_utf8_lossy(&said.stderr).into_owned();
            assert!(said.status.success() || told.contains("is not empty"), "{told}");
            assert!(said.status.success() != program.contains(&"named"), "{told}");
        }
        assert!(foreign.join("empty").exists() && foreign.join("locked/lock").exists());
        let mut relative = wrap.place.saggar();
        relative.env("SAGGAR_RUNTIME_DIR", "run").current_dir(wrap.work());
        let refused = relative.args(["wrap", "--id", "named", "--", "true"]).output().unwrap();
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(told.contains("SAGGAR_RUNTIME_DIR=run is relative"), "{told}");
    }

    fn containers_are_beside_it(caller) {
        let bench = Bench::new(caller);
        let (bundle, runtime) = (bench.bundle(), bench.place.join("runtime"));
        let command = |args: &[&str]| {
            let mut command = bench.place.saggar();
            command.env("SAGGAR_RUNTIME_DIR", &runtime).args(args).stdin(Stdio::null());
            bench.finish(command)
        };
        command(&["create", "--bundle", bundle.to_str().unwrap(), "beside"]).ok();
        assert!(bench.place.join("runtime-oci/beside").is_dir());
        assert_eq!(command(&["list", "--quiet"]).ok().stdout, "beside\n");
        command(&["delete", "--force", "beside"]).ok();
        assert!(!bench.place.join("runtime-oci/beside").exists());
    }
}
