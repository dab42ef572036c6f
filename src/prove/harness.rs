//! Starts the command that runs the probe in a sandbox, reads the probe's output, inspects what the attempts left on
//! the host, and judges the results.

use super::cgroup_limits::CgroupLimits;
use super::context::{GIT_CONFIG, ProbeContext, ProbedPath, SECRET_VARIABLE};
use super::expectation::Expectation;
use super::quotas::{QuotaReport, UserQuota};
use super::report::{AttemptRow, AttemptStatus, ProveReport};
use super::{Attempt, AttemptClass, Boundary, ENTRY, ProbeAnswer, attempts};
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

/// The first argument with which saggar runs as the bystander: a host process that the probe searches for.
pub const BYSTANDER: &str = "__probe-bystander";
/// The executable of this program.
const SELF: &str = "/proc/self/exe";
/// The name of the probe in the workspace.
const PROBE: &str = "probe";
/// Maximum number of bytes of the command's standard error that are kept for an error message.
const MAX_STDERR: u64 = 64 << 10;

/// A scratch directory with the probed files, and the host resources that stay open during the attempts.
#[derive(Debug)]
pub struct ProveHarness {
    context: ProbeContext,
    scratch: PathBuf,
    /// Listening sockets of the host.
    _services: HostServices,
    /// The bystander process and its input. It removes the scratch directory when its input is closed, also by the
    /// death of this process.
    bystander: Option<(Child, ChildStdin)>,
    /// A descriptor that the command inherits and the probe must not.
    _leaked: OwnedFd,
    /// Quotas of which the caller has enough before the attempts.
    quotas: Vec<UserQuota>,
    /// The results of the attempts outside the sandbox.
    control: BTreeMap<String, ProbeAnswer>,
}

/// Limits of the attempts that consume resources.
#[derive(Debug, Clone, Copy)]
pub struct ResourceBounds {
    /// Maximum number of processes.
    pub pids: u32,
    /// Maximum number of bytes on disk.
    pub disk: u64,
}

impl ProveHarness {
    /// Sets up the scratch directory, the services and the bystander.
    ///
    /// # Errors
    /// [`crate::error::Code::System`] if one of them cannot be created.
    pub fn new(bounds: ResourceBounds) -> Result<Self> {
        let base = std::env::var_os("TMPDIR").filter(|name| !name.is_empty()).map(PathBuf::from);
        let template = base.unwrap_or_else(|| "/var/tmp".into()).join("saggar-prove-XXXXXX");
        let scratch = nix::unistd::mkdtemp(&template)
            .map_err(|e| Error::system(format_args!("make {}", template.display()), e))?;
        let scratch = scratch.canonicalize().unwrap_or(scratch);
        let nonce = scratch.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let bystander = start_bystander(&nonce, &scratch)
            .inspect_err(|_| drop(fs::remove_dir(&scratch)))
            .map_err(|e| Error::system("start a process beside the sandbox", e))?;
        let prepared = (|| {
            prepare(&scratch)?;
            HostServices::open(&scratch, &nonce)
        })();
        let services = prepared.map_err(|e| Error::system(format_args!("fill {}", scratch.display()), e))?;
        let scene = ProbeContext {
            work: scratch.join("work"),
            secret: scratch.join("outside/secret"),
            tcp: port(services.tcp.as_ref()),
            tcp6: port(services.tcp6.as_ref()),
            terminal: File::open("/dev/tty").is_ok(),
            namespaces: namespaces(),
            probed_paths: probed_paths(),
            pids: bounds.pids,
            disk: bounds.disk,
            nonce,
        };
        let leaked =
            open_leaked_fd(&scene.secret).map_err(|e| Error::system("open a descriptor to inherit", e))?;
        let control = run_control(&scene);
        let quotas = UserQuota::ALL.into_iter().filter(|quota| quota.is_available()).collect();
        Ok(ProveHarness {
            context: scene,
            scratch,
            _services: services,
            bystander: Some(bystander),
            _leaked: leaked,
            quotas,
            control,
        })
    }

    /// The context that is passed to the probe.
    pub fn context(&self) -> &ProbeContext {
        &self.context
    }

    /// The command line of the probe, whose executable is in the workspace.
    pub fn probe_command(&self) -> [OsString; 3] {
        let scene = serde_json::to_string(&self.context).unwrap_or_default();
        [self.context.work.join(PROBE).into(), ENTRY.into(), scene.into()]
    }

    /// Runs `command`, which must run [`ProveHarness::probe_command`] and pass on its standard input and output.
    ///
    /// # Errors
    /// [`crate::error::Code::System`] if the probe did not run.
    pub fn run(&self, mut command: Command, expect: &Expectation<'_>) -> Result<ProveReport> {
        let complaint = self.scratch.join("complaint");
        let stderr = File::create(&complaint)
            // The file is readable by all users, so that another boundary must stop the attempt to read it.
            .and_then(|file| file.set_permissions(fs::Permissions::from_mode(0o644)).map(|()| file))
            .map_err(|e| Error::system("keep standard error", e))?;
        command
            .current_dir(&self.context.work)
            .env(SECRET_VARIABLE, "secret")
            .env("LD_LIBRARY_PATH", "/nonexistent/saggar-probe")
            .env("BASH_ENV", "/nonexistent/saggar-probe")
            .env("SSH_AUTH_SOCK", "/nonexistent/saggar-probe")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr);
        let name = command.get_program().to_string_lossy().into_owned();
        let mut child = command.spawn().map_err(|e| Error::system(format_args!("start {name}"), e))?;
        let received = self.read_output(&mut child);
        let status = child.wait().map_err(|e| Error::system(format_args!("wait for {name}"), e))?;
        if received.answers.is_empty() {
            let mut stderr_text = String::new();
            let _ = File::open(&complaint)
                .and_then(|file| file.take(MAX_STDERR).read_to_string(&mut stderr_text));
            return Err(Error::system(
                "run the probe in the sandbox",
                format_args!("{status}\n{}", stderr_text.trim_end()),
            ));
        }
        Ok(self.build_report(&received, expect))
    }

    fn read_output(&self, child: &mut Child) -> ProbeOutput {
        let mut received = ProbeOutput::default();
        let (Some(output), Some(mut input)) = (child.stdout.take(), child.stdin.take()) else {
            return received;
        };
        for line in BufReader::new(output).lines().map_while(std::io::Result::ok) {
            if let Ok(answer) = serde_json::from_str::<ProbeAnswer>(&line) {
                received.answers.insert(answer.attempt.clone(), answer);
            } else if let Ok(report) = serde_json::from_str::<QuotaReport>(&line) {
                if received.account.is_none() {
                    received.account = self.find_probe().map(CgroupLimits::read);
                }
                received.quotas.push((report.quota, report.taken, report.quota.is_available()));
                let _ = input.write_all(b"\n").and_then(|()| input.flush());
            }
        }
        received
    }

    /// The probe's pid on the host.
    fn find_probe(&self) -> Option<i32> {
        let is_probe = |pid: &i32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let mut words = line.split(|byte| *byte == 0);
            let entry = words.nth(1).is_some_and(|word| word == ENTRY.as_bytes());
            entry
                && words
                    .next()
                    .is_some_and(|scene| String::from_utf8_lossy(scene).contains(&self.context.nonce))
        };
        let names = fs::read_dir("/proc")
            .ok()?
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        names.into_iter().find(is_probe)
    }

    fn build_report(&self, received: &ProbeOutput, expect: &Expectation<'_>) -> ProveReport {
        let mut rows = Vec::new();
        for (class, attempt) in
            attempts::ALL.iter().flat_map(|(class, all)| all.iter().map(move |one| (class, one)))
        {
            rows.push(self.attempt_row(*class, attempt, received, expect));
        }
        rows.extend(cgroup_rows(received.account, expect));
        rows.extend(UserQuota::ALL.map(|quota| self.quota_row(quota, received, expect)));
        ProveReport::new(rows)
    }

    fn attempt_row(
        &self,
        class: AttemptClass,
        attempt: &Attempt,
        received: &ProbeOutput,
        expect: &Expectation<'_>,
    ) -> AttemptRow {
        let answer = received.answers.get(attempt.name);
        let mut held = answer.is_some_and(|answer| answer.held == Some(true));
        let mut row = AttemptRow {
            attempt: attempt.name,
            class,
            does: attempt.action,
            status: AttemptStatus::NotHeld,
            boundary: attempt.boundary,
            answer: answer.map_or_else(|| "no answer".to_owned(), |answer| answer.answer.clone()),
            required: expect.requires_attempt(attempt),
            reason: None,
        };
        if class == AttemptClass::Git {
            held = answer.is_some() && !attempts::git_left(attempt.name, &self.context.work);
            if held && row.answer == "ok" {
                row.answer = "undone at the end".to_owned();
            }
        }
        if answer.is_some_and(|answer| answer.answer == "untried") {
            row.mark_not_applicable("the host has nothing to try it on".to_owned());
        } else if !held && let Some(grant) = expect.granted_by(attempt, &self.context) {
            row.mark_not_applicable(grant);
        } else if self.kernel_lacks(attempt, &row.answer) {
            row.mark_not_applicable("kernel: it has no such thing outside either".to_owned());
        } else if held {
            row.status = AttemptStatus::Held;
        }
        row
    }

    /// Whether the same attempt outside the sandbox shows that the kernel does not support the operation.
    fn kernel_lacks(&self, attempt: &Attempt, answer: &str) -> bool {
        const ABSENT: [&str; 4] = ["ENOSYS", "SIGSEGV", "ENODEV", "EOPNOTSUPP"];
        let outside = self.control.get(attempt.name);
        answer != "ok" && outside.is_some_and(|outside| ABSENT.contains(&outside.answer.as_str()))
    }

    fn quota_row(&self, quota: UserQuota, received: &ProbeOutput, expect: &Expectation<'_>) -> AttemptRow {
        let reported = received.quotas.iter().find(|(name, ..)| *name == quota);
        let mut row = AttemptRow {
            attempt: quota.name(),
            class: AttemptClass::Quotas,
            does: quota.action(),
            status: AttemptStatus::NotHeld,
            boundary: Boundary::Rlimit,
            answer: reported
                .map_or_else(|| "no answer".to_owned(), |(_, taken, _)| format!("{taken} taken inside")),
            required: true,
            reason: None,
        };
        if !self.quotas.contains(&quota) {
            row.mark_not_applicable("the starter has too few without a sandbox".to_owned());
        } else if reported.is_some_and(|(.., left)| *left) {
            row.status = AttemptStatus::Held;
        } else if quota == UserQuota::InotifyInstances
            && let Some(grant) = expect.granted_by_container()
        {
            row.mark_not_applicable(grant);
        }
        row
    }
}

impl Drop for ProveHarness {
    /// Waits until the bystander has removed the directory.
    fn drop(&mut self) {
        if let Some((mut child, input)) = self.bystander.take() {
            drop(input);
            let _ = child.wait();
        }
    }
}

/// The output of a run of the probe.
#[derive(Debug, Default)]
struct ProbeOutput {
    answers: BTreeMap<String, ProbeAnswer>,
    /// Each quota, the number that the probe consumed, and whether enough was left.
    quotas: Vec<(UserQuota, u32, bool)>,
    account: Option<CgroupLimits>,
}

/// The results for the limits that the kernel reports in cgroup files.
fn cgroup_rows(account: Option<CgroupLimits>, expect: &Expectation<'_>) -> [AttemptRow; 2] {
    let row = |attempt, does, boundary, limited: Option<bool>| AttemptRow {
        attempt,
        class: AttemptClass::Limits,
        does,
        status: if limited == Some(true) { AttemptStatus::Held } else { AttemptStatus::NotHeld },
        boundary,
        answer: match limited {
            Some(true) => "limited by its cgroup",
            Some(false) => "no limit in its cgroup",
            None => "its cgroup is not seen",
        }
        .to_owned(),
        required: expect.requires(boundary),
        reason: None,
    };
    [
        row("memory", "Take all memory", Boundary::Memory, account.map(|account| account.memory)),
        row("processor", "Take all processors", Boundary::Cpu, account.map(|account| account.cpu)),
    ]
}

/// Creates the workspace and the files next to it.
fn prepare(scratch: &Path) -> std::io::Result<()> {
    let work = scratch.join("work");
    for directory in [
        "outside",
        "work/.git/hooks",
        "work/.git/info",
        "work/.git/objects",
        "work/.git/refs",
        "work/.claude",
    ] {
        fs::create_dir_all(scratch.join(directory))?;
    }
    fs::write(scratch.join("outside/secret"), "secret\n")?;
    for (name, text) in [
        (".git/HEAD", "ref: refs/heads/main\n"),
        (".git/config", GIT_CONFIG),
        (".claude/settings.json", "{}\n"),
        (".mcp.json", "{}\n"),
    ] {
        fs::write(work.join(name), text)?;
    }
    let probe = work.join(PROBE);
    fs::copy(SELF, &probe)?;
    fs::set_permissions(&probe, fs::Permissions::from_mode(0o755))
}

/// Servers on the host.
#[derive(Debug)]
struct HostServices {
    tcp: Option<TcpListener>,
    tcp6: Option<TcpListener>,
    _abstract: UnixListener,
    _path: UnixListener,
}

impl HostServices {
    fn open(scratch: &Path, nonce: &str) -> std::io::Result<Self> {
        Ok(HostServices {
            tcp: TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).ok(),
            tcp6: TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).ok(),
            _abstract: UnixListener::bind_addr(&SocketAddr::from_abstract_name(nonce)?)?,
            _path: UnixListener::bind(scratch.join("outside/socket"))?,
        })
    }
}

fn port(listener: Option<&TcpListener>) -> Option<u16> {
    Some(listener?.local_addr().ok()?.port())
}

fn namespaces() -> BTreeMap<String, String> {
    let kinds = ["user", "mnt", "pid", "ipc", "uts", "cgroup", "net"];
    let link = |kind: &str| {
        Some(fs::read_link(format!("/proc/self/ns/{kind}")).ok()?.to_string_lossy().into_owned())
    };
    kinds.iter().filter_map(|kind| Some(((*kind).to_owned(), link(kind)?))).collect()
}

/// The host paths that the attempts use, if they exist.
fn probed_paths() -> Vec<ProbedPath> {
    const PLACES: [(&str, &str); 14] = [
        ("shadow", "/etc/shadow"),
        ("passwd", "/etc/passwd"),
        ("machine-id", "/etc/machine-id"),
        ("ssh", "/etc/ssh"),
        ("root", "/root"),
        ("homes", "/home"),
        ("log", "/var/log"),
        ("lib", "/var/lib"),
        ("run", "/run"),
        ("tmp", "/tmp"),
        ("boot", "/boot"),
        ("shm", "/dev/shm"),
        ("proc", "/proc"),
        ("cgroups", "/sys/fs/cgroup"),
    ];
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    let all = PLACES.iter().map(|(name, path)| (*name, PathBuf::from(path)));
    let place = |(name, path): (&str, PathBuf)| {
        let is = fs::metadata(&path).ok()?;
        Some(ProbedPath { name: name.to_owned(), path, device: is.dev(), inode: is.ino() })
    };
    all.chain(home.map(|home| ("home", home))).filter_map(place).collect()
}

/// Opens a descriptor that every descendant inherits unless it is closed.
fn open_leaked_fd(file: &Path) -> std::io::Result<OwnedFd> {
    use nix::fcntl::{FcntlArg, FdFlag, fcntl};
    let file = OwnedFd::from(File::open(file)?);
    fcntl(&file, FcntlArg::F_SETFD(FdFlag::empty()))?;
    debug_assert!(file.as_raw_fd() > 2, "standard streams are open");
    Ok(file)
}

/// Runs the control attempts outside the sandbox, to learn what the kernel does not support.
fn run_control(scene: &ProbeContext) -> BTreeMap<String, ProbeAnswer> {
    let scene = serde_json::to_string(scene).unwrap_or_default();
    let output =
        Command::new(SELF).arg0("saggar").args([ENTRY, &scene, "control"]).stderr(Stdio::null()).output();
    let lines = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let answers = lines.lines().filter_map(|line| serde_json::from_str::<ProbeAnswer>(line).ok());
    answers.map(|answer| (answer.attempt.clone(), answer)).collect()
}

/// Starts the bystander in its own process group, so that an interrupt from the terminal does not reach it.
fn start_bystander(nonce: &str, scratch: &Path) -> std::io::Result<(Child, ChildStdin)> {
    use std::os::unix::ffi::OsStrExt;
    let mut child = Command::new(SELF)
        .args([BYSTANDER, nonce])
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let Some(mut input) = child.stdin.take() else { return Err(std::io::ErrorKind::BrokenPipe.into()) };
    input.write_all(scratch.as_os_str().as_bytes())?;
    input.write_all(b"\n")?;
    Ok((child, input))
}

/// Runs the bystander: a host process for the probe to search for. The first line of its input is a directory, which it
/// removes at the end of its input.
pub fn run_bystander(input: impl Read) -> u8 {
    use std::os::unix::ffi::OsStrExt;
    let mut input = BufReader::new(input);
    let mut line = Vec::new();
    let _ = input.read_until(b'\n', &mut line);
    let _ = std::io::copy(&mut input, &mut std::io::sink());
    let scratch = Path::new(std::ffi::OsStr::from_bytes(line.strip_suffix(b"\n").unwrap_or(&line)));
    let is_own = scratch.file_name().is_some_and(|name| name.to_string_lossy().starts_with("saggar-prove-"));
    if is_own && scratch.is_absolute() {
        let _ = fs::remove_dir_all(scratch);
    }
    0
}
