//! Files as standard streams where landlock says nothing of files (`--profile nesting`): what was opened for reading is
//! not written, and what was opened for writing is not read. The program has a pipe, and the caller does not notice.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::wrapped::{Ended, Wrap};
use crate::support::caller::Caller;

/// A shell of the caller that runs `saggar wrap --profile nesting --quiet-degraded -- /bin/sh -c PROGRAM` where `outside` says `"$@"`.
fn nested(wrap: &Wrap, outside: &str, program: &str) -> Ended {
    wrap.started_by_shell(outside, &["--profile", "nesting", "--quiet-degraded"], &["/bin/sh", "-c", program])
}

fn closed(caller: Caller) -> Wrap {
    let wrap = Wrap::new(caller);
    wrap.place.close();
    wrap
}

/// A file that anybody could open, did they find it.
fn open_file(wrap: &Wrap, name: &str, content: &str) -> std::path::PathBuf {
    let file = wrap.place.make_file(name, content);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    file
}

as_each_caller! {
    /// By /proc/self/fd a file is what its user may do with it, and not what it was opened for.
    fn a_file_is_not_opened_for_more_than_was_given(caller) {
        let wrap = closed(caller);
        let (input, output) = (open_file(&wrap, "in", "INPUT"), open_file(&wrap, "out", "OLD\n"));
        // What is in the pipe is the program's own, and would not come out if it read that.
        let program = "(dd if=/proc/self/fd/1 of=stolen iflag=nonblock) 2>&-; cat; \
            (echo x >/proc/self/fd/0) 2>&-; (echo x >/dev/stdin) 2>&-; exit 0";
        nested(&wrap, "exec \"$@\" <../in >>../out", program).success();
        assert_eq!(fs::read_to_string(input).unwrap(), "INPUT", "it was given for reading");
        assert_eq!(fs::read_to_string(output).unwrap(), "OLD\nINPUT");
        assert!(!fs::read_to_string(wrap.work().join("stolen")).unwrap_or_default().contains("OLD"));
    }

    /// A file without a name, as a here-document is.
    fn a_removed_file_is_not_written(caller) {
        let wrap = closed(caller);
        open_file(&wrap, "in", "INPUT");
        let outside = "exec 3<../in; rm ../in; \"$@\" <&3; cat /proc/self/fd/3";
        let ended = nested(&wrap, outside, "(echo x >/proc/self/fd/0) 2>&-; exit 0").success();
        assert_eq!(ended, "INPUT", "and the caller reads what the program left");
    }

    /// The descriptor is the caller's too: what the program did not read is left to it.
    fn the_caller_reads_on_where_the_program_stopped(caller) {
        let wrap = closed(caller);
        let text: String = (0..100_000).map(|number| format!("{number}\n")).collect();
        open_file(&wrap, "in", &text);
        let script = "exec <../in; \"$@\"; cat";
        let ended = nested(&wrap, script, "dd bs=1 count=7 2>&-; exit 0").success();
        assert_eq!(ended, text, "nothing twice, and nothing lost");
    }

    /// All of it, in order, before saggar ends; both streams where both are one file.
    fn output_arrives_whole_and_in_order(caller) {
        let wrap = closed(caller);
        let output = open_file(&wrap, "out", "");
        let program = "n=0; while [ $n -lt 500 ]; do echo $n; echo $n >&2; n=$((n + 1)); done; head -c 1000000 /dev/zero";
        nested(&wrap, "exec \"$@\" >../out 2>&1", program).success();
        let lines: Vec<u8> = (0..500).flat_map(|number| format!("{number}\n{number}\n").into_bytes()).collect();
        let written = fs::read(output).unwrap();
        assert!(written.starts_with(&lines), "in order");
        assert_eq!(written.len(), lines.len() + 1_000_000, "whole");
    }

    /// A program that ends in another way than by its own will leaves nothing waiting.
    fn unread_input_file_does_not_delay_the_exit(caller) {
        let wrap = closed(caller);
        open_file(&wrap, "in", &"x".repeat(1 << 20));
        assert_eq!(nested(&wrap, "\"$@\" <../in", "kill -9 $$").code(), 128 + 9);
        assert_eq!(nested(&wrap, "\"$@\" <../in", "exit 3").code(), 3);
    }
}
