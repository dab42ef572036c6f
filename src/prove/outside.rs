//! Starts the command that makes a sandbox around the probe, reads what the probe says, looks at what is left, and
//! judges.

use super::account::Account;
use super::expect::Expect;
use super::quotas::{Held, Quota};
use super::report::{Report, Row, Status};
use super::scene::{GIT_CONFIG, Place, SECRET_VARIABLE, Scene};
use super::{Answer, Attempt, Boundary, Class, ENTRY, attempts};
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

/// The first argument with which saggar is a process of the host that the probe looks for.
pub const BYSTANDER: &str = "__probe-bystander";
/// This program.
const SELF: &str = "/proc/self/exe";
/// The probe in the workspace.
const PROBE: &str = "probe";
/// How much of the command's standard error is kept for a failure.
const COMPLAINT: u64 = 64 << 10;

/// A scratch directory with the scene, and what is open for as long as the sandbox is tried.
#[derive(Debug)]
pub struct Outside {
    scene: Scene,
    place: PathBuf,
    /// Listeners of the host.
    _services: Services,
    /// Takes the directory away when this end is closed, be it by our death.
    bystander: Option<(Child, ChildStdin)>,
    /// A descriptor that must not be inherited further than to the command.
    _leaked: OwnedFd,
    /// Quotas of which the starter has enough.
    quotas: Vec<Quota>,
    /// What this kernel answers outside.
    control: BTreeMap<String, Answer>,
}

/// Bounds of the attempts that take resources.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Processes.
    pub pids: u32,
    /// Bytes of disk.
    pub disk: u64,
}

impl Outside {
    /// Makes the scene.
    ///
    /// # Errors
    /// [`crate::error::Code::System`].
    pub fn new(bounds: Bounds) -> Result<Self> {
        let base = std::env::var_os("TMPDIR").filter(|name| !name.is_empty()).map(PathBuf::from);
        let template = base.unwrap_or_else(|| "/var/tmp".into()).join("saggar-prove-XXXXXX");
        let place = nix::unistd::mkdtemp(&template)
            .map_err(|e| Error::system(format_args!("make {}", template.display()), e))?;
        let place = place.canonicalize().unwrap_or(place);
        let nonce = place.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let bystander = bystander(&nonce, &place)
            .inspect_err(|_| drop(fs::remove_dir(&place)))
            .map_err(|e| Error::system("start a process beside the sandbox", e))?;
        let prepared = (|| {
            prepare(&place)?;
            Services::open(&place, &nonce)
        })();
        let services = prepared.map_err(|e| Error::system(format_args!("fill {}", place.display()), e))?;
        let scene = Scene {
            work: place.join("work"),
            secret: place.join("outside/secret"),
            tcp: port(services.tcp.as_ref()),
            tcp6: port(services.tcp6.as_ref()),
            terminal: File::open("/dev/tty").is_ok(),
            namespaces: namespaces(),
            places: places(),
            pids: bounds.pids,
            disk: bounds.disk,
            nonce,
        };
        let leaked = leaked(&scene.secret).map_err(|e| Error::system("open a descriptor to inherit", e))?;
        let control = control(&scene);
        let quotas = Quota::ALL.into_iter().filter(|quota| quota.is_left()).collect();
        Ok(Outside {
            scene,
            place,
            _services: services,
            bystander: Some(bystander),
            _leaked: leaked,
            quotas,
            control,
        })
    }

    /// The scene.
    pub fn scene(&self) -> &Scene {
        &self.scene
    }

    /// The command line of the probe, which is in the workspace.
    pub fn words(&self) -> [OsString; 3] {
        let scene = serde_json::to_string(&self.scene).unwrap_or_default();
        [self.scene.work.join(PROBE).into(), ENTRY.into(), scene.into()]
    }

    /// Runs `command`, which must run the probe with [`Outside::words`], its standard input and output passed on.
    ///
    /// # Errors
    /// [`crate::error::Code::System`] when the probe did not run.
    pub fn run(&self, mut command: Command, expect: &Expect<'_>) -> Result<Report> {
        let complaint = self.place.join("complaint");
        let stderr = File::create(&complaint)
            // The mode lets everybody read it, so that another boundary answers the attempt to do so.
            .and_then(|file| file.set_permissions(fs::Permissions::from_mode(0o644)).map(|()| file))
            .map_err(|e| Error::system("keep standard error", e))?;
        command
            .current_dir(&self.scene.work)
            .env(SECRET_VARIABLE, "secret")
            .env("LD_LIBRARY_PATH", "/nonexistent/saggar-probe")
            .env("BASH_ENV", "/nonexistent/saggar-probe")
            .env("SSH_AUTH_SOCK", "/nonexistent/saggar-probe")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr);
        let name = command.get_program().to_string_lossy().into_owned();
        let mut child = command.spawn().map_err(|e| Error::system(format_args!("start {name}"), e))?;
        let heard = self.listen(&mut child);
        let status = child.wait().map_err(|e| Error::system(format_args!("wait for {name}"), e))?;
        if heard.answers.is_empty() {
            let mut said = String::new();
            let _ = File::open(&complaint).and_then(|file| file.take(COMPLAINT).read_to_string(&mut said));
            return Err(Error::system(
                "run the probe in the sandbox",
                format_args!("{status}\n{}", said.trim_end()),
            ));
        }
        Ok(self.judge(&heard, expect))
    }

    fn listen(&self, child: &mut Child) -> Heard {
        let mut heard = Heard::default();
        let (Some(output), Some(mut input)) = (child.stdout.take(), child.stdin.take()) else { return heard };
        for line in BufReader::new(output).lines().map_while(std::io::Result::ok) {
            if let Ok(answer) = serde_json::from_str::<Answer>(&line) {
                heard.answers.insert(answer.attempt.clone(), answer);
            } else if let Ok(held) = serde_json::from_str::<Held>(&line) {
                if heard.account.is_none() {
                    heard.account = self.find_probe().map(Account::of);
                }
                heard.quotas.push((held.quota, held.taken, held.quota.is_left()));
                let _ = input.write_all(b"\n").and_then(|()| input.flush());
            }
        }
        heard
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
                    .is_some_and(|scene| String::from_utf8_lossy(scene).contains(&self.scene.nonce))
        };
        let names = fs::read_dir("/proc")
            .ok()?
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        names.into_iter().find(is_probe)
    }

    fn judge(&self, heard: &Heard, expect: &Expect<'_>) -> Report {
        let mut rows = Vec::new();
        for (class, attempt) in
            attempts::ALL.iter().flat_map(|(class, all)| all.iter().map(move |one| (class, one)))
        {
            rows.push(self.row(*class, attempt, heard, expect));
        }
        rows.extend(accounts(heard.account, expect));
        rows.extend(Quota::ALL.map(|quota| self.quota(quota, heard)));
        Report::new(rows)
    }

    fn row(&self, class: Class, attempt: &Attempt, heard: &Heard, expect: &Expect<'_>) -> Row {
        let answer = heard.answers.get(attempt.name);
        let mut held = answer.is_some_and(|answer| answer.held == Some(true));
        let mut row = Row {
            attempt: attempt.name,
            class,
            does: attempt.does,
            status: Status::NotHeld,
            boundary: attempt.boundary,
            answer: answer.map_or_else(|| "no answer".to_owned(), |answer| answer.answer.clone()),
            required: expect.requires(attempt.boundary),
            reason: None,
        };
        if class == Class::Git {
            held = answer.is_some() && !attempts::git_left(attempt.name, &self.scene.work);
            if held && row.answer == "ok" {
                row.answer = "undone at the end".to_owned();
            }
        }
        if answer.is_some_and(|answer| answer.answer == "untried") {
            row.lacks("the host has nothing to try it on".to_owned());
        } else if !held && let Some(given) = expect.given(attempt, &self.scene) {
            row.lacks(given);
        } else if self.kernel_lacks(attempt, &row.answer) {
            row.lacks("kernel: it has no such thing outside either".to_owned());
        } else if held {
            row.status = Status::Held;
        }
        row
    }

    /// Whether the same attempt outside says that there is no such thing.
    fn kernel_lacks(&self, attempt: &Attempt, answer: &str) -> bool {
        const ABSENT: [&str; 4] = ["ENOSYS", "SIGSEGV", "ENODEV", "EOPNOTSUPP"];
        let outside = self.control.get(attempt.name);
        answer != "ok" && outside.is_some_and(|outside| ABSENT.contains(&outside.answer.as_str()))
    }

    fn quota(&self, quota: Quota, heard: &Heard) -> Row {
        let told = heard.quotas.iter().find(|(name, ..)| *name == quota);
        let mut row = Row {
            attempt: quota.name(),
            class: Class::Quotas,
            does: quota.does(),
            status: Status::NotHeld,
            boundary: Boundary::Rlimit,
            answer: told
                .map_or_else(|| "no answer".to_owned(), |(_, taken, _)| format!("{taken} taken inside")),
            required: true,
            reason: None,
        };
        if !self.quotas.contains(&quota) {
            row.lacks("the starter has too few without a sandbox".to_owned());
        } else if told.is_some_and(|(.., left)| *left) {
            row.status = Status::Held;
        }
        row
    }
}

impl Drop for Outside {
    /// Waits until the bystander has taken the directory away.
    fn drop(&mut self) {
        if let Some((mut child, input)) = self.bystander.take() {
            drop(input);
            let _ = child.wait();
        }
    }
}

/// What came out of a run.
#[derive(Debug, Default)]
struct Heard {
    answers: BTreeMap<String, Answer>,
    /// Which, how many were taken, and whether enough was left.
    quotas: Vec<(Quota, u32, bool)>,
    account: Option<Account>,
}

/// The limits that the kernel has written down.
fn accounts(account: Option<Account>, expect: &Expect<'_>) -> [Row; 2] {
    let row = |attempt, does, boundary, limited: Option<bool>| Row {
        attempt,
        class: Class::Limits,
        does,
        status: if limited == Some(true) { Status::Held } else { Status::NotHeld },
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

/// The workspace and what lies beside it.
fn prepare(place: &Path) -> std::io::Result<()> {
    let work = place.join("work");
    for directory in [
        "outside",
        "work/.git/hooks",
        "work/.git/info",
        "work/.git/objects",
        "work/.git/refs",
        "work/.claude",
    ] {
        fs::create_dir_all(place.join(directory))?;
    }
    fs::write(place.join("outside/secret"), "secret\n")?;
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

/// Servers of the host.
#[derive(Debug)]
struct Services {
    tcp: Option<TcpListener>,
    tcp6: Option<TcpListener>,
    _abstract: UnixListener,
    _path: UnixListener,
}

impl Services {
    fn open(place: &Path, nonce: &str) -> std::io::Result<Self> {
        Ok(Services {
            tcp: TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).ok(),
            tcp6: TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).ok(),
            _abstract: UnixListener::bind_addr(&SocketAddr::from_abstract_name(nonce)?)?,
            _path: UnixListener::bind(place.join("outside/socket"))?,
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

/// The places of the host that the attempts know, where they are there.
fn places() -> Vec<Place> {
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
        Some(Place { name: name.to_owned(), path, device: is.dev(), inode: is.ino() })
    };
    all.chain(home.map(|home| ("home", home))).filter_map(place).collect()
}

/// A descriptor of the host that a program inherits where nothing closes it.
fn leaked(file: &Path) -> std::io::Result<OwnedFd> {
    use nix::fcntl::{FcntlArg, FdFlag, fcntl};
    let file = OwnedFd::from(File::open(file)?);
    fcntl(&file, FcntlArg::F_SETFD(FdFlag::empty()))?;
    debug_assert!(file.as_raw_fd() > 2, "standard streams are open");
    Ok(file)
}

/// What the kernel answers outside, of the attempts that can tell what it lacks.
fn control(scene: &Scene) -> BTreeMap<String, Answer> {
    let scene = serde_json::to_string(scene).unwrap_or_default();
    let output =
        Command::new(SELF).arg0("saggar").args([ENTRY, &scene, "control"]).stderr(Stdio::null()).output();
    let lines = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let answers = lines.lines().filter_map(|line| serde_json::from_str::<Answer>(line).ok());
    answers.map(|answer| (answer.attempt.clone(), answer)).collect()
}

/// Starts the bystander, in a process group of its own: an interrupt from the terminal is not for it.
fn bystander(nonce: &str, place: &Path) -> std::io::Result<(Child, ChildStdin)> {
    use std::os::unix::ffi::OsStrExt;
    let mut child = Command::new(SELF)
        .args([BYSTANDER, nonce])
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let Some(mut input) = child.stdin.take() else { return Err(std::io::ErrorKind::BrokenPipe.into()) };
    input.write_all(place.as_os_str().as_bytes())?;
    input.write_all(b"\n")?;
    Ok((child, input))
}

/// The bystander: a process of the host to be looked for. When its input ends it removes the directory that was the
/// first line there.
pub fn stand_by(input: impl Read) -> u8 {
    use std::os::unix::ffi::OsStrExt;
    let mut input = BufReader::new(input);
    let mut line = Vec::new();
    let _ = input.read_until(b'\n', &mut line);
    let _ = std::io::copy(&mut input, &mut std::io::sink());
    let place = Path::new(std::ffi::OsStr::from_bytes(line.strip_suffix(b"\n").unwrap_or(&line)));
    let ours = place.file_name().is_some_and(|name| name.to_string_lossy().starts_with("saggar-prove-"));
    if ours && place.is_absolute() {
        let _ = fs::remove_dir_all(place);
    }
    0
}
