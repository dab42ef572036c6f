//! What the kernel counts to whoever starts a sandbox: programs in it take all that they get, and the starter still has
//! enough.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use nix::sys::resource::{Resource, getrlimit};

use super::wrapped::Wrap;

/// Takes as many as there are, at most so many, and says how many: instances of inotify, message queues, signals.
const TAKE: &str = r#"
import ctypes, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
most, name = int(sys.argv[1]), sys.argv[2]
def until(act):
    count = 0
    while count < most and act(count) >= 0:
        count += 1
    return count
inotify = until(lambda _: libc.inotify_init1(0))
queues = until(lambda n: libc.mq_open(f"/{name}-{n}".encode(), os.O_CREAT | os.O_RDWR, 0o600, None))
number = signal.SIGRTMIN + 3
signal.pthread_sigmask(signal.SIG_BLOCK, {number})
signals = until(lambda _: libc.sigqueue(os.getpid(), number, None))
print(inotify, queues, signals, flush=True)
sys.stdin.read()
for n in range(queues):
    libc.mq_unlink(f"/{name}-{n}".encode())
"#;

fn counts(line: &str) -> Vec<u32> {
    line.split_whitespace().map(|count| count.parse().unwrap()).collect()
}

/// The limit of cores that a program has: 1, unless the caller may have none.
pub(super) fn limit_of_cores() -> u64 {
    getrlimit(Resource::RLIMIT_CORE).unwrap().1.min(1)
}

as_each_caller! {
    /// 16 instances of inotify, 2 message queues, 1000 signals, with two sandboxes that take all they get.
    fn the_starter_keeps_enough_of_what_is_counted_to_it(caller) {
        for profile in ["strict", "nesting"] {
            let wrap = Wrap::new(caller);
            wrap.place.close();
            let hoard = || {
                let mut command = wrap.command(&["--profile", profile], &["python3", "-c", TAKE, "200000", "hoard"]);
                let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
                let mut line = String::new();
                BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
                (child, counts(&line))
            };
            let mut hoards = [hoard(), hoard()];
            let name = wrap.place.path().file_name().unwrap().to_str().unwrap().to_owned();
            let left = wrap.outside(&format!("python3 -c '{TAKE}' 1000 {name} < /dev/null"));
            for (child, _) in &mut hoards {
                drop(child.stdin.take());
                assert!(child.wait().unwrap().success());
            }
            assert!(hoards[0].1.iter().all(|count| *count > 0), "{profile}: some for the sandbox: {hoards:?}");
            let left = counts(&left);
            assert!(left[0] >= 16 && left[1] >= 2 && left[2] >= 1000, "{profile}: {left:?} beside {hoards:?}");
        }
    }

    /// At 1 the kernel starts no core handler of the host's, and no program makes it 0.
    fn the_limit_of_cores_is_one_and_stays(caller) {
        let script = "import resource as r; r.setrlimit(r.RLIMIT_CORE, (0, 0)); print(*r.getrlimit(r.RLIMIT_CORE))";
        let wrap = Wrap::new(caller);
        wrap.place.close();
        let cores = limit_of_cores();
        for profile in ["strict", "nesting"] {
            let said = wrap.run(&["--profile", profile], &["python3", "-c", script]).success();
            assert_eq!(said, format!("{cores} {cores}\n"));
            let crashed = wrap.run(&["--profile", profile], &["sh", "-c", "ulimit -c 0; kill -SEGV $$"]);
            assert_eq!(crashed.code(), 128 + 11, "{crashed:?}");
        }
    }

    /// R4: a stop of a program that has itself traced is no end of it.
    fn a_stop_of_a_traced_program_is_no_exit(caller) {
        let script = "import ctypes, os; ctypes.CDLL(None).ptrace(0, 0, 0, 0); os.kill(os.getpid(), 28)";
        let ended = Wrap::new(caller).run(&["--timeout", "1s"], &["python3", "-c", script]);
        assert_ne!(ended.code(), 128 + 28, "{ended:?}");
    }
}
