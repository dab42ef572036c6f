//! saggar's own executable, where its file is the user's: nothing inside executes it or changes it, though it lies on a
//! mount of the host.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::wrapped::{Ended, Wrap};

/// What the programs of a sandbox may call the file of the process that executes them.
const NAMES: [&str; 3] = ["/proc/self/exe", "/proc/thread-self/exe", "/proc/self/task/../exe"];

/// A copy of saggar that belongs to the caller.
fn own_copy(wrap: &Wrap) -> PathBuf {
    let copy = wrap.place.make_file("own-saggar", "");
    // By a process of its own: a descriptor for writing that another test's child inherits would keep it busy.
    let copied = std::process::Command::new("cp").arg(crate::support::binary::saggar()).arg(&copy).status();
    assert!(copied.unwrap().success(), "copy saggar");
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    copy
}

fn run(wrap: &Wrap, saggar: &Path, profile: &str, program: &[&str]) -> Ended {
    let mut command = wrap.place.command(saggar);
    command.args(["wrap", "--profile", profile, "--"]).args(program);
    wrap.finish(command)
}

as_each_caller! {
    /// A `#!` line, a link or a path that means "the file of this process" is not saggar's, whoever owns that.
    fn no_name_of_a_program_leads_to_it(caller) {
        let wrap = Wrap::new(caller);
        wrap.place.close();
        let saggar = own_copy(&wrap);
        for profile in ["strict", "nesting"] {
            for (number, name) in NAMES.into_iter().enumerate() {
                let script = wrap.place.make_file(&format!("work/script-{profile}-{number}"), &format!("#!{name}\n"));
                fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
                let link = script.with_extension("link");
                symlink(name, &link).unwrap();
                for path in [script, link] {
                    // Inside the name is the same; on the host, where saggar looks for programs, it is not asked for.
                    let shell = format!("exec {0} --version", path.display());
                    let path = path.to_str().unwrap();
                    for program in [&[path, "--version"][..], &["/bin/sh", "-c", &shell]] {
                        let ended = run(&wrap, &saggar, profile, program);
                        let all = [ended.stdout.as_str(), &ended.stderr].concat();
                        assert!(!all.contains("commit:") && !all.contains("Usage:"), "{profile} {program:?}: {ended:?}");
                    }
                }
            }
        }
    }

    /// No process shows the file, so that none can open it, and with it change its mode.
    fn no_process_shows_the_executable_of_saggar(caller) {
        let wrap = Wrap::new(caller);
        wrap.place.close();
        let saggar = own_copy(&wrap);
        let script = "for exe in /proc/[0-9]*/exe; do readlink $exe; (exec 3<$exe) 2>&- && readlink -f $exe; done; \
            (chmod 0 /proc/1/exe) 2>&- && echo changed; exit 0";
        for profile in ["strict", "nesting"] {
            let ended = run(&wrap, &saggar, profile, &["/bin/sh", "-c", script]).success();
            assert!(!ended.contains("saggar") && !ended.contains("changed"), "{profile}: {ended}");
            assert!(ended.contains("/sh\n") || ended.contains("/dash\n"), "{profile} shows its own: {ended}");
        }
        assert_eq!(fs::metadata(&saggar).unwrap().permissions().mode() & 0o7777, 0o755);
    }
}
