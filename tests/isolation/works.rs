//! What legitimate programs need works inside: a wall that breaks them is switched off by its users.

use super::wrapped::Wrap;

/// Runs a Python program in the sandbox; it must end well and say `done`.
fn python(wrap: &Wrap, program: &str) {
    wrap.place.make_file("work/program.py", program);
    let said = wrap.sh("/usr/bin/python3 program.py && echo done").success();
    assert!(said.ends_with("done\n"), "{said}");
}

as_each_caller! {
    fn python_with_threads_processes_semaphores_and_shared_memory(caller) {
        python(&Wrap::new(caller), "
import threading, multiprocessing as mp
from multiprocessing import shared_memory
def double(n): return 2 * n
if __name__ == '__main__':
    hits = []
    threads = [threading.Thread(target=hits.append, args=(n,)) for n in range(200)]
    [t.start() for t in threads]; [t.join() for t in threads]
    assert len(hits) == 200
    for method in ('fork', 'spawn'):
        with mp.get_context(method).Pool(2) as pool: assert pool.map(double, range(4)) == [0, 2, 4, 6]
    with mp.Semaphore(1): pass
    memory = shared_memory.SharedMemory(create=True, size=4096); memory.buf[0] = 7; memory.close(); memory.unlink()
");
    }

    fn two_hundred_threads_at_once(caller) {
        python(&Wrap::new(caller), "
import threading
gate = threading.Barrier(201)
threads = [threading.Thread(target=gate.wait) for _ in range(200)]
[t.start() for t in threads]; gate.wait(); [t.join() for t in threads]
");
    }

    fn sockets_of_ones_own(caller) {
        python(&Wrap::new(caller), "
import os, socket, threading
def pair(family, address):
    server = socket.socket(family); server.bind(address); server.listen()
    client = socket.socket(family); client.connect(server.getsockname())
    peer, _ = server.accept(); peer.sendall(b'hello'); assert client.recv(5) == b'hello'
pair(socket.AF_INET, ('127.0.0.1', 0)); pair(socket.AF_INET, ('127.1.2.3', 0)); pair(socket.AF_INET6, ('::1', 0))
pair(socket.AF_UNIX, '/tmp/s'); pair(socket.AF_UNIX, os.getcwd() + '/s'); pair(socket.AF_UNIX, '\\0own')
assert socket.getaddrinfo('localhost', 80)[0][4][0] in ('127.0.0.1', '::1')
a, b = socket.socketpair(); r, w = os.pipe(); socket.send_fds(a, [b'x'], [w]); fds = socket.recv_fds(b, 1, 1)[1]; os.write(fds[0], b'y')
assert os.read(r, 1) == b'y'
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); udp.bind(('127.0.0.1', 0)); udp.sendto(b'z', udp.getsockname()); assert udp.recv(1) == b'z'
");
    }

    fn event_loops(caller) {
        python(&Wrap::new(caller), "
import ctypes, os, select, signal, struct
libc = ctypes.CDLL(None, use_errno=True)
def check(value):
    if value < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return value
watch = check(libc.inotify_init1(0)); check(libc.inotify_add_watch(watch, b'.', 0x100)); open('made', 'w').close()
assert b'made' in os.read(watch, 4096)
event, timer = check(libc.eventfd(0, 0)), check(libc.timerfd_create(1, 0))
check(libc.timerfd_settime(timer, 0, struct.pack('qqqq', 0, 0, 0, 1000), None)); os.write(event, struct.pack('Q', 1))
poll = select.epoll(); poll.register(event, select.EPOLLIN); poll.register(timer, select.EPOLLIN)
seen = set()
while len(seen) < 2: seen |= {fd for fd, _ in poll.poll()}
mask = (ctypes.c_ulong * 16)(1 << (signal.SIGUSR1 - 1)); check(libc.sigprocmask(0, mask, None))
signals = check(libc.signalfd(-1, mask, 0)); os.kill(os.getpid(), signal.SIGUSR1); assert len(os.read(signals, 128)) == 128
os.close(os.pidfd_open(os.getpid()))
");
    }

    /// Every JIT needs it.
    fn memory_that_is_written_and_executed(caller) {
        python(&Wrap::new(caller), "
import ctypes, mmap, os, platform
code = {'x86_64': b'\\xb8\\x2a\\0\\0\\0\\xc3', 'aarch64': b'\\x40\\x05\\x80\\x52\\xc0\\x03\\x5f\\xd6'}[platform.machine()]
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC); page.write(code)
assert ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))() == 42
file = os.memfd_create('program', 0); os.write(file, open('/bin/true', 'rb').read())
pid = os.fork()
if pid == 0: os.execve(file, ['true'], {})
assert os.waitpid(pid, 0)[1] == 0
pid = os.posix_spawn('/bin/true', ['true'], {}); assert os.waitpid(pid, 0)[1] == 0
");
    }

    fn a_pseudo_terminal_of_ones_own(caller) {
        python(&Wrap::new(caller), "
import os, pty, termios
pid, master = pty.fork()
if pid == 0:
    os.execvp('sh', ['sh', '-c', 'tty; stty size >/dev/null; test -t 0 && echo terminal > /dev/tty'])
said = b''
try:
    while chunk := os.read(master, 1024): said += chunk
except OSError: pass
assert os.waitpid(pid, 0)[1] == 0 and b'/dev/pts/' in said and b'terminal' in said, said
");
        let wrap = Wrap::new(caller);
        assert!(wrap.sh("script -qec 'tty' /dev/null").success().contains("/dev/pts/"));
    }

    /// By their numbers, as threads and tools such as taskset(1) and renice(1) name them.
    fn scheduling_of_ones_own_threads_and_children(caller) {
        python(&Wrap::new(caller), "
import os, resource, subprocess, threading
child = subprocess.Popen(['sleep', '1000'])
def tunes():
    for who in (threading.get_native_id(), os.getpid(), child.pid, 0):
        os.sched_setaffinity(who, os.sched_getaffinity(who))
        os.sched_setscheduler(who, os.SCHED_BATCH, os.sched_param(0))
        os.setpriority(os.PRIO_PROCESS, who, os.getpriority(os.PRIO_PROCESS, who) + 1)
        resource.prlimit(0 if who == threading.get_native_id() else who, resource.RLIMIT_NOFILE, (64, 64))
thread = threading.Thread(target=tunes); thread.start(); thread.join()
os.setpriority(os.PRIO_PGRP, os.getpgrp(), 7)
assert os.getpriority(os.PRIO_PROCESS, child.pid) == 7
child.kill()
");
    }

    /// In a directory of a team, that gives its group to what is made in it.
    fn directories_below_one_that_passes_its_group_on(caller) {
        let wrap = Wrap::new(caller);
        wrap.outside("mkdir team team/sub && chmod 2775 team team/sub && echo x >team/sub/file");
        let script = "cd team && cp -r sub copy && mkdir new && mkdir -m 775 other && stat -c %a copy new && cat copy/file";
        assert_eq!(wrap.sh(script).success(), "2755\n2755\nx\n");
    }

    fn tracing_ones_own_children(caller) {
        let wrap = Wrap::new(caller);
        let traced = wrap.sh("strace -f -o trace sh -c 'true; /bin/true' && grep -c 'execve(\"/bin/true' trace").success();
        assert_eq!(traced.trim(), "1");
        let debugged = wrap.sh("gdb -q -batch -ex 'break main' -ex run -ex bt -ex kill /bin/true 2>&1 | cat");
        assert!(!debugged.stdout.contains("ptrace: "), "{debugged:?}");
    }

    fn node_runs(caller) {
        let wrap = Wrap::new(caller);
        let program = "const {Worker} = require('worker_threads'), {execSync} = require('child_process'), http = require('http');
            new Worker('require(\"worker_threads\").parentPort.postMessage(1)', {eval: true}).on('message', () => {
              const server = http.createServer((_, answer) => answer.end('served')).listen(0, '127.0.0.1', () =>
                http.get({port: server.address().port}, answer => answer.on('data', text => {
                  console.log(text + ' ' + execSync('echo child').toString().trim()); server.close(); })));
            }); require('fs').watch('.').close();";
        assert_eq!(wrap.run(&[], &["node", "-e", program]).success(), "served child\n");
    }

    fn a_program_is_compiled_and_run(caller) {
        let wrap = Wrap::new(caller);
        wrap.place.make_file("work/p.c", "#include <stdio.h>\n#include <unistd.h>\n#include <sys/wait.h>\nint main(void) { if (vfork() == 0) _exit(3); int s; wait(&s); return printf(\"%d\\n\", WEXITSTATUS(s)) < 0; }\n");
        wrap.place.make_file("work/Makefile", "p: p.c\n\tgcc -O1 -o $@ $<\n");
        assert_eq!(wrap.sh("make -s -j2 && ./p").success(), "3\n");
    }

    fn a_shell_with_jobs_pipes_and_here_documents(caller) {
        let wrap = Wrap::new(caller);
        let script = "set -e; set -o pipefail; seq 100 | sort -rn | head -1 2>&-|| true; cat <<< here; diff <(echo a) <(echo a); \
            sleep 0 & wait $!; trap 'echo bye' EXIT; exec 5<>/tmp/f; echo x >&5; (ulimit -n 64; true); printf '%s\\n' \"${BASH_VERSION:0:1}\" >/dev/null";
        assert_eq!(wrap.run(&[], &["/bin/bash", "-c", script]).success(), "100\nhere\nbye\n");
    }

    /// The streams are the caller's own: bytes pass as they are, to the end.
    fn standard_streams_are_the_callers(caller) {
        use std::io::{Read, Write};
        let wrap = Wrap::new(caller);
        let mut process = crate::support::process::Process::start(&wrap.place, wrap.command(&[], &["/bin/cat"]));
        let (mut stdin, mut stdout) = (process.take_stdin(), process.take_stdout());
        let sent: Vec<u8> = (0..1_000_000u32).map(|n| n.to_ne_bytes()[0]).collect();
        let writer = { let sent = sent.clone(); std::thread::spawn(move || stdin.write_all(&sent).unwrap()) };
        let mut got = Vec::new();
        stdout.read_to_end(&mut got).unwrap();
        writer.join().unwrap();
        assert!(got == sent, "a million bytes, unchanged");
        assert!(process.wait().success());
    }
}
