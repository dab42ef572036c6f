//! The child of a start touches no heap: not in its steps, not as pid 1, not on the way to execve.
//!
//! The launcher's memory is copied in the middle of whatever it did; a heap that was locked then stays locked.
//! So this binary counts allocations in a page that all of its forks share, apart for the launcher and for
//! everybody else. It has no test harness, since the launcher must have one thread.

#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering::Relaxed};

use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Uid, fork, getpid};
use saggar::host::HostFacts;
use saggar::id::SandboxId;
use saggar::launch::agent::exec::BarrierEvent;
use saggar::launch::agent::{self as launch, LaunchedSandbox};
use saggar::launch::ids;
use saggar::plan::agent::{self as plan, AgentPlan};
use saggar::session::protect;
use saggar::spec::agent::{self, AgentSandboxRequest};
use saggar::spec::policy::{EffectivePolicy, HomeSource, NetworkMode, PolicyLayer, SandboxProfile, Setting};
use saggar::spec::{
    ApiKeySource, HostIdMapping, KeyHeader, MailboxSpec, ModelApiSpec, OverlayUpper, ProgramSpec,
};
use saggar::stage::agent::wire::{ExecFlags, InitReport, InitRequest};

/// Counts what the launcher and what any other process of this binary allocates.
struct Counting;

/// The launcher's pid, 0 while nothing is counted; an inherited copy tells a fork that it is one.
static LAUNCHER: AtomicI32 = AtomicI32::new(0);

/// The shared page: allocations of the launcher, and of its forks.
static COUNTS: AtomicPtr<[AtomicUsize; 2]> = AtomicPtr::new(std::ptr::null_mut());

fn count() {
    let launcher = LAUNCHER.load(Relaxed);
    // SAFETY: null, or the page that `share_counts` mapped for good.
    if let Some(counts) = unsafe { COUNTS.load(Relaxed).as_ref() } {
        let forked = launcher != 0 && launcher != getpid().as_raw();
        counts[usize::from(forked)].fetch_add(1, Relaxed);
    }
}

// SAFETY: everything is left to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // Giving back takes the heap's lock as much as taking does.
        count();
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn share_counts() {
    let (read_write, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address of the kernel's choice.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), 4096, read_write, shared, -1, 0) };
    assert_ne!(page, libc::MAP_FAILED);
    // Zeroed pages are two counters at zero.
    COUNTS.store(page.cast(), Relaxed);
}

fn counts() -> [usize; 2] {
    // SAFETY: `share_counts` was called first in `main`, and nothing unmaps its page.
    let counts = unsafe { COUNTS.load(Relaxed).as_ref() }.expect("the page is mapped");
    counts.each_ref().map(|count| count.load(Relaxed))
}

/// The plan of `wrap` in `work`, and whatever must live as long as the sandbox.
fn plan_in(work: &Path, profile: SandboxProfile) -> (AgentPlan, Option<ids::IdBlock>) {
    plan_with(work, profile, None)
}

/// The same with the work tree under an overlay.
fn plan_with(
    work: &Path,
    profile: SandboxProfile,
    changes: Option<OverlayUpper>,
) -> (AgentPlan, Option<ids::IdBlock>) {
    let mut policy = EffectivePolicy::built_in(HomeSource::Tmp);
    policy.profile = Setting::new(profile, &PolicyLayer::CommandLine);
    // With all its steps, those that catch the network among them.
    policy.network = Setting::new(NetworkMode::Policy, &PolicyLayer::CommandLine);
    policy.hosts.allow.push(Setting::new("example.com:443".parse().unwrap(), &PolicyLayer::CommandLine));
    let (map, block) = if Uid::effective().is_root() {
        let block = ids::allocate(policy.ids.range.value.first..=policy.ids.range.value.last).unwrap();
        (HostIdMapping::Block { base: block.base }, Some(block))
    } else {
        (HostIdMapping::Caller { uid: Uid::effective().as_raw(), gid: nix::unistd::getegid().as_raw() }, None)
    };
    let protected = protect::find_protected(work, true, None, &[]);
    protected.create_missing(work).unwrap();
    let asked = AgentSandboxRequest {
        id: SandboxId::random().unwrap(),
        id_mapping: map,
        workspace: work.to_owned(),
        hidden_paths: Vec::new(),
        overlay_upper: changes,
        agent_folder: None,
        home: None,
        program_mounts: Vec::new(),
        runtime_mounts: Vec::new(),
        linkless_mounts: Vec::new(),
        model_api: Some(api()),
        mailbox: Some(mailbox()),
        pinned_paths: protected.pins,
        terminal: true,
        visible_workspace: true,
        reopen_streams: true,
        container: None,
        network_fallback: None,
    };
    let spec = agent::lower_policy(&policy, asked).unwrap();
    (plan::build(&spec, &HostFacts::survey(&spec)).unwrap(), block)
}

/// Its sockets are made inside.
fn api() -> ModelApiSpec {
    ModelApiSpec {
        upstream: "http://127.0.0.1:9".parse().unwrap(),
        header: KeyHeader::ApiKey,
        key: ApiKeySource::Descriptor(0),
        ca_file: None,
    }
}

/// Its socket is made inside, too.
fn mailbox() -> MailboxSpec {
    MailboxSpec { root: "/nowhere".into(), repo: "/nowhere".into(), run: 1, name: "agent".into() }
}

fn program(work: &Path, words: &[&str]) -> ProgramSpec {
    ProgramSpec {
        argv: words.iter().map(Into::into).collect(),
        file: None,
        env: vec![("PATH".into(), "/nowhere:/usr/bin:/bin".into())],
        cwd: work.to_owned(),
    }
}

/// Runs a program behind its gate; how it went through, and how it exited.
fn run(launched: &LaunchedSandbox, id: u32, program: &ProgramSpec, flags: u32) -> (bool, i32) {
    let null = fs::OpenOptions::new().read(true).write(true).open("/dev/null").unwrap();
    let streams = [null.as_fd(), null.as_fd(), null.as_fd()];
    let gate = launched.exec(id, program, streams, flags, false).unwrap();
    let status = loop {
        match launched.next_report().unwrap().expect("pid 1 lives") {
            (InitReport::Exited { id: ended, status, .. }, _) if ended == id => break status,
            (
                InitReport::Ready
                | InitReport::Terminal
                | InitReport::Workspace
                | InitReport::CapturedListener { .. }
                | InitReport::RejectSniffer { .. }
                | InitReport::Listener
                | InitReport::ServiceListener(_),
                _,
            ) => {}
            (other, _) => panic!("{other:?}"),
        }
    };
    // The program has ended, so its gate has said everything.
    loop {
        match gate.poll_event(OsStr::new("program")) {
            BarrierEvent::Waiting(_) => {}
            BarrierEvent::Executed => return (true, status),
            BarrierEvent::Failed(_) => return (false, status),
            BarrierEvent::Pending => panic!("a gate that is closed says so"),
        }
    }
}

fn no_heap(work: &Path, profile: SandboxProfile) {
    let (plan, _block) = plan_in(work, profile);
    no_heap_for(&plan, work);
}

/// To lay an overlay, paths are written and directories made.
fn no_heap_on_an_overlay(work: &Path, profile: SandboxProfile) {
    let upper = work.with_file_name("upper");
    fs::create_dir(&upper).unwrap();
    let (plan, _block) = plan_with(work, profile, Some(OverlayUpper::Directory(upper.clone())));
    no_heap_for(&plan, work);
    assert!(upper.join("changes").is_dir(), "the overlay was laid");
    // The overlay's own directory has no mode at all: an ordinary user could not remove it.
    fs::set_permissions(upper.join("work/work"), fs::Permissions::from_mode(0o700)).unwrap();
}

/// Starts a sandbox, runs programs that succeed, fail and cannot be run, has signals sent, and counts.
fn no_heap_for(plan: &AgentPlan, work: &Path) {
    let [launcher_before, forks_before] = counts();
    let launched = launch::start(plan, None, || Ok(())).unwrap();
    assert_eq!(run(&launched, 1, &program(work, &["true"]), 0), (true, 0));
    assert_eq!(run(&launched, 2, &program(work, &["sh", "-c", "(sleep 0 &); kill -9 $$"]), 0), (true, 9));
    assert!(!run(&launched, 3, &program(work, &["no-such-program"]), 0).0);
    assert!(!run(&launched, 4, &program(&work.join("missing"), &["true"]), 0).0);
    launched.send(InitRequest::Signal { id: 9, signal: Signal::SIGTERM as i32, group: false }, &[]).unwrap();
    assert_eq!(run(&launched, 5, &program(work, &["true"]), ExecFlags::MAIN), (true, 0));
    assert!(launched.next_report().unwrap().is_none(), "pid 1 ends with the last program");
    launched.kill_and_reap();
    let [launcher, forks] = counts();
    assert!(launcher > launcher_before, "the launcher's allocations are seen");
    assert_eq!(forks - forks_before, 0, "allocations in the child");
}

/// A step that fails reports without a heap too.
fn no_heap_on_failure(work: &Path, _: SandboxProfile) {
    let (mut plan, _block) = plan_in(work, SandboxProfile::Strict);
    // The kernel is asked for a host name that is too long, late in the walk.
    let mut steps = plan.steps.as_slice().to_vec();
    for step in &mut steps {
        if let plan::step::AgentStep::Hostname { name } = step {
            *name = std::ffi::CString::new("x".repeat(100)).unwrap();
        }
    }
    plan.steps = plan::step::AgentSteps::new(steps, plan.landlock.as_ref()).unwrap();
    let [_, before] = counts();
    let launched = launch::start(&plan, None, || Ok(())).unwrap();
    let failed = loop {
        match launched.next_report().unwrap() {
            Some((InitReport::StepFailed { errno, .. }, _)) => break errno,
            Some(_) => {}
            None => panic!("a failed step is told"),
        }
    };
    assert_eq!(failed, libc::EINVAL);
    launched.kill_and_reap();
    assert_eq!(counts()[1] - before, 0, "allocations in the child");
}

/// Landlock is the second view of the same files: what a step mounts and the domain does not name stays shut.
fn a_forgotten_mount_is_shut(work: &Path, _: SandboxProfile) {
    use saggar::plan::agent::step::{AgentStep, AgentSteps, BindSource};
    let (mut plan, _block) = plan_in(work, SandboxProfile::Strict);
    // Beside the workspace: landlock knows files, not paths, and the workspace is open by whatever way.
    let beside = work.with_file_name("beside");
    fs::write(&beside, "").unwrap();
    // Not the owner's rights decide: as root the owner inside is another.
    fs::set_permissions(&beside, PermissionsExt::from_mode(0o666)).unwrap();
    let mut steps = plan.steps.as_slice().to_vec();
    let at = steps.iter().position(|step| *step == AgentStep::ChangeRoot).unwrap();
    let forgotten = [
        AgentStep::Mkdir { path: c"forgotten".into(), mode: 0o755 },
        AgentStep::Bind {
            source: BindSource::System(c"/var".into()),
            path: c"forgotten".into(),
            writable: true,
            device: false,
        },
    ];
    steps.splice(at..at, forgotten);
    plan.steps = AgentSteps::new(steps, plan.landlock.as_ref()).unwrap();
    let launched = launch::start(&plan, None, || Ok(())).unwrap();
    let file = format!("/forgotten/{}", beside.strip_prefix("/var").unwrap().display());
    let script =
        format!("test -e {file} || exit 2; cat {file} && exit 3; (echo x >{file}) && exit 4; exit 0");
    assert_eq!(run(&launched, 1, &program(work, &["sh", "-c", &script]), ExecFlags::MAIN), (true, 0));
    launched.kill_and_reap();
    // The same without the domain: so it is landlock that shuts it.
    plan.landlock = None;
    let launched = launch::start(&plan, None, || Ok(())).unwrap();
    let script = format!("cat {file} && echo x >{file}");
    assert_eq!(run(&launched, 1, &program(work, &["sh", "-c", &script]), ExecFlags::MAIN), (true, 0));
    launched.kill_and_reap();
}

/// The counter itself: a fork that allocates is seen.
fn a_fork_that_allocates_is_counted(_: &Path, _: SandboxProfile) {
    let [_, before] = counts();
    // SAFETY: this process has one thread; the child allocates once, which is what is tried, and ends.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            drop(std::hint::black_box(Box::new(7)));
            // SAFETY: no condition.
            unsafe { libc::_exit(0) }
        }
        ForkResult::Parent { child } => {
            assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0))
        }
    }
    assert_eq!(counts()[1] - before, 2);
}

/// Runs one test in a fork of its own, as root or as a user; whether it passed.
fn passed(test: fn(&Path, SandboxProfile), profile: SandboxProfile, uid: Uid) -> bool {
    // Programs that nest may write a tree of root's only where nobody else can enter.
    let mode = if matches!(profile, SandboxProfile::Nesting) { 0o700 } else { 0o755 };
    let place = tempfile::Builder::new()
        .prefix("saggar-")
        .permissions(PermissionsExt::from_mode(mode))
        .tempdir_in("/var/tmp")
        .unwrap();
    let work = place.path().join("work");
    fs::create_dir_all(work.join(".git/hooks")).unwrap();
    fs::write(work.join(".git/config"), "").unwrap();
    for path in [place.path(), &work, &work.join(".git"), &work.join(".git/hooks"), &work.join(".git/config")]
    {
        chown(path, Some(uid.as_raw()), Some(uid.as_raw())).unwrap();
    }
    // SAFETY: this process has one thread.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            if uid != Uid::effective() {
                nix::unistd::setgroups(&[]).unwrap();
                nix::unistd::setgid(nix::unistd::Gid::from_raw(uid.as_raw())).unwrap();
                nix::unistd::setuid(uid).unwrap();
                // A change of ids gives /proc/self to root: the launcher writes its child's maps there.
                nix::sys::prctl::set_dumpable(true).unwrap();
            }
            LAUNCHER.store(getpid().as_raw(), Relaxed);
            let outcome = std::panic::catch_unwind(|| test(&work, profile));
            // SAFETY: no condition; destructors of the parent's must not run here.
            unsafe { libc::_exit(i32::from(outcome.is_err())) }
        }
        ForkResult::Parent { child } => waitpid(child, None).unwrap() == WaitStatus::Exited(child, 0),
    }
}

fn main() -> ExitCode {
    // What cargo passes to a harness: `--list` asks for names, anything else to run.
    if std::env::args().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    share_counts();
    let own = Uid::effective();
    // A user that no account has, so that it owns nothing; as in `support::caller`.
    let users = if own.is_root() { vec![own, Uid::from_raw(65432)] } else { vec![own] };
    type Test = (&'static str, fn(&Path, SandboxProfile), SandboxProfile);
    let tests: [Test; 6] = [
        ("a_fork_that_allocates_is_counted", a_fork_that_allocates_is_counted, SandboxProfile::Strict),
        ("strict", no_heap, SandboxProfile::Strict),
        ("nesting", no_heap, SandboxProfile::Nesting),
        ("an_overlay", no_heap_on_an_overlay, SandboxProfile::Strict),
        ("a_failed_step", no_heap_on_failure, SandboxProfile::Strict),
        ("a_forgotten_mount_is_shut", a_forgotten_mount_is_shut, SandboxProfile::Strict),
    ];
    let (mut good, mut bad) = (0, 0);
    println!("\nrunning {} tests", tests.len() * users.len());
    for user in users {
        for (name, test, profile) in tests {
            let ok = passed(test, profile, user);
            *(if ok { &mut good } else { &mut bad }) += 1;
            println!("test {name}::as_user_{user} ... {}", if ok { "ok" } else { "FAILED" });
        }
    }
    let result = if bad == 0 { "ok" } else { "FAILED" };
    println!("\ntest result: {result}. {good} passed; {bad} failed; 0 ignored; 0 measured; 0 filtered out\n");
    if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
