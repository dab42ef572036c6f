//! Landlock is a second wall: it stands where the mounts let something through.
//!
//! What the mounts forgot is played by a file of the host that is passed in as a standard stream: the program
//! may use the open descriptor, and /proc/self/fd would open the file anew, with other rights, through the
//! host's own mount, which no read-only bind covers. Everything but landlock allows that.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;

use super::wrapped::Wrap;

as_each_caller! {
    fn a_host_file_that_came_in_is_not_opened_with_other_rights(caller) {
        let wrap = Wrap::new(caller);
        let file = wrap.place.make_file("beside", "as it was");
        // Not even its owner inside needs more than the mode gives.
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
        let script = "cat; cat /proc/self/fd/0; echo changed > /proc/self/fd/0; exit 0";
        let mut command = wrap.command(&["--quiet-degraded"], &["/bin/sh", "-c", script]);
        command.stdin(File::open(&file).unwrap());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "as it was".repeat(2), "read, as it was passed");
        assert_eq!(String::from_utf8_lossy(&output.stderr).matches("Permission denied").count(), 1, "{output:?}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "as it was");
    }

    /// DECISIONS 3: `nesting` gives this wall up, and programs get no file as a standard stream.
    fn without_landlock_the_program_has_a_pipe(caller) {
        let wrap = Wrap::new(caller);
        let file = wrap.place.make_file("beside", "as it was");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
        wrap.place.close();
        let mut command = wrap.command(&["--profile", "nesting"], &["/bin/sh", "-c", "readlink /proc/self/fd/0"]);
        command.stdin(File::open(&file).unwrap());
        let output = command.output().unwrap();
        assert!(output.status.success() && output.stdout.starts_with(b"pipe:"), "{output:?}");
    }
}
