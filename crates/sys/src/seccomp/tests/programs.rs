//! Programs that people and agents run work under the filters. Programs that are not installed are reported on stderr.

use super::kernel::confine;
use crate::seccomp::FilterProfile;
use std::process::{Command, Output};

const AGENT: &[FilterProfile] = &[FilterProfile::Init, FilterProfile::Agent];

fn there(program: &str) -> bool {
    let found =
        Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap().status.success();
    if !found {
        eprintln!("skipped: {program} is not there");
    }
    found
}

fn run(profiles: &[FilterProfile], program: &str, args: &[&str]) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(program);
    command.args(args).current_dir(directory.path()).env("HOME", directory.path());
    confine(&mut command, profiles);
    command.output().unwrap()
}

/// Runs a script if the program `needs` is installed, and asserts that it succeeds.
#[track_caller]
fn works(profiles: &[FilterProfile], needs: &str, args: &[&str]) {
    if there(needs) {
        let output = run(profiles, args[0], &args[1..]);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            output.status.success(),
            "{}\n{}\n{}",
            output.status,
            text(&output.stdout),
            text(&output.stderr)
        );
    }
}

#[test]
fn bash() {
    let script = r#"
        set -eu
        [ "$(seq 1000 | sort -n | tail -1)" = 1000 ]
        diff <(echo a) <(echo a)
        coproc cat; echo hi >&${COPROC[1]}; read -r line <&${COPROC[0]}; [ "$line" = hi ]
        mkfifo pipe; (echo through > pipe) & read -r line < pipe; wait %2 2>/dev/null || wait $!; [ "$line" = through ]
        mkdir -m 1777 sticky; touch file; chmod 755 file; ! chmod u+s file 2>/dev/null; ! chmod g+s sticky 2>/dev/null
        ulimit -n 256; nice -n 1 true; sleep 0.01; trap 'true' USR1; kill -USR1 $$
    "#;
    works(AGENT, "bash", &["bash", "-c", script]);
}

#[test]
fn git() {
    let script = r"
        set -eu
        export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
        git init -q one; cd one; echo x > f; git add .; git commit -qm x
        git checkout -q -b branch; git gc -q; git worktree add -q ../two HEAD; cd ..
        git clone -q one three; git -C three log --oneline | cat; git -C three grep -q x
    ";
    works(AGENT, "git", &["sh", "-c", script]);
}

#[test]
fn python() {
    let script = r"
import asyncio, ctypes, mmap, multiprocessing, os, pty, socket, subprocess, tempfile, threading
if __name__ == '__main__':
    with multiprocessing.get_context('fork').Pool(2) as pool: assert pool.map(abs, [-1, -2]) == [1, 2]
    thread = threading.Thread(target=lambda: None); thread.start(); thread.join()
    assert subprocess.check_output(['echo', 'x']) == b'x\n'
    server = socket.create_server(('127.0.0.1', 0)); client = socket.create_connection(server.getsockname())
    server.accept()[0].send(b'hi'); assert client.recv(2) == b'hi'
    left, right = socket.socketpair(); left.send(b'x'); socket.send_fds(left, [b'x'], [0]); right.recv(1)
    socket.getaddrinfo('localhost', 80)
    async def main():
        process = await asyncio.create_subprocess_exec('true'); assert await process.wait() == 0
    asyncio.run(main())
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC); page[0] = 0xc3
    ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
    master, slave = pty.openpty(); os.write(slave, b'x'); os.read(master, 1)
    pid, fd = pty.fork()
    if pid == 0: os._exit(0)
    os.waitpid(pid, 0)
    os.memfd_create('x'); os.eventfd(0); os.pidfd_open(os.getpid()); os.sched_setaffinity(0, os.sched_getaffinity(0))
    with tempfile.NamedTemporaryFile(dir='/dev/shm' if os.access('/dev/shm', os.W_OK) else None): pass
";
    works(AGENT, "python3", &["python3", "-c", script]);
}

#[test]
fn node() {
    let script = r"
const fs = require('fs'), http = require('http'), cp = require('child_process'), { Worker } = require('worker_threads');
if (cp.execFileSync('echo', ['x']) + '' !== 'x\n') process.exit(2);
fs.cpSync(process.execPath, 'copy'); fs.watch('.').close(); require('os').setPriority(1); require('os').networkInterfaces();
new Worker('require(`worker_threads`).parentPort.postMessage(1)', { eval: true }).on('message', () => {
  const server = http.createServer((_, answer) => answer.end('hi')).listen(0, '127.0.0.1', () =>
    http.get(server.address(), answer => answer.on('data', data => process.exit(data + '' === 'hi' ? 0 : 3))));
});
";
    works(AGENT, "node", &["node", "-e", script]);
}

#[test]
fn compilers() {
    let script = r"
        set -eu
        printf 'int puts(const char *); int main(void) { return puts(\042hi\042) < 0; }' > main.c
        printf 'main: main.c\n\t$(CC) -pipe -o $@ $<\n' > Makefile
        make -s -j2 CC=gcc; ./main
    ";
    if there("make") {
        works(AGENT, "gcc", &["sh", "-c", script]);
    }
    // The compiler itself: rustup's proxy looks for its files in the real home directory.
    if there("rustc") {
        let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().unwrap().stdout;
        let rustc = format!("{}/bin/rustc", String::from_utf8(sysroot).unwrap().trim());
        let rust = "echo 'fn main() { std::thread::spawn(|| ()).join().unwrap() }' > m.rs && $0 m.rs && ./m";
        works(AGENT, &rustc, &["sh", "-c", rust, &rustc]);
    }
}

#[test]
fn debuggers() {
    works(AGENT, "strace", &["strace", "-f", "-o", "/dev/null", "sh", "-c", "true; true"]);
    // strace skips a call by setting its number to -1: the call must fail, not kill the program.
    let inject = "strace -o /dev/null -e inject=uname:error=EIO uname 2>/dev/null; [ $? = 1 ]";
    works(AGENT, "strace", &["sh", "-c", inject]);
    let gdb = "
        echo 'int main(void) { return 0; }' | gcc -g -x c -o main - &&
        gdb -nx -batch -ex 'break main' -ex run -ex continue ./main > log 2>&1
        cat log; grep -q 'Breakpoint 1, main' log && grep -q 'exited normally' log
    ";
    if there("gcc") {
        works(AGENT, "gdb", &["sh", "-c", gdb]);
    }
}

#[test]
fn namespaces_only_under_nesting() {
    if !there("unshare") || !run(&[], "unshare", &["-Urmpf", "true"]).status.success() {
        eprintln!("skipped: no user namespaces for this user");
        return;
    }
    assert!(!run(AGENT, "unshare", &["-Ur", "true"]).status.success());
    works(
        &[FilterProfile::Nesting],
        "unshare",
        &["unshare", "-Urmpfn", "sh", "-c", "mount -t tmpfs none /tmp && hostname"],
    );
    works(
        &[FilterProfile::Nesting],
        "bwrap",
        &["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "true"],
    );
}
