//! The process of a container.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use saggar::launch::container::ConsoleTarget;
use saggar::plan::container::{ContainerFilter, SeccompListener};
use saggar::spec::container::Capabilities;
use saggar::sys::scm;
use saggar::sys::seccomp::SockFilter;

use super::Caller;
use super::bundle::{Bundle, Output, wait};

const CHOWN: u64 = 1;
const KILL: u64 = 1 << 5;
const SETUID: u64 = 1 << 7;

pub(crate) fn capabilities(caller: Caller) {
    let sets = |bundle: &Bundle| -> Vec<u64> {
        let said = bundle.said();
        let set =
            |name: &str| said.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
        let all = ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"];
        all.map(|name| u64::from_str_radix(&set(name), 16).unwrap()).into()
    };
    let script = "cat /proc/self/status";
    let mut bundle = Bundle::new(caller, script);
    bundle.process().capabilities = Capabilities {
        bounding: CHOWN | KILL | SETUID,
        effective: CHOWN,
        permitted: CHOWN | KILL,
        inheritable: KILL,
        ambient: KILL,
    };
    bundle.process().uid = 7;
    bundle.process().gid = 7;
    // As execve makes them for another user than root: what is ambient, and nothing else (capabilities(7)).
    assert_eq!(sets(&bundle), [KILL, KILL, KILL, CHOWN | KILL | SETUID, KILL]);
    bundle.process().uid = 0;
    bundle.process().capabilities.inheritable = 0;
    bundle.process().capabilities.ambient = 0;
    bundle.process().no_new_privs = false;
    let bounding = CHOWN | KILL | SETUID;
    assert_eq!(sets(&bundle), [0, bounding, bounding, bounding, 0]);
    // What the kernel does not know, and what nobody here has, is left out.
    bundle.process().capabilities.bounding |= 1 << 24 | 1 << 60;
    let ours = saggar::sys::caps::known_and_bounding().1;
    assert_eq!(sets(&bundle)[3], bounding | (ours & 1 << 24));
}

pub(crate) fn settings(caller: Caller) {
    let script = "umask; id -G; nice; ulimit -n; ulimit -Hn; cat /proc/self/oom_score_adj; pwd; ionice; ps -o cls= -p $$";
    let mut bundle = Bundle::new(caller, script);
    let process = bundle.process();
    process.umask = Some(0o027);
    process.groups = vec![20, 30];
    process.rlimits = vec![(libc::RLIMIT_NOFILE as i32, 100, 200)];
    process.oom_score_adj = Some(500);
    process.program.cwd = "/made/for/it".into();
    process.io_priority = Some(2 << 13 | 6);
    process.scheduler = Some(saggar::spec::container::SchedulerAttributes {
        policy: libc::SCHED_BATCH as u32,
        nice: 5,
        ..Default::default()
    });
    let said = bundle.said();
    let lines: Vec<_> = said.lines().map(str::trim).collect();
    let expected = ["0027", "0 20 30", "5", "100", "200", "500", "/made/for/it", "best-effort: prio 6", "B"];
    assert_eq!(lines, expected);
}

pub(crate) fn descriptors(caller: Caller) {
    let mut bundle = Bundle::new(caller, "ls /proc/self/fd | wc -l");
    let (leak, _other) = nix::unistd::pipe().unwrap();
    // The three streams, and the directory that ls reads.
    assert_eq!(bundle.said(), "4\n");
    for number in [3, 4] {
        // SAFETY: a number that nothing else has here.
        assert_eq!(unsafe { libc::dup2(leak.as_raw_fd(), number) }, number);
    }
    bundle.options.preserve_fds = 2;
    assert_eq!(bundle.said(), "6\n");
    bundle.options.preserve_fds = 40;
    let error = bundle.create().unwrap_err().to_string();
    assert!(error.starts_with("--preserve-fds 40: descriptor") && error.ends_with("is not open"), "{error}");
    std::mem::forget(leak);
}

pub(crate) fn home(caller: Caller) {
    let mut bundle = Bundle::new(caller, "echo $HOME");
    assert_eq!(bundle.said(), "/root\n");
    bundle.process().program.env.push(("HOME".into(), "/mine".into()));
    assert_eq!(bundle.said(), "/mine\n");
    if caller == Caller::Root {
        bundle.process().program.env.pop();
        bundle.process().program.env.push(("HOME".into(), "".into()));
        for (uid, home) in [(7, "/home/some\n"), (8, "/\n")] {
            bundle.process().uid = uid;
            assert_eq!(bundle.said(), home);
        }
    }
}

pub(crate) fn missing_program(caller: Caller) {
    let mut bundle = Bundle::new(caller, "");
    fs::write(bundle.root().join("plain"), "").unwrap();
    fs::write(bundle.root().join("script"), "#!/no/interpreter\n").unwrap();
    let mode = |name: &str| {
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(bundle.root().join(name), executable).unwrap();
    };
    mode("script");
    for (program, status, says) in [
        ("nope", 127, "exec: \"nope\": executable file not found in $PATH"),
        ("/nope", 127, "exec: \"/nope\": stat /nope: no such file or directory"),
        ("/plain", 126, "exec: \"/plain\": permission denied"),
        ("/usr", 126, "exec: \"/usr\": is a directory: permission denied"),
    ] {
        let process = bundle.container.process.as_mut().unwrap();
        process.program.argv = vec![program.into()];
        let error = bundle.create().unwrap_err();
        assert_eq!((error.to_string().as_str(), error.code().exit_status()), (says, status));
    }
    bundle.process().program.argv = vec!["/script".into()];
    let init = bundle.create().unwrap();
    let error = bundle.start(&init).unwrap_err();
    assert_eq!(error.to_string(), "exec /script: no such file or directory");
    wait(&init);
}

/// CVE-2024-21626: a descriptor of the host's tree as the working directory.
pub(crate) fn working_directory(caller: Caller) {
    let mut bundle = Bundle::new(caller, "pwd");
    let host = saggar::sys::file::duplicate(fs::File::open("/").unwrap().as_raw_fd()).unwrap();
    // SAFETY: a number that nothing else has here.
    unsafe { libc::dup2(host.as_raw_fd(), 3) };
    bundle.options.preserve_fds = 1;
    for cwd in ["/proc/self/fd/3", "/proc/self/fd/3/var", "/link"] {
        symlink("/proc/self/fd/3", bundle.root().join("link")).ok();
        bundle.process().program.cwd = cwd.into();
        let error = bundle.create().unwrap_err().to_string();
        assert!(error.contains("not inside of the container"), "{cwd}: {error}");
    }
    bundle.process().program.cwd = "/etc/passwd".into();
    let error = bundle.create().unwrap_err().to_string();
    assert_eq!(error, "chdir to cwd (\"/etc/passwd\") set in config.json failed: not a directory");
}

pub(crate) fn terminal(caller: Caller) {
    let mut bundle = Bundle::new(caller, "tty; stty size; test -c /dev/console && ps -o tty= -p $$; exit 3");
    bundle.process().terminal = true;
    bundle.process().console_size = Some((101, 33));
    bundle.process().program.env.push(("TERM".into(), "xterm".into()));
    let error = bundle.create().unwrap_err();
    assert!(error.to_string().contains("no process takes the terminal"), "{error}");

    let init = bundle.create_with(ConsoleTarget::Keep).unwrap();
    bundle.start(&init).unwrap();
    let mut master = fs::File::from(init.terminal.as_ref().unwrap().try_clone().unwrap());
    let mut said = Vec::new();
    let mut buffer = [0; 256];
    // The end of a terminal is EIO.
    while let Ok(len @ 1..) = master.read(&mut buffer) {
        said.extend_from_slice(&buffer[..len]);
    }
    assert_eq!(String::from_utf8_lossy(&said), "/dev/pts/0\r\n33 101\r\npts/0\r\n");
    assert!(matches!(wait(&init), nix::sys::wait::WaitStatus::Exited(_, 3)));

    let path = bundle.dir.path().join("console.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let init = bundle.create_with(ConsoleTarget::Socket(&path)).unwrap();
    let (stream, _) = listener.accept().unwrap();
    let mut name = [0; 64];
    let mut received = scm::receive(std::os::fd::AsFd::as_fd(&stream), &mut name).unwrap();
    assert_eq!(&name[..received.len], b"/dev/pts/0");
    let mut master = fs::File::from(received.fds[0].take().unwrap());
    bundle.start(&init).unwrap();
    assert!(master.read(&mut name).unwrap() > 0);
    let _ = master.write_all(b"\n");
    wait(&init);
}

fn op(code: u32, jt: u8, jf: u8, k: u32) -> SockFilter {
    SockFilter { code: u16::try_from(code).unwrap(), jt, jf, k }
}

/// Answers `answer` to each of these calls, and lets the others pass.
pub(crate) fn answering(calls: &[libc::c_long], answer: u32) -> Vec<SockFilter> {
    let mut program = vec![op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
    for call in calls {
        program.push(op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, u32::try_from(*call).unwrap()));
        program.push(op(libc::BPF_RET | libc::BPF_K, 0, 0, answer));
    }
    program.push(op(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW));
    program
}

pub(crate) fn filter(caller: Caller) {
    let script = "mkdir /tmp/x 2>&1; grep -E 'NoNewPrivs|Seccomp:|CapEff' /proc/self/status";
    for no_new_privs in [true, false] {
        let mut bundle = Bundle::new(caller, script);
        bundle.process().no_new_privs = no_new_privs;
        // Not CAP_SYS_ADMIN, which the load without no_new_privs needs.
        bundle.process().capabilities.bounding = KILL;
        bundle.process().capabilities.permitted = KILL;
        bundle.process().capabilities.effective = KILL;
        let refused = libc::SECCOMP_RET_ERRNO | libc::EUSERS as u32;
        // Everything that a runtime might still call between the load and execve, by which it would die.
        let mut program = answering(&[libc::SYS_mkdir, libc::SYS_mkdirat], refused);
        let deadly =
            [libc::SYS_capset, libc::SYS_seccomp, libc::SYS_sendmsg, libc::SYS_setresuid, libc::SYS_accept4];
        let more = answering(&deadly, libc::SECCOMP_RET_KILL_PROCESS);
        program.pop();
        program.extend(&more[1..]);
        bundle.filter = Some(ContainerFilter { program, flags: 0, listener: None });
        let said = bundle.said();
        assert!(said.contains("Too many users"), "{said}");
        assert!(said.contains(&format!("NoNewPrivs:\t{}", u8::from(no_new_privs))), "{said}");
        assert!(said.contains("Seccomp:\t2") && said.contains("CapEff:\t0000000000000020"), "{said}");
    }
}

/// A filter that traps the very calls by which its descriptor could be handed over, and execve itself.
pub(crate) fn listener(caller: Caller) {
    let mut bundle = Bundle::new(caller, "mkdir /tmp/x 2>&1; true");
    let calls = [libc::SYS_execve, libc::SYS_sendmsg, libc::SYS_sendto, libc::SYS_mkdir];
    let path = bundle.dir.path().join("listener.sock");
    let asks = answering(&calls, libc::SECCOMP_RET_USER_NOTIF);
    let heard = SeccompListener { path: path.clone(), metadata: Some("meta".to_owned()) };
    bundle.filter = Some(ContainerFilter { program: asks, flags: 0, listener: Some(heard) });
    let output = Output::catch();
    let init = bundle.create().unwrap();
    let without = bundle.start(&init).unwrap_err().to_string();
    assert!(without.contains("linux.seccomp.listenerPath"), "{without}");

    let socket = UnixListener::bind(&path).unwrap();
    // SAFETY: one thread; the child answers and exits.
    let answers = match unsafe { nix::unistd::fork() }.unwrap() {
        nix::unistd::ForkResult::Child => {
            super::heap::may_be_used();
            let told = answer_all(&socket);
            let right = told.contains("\"metadata\":\"meta\"") && told.contains("seccompFd");
            std::process::exit(i32::from(!right));
        }
        nix::unistd::ForkResult::Parent { child } => child,
    };
    bundle.start(&init).unwrap();
    let said = output.end();
    assert!(said.contains("Too many users"), "{said}");
    wait(&init);
    let status = nix::sys::wait::waitpid(answers, None).unwrap();
    assert!(matches!(status, nix::sys::wait::WaitStatus::Exited(_, 0)), "{status:?}");
}

/// Answers every notification until the container is gone: mkdir fails with EUSERS, the others go on.
fn answer_all(socket: &UnixListener) -> String {
    let (stream, _) = socket.accept().unwrap();
    let mut buffer = [0; 4096];
    let mut received = scm::receive(std::os::fd::AsFd::as_fd(&stream), &mut buffer).unwrap();
    let fd = received.fds[0].take().unwrap();
    // "exactly one container process state per connection", which is closed then (config-linux.md, Seccomp).
    let after = scm::receive(std::os::fd::AsFd::as_fd(&stream), &mut [0; 16]);
    assert!(after.is_err() || after.is_ok_and(|more| more.len == 0));
    const RECV: libc::c_ulong = 0xc050_2100;
    const SEND: libc::c_ulong = 0xc018_2101;
    loop {
        let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd.
        unsafe { libc::poll(&raw mut poll, 1, 10_000) };
        if poll.revents & libc::POLLIN == 0 {
            return String::from_utf8_lossy(&buffer[..received.len]).into_owned();
        }
        // SAFETY: zeroed plain data.
        let mut asked: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel fills the struct.
        if unsafe { libc::ioctl(fd.as_raw_fd(), RECV, &raw mut asked) } != 0 {
            continue;
        }
        let refuse = i64::from(asked.data.nr) == libc::SYS_mkdir;
        let go_on = if refuse { 0 } else { libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32 };
        let error = if refuse { -libc::EUSERS } else { 0 };
        let answer = libc::seccomp_notif_resp { id: asked.id, val: 0, error, flags: go_on };
        // SAFETY: the kernel reads the struct.
        unsafe { libc::ioctl(fd.as_raw_fd(), SEND, &raw const answer) };
    }
}

pub(crate) fn sysctl(caller: Caller) {
    let mut bundle = Bundle::new(caller, "cat /proc/sys/net/ipv4/ip_forward /proc/sys/kernel/shmmax");
    let before = fs::read_to_string("/proc/sys/kernel/shmmax").unwrap();
    bundle.container.sysctl.insert("net.ipv4.ip_forward".into(), "1".into());
    bundle.container.sysctl.insert("kernel.shmmax".into(), "12345678".into());
    assert_eq!(bundle.said(), "1\n12345678\n");
    assert_eq!(fs::read_to_string("/proc/sys/kernel/shmmax").unwrap(), before);
    for (name, says) in [
        ("kernel.panic", "it would change the host"),
        ("net.../panic", "no name of a kernel parameter"),
        ("net.ipv4.nope", "no such file or directory"),
    ] {
        bundle.container.sysctl = [(name.to_owned(), "1".to_owned())].into();
        let error = bundle.create().unwrap_err().to_string();
        assert!(error.contains(says), "{name}: {error}");
    }
}
