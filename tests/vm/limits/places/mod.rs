//! The limits of the default sandbox hold wherever saggar is started, or it says that they do not: a table of places,
//! callers and limits, each cell by what the kernel's own files say.

mod attackers;
mod readme;
mod way;

use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use serde_json::Value;

use crate::support::caller::Caller;
use crate::support::deadline::Deadline;
use crate::support::place::Place;
use crate::support::wait::until_gone;
use way::{Machine, WAYS, Way};

/// One that measures the machine has it alone; the others share it.
static MACHINE: RwLock<()> = RwLock::new(());

fn share_machine() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().unwrap_or_else(PoisonError::into_inner)
}

/// A limit, which is named after its controller: its option, and what the files of each version say then.
struct Limit {
    name: &'static str,
    option: [&'static str; 2],
    files: &'static [(&'static str, &'static str)],
    v1_files: &'static [(&'static str, &'static str)],
}

const LIMITS: [Limit; 3] = [
    Limit {
        name: "memory",
        option: ["--memory", "64m"],
        files: &[("memory.max", "67108864"), ("memory.swap.max", "0")],
        v1_files: &[("memory.limit_in_bytes", "67108864"), ("memory.memsw.limit_in_bytes", "67108864")],
    },
    Limit {
        name: "cpu",
        option: ["--cpus", "0.5"],
        files: &[("cpu.max", "50000 100000")],
        v1_files: &[("cpu.cfs_quota_us", "50000"), ("cpu.cfs_period_us", "100000")],
    },
    Limit {
        name: "pids",
        option: ["--pids", "50"],
        files: &[("pids.max", "50")],
        v1_files: &[("pids.max", "50")],
    },
];

/// The cgroups of a sandbox.
struct Cgroups {
    /// Those with limits, by controller, and whether they are of version 1.
    by_controller: Vec<(String, PathBuf, bool)>,
}

impl Cgroups {
    /// Those of the sandbox with this program.
    fn of(pid: &Value) -> Self {
        let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        let of_line = |line: &str| {
            let [_, controllers, path] = line.splitn(3, ':').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            let below = Path::new(path).strip_prefix("/").unwrap();
            let names = controllers.split(',').map(str::to_owned).collect::<Vec<_>>();
            let is_v1 = !controllers.is_empty();
            // Hierarchies of version 1 are mounted by the names of their controllers.
            let mount = match (is_v1, Path::new("/sys/fs/cgroup/unified").exists()) {
                (true, _) => Path::new("/sys/fs/cgroup").join(controllers.trim_start_matches("name=")),
                (false, true) => "/sys/fs/cgroup/unified".into(),
                (false, false) => "/sys/fs/cgroup".into(),
            };
            let own = mount.join(below);
            // The limits are above the cgroup of the program.
            let limited =
                if !is_v1 && own.ends_with("main") { own.parent().unwrap().to_owned() } else { own };
            names.into_iter().map(|name| (name, limited.clone(), is_v1)).collect::<Vec<_>>()
        };
        Cgroups { by_controller: text.lines().flat_map(of_line).collect() }
    }

    #[track_caller]
    fn assert_limited(&self) {
        for limit in &LIMITS {
            let find = |name: &str| self.by_controller.iter().find(|(controller, ..)| controller == name);
            let (_, path, is_v1) = find(limit.name).or_else(|| find("")).unwrap();
            for (file, value) in if *is_v1 { limit.v1_files } else { limit.files } {
                let file = path.join(file);
                let text =
                    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
                assert_eq!(text.trim(), *value, "{}", file.display());
            }
        }
    }

    /// Waits until none of those that saggar has made is left.
    #[track_caller]
    fn assert_gone(&self) {
        let is_ours =
            |path: &Path| path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"saggar-"));
        self.by_controller
            .iter()
            .map(|(_, path, _)| path)
            .filter(|path| is_ours(path))
            .for_each(|path| until_gone(path));
    }
}

/// What came of a limit in a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cell {
    Held,
    /// The named limit is refused with a remedy; without a name it is reported as degraded.
    Told,
}

impl Cell {
    fn words(self) -> &'static str {
        match self {
            Cell::Held => "held",
            Cell::Told => "refused with remedy, degraded and reported",
        }
    }
}

/// A place, a caller and a way to start saggar there.
struct Site {
    place: Place,
    caller: Caller,
    machine: Machine,
    way: Way,
}

/// A `saggar wrap` whose program waits until it may end.
struct Wrapped<'a> {
    site: &'a Site,
    child: Child,
    name: String,
}

impl Site {
    fn new(caller: Caller, way: Way) -> Self {
        Site { place: Place::new(caller), caller, machine: machine(), way }
    }

    /// Starts `saggar wrap` with these options, and `program` in it.
    fn start(&self, options: &[&str], program: &str) -> Wrapped<'_> {
        let name = format!("{}-{}", self.place.path().file_name().unwrap().to_str().unwrap(), unique());
        let at = |suffix: &str| self.place.join(&format!("{name}.{suffix}"));
        for suffix in ["events", "stderr", "stdout"] {
            self.place.make_file(&format!("{name}.{suffix}"), "");
        }
        let saggar = self.place.saggar();
        let inner = format!(
            "cd {work} && exec 3>{events} && exec env HOME={home} XDG_STATE_HOME={state} SAGGAR_STATE_DIR={state} \
             {saggar} wrap --status-fd 3 {options} -- sh -c '{program}' >{stdout} 2>{stderr}\n",
            work = self.place.work().display(),
            events = at("events").display(),
            home = self.place.join("home").display(),
            state = self.place.join("state/saggar").display(),
            saggar = saggar.get_program().to_str().unwrap(),
            options = options.join(" "),
            stdout = at("stdout").display(),
            stderr = at("stderr").display(),
        );
        let inner = self.place.make_file(&format!("{name}.sh"), &inner);
        let script = self.way.script(self.caller, self.machine, &name, inner.to_str().unwrap());
        let log = fs::File::create(at("log")).unwrap();
        let child = Command::new("/bin/sh")
            .args(["-c", &script])
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Wrapped { site: self, child, name }
    }

    /// Starts one whose program runs until [`Wrapped::end`].
    fn start_waiting(&self, options: &[&str]) -> Wrapped<'_> {
        self.start(options, "until [ -e go ]; do sleep 0.05; done")
    }

    /// The three cells of this place, looked at in one run, or where it is refused in a run for each.
    fn cells(&self) -> [Cell; 3] {
        let all: Vec<&str> = LIMITS.iter().flat_map(|limit| limit.option).collect();
        let mut wrapped = self.start_waiting(&all);
        if let Some(started) = wrapped.await_start() {
            Cgroups::of(&started["pid"]).assert_limited();
            wrapped.end(&started);
            return [Cell::Held; 3];
        }
        // The defaults are told of.
        let mut defaults = self.start_waiting(&[]);
        let started = defaults.await_start().unwrap_or_else(|| panic!("{}", defaults.said()));
        let said = defaults.file("stderr");
        let lines: Vec<_> =
            said.lines().filter(|line| line.contains("no cgroup enforces memory, cpu, pids")).collect();
        assert_eq!(lines.len(), 1, "{said}");
        defaults.end(&started);
        LIMITS.each_ref().map(|limit| {
            let named = self.start(&limit.option, "touch ran");
            named.assert_refused_with_remedy(limit.name);
            let degraded = started["degraded"].as_array().unwrap();
            assert!(degraded.iter().any(|lack| lack["what"] == limit.name), "{}: {started}", limit.name);
            Cell::Told
        })
    }
}

impl Wrapped<'_> {
    fn file(&self, suffix: &str) -> String {
        fs::read_to_string(self.site.place.join(&format!("{}.{suffix}", self.name))).unwrap()
    }

    /// Everything that was said, for messages.
    fn said(&self) -> String {
        let Site { way, caller, .. } = self.site;
        let caller = if caller.is_root() { "root" } else { "user" };
        format!("{way}, {caller}: {}{}{}", self.file("events"), self.file("stderr"), self.file("log"))
    }

    /// The event of the start, if there has been one.
    fn started(&self) -> Option<Value> {
        let events = self.file("events");
        let first: Value = serde_json::from_str(events.split_inclusive('\n').next()?).ok()?;
        (first["event"] == "started").then_some(first)
    }

    /// Waits for the start, and returns its event, or for an end without one.
    fn await_start(&mut self) -> Option<Value> {
        // A guest has one slow processor, and there may be twenty.
        let deadline = Deadline::after(Duration::from_secs(600));
        loop {
            // In this order: what has ended may have started before.
            let has_ended = self.child.try_wait().unwrap().is_some();
            match self.started() {
                Some(started) => return Some(started),
                None if has_ended => return None,
                None => assert!(!deadline.remaining().is_zero(), "{}", self.said()),
            }
            deadline.pause();
        }
    }

    /// Lets the program end, and waits until nothing is left of the sandbox.
    #[track_caller]
    fn end(mut self, started: &Value) {
        let cgroups = Cgroups::of(&started["pid"]);
        let go = self.site.place.make_file("work/go", "");
        let status = self.child.wait().unwrap();
        assert_eq!(status.code(), Some(0), "{}", self.said());
        fs::remove_file(go).unwrap();
        cgroups.assert_gone();
    }

    #[track_caller]
    fn assert_refused_with_remedy(mut self, name: &str) {
        self.child.wait().unwrap();
        let said = self.said();
        for words in [&format!("the limit {name} = "), "cannot hold", "hint: "] {
            assert!(said.contains(words), "no {words:?}: {said}");
        }
        assert!(!self.site.place.work().join("ran").exists(), "the program ran: {said}");
    }
}

fn unique() -> u32 {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn machine() -> Machine {
    match std::env::var("SAGGAR_GUEST").as_deref() {
        Ok("systemd") => Machine::Systemd,
        Ok("unified") => Machine::Other,
        Ok("hybrid" | "cgroup-v1") => Machine::V1,
        other => panic!("this is none of the guests with cgroups: {other:?}"),
    }
}

/// Root, and the ordinary user; `None` where root's tests do not run.
fn callers() -> Option<[Caller; 2]> {
    Some([Caller::root().ok()?, Caller::ordinary().unwrap()])
}

/// Prints a row of the table.
fn print_row(place: &str, caller: Caller, cells: [Cell; 3]) {
    let caller = if caller.is_root() { "root" } else { "user" };
    let cells = LIMITS.iter().zip(cells).map(|(limit, cell)| format!("{}: {}", limit.name, cell.words()));
    let cells = cells.collect::<Vec<_>>().join("; ");
    // Of a test that passes the harness shows nothing else.
    let _ = writeln!(std::io::stderr(), "places: {place:34} {caller}  {cells}");
}

#[test]
fn places_hold_the_limits_or_say_that_they_do_not() {
    let Some(callers) = callers() else { skip!("this test needs to be started as root") };
    let _turn = share_machine();
    for way in WAYS.into_iter().filter(|way| way.is_there(machine())) {
        for caller in callers {
            let site = Site::new(caller, way);
            let cells = site.cells();
            print_row(&way.to_string(), caller, cells);
            if way.must_hold(caller, site.machine) {
                assert_eq!(cells, [Cell::Held; 3], "{way}");
            }
        }
    }
}

#[test]
fn places_hold_the_limits_of_many_at_once() {
    let Some(callers) = callers() else { skip!("this test needs to be started as root") };
    let _turn = share_machine();
    let all: Vec<&str> = LIMITS.iter().flat_map(|limit| limit.option).collect();
    for (caller, count) in callers.into_iter().flat_map(|caller| [(caller, 2), (caller, 20)]) {
        let site = Site::new(caller, Way::Login);
        if !Way::Login.must_hold(caller, site.machine) {
            continue;
        }
        let mut wrapped: Vec<_> = (0..count).map(|_| site.start_waiting(&all)).collect();
        let started =
            wrapped.iter_mut().map(|one| one.await_start().unwrap_or_else(|| panic!("{}", one.said())));
        let cgroups: Vec<_> = started.map(|started| Cgroups::of(&started["pid"])).collect();
        cgroups.iter().for_each(Cgroups::assert_limited);
        site.place.make_file("work/go", "");
        for one in &mut wrapped {
            assert!(one.child.wait().unwrap().success(), "{}", one.said());
        }
        cgroups.iter().for_each(Cgroups::assert_gone);
        print_row(&format!("{count} at once"), caller, [Cell::Held; 3]);
    }
}

/// The creator and the supervisor need not be alone.
#[test]
fn places_hold_the_limits_of_a_session() {
    let Some(callers) = callers() else { skip!("this test needs to be started as root") };
    let _turn = share_machine();
    for caller in callers {
        let place = Place::new(caller);
        place.make_file("work/CLAUDE.md", "An agent.\n");
        let session = |words: &[&str]| -> Output {
            let mut command = place.saggar();
            if machine() == Machine::Systemd && !caller.is_root() {
                command.env("XDG_RUNTIME_DIR", format!("/run/user/{}", caller.uid()));
            }
            let output = command.arg("session").args(words).output().unwrap();
            assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
            output
        };
        let work = place.work();
        let mut create = vec!["create", "--json", "--session", "limited", "--adapter", "demo"];
        // As an ordinary user this is in the cgroup of root's test.
        if !caller.is_root() && machine() != Machine::Systemd {
            continue;
        }
        create.extend(LIMITS.iter().flat_map(|limit| limit.option));
        create.push(work.to_str().unwrap());
        let created: Value = serde_json::from_slice(&session(&create).stdout).unwrap();
        let name = format!("/saggar-{}", created["sandbox"].as_str().unwrap());
        let cgroups = Cgroups::of(&process_in(&name).into());
        cgroups.assert_limited();
        session(&["end", "--remove", "limited"]);
        cgroups.assert_gone();
        print_row("session", caller, [Cell::Held; 3]);
    }
}

/// What the error of a limit advises root to do in a container, run as it is printed.
#[test]
fn places_in_a_container_hold_the_limits_after_the_advice() {
    let Ok(caller) = Caller::root() else { skip!("this test needs to be started as root") };
    let _turn = share_machine();
    if machine() == Machine::V1 {
        // An ordinary container has no cgroups of version 1 to write in.
        return;
    }
    let place = Place::new(caller);
    let saggar = place.saggar();
    let wrap = format!(
        "env HOME={home} SAGGAR_STATE_DIR={home} {saggar} wrap --memory 64m --cpus 0.5 --pids 50 --",
        home = place.join("home").display(),
        saggar = saggar.get_program().to_str().unwrap(),
    );
    let inner = format!(
        "cd {work}\n\
         said=$({wrap} true 2>&1) && exit 3\n\
         advice=$(echo \"$said\" | sed -n 's/.*as root in the container: `\\([^`]*\\)`.*/\\1/p')\n\
         eval \"$advice\" || exit 4\n\
         {wrap} cat /proc/self/cgroup\n",
        work = place.work().display(),
    );
    let inner = place.make_file("inner.sh", &inner);
    let name = place.path().file_name().unwrap().to_str().unwrap();
    let way = Way::Container { is_writable: true, is_alone: false };
    let script = way.script(caller, machine(), name, inner.to_str().unwrap());
    let output = Command::new("/bin/sh").args(["-c", &script]).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    // The root of its cgroup namespace.
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0::/\n");
}

/// A process in the cgroup of this name, or in one below.
#[track_caller]
fn process_in(cgroup: &str) -> i32 {
    let is_in = |text: String| {
        text.lines().any(|line| line.ends_with(cgroup) || line.contains(&format!("{cgroup}/")))
    };
    let entries = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().file_name());
    let pids = entries.filter_map(|name| name.to_str()?.parse::<i32>().ok());
    let mut inside = pids.filter(|pid| fs::read_to_string(format!("/proc/{pid}/cgroup")).is_ok_and(is_in));
    inside.next().unwrap_or_else(|| panic!("no process is in {cgroup}"))
}
