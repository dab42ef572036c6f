//! File capabilities that programs of the profile nesting set in user namespaces of their own: never one on the host.

use std::os::unix::fs::{PermissionsExt, chown};

use super::wrapped::Wrap;

/// Gives a file every capability, as uid 0 of a user namespace.
const SET: &str = r#"
import os, struct, subprocess, sys
open("tool", "w").write("a tool")
script = "import os, struct; os.setxattr('tool', 'security.capability', struct.pack('<IIIII', 0x02000001, *[0xffffffff] * 2, *[0xffffffff] * 2))"
print(subprocess.run(["unshare", "-Ur", "python3", "-c", script]).returncode)
"#;

/// The user in whose namespaces the capabilities of a file hold (capabilities(7), VFS_CAP_REVISION_3); 0 is the host.
const WHOSE: &str = r#"
import os, struct
try:
    value = os.getxattr("tool", "security.capability")
    print(struct.unpack("<I", value[20:24])[0] if len(value) == 24 else 0)
except OSError:
    print("none")
"#;

fn open_to_all(wrap: &Wrap) {
    std::fs::set_permissions(wrap.work(), std::fs::Permissions::from_mode(0o755)).unwrap();
}

as_each_caller! {
    /// In a tree of uid 0's they would hold on the host, for whoever starts the file.
    fn a_tree_of_uid_0_is_not_written_by_programs_that_nest(caller) {
        let wrap = Wrap::new(caller);
        open_to_all(&wrap);
        let ended = wrap.run(&["--profile", "nesting"], &["python3", "-c", SET]);
        if caller.is_root() {
            ended.refused(&["uid 0", "nesting", "--workspace-overlay", "chown"]);
            assert!(!wrap.work().join("tool").exists());
        } else {
            assert_eq!(ended.success(), "0\n");
            assert_ne!(wrap.outside(&format!("python3 -c '{}'", WHOSE.replace('\'', "\""))), "0\n");
        }
    }

    /// The ways out that the hint names.
    fn an_overlay_or_another_owner_make_no_capability_of_the_host(caller) {
        let wrap = Wrap::new(caller);
        open_to_all(&wrap);
        let ended = wrap.run(&["--profile", "nesting", "--workspace-overlay"], &["python3", "-c", SET]);
        ended.success();
        assert!(!wrap.work().join("tool").exists());
        if caller.is_root() {
            chown(wrap.work(), Some(65432), Some(65432)).unwrap();
            assert_eq!(wrap.run(&["--profile", "nesting"], &["python3", "-c", SET]).success(), "0\n");
            assert_eq!(wrap.outside(&format!("python3 -c '{}'", WHOSE.replace('\'', "\""))), "65432\n");
        }
    }

    /// A tree that no other user reaches may be uid 0's.
    fn a_closed_tree_is_roots_alone(caller) {
        let wrap = Wrap::new(caller);
        wrap.place.close();
        assert_eq!(wrap.run(&["--profile", "nesting"], &["true"]).code(), 0);
    }
}
