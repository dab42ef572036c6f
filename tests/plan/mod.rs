//! The plan as data: what it is for a fixed host, and which orders of steps it refuses.

mod container;
mod disk;
mod golden;
mod narrow;
mod order;
mod owners;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use saggar::host::{Host, Kind};
use saggar::id::SandboxId;
use saggar::plan::{self, Plan};
use saggar::spec::agent::{self, Asked};
use saggar::spec::policy::{Effective, Home, Layer, Profile, Setting};
use saggar::spec::{IdMap, Origin, Pin, SandboxSpec};

/// Where the work is, on this host.
const WORK: &str = "/srv/work";

/// A merged-/usr host with landlock at ABI 6.
fn host() -> Host {
    let directories = [
        "/usr",
        "/etc/alternatives",
        "/etc/ld.so.conf.d",
        "/etc/ssl",
        WORK,
        "/proc/scsi",
        "/proc/sys",
        "/proc/bus",
    ];
    let files = [
        "/etc/ld.so.cache",
        "/etc/localtime",
        "/dev/null",
        "/dev/zero",
        "/dev/full",
        "/dev/random",
        "/dev/urandom",
        "/dev/tty",
        "/proc/kcore",
        "/proc/keys",
        "/srv/work/.env",
    ];
    let links = [("/bin", "usr/bin"), ("/sbin", "usr/sbin"), ("/lib", "usr/lib"), ("/lib64", "usr/lib64")];
    let mut paths: HashMap<PathBuf, Kind> = HashMap::new();
    paths.extend(directories.map(|path| (path.into(), Kind::Directory)));
    paths.extend(files.map(|path| (path.into(), Kind::File)));
    paths.extend(links.map(|(path, target)| (path.into(), Kind::Link(target.into()))));
    Host { landlock_abi: 6, paths, ..Host::default() }
}

const ROOT: IdMap = IdMap::Block { base: 1_000_013_824 };
const USER: IdMap = IdMap::Own { uid: 1001, gid: 1002 };

/// What `wrap` asks for in [`WORK`], which has a repository.
fn spec(profile: Profile, map: IdMap) -> SandboxSpec {
    let mut policy = Effective::built_in(Home::Tmp);
    policy.profile = Setting::new(profile, &Layer::CommandLine);
    let pin = |name: &str, read_only| Pin {
        at: Path::new(WORK).join(name),
        read_only,
        why: "decides what the host's git runs".into(),
        origin: Origin::BUILT_IN,
    };
    let asked = Asked {
        id: SandboxId::parse("golden").unwrap(),
        map,
        workspace: WORK.into(),
        changes: None,
        agent_folder: None,
        home: None,
        program: Vec::new(),
        own: Vec::new(),
        api: None,
        pins: vec![pin(".git", false), pin(".git/config", true), pin(".git/hooks", true)],
        terminal: true,
        shown: true,
        streams: true,
        without_network: None,
    };
    let mut spec = agent::lower(&policy, asked).unwrap();
    spec.hidden.push((Path::new(WORK).join(".env"), Origin::COMMAND_LINE));
    spec
}

fn plan_of(profile: Profile, map: IdMap) -> Plan {
    plan::build(&spec(profile, map), &host()).unwrap()
}
