//! KC-01: nothing of one session is to be seen from another.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use super::stage::{Sessions, agent, supervisor, text};

/// The kinds of namespaces that a sandbox has for itself.
const NAMESPACES: [&str; 7] = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"];

/// Says what it can reach of the other session: its words are the paths to try, then an abstract name.
const LOOK: &str = "import os, socket, sys
seen = [path for path in sys.argv[1:-1] if os.path.lexists(path)]
seen += [entry for entry in os.listdir('/proc') if entry.isdigit() and b'show.py' in open(f'/proc/{entry}/cmdline', 'rb').read()]
seen += open('/proc/sysvipc/shm').read().splitlines()[1:]
try:
    socket.socket(socket.AF_UNIX).connect('\\0' + sys.argv[-1])
    seen.append(sys.argv[-1])
except OSError:
    pass
print('seen:', seen)
sys.exit(len(seen))
";

/// Leaves something of each kind to be seen, and stays.
const SHOW: &str = "import ctypes, socket, sys, time
listener = socket.socket(socket.AF_UNIX)
listener.bind('\\0' + sys.argv[1])
listener.listen()
assert ctypes.CDLL(None).shmget(1234, 4096, 0o1666) >= 0
open('/tmp/told-apart', 'w').write('x')
open('up', 'w').write('x')
time.sleep(1000)
";

as_each_caller! {
    /// KC-01: files, processes, sockets and shared memory of one are nothing to the other, and neither shares a
    /// namespace with the other or with the host.
    fn kc_01_sessions_are_isolated_from_each_other(caller) {
        // Nobody but root sees into a supervisor.
        if !crate::support::caller::Caller::current().is_root() {
            skip!("this test needs to be started as root");
        }
        let sessions = Sessions::new(caller);
        let place = &sessions.stage.place;
        place.make_file("work/show.py", SHOW);
        place.make_file("work/look.py", LOOK);
        let all = ["one", "two"].map(|name| sessions.create(name, &[]));

        let own = |pid: u32, kind: &str| fs::read_link(format!("/proc/{pid}/ns/{kind}")).unwrap();
        for kind in NAMESPACES {
            let mut seen: BTreeSet<PathBuf> = all.iter().map(|session| own(supervisor(session).pid(), kind)).collect();
            assert_eq!(seen.len(), 1, "supervisors are the host's");
            seen.extend(all.iter().map(|session| inside(session, kind)));
            assert_eq!(seen.len(), 3, "{kind}");
        }

        let name = format!("apart-{}", std::process::id());
        let said = sessions.send("one", &format!("run: setsid python3 show.py {name} & until test -s up; do :; done"));
        assert!(said.contains("code 0"), "{said}");
        let found = |session: &str, paths: &[String]| {
            let said = sessions.send(session, &format!("run: python3 look.py {} {name}", paths.join(" ")));
            let code = said.rsplit(' ').next().and_then(|code| code.parse::<usize>().ok());
            code.unwrap_or_else(|| panic!("{said}"))
        };
        let paths = ["directory", "workspace", "bridgeSocket", "controlSocket"].map(|field| text(&all[0], field));
        let paths = [paths.to_vec(), vec!["/tmp/told-apart".to_owned()]].concat();
        // The other sees none of it, though its own eyes are good: the first sees what is its own.
        assert_eq!(found("two", &paths), 0);
        let own_things = [text(&all[0], "workspace"), "/tmp/told-apart".to_owned()];
        assert_eq!(found("one", &own_things), 5, "two paths, a process, shared memory, a socket");
    }
}

/// A namespace of the sandbox's agent.
fn inside(session: &serde_json::Value, kind: &str) -> PathBuf {
    fs::read_link(format!("/proc/{}/ns/{kind}", agent(session).pid())).unwrap()
}
