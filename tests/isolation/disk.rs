//! KC-05: what programs write stops at its limit, in bytes and in inodes, in the write that reaches it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::resources::limit_of_cores;
use super::wrapped::{Ended, Wrap};
use crate::support::caller::Caller;

/// Writes to each directory until it is full, then makes files there until there is no room for one more: the
/// directory, how both ended, how many bytes and how many files there were.
const FILL: &str = r#"
import errno, os, sys
block = b'x' * 4096
for at in sys.argv[1:]:
    size = count = 0
    full = many = 'nothing'
    try:
        with open(at + '/fill', 'wb', 0) as file:
            while size < 1 << 30: size += file.write(block)
    except OSError as e: full = errno.errorcode[e.errno]
    os.unlink(at + '/fill')
    try:
        while count < 20000:
            os.close(os.open(f'{at}/n{count}', os.O_CREAT | os.O_EXCL))
            count += 1
    except OSError as e: many = errno.errorcode[e.errno]
    for n in range(count): os.unlink(f'{at}/n{n}')
    print('full', at, full, size, many, count)
"#;

/// What [`FILL`] says of one directory.
#[derive(Debug, PartialEq)]
struct Full {
    errors: [String; 2],
    bytes: u64,
    files: u64,
}

fn fullness(said: &str) -> BTreeMap<String, Full> {
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().skip_while(|word| !word.ends_with("full")).collect();
        let [_, at, full, bytes, many, files, ..] = words[..] else { panic!("{line}") };
        let errors = [full.to_owned(), many.to_owned()];
        let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("{line}"));
        (at.to_owned(), Full { errors, bytes: number(bytes), files: number(files) })
    };
    said.lines().filter(|line| line.starts_with("full ")).map(line).collect()
}

impl Full {
    /// It ended with one of these errors, and so close below its limits that a few blocks and inodes of the file
    /// system's own are all that is missing.
    #[track_caller]
    fn is_at(&self, errors: &[&str], bytes: u64, inodes: u64) {
        assert!(self.errors.iter().all(|error| errors.contains(&error.as_str())), "{self:?}");
        assert!(self.bytes <= bytes && bytes - self.bytes <= 96 << 10, "{self:?} and {bytes}");
        assert!(self.files <= inodes && inodes - self.files <= 24, "{self:?} and {inodes}");
    }
}

/// The limit that `explain` names, and whether it holds.
fn explained(wrap: &Wrap, options: &[&str], name: &str) -> (String, bool) {
    let mut command = wrap.place.saggar();
    command.args(["explain", "--json"]).args(options);
    let output = command.output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)));
    let row = report["limits"].as_array().unwrap().iter().find(|row| row["name"] == name).unwrap();
    (row["value"].as_str().unwrap().to_owned(), row["holds"] == true)
}

/// The names of every file below `directory` and what is in it.
fn tree(directory: &Path) -> BTreeMap<String, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut left = vec![directory.to_owned()];
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        found.insert(path.display().to_string(), fs::read(&path).ok());
    }
    found
}

/// A workspace with something in it, for an overlay.
fn workspace(caller: Caller) -> Wrap {
    let wrap = Wrap::new(caller);
    wrap.place.make_dir("work/sub", 0o755);
    wrap.place.make_file("work/sub/inner", "lower");
    wrap.place.make_file("work/file", "lower");
    wrap
}

/// The names of the sessions that there are.
fn sessions(wrap: &Wrap) -> Vec<String> {
    let entries = fs::read_dir(wrap.place.join("state/saggar/sessions")).into_iter().flatten();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn sh(script: &str) -> [&str; 3] {
    ["/bin/sh", "-c", script]
}

/// Where the changes were said to be, when they are on disk.
fn kept(ended: &Ended) -> Option<String> {
    ended.stderr.lines().find_map(|line| Some(line.split_once("the changes to it are in ")?.1.to_owned()))
}

as_each_caller! {
    /// Every file system in memory is bounded, also where a program has never been.
    fn every_file_system_in_memory_has_a_size_and_a_number_of_inodes(caller) {
        let wrap = workspace(caller);
        wrap.place.close();
        for options in [&[][..], &["--workspace-overlay"], &["--profile", "nesting"]] {
            let said = wrap.run(options, &["cat", "/proc/self/mountinfo"]).success();
            let memory: Vec<&str> = said.lines().filter(|line| line.contains(" - tmpfs ")).collect();
            assert!(memory.len() >= 6, "{said}");
            for line in memory {
                let bounded = ["size=", "nr_inodes="].iter().all(|option| {
                    let value = line.split([',', ' ']).find_map(|word| word.strip_prefix(option));
                    value.is_some_and(|value| !value.starts_with('0'))
                });
                assert!(bounded, "{line}");
            }
        }
    }

    fn file_systems_in_memory_stop_at_their_size(caller) {
        let wrap = Wrap::new(caller);
        let policy = wrap.place.make_file("policy.toml", "[files]\ntmp_size = \"4M\"\n");
        let options = ["--policy", policy.to_str().unwrap()];
        let said = wrap.run(&options, &["python3", "-c", FILL, "/tmp", "/home/agent", "/run"]).success();
        let full = fullness(&said);
        for at in ["/tmp", "/home/agent"] {
            full[at].is_at(&["ENOSPC"], 4 << 20, 1024);
        }
        full["/run"].is_at(&["ENOSPC"], 16 << 20, 1024);
        let script = "for at in / /dev /var/empty; do (echo x > $at/new) 2>&- && echo wrote $at; done; \
                      dd if=/dev/zero of=/dev/shm/x bs=1M count=1000 2>&-; stat -c %s /dev/shm/x";
        assert_eq!(wrap.run(&options, &sh(script)).success(), format!("{}\n", 256 << 20));
    }

    /// DECISIONS 29. What `explain` says of a limit is what a start does.
    fn a_named_limit_holds_or_is_refused_with_the_cure(caller) {
        let wrap = workspace(caller);
        for limit in [["--disk", "4M"], ["--inodes", "500"], ["--require", "disk"]] {
            assert!(!explained(&wrap, &limit, "disk").1 && !explained(&wrap, &limit, "inodes").1);
            let ended = wrap.run(&limit, &["echo", "ran"]);
            ended.refused(&["cannot hold", "directory of the host", "--workspace-overlay"]);
        }
        let preferred = ["--disk", "4M", "--prefer", "disk"];
        assert_eq!(wrap.run(&preferred, &["echo", "ran"]).success(), "ran\n");

        let limit = ["--workspace-overlay", "--disk", "4M", "--inodes", "500"];
        assert_eq!((explained(&wrap, &limit, "disk").0, explained(&wrap, &limit, "inodes").0), ("4M".into(), "500".into()));
        let ended = wrap.run(&limit, &["python3", "-c", FILL, wrap.work().to_str().unwrap()]);
        if explained(&wrap, &limit, "disk").1 {
            fullness(&ended.success())[wrap.work().to_str().unwrap()].is_at(&["ENOSPC", "EDQUOT"], 4 << 20, 500);
        } else {
            ended.refused(&["cannot hold", "Linux 6.6"]);
        }
        assert_eq!(sessions(&wrap), [""; 0], "nothing is left of what changed nothing");
    }

    /// What nobody named is bounded too, and adds up with what else lies in memory.
    fn overlay_without_a_named_limit_has_the_explained_default(caller) {
        let wrap = workspace(caller);
        let options = ["--workspace-overlay"];
        let (value, holds) = explained(&wrap, &options, "disk");
        let (inodes, _) = explained(&wrap, &options, "inodes");
        if !holds {
            return;
        }
        let said = wrap.run(&options, &sh("df -k --output=size,itotal . | tail -n 1")).success();
        let kibibytes = if value == "512M" { 512 << 10 } else { assert_eq!(value, "1G"); 1 << 20 };
        let said: Vec<&str> = said.split_whitespace().collect();
        assert_eq!(said, [kibibytes.to_string(), inodes]);
    }

    fn changes_on_an_overlay_never_reach_the_work_tree(caller) {
        let wrap = workspace(caller);
        let before = tree(&wrap.work());
        // To replace a directory is what an overlay without its attributes cannot do.
        let script = "rm -r sub; mkdir sub; echo upper > sub/new; echo upper >> file; mv sub moved; rm moved/new; \
                      cat file; ls -A . moved /var/empty; grep -c ' overlay .*,userxattr' /proc/self/mountinfo";
        let ended = wrap.run(&["--workspace-overlay"], &sh(script));
        assert_eq!(ended.code(), 0, "{ended:?}");
        assert_eq!(ended.stdout, "lowerupper\n.:\nfile\nmoved\n\n/var/empty:\n\nmoved:\n1\n");
        assert_eq!(tree(&wrap.work()), before);
        match kept(&ended) {
            Some(changes) => {
                assert_eq!(fs::read_to_string(Path::new(&changes).join("file")).unwrap(), "lowerupper\n");
            }
            None => {
                assert!(ended.stderr.contains("were in memory, and are gone"), "{ended:?}");
                assert_eq!(sessions(&wrap), [""; 0]);
            }
        }
    }

    /// DECISIONS 34: protected paths are under the overlay what they are without it; nothing is made in the work tree.
    fn protected_paths_are_protected_on_an_overlay(caller) {
        let wrap = workspace(caller);
        wrap.place.make_dir("work/.git", 0o755);
        wrap.place.make_file("work/.git/HEAD", "ref: refs/heads/main\n");
        wrap.place.make_file("work/.git/config", "[core]\n");
        wrap.place.make_file("work/.envrc", "");
        let before = tree(&wrap.work());
        let script = "(echo x > .git/config) 2>&- && echo wrote; (echo x > .envrc) 2>&- && echo wrote; \
                      mv .git g 2>&- && echo moved; rm -f .envrc 2>&- && echo removed; touch .git/index && echo fine; \
                      umount . 2>&- && echo unmounted; exit 0";
        let ended = wrap.run(&["--workspace-overlay"], &sh(script));
        assert_eq!(ended.stdout, "fine\n", "{ended:?}");
        assert_eq!(tree(&wrap.work()), before);
        assert!(!ended.stderr.contains("quarantine"), "{ended:?}");
    }

    /// What appears in the work tree meanwhile is not the sandbox's doing.
    fn files_that_other_programs_make_under_an_overlay_stay(caller) {
        let wrap = workspace(caller);
        let fifo = wrap.place.join("work/fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        caller.own(&fifo);
        let command = wrap.command(&["--workspace-overlay"], &sh("echo up; read go"));
        let mut process = crate::support::process::Process::start(&wrap.place, command);
        let (mut stdout, stdin) = (process.take_stdout(), process.take_stdin());
        std::io::Read::read_exact(&mut stdout, &mut [0; 3]).unwrap();
        wrap.place.make_file("work/.bashrc", "of the user");
        drop(stdin);
        process.wait();
        assert_eq!(fs::read_to_string(wrap.work().join(".bashrc")).unwrap(), "of the user");
    }

    /// An overlay would show what lies below the mount. The kernel escapes the space in its mount table.
    fn a_work_tree_with_a_mount_in_it_is_refused(caller) {
        let wrap = workspace(caller);
        for folder in [".", "a folder"] {
            let script = format!("mkdir -p '{folder}/sub' && cd '{folder}' && mount -t tmpfs none sub && exec \"$@\"");
            let mut command = wrap.place.command("/usr/bin/unshare".as_ref());
            command.args(["--user", "--map-root-user", "--mount", "/bin/sh", "-c", &script, "sh"]);
            command.arg(wrap.place.saggar().get_program()).args(["wrap", "--workspace-overlay", "--", "echo", "ran"]);
            let mount = format!("work/{folder}/sub").replace("/./", "/");
            wrap.finish(command).refused(&["something is mounted at", &mount]);
        }
    }

    /// What an agent has on disk is more than its workspace.
    fn an_agents_limit_is_over_its_home_too(caller) {
        let wrap = workspace(caller);
        wrap.place.make_file("work/CLAUDE.md", "# test");
        let agent = |options: &[&str], prompt: &str| {
            let mut command: Command = wrap.place.saggar();
            command.args(["agent", "--adapter", "demo"]).args(options).arg(wrap.work()).arg(prompt);
            wrap.finish(command)
        };
        let folder = wrap.work();
        let folder = folder.to_str().unwrap();
        let named = ["--disk", "8M", "--inodes", "500"];
        let overlay = ["--disk", "8M", "--inodes", "500", "--workspace-overlay"];
        wrap.place.make_file("work/fill.py", FILL);
        for (limit, why) in [(&named[..], "only each file is bounded"), (&overlay, "home")] {
            let explain: Vec<&str> = limit.iter().copied().chain([folder]).collect();
            if explained(&wrap, &explain, "disk").1 {
                let ended = agent(limit, "run: python3 fill.py . $HOME");
                assert_eq!(ended.code(), 0, "{ended:?}");
                let said = ended.stdout.replace("\\n", "\n").replace("\"full", "\nfull");
                let full = fullness(&said);
                assert_eq!(full.len(), 2, "{said}");
                for (_, full) in full {
                    full.is_at(&["EDQUOT", "ENOSPC"], 8 << 20, 500);
                }
            } else {
                let ended = agent(limit, "hi");
                ended.refused(&["cannot hold"]);
                // Before Linux 6.6 a user's overlay has no limit to begin with.
                let because = |words: [&str; 2]| words.iter().all(|word| ended.stderr.contains(word));
                assert!(because([why, "--home tmp"]) || because(["overlay", "Linux 6.6"]), "{ended:?}");
                assert_eq!(sessions(&wrap), [""; 0], "no session is begun");
            }
        }
        let all: Vec<&str> = overlay.iter().copied().chain(["--home", "tmp"]).collect();
        let explain: Vec<&str> = all.iter().copied().chain([folder]).collect();
        if explained(&wrap, &explain, "disk").1 {
            let ended = agent(&all, "run: python3 fill.py . && touch new");
            assert!(ended.stdout.contains("full . "), "{ended:?}");
            assert!(!wrap.work().join("new").exists());
            assert!(ended.stderr.contains("is as it was"), "{ended:?}");
        }
    }

    /// SIGXFSZ is the kernel's word that it was this limit.
    fn exit_by_the_file_size_limit_is_distinguished_from_other_signals(caller) {
        let wrap = Wrap::new(caller);
        let policy = wrap.place.make_file("policy.toml", "[limits]\nfsize = \"1M\"\n");
        let options = ["--policy", policy.to_str().unwrap(), "--status-fd", "1"];
        for (script, signal, limit) in [
            ("exec dd if=/dev/zero of=/tmp/x bs=1M seek=64 count=1 2>&-", libc::SIGXFSZ, Value::from("fsize")),
            ("kill -TERM $$", libc::SIGTERM, Value::Null),
        ] {
            let ended = wrap.run(&options, &sh(script));
            assert_eq!(ended.code(), 128 + signal, "{ended:?}");
            let exited: Value = serde_json::from_str(ended.stdout.lines().last().unwrap()).unwrap();
            let told = (&exited["reason"], &exited["signal"], &exited["limit"]);
            assert_eq!(told, (&"signal".into(), &signal.into(), &limit), "{exited}");
        }
    }

    /// Ptys, files and cores: each has an end of its own.
    fn terminals_files_and_cores_have_their_limits(caller) {
        let wrap = Wrap::new(caller);
        let policy = wrap.place.make_file("policy.toml", "[limits]\nfsize = \"64M\"\nnofile = 200\n");
        let script = r#"
import errno, os, resource
def until(act):
    held = []
    try:
        while True: held.append(act())
    except OSError as e:
        for one in held:
            for fd in (one if isinstance(one, tuple) else (one,)): os.close(fd)
        return len(held), errno.errorcode[e.errno]
print('ptys', *until(os.openpty))
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
print('files', *until(lambda: os.open('/', os.O_RDONLY)))
fd = os.open('/tmp/x', os.O_CREAT | os.O_WRONLY)
os.lseek(fd, (64 << 20) - 1, os.SEEK_SET)
print('size', os.write(fd, b'xx'))
try: os.write(fd, b'x')
except OSError as e: print(errno.errorcode[e.errno])
print(*resource.getrlimit(resource.RLIMIT_CORE))
"#;
        let said = wrap.run(&["--policy", policy.to_str().unwrap()], &["python3", "-c", script]).success();
        let cores = limit_of_cores();
        assert_eq!(said, format!("ptys 64 ENOSPC\nfiles 197 EMFILE\nsize 1\nEFBIG\n{cores} {cores}\n"));
    }
}
