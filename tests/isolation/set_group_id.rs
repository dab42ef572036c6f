//! The set-group-ID bit, which a directory may have and a file may not: every call that sets it, by every way to name what
//! it is for. A script does the same outside of a sandbox and inside.

use std::os::unix::fs::PermissionsExt;

use super::wrapped::Wrap;
use crate::bridge::served::Stage;
use crate::support::caller::Caller;

/// A network by policy has another process receive the notifications of the filter.
const NETWORKS: [&[&str]; 2] = [&[], &["--allow-host", "four.example:443"]];

/// Sets modes of directories, in a directory of its own, and prints what each call said and left.
const SETS: &str = r#"
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
CALLS = dict(chmod=90, fchmod=91, fchmodat=268, fchmodat2=452)
AT_FDCWD, NOFOLLOW, EMPTY = -100, 0x100, 0x1000
def call(name, *args):
    args = [a.encode() if isinstance(a, str) else a for a in args]
    done = libc.syscall(CALLS[name], *[ctypes.c_char_p(a) if isinstance(a, bytes) else ctypes.c_long(a) for a in args])
    return 0 if done == 0 else ctypes.get_errno()
os.mkdir('tried'); os.chdir('tried')
for name in 'a', 'a/b', 'a/b/c': os.mkdir(name)
here = os.getcwd()
os.symlink('a/b', 'near'); os.symlink(here + '/a/b', 'far'); os.symlink('near', 'a/dangling'); os.symlink('..', 'a/up')
os.mkdir('long'); os.chdir('long')
for _ in range(12): os.mkdir('x' * 255); os.chdir('x' * 255)
os.chdir(here)
inner = os.open('a/b', os.O_RDONLY); path = os.open('a/b', os.O_PATH); top = os.open('.', os.O_RDONLY)
mode = 0o2700
def tried(name, *args, at='a/b'):
    global mode
    # Each time another one.
    mode = 0o2700 | (mode + 1) & 0o77
    said = call(name, *[mode if a is ... else a for a in args])
    left = os.stat(at).st_mode & 0o7777
    print(name, [a for a in args if a is not ...], said, left == mode)
names = ['a/b', here + '/a/b', './a/../a/b/', 'near', 'far', 'near/../b', 'far/.', 'a/up/a/b', '//' + here + '/near', 'a/b/c/..',
         'none', 'a/dangling', 'none/a', '', '/none', 'x' * 256, 'a/' * 3000, '/proc/self/fd/%d' % inner,
         '/dev/fd/%d' % inner, '/proc/self/fd/99']
for name in names:
    tried('chmod', name, ...)
    tried('fchmodat', AT_FDCWD, name, ...)
    tried('fchmodat', top, name, ...)
    tried('fchmodat2', top, name, ..., 0)
os.chdir('a/b/c')
for name in ['..', '../../b', '../../../far', '../c/..', here + '/far']: tried('chmod', name, ..., at='..')
for name in ['c/..', '.', '../b', '../../near', here + '/far', '']:
    tried('fchmodat', inner, name, ..., at='..')
    tried('fchmodat2', inner, name, ..., EMPTY, at='..')
os.chdir(here)
tried('fchmod', inner, ...)
tried('fchmod', 99, ...); tried('fchmod', -1, ...)
tried('fchmodat', 99, 'a/b', ...); tried('fchmodat', 99, here + '/a/b', ...); tried('fchmodat', -7, 'a', ...)
tried('fchmodat2', path, '', ..., EMPTY); tried('fchmodat2', AT_FDCWD, 'a/b', ..., NOFOLLOW)
tried('fchmodat2', AT_FDCWD, 'a/b', ..., 4)
tried('chmod', 8, ...); tried('chmod', -1, ...)
os.chdir('a/b'); os.rmdir('c'); os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')
print('gone', call('chmod', '.', 0o2700), call('chmod', 'none', 0o2700))
os.chdir(here)
deep = 'long/' + '/'.join(['x' * 255] * 12)
os.chdir(deep)
print('deep', call('chmod', '.', 0o2711), os.stat('.').st_mode & 0o7777, call('chmod', 'x' * 255, 0o2711))
"#;

/// A file never gets the bit, however it is named.
const REFUSES: &str = r#"
import errno, os, socket
open('file', 'w').close(); os.mkfifo('fifo'); os.symlink('file', 'link'); socket.socket(socket.AF_UNIX).bind('socket')
file = os.open('file', os.O_RDWR)
for sets in [lambda: os.chmod('file', 0o2755), lambda: os.chmod('link', 0o2755), lambda: os.chmod('fifo', 0o2666),
             lambda: os.chmod('socket', 0o2666), lambda: os.fchmod(file, 0o2755), lambda: os.fchmod(file, 0o3755),
             lambda: os.chmod('/proc/self/fd/%d' % file, 0o2755),
             lambda: os.mkdir('d') or os.chmod('d', 0o6755)]:
    try: sets()
    except PermissionError as error: assert error.errno == errno.EPERM, error
    else: raise SystemExit('a call went through')
for name in os.listdir('.'): assert not os.lstat(name).st_mode & 0o6000, name
print('refused')
"#;

as_each_caller! {
    fn a_directory_gets_it_as_on_the_host(caller) {
        let wrap = Wrap::new(caller);
        wrap.place.make_file("work/sets.py", SETS);
        let outside = wrap.outside("python3 sets.py && rm -r tried");
        assert!(outside.lines().filter(|line| line.ends_with("0 True")).count() > 40, "{outside}");
        for network in NETWORKS {
            let inside = wrap.run(network, &["/bin/sh", "-c", "python3 sets.py && rm -r tried"]).success();
            let differs: Vec<_> = outside.lines().zip(inside.lines()).filter(|(one, other)| one != other).collect();
            assert!(differs.is_empty() && outside.lines().count() == inside.lines().count(), "{network:?}: {differs:#?}");
        }
    }

    fn a_file_does_not_get_it(caller) {
        for network in NETWORKS {
            let wrap = Wrap::new(caller);
            assert_eq!(wrap.run(network, &["python3", "-c", REFUSES]).success(), "refused\n");
        }
    }

    /// What teams and build tools do.
    fn tools_that_share_directories_work(caller) {
        let wrap = Wrap::new(caller);
        wrap.outside("mkdir -m 2775 team && mkdir team/sub && echo x >team/sub/file && tar -cf team.tar team");
        let script = "set -e
git init -q --shared repository; cp -a team copy; cp -r team plain; install -d -m 2775 installed
mkdir unpacked; tar -xpf team.tar -C unpacked; rm -r team.tar; mkdir -m 2775 made; chmod -R g+s made
python3 -c 'import shutil; shutil.copytree(\"team\", \"tree\")'
stat -c '%a %n' repository/.git/objects copy copy/sub plain installed unpacked/team tree made";
        let told = wrap.sh(script).success();
        assert_eq!(told, wrap.outside(&format!("rm -r repository copy plain installed tree unpacked made
tar -cf team.tar team; {script}")));
        assert_eq!(told.matches("2775 ").count(), 6, "{told}");
    }

    /// The agent's sandbox has another loop.
    fn an_agent_gives_it_to_a_directory(caller) {
        let stage = Stage::new(caller);
        let served = stage.serve(&["--adapter", "demo"]);
        let told = served.connect().exec("mkdir d && chmod 2750 d && stat -c %a d", 30_000);
        assert_eq!(told["stdout"], "2750\n", "{told}");
    }

    /// Many wait at once, and each is answered.
    fn many_callers_are_served(caller) {
        let script = "for i in $(seq 60); do (mkdir d$i && for j in 1 2 3; do chmod g-s d$i; chmod g+s d$i || echo failed; done) & done
wait; stat -c %a d* | sort | uniq -c | tr -s ' '";
        for network in NETWORKS {
            let wrap = Wrap::new(caller);
            let mode = wrap.outside("mkdir d && stat -c %a d && rmdir d");
            assert_eq!(wrap.run(network, &["/bin/sh", "-c", script]).success(), format!(" 60 2{mode}"), "{network:?}");
        }
    }

    /// The path changes while the call waits, in memory and on the disk: it names a file, or a directory.
    fn a_path_that_changes_gives_it_to_no_file(caller) {
        let wrap = Wrap::new(caller);
        let script = r#"
import ctypes, os, threading
libc = ctypes.CDLL(None)
os.mkdir('d'); open('f', 'w').close(); os.symlink('d', 'l'); ends = False
path = ctypes.create_string_buffer(b'd')
def changes_memory():
    while not ends: path[0] = b'f'; path[0] = b'd'
def changes_link():
    while not ends:
        for to in 'f', 'd': os.symlink(to, 'new'); os.rename('new', 'l')
threads = [threading.Thread(target=t, daemon=True) for t in (changes_memory, changes_link)]
for t in threads: t.start()
given = 0
for _ in range(300):
    for name in path, b'l':
        given += libc.chmod(name, 0o2755) == 0
        assert not os.stat('f').st_mode & 0o2000
        os.chmod('d', 0o755)
ends = True
for t in threads: t.join()
assert 0 < given < 600, given
"#;
        wrap.run(&[], &["python3", "-c", script]).success();
    }

    /// A path means what it means inside: links lead nowhere else.
    fn what_is_outside_stays_as_it_is(caller) {
        let wrap = Wrap::new(caller);
        let private = wrap.place.make_dir("private", 0o755);
        let script = format!("ln -s {0} link; ln -s ../private near
for name in {0} link near ../private ../../../../../../../{0} /proc/1/root/{0} /proc/1/cwd/../private; do
    chmod 2777 $name 2>/dev/null && echo $name
done; true", private.display());
        for options in [&[][..], &["--ro", private.to_str().unwrap()]] {
            assert_eq!(wrap.run(options, &["/bin/sh", "-c", &format!("rm -f link near; {script}")]).success(), "");
            assert_eq!(private.metadata().unwrap().permissions().mode() & 0o7000, 0);
        }
    }
}

/// The process that sets the mode for a program has the program's ids, and not those of root.
#[test]
fn a_directory_of_somebody_else_stays_as_it_is() {
    let Ok(caller) = Caller::root() else {
        skip!("this test needs to be started as root: only root gives directories away")
    };
    let wrap = Wrap::new(caller);
    wrap.outside(
        "mkdir -m 777 other && chown 54321:54321 other && mkdir -m 777 own && chown $(stat -c %u:%g .) own",
    );
    let tries = "for name in other own; do chmod 2777 $name 2>/dev/null; echo $?; done; stat -c %a other own";
    assert_eq!(wrap.sh(tries).success(), "1\n0\n777\n2777\n");
}
