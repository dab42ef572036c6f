//! Standard streams by their names: a program opens what it was given, whatever that is, and gets no more of it.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use serde_json::json;

use super::wrapped::Wrap;
use crate::bridge::served::Stage;
use crate::control::client::{ControlClient, serve, socket};
use crate::support::caller::Caller;

/// The names of a stream by its number; `>>`, since a shell's `>` would empty a file, as on the host.
fn names(stream: usize) -> [String; 4] {
    let word = ["stdin", "stdout", "stderr"][stream];
    [
        format!("/dev/{word}"),
        format!("/dev/fd/{stream}"),
        format!("/proc/self/fd/{stream}"),
        format!("/proc/$$/fd/{stream}"),
    ]
}

/// Writes a line by each name of the stream, and says on another stream, or in its status, what failed.
fn writes(stream: usize) -> String {
    names(stream).map(|name| format!("echo x >>{name} || exit 1; ")).concat()
}

/// Opens the input by each name, and then reads all of it by the first.
fn reads() -> String {
    let opens = names(0)[1..].iter().map(|name| format!(": <{name} || exit 1; ")).collect::<String>();
    format!("{opens} head -c 4 </dev/stdin")
}

/// Kinds of outputs: what a shell does to have the program write to one, and to show what came.
const OUTPUTS: [(&str, &str); 10] = [
    ("a pipe", "\"$@\" STREAM>&1 | cat"),
    ("a file", "\"$@\" STREAM>../out; cat ../out"),
    ("a file that grows", "\"$@\" STREAM>>../out; cat ../out"),
    ("a private file", "umask 077; \"$@\" STREAM>../out; cat ../out"),
    ("a removed file", "exec 3>../out 4<../out; rm ../out; \"$@\" STREAM>&3; cat <&4"),
    ("a FIFO", "mkfifo ../out; cat ../out & \"$@\" STREAM>../out; wait"),
    ("a FIFO that everybody may write to", "mkfifo -m 666 ../out; cat ../out & \"$@\" STREAM>../out; wait"),
    ("a private file for both", "umask 077; \"$@\" STREAM<>../out; cat ../out"),
    ("a file that everybody may write to for both", "umask 0; \"$@\" STREAM<>../out; cat ../out"),
    ("a null device", "\"$@\" STREAM>/dev/null && printf 'x\nx\nx\nx\n'"),
];

/// Kinds of inputs, of which each is `text`.
const INPUTS: [(&str, &str); 10] = [
    ("a pipe", "printf text | \"$@\""),
    ("a file", "\"$@\" <../in"),
    ("a private file", "chmod 600 ../in; \"$@\" <../in"),
    ("a removed file", "exec 3<../in; rm ../in; \"$@\" <&3"),
    ("a FIFO", "mkfifo ../fifo; exec 3<>../fifo; printf text >&3; \"$@\" <../fifo"),
    ("a private FIFO", "mkfifo -m 600 ../fifo; exec 3<>../fifo; printf text >&3; \"$@\" <../fifo"),
    ("a file without a path", "exec /usr/bin/python3 -c \"$IN_MEMORY\" \"$@\""),
    ("a private file for both", "chmod 600 ../in; \"$@\" <>../in"),
    ("a private FIFO for both", "mkfifo -m 600 ../fifo; exec 3<>../fifo; printf text >&3; \"$@\" <>../fifo"),
    ("a null device", "\"$@\" </dev/null && printf text"),
];

/// Starts its arguments but the first with a log that has `text` as that stream, opened for both.
const APPEND: &str = "import os, sys\nfd = os.open('../log', os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)\nos.write(fd, b'text')\nos.dup2(fd, int(sys.argv[1]))\nos.execv(sys.argv[2], sys.argv[2:])";

/// Runs its arguments with a log as input and as the stream of errors, and then writes what is left of it to the output.
const SHARED_LOG: &str = "import os, subprocess, sys\nfd = os.open('../log', os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)\nos.write(fd, b'0123456789')\nos.lseek(fd, 0, 0)\nos.dup2(fd, 0)\nos.dup2(fd, 2)\nsubprocess.call(sys.argv[1:])\nos.write(1, os.read(fd, 99))";

/// Starts its arguments with a memfd as input.
const IN_MEMORY: &str = "import os, sys\nfd = os.memfd_create('in')\nos.write(fd, b'text')\nos.lseek(fd, 0, 0)\nos.dup2(fd, 0)\nos.execv(sys.argv[1], sys.argv[1:])";

as_each_caller! {
    fn outputs_of_any_kind_open_by_name(caller) {
        for (kind, outside) in OUTPUTS {
            for stream in [1, 2] {
                let wrap = Wrap::new(caller);
                let outside = outside.replace("STREAM", if stream == 1 { "1" } else { "2" });
                let quiet = ["--quiet-degraded"];
                let ended = wrap.started_by_shell(&outside, &quiet, &["/bin/sh", "-c", &writes(stream)]);
                assert_eq!(ended.stdout, "x\n".repeat(4), "{kind} as stream {stream}: {ended:?}");
                assert_eq!(ended.stderr, "", "{kind} as stream {stream}");
            }
        }
    }

    fn inputs_of_any_kind_open_by_name(caller) {
        for (kind, outside) in INPUTS {
            let wrap = Wrap::new(caller);
            wrap.place.make_file("in", "text");
            let outside = format!("IN_MEMORY=\"{IN_MEMORY}\"; {outside}");
            let ended = wrap.started_by_shell(&outside, &[], &["/bin/sh", "-c", &reads()]);
            assert_eq!(ended.stdout, "text", "{kind}: {ended:?}");
        }
    }

    /// What is open for both directions opens for either.
    fn what_is_open_for_both_opens_for_either(caller) {
        let of_a_fifo = "printf by-name >/dev/STREAM && head -c 7 </dev/STREAM >>seen && printf by-number >&NUMBER && head -c 9 <&NUMBER >>seen";
        let of_a_log = "printf +name >>/dev/STREAM && head -c 9 </dev/STREAM >>seen && printf +number >&NUMBER && cat </dev/STREAM >>seen";
        let append = "exec /usr/bin/python3 -c \"$APPEND\" NUMBER \"$@\"";
        let kinds = [
            ("a private FIFO", "mkfifo -m 600 ../file; exec NUMBER<>../file; \"$@\"", of_a_fifo, "by-nameby-number"),
            ("a private log", append, of_a_log, "text+nametext+name+number"),
        ];
        for (kind, starts, program, seen) in kinds {
            for (number, name) in [("0", "stdin"), ("1", "stdout"), ("2", "stderr")] {
                let wrap = Wrap::new(caller);
                let told = |text: &str| text.replace("NUMBER", number).replace("STREAM", name);
                let outside = format!("umask 077; APPEND=\"{APPEND}\"; {}", told(starts));
                let ended = wrap.started_by_shell(&outside, &["--quiet-degraded"], &["/bin/sh", "-c", &told(program)]);
                assert_eq!(fs::read_to_string(wrap.work().join("seen")).unwrap_or_default(), seen, "{kind} as {name}: {ended:?}");
            }
        }
    }

    /// Duplicates of one log have one offset, for the program and for its caller afterwards.
    fn a_log_for_both_is_read_on_where_the_program_stopped(caller) {
        let wrap = Wrap::new(caller);
        let outside = format!("exec /usr/bin/python3 -c \"{SHARED_LOG}\" \"$@\"");
        let ended = wrap.started_by_shell(&outside, &["--quiet-degraded"], &["/bin/sh", "-c", "head -c 3 >seen"]);
        assert_eq!(ended.stdout, "3456789", "{ended:?}");
        assert_eq!(fs::read_to_string(wrap.work().join("seen")).unwrap(), "012");
    }

    /// A file of root has its one offset also where it is open for both, and so a pipe in its place: nobody waits there for
    /// what the program is to write itself. What two write at once is all there.
    fn a_file_for_both_keeps_its_offset(caller) {
        let wrap = Wrap::new(caller);
        let outside = "umask 077; printf text >../file; mkfifo a b; exec 1<>../file; (read go <a; printf B; echo go >b) & \"$@\"; wait; printf D";
        let program = "exec 2>wrong; (cat </dev/stdout >seen); printf A; echo go >a; read go <b; printf C";
        wrap.started_by_shell(outside, &["--quiet-degraded"], &["/bin/sh", "-c", program]);
        let mut written = fs::read(wrap.place.join("file")).unwrap();
        written.sort_unstable();
        assert_eq!(written, *b"ABCD");
        let text = |name: &str| fs::read_to_string(wrap.work().join(name)).unwrap_or_default();
        let (seen, wrong) = (text("seen"), text("wrong"));
        match caller.is_root() {
            true => assert!(seen.is_empty() && wrong.contains("Permission denied"), "{seen} {wrong}"),
            false => assert_eq!(seen, "text"),
        }
    }

    /// As on the host (unix(7): ENXIO).
    fn a_socket_does_not_open_by_name(caller) {
        let wrap = Wrap::new(caller);
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut command = wrap.command(&[], &["/bin/sh", "-c", "LC_ALL=C; (: </dev/stdin) 2>&1; read line && echo $line"]);
        command.stdin(Stdio::from(OwnedFd::from(theirs))).stderr(Stdio::null());
        std::io::Write::write_all(&mut &ours, b"by number\n").unwrap();
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("No such device or address") && said.ends_with("by number\n"), "{output:?}");
    }

    /// A name gives what the number gives: no reading of what was opened for writing, and the other way round.
    fn a_file_does_not_open_for_more_by_name(caller) {
        let wrap = Wrap::new(caller);
        let input = wrap.place.make_file("in", "INPUT");
        let output = wrap.place.make_file("out", "OLD");
        let program = "(: </dev/stdout) 2>&- && echo read >read; cat /dev/stdin; (echo x >/dev/stdin) 2>&- && echo wrote >written; exit 0";
        wrap.started_by_shell("\"$@\" <../in >>../out", &[], &["/bin/sh", "-c", program]).success();
        assert_eq!(fs::read_to_string(input).unwrap(), "INPUT");
        assert_eq!(fs::read_to_string(output).unwrap(), "OLDINPUT");
        assert!(!wrap.work().join("read").exists() && !wrap.work().join("written").exists());
    }

    /// What a copier did not hand on is left to the caller, and what it was given is not lost.
    fn files_of_the_caller_go_on_where_the_program_stopped(caller) {
        let wrap = Wrap::new(caller);
        let text: String = (0..50_000).map(|number| format!("{number}\n")).collect();
        fs::set_permissions(wrap.place.make_file("in", &text), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let outside = "exec <../in >../out; echo before; \"$@\"; cat";
        wrap.started_by_shell(outside, &[], &["/bin/sh", "-c", "dd bs=1 count=7 2>&-; exit 0"]).success();
        assert!(fs::read_to_string(wrap.place.join("out")).unwrap() == format!("before\n{text}"), "nothing twice, nothing lost");
    }

    /// The writer of a FIFO may have nothing to say: that delays no end.
    fn a_silent_fifo_does_not_delay_the_exit(caller) {
        let wrap = Wrap::new(caller);
        let outside = "mkfifo -m 600 ../fifo; exec 3<>../fifo; \"$@\" <../fifo";
        assert_eq!(wrap.started_by_shell(outside, &[], &["/bin/sh", "-c", "exit 3"]).code(), 3);
    }

    /// A reader that goes is heard of by SIGPIPE, and is no failure of saggar.
    fn a_reader_of_a_fifo_may_leave(caller) {
        let wrap = Wrap::new(caller);
        let outside = "mkfifo ../fifo; head -c 1 ../fifo >/dev/null & \"$@\" >../fifo";
        let ended = wrap.started_by_shell(outside, &[], &["/bin/sh", "-c", "while :; do printf 0123456789; done"]);
        assert_eq!(ended.code(), 128 + 13, "{ended:?}");
    }

    /// Commands beside an agent, by both doors, have a null device and two pipes.
    fn streams_of_commands_open_by_name(caller) {
        let stage = Stage::new(caller);
        let served = serve(&stage, &["--adapter", "demo"]);
        let command = format!("{}{}{}", reads(), " && ", [writes(1), writes(2)].concat());
        let expected = "x\n".repeat(4);
        let mut client = served.connect();
        let ended = client.exec(&command, 30_000);
        assert_eq!((&ended["stdout"], &ended["stderr"]), (&json!(expected), &json!(expected)), "{ended}");
        let mut control = ControlClient::connect(&socket(&stage));
        let ended = control.call("exec", &json!({ "command": command }));
        assert_eq!((&ended["stdout"], &ended["stderr"]), (&json!(expected), &json!(expected)), "{ended}");
        served.shut_down(&mut client);
    }

    /// So have the agent itself and the scripts of its folder.
    fn streams_of_an_agent_and_its_scripts_open_by_name(caller) {
        let stage = Stage::new(caller);
        let open = |into: &str| format!("({}: </dev/stdin && echo ok >{into}) 2>>wrong\n", [writes(1), writes(2)].concat());
        stage.script("install.sh", &format!("#!/bin/sh\n{}", open("install")));
        stage.place.make_file("work/startup.sh", &open("startup"));
        let agent = "#!/bin/sh\n(echo x >>/dev/stderr && : >>/dev/stdout && : </dev/stdin && echo ok >by-the-agent) 2>>wrong\nexec cat >/dev/null";
        let served = stage.scripted("stream-json", agent);
        let mut client = served.connect();
        client.send(&json!({ "cmd": "query", "prompt": "x" }));
        // The script itself is `agent`. What it leaves is read when it is written, and not when it is made.
        crate::support::wait::until_written(&stage.work().join("by-the-agent"));
        for name in ["install", "startup", "by-the-agent"] {
            let said = fs::read_to_string(stage.work().join(name)).unwrap_or_default();
            assert_eq!(said, "ok\n", "{name}: {}", fs::read_to_string(stage.work().join("wrong")).unwrap_or_default());
        }
        drop(served);
    }
}

/// Only who has the pipe may open it, whatever its mode is: other users do not see the descriptors.
#[test]
fn a_pipe_for_all_is_for_who_has_it() {
    let (root, user) = match (Caller::root().map_err(String::from), Caller::ordinary()) {
        (Ok(root), Ok(user)) => (root, user),
        (Err(why), _) | (_, Err(why)) => skip!("{why}"),
    };
    let wrap = Wrap::new(root);
    let other = Wrap::new(user);
    let mut command = wrap.command(&[], &["/bin/cat"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"up\n").unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.as_mut().unwrap()), &mut line)
        .unwrap();
    assert_eq!(line, "up\n");
    let tried = other.outside(&format!("(cat </proc/{0}/fd/0; : >/proc/{0}/fd/1) 2>&1; exit 0", child.id()));
    assert!(tried.contains("Permission denied"), "{tried}");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}
