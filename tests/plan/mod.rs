//! The plan as data: what it is for a fixed host, and which orders of steps it refuses.

mod container;
mod disk;
mod golden;
mod narrow;
mod order;
mod outer_proc;
mod owners;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use saggar::host::{HostFacts, PathKind};
use saggar::id::SandboxId;
use saggar::plan::agent::{self as plan, AgentPlan};
use saggar::spec::agent::{self, AgentSandboxRequest, OuterContainer};
use saggar::spec::policy::{EffectivePolicy, HomeSource, PolicyLayer, SandboxProfile, Setting};
use saggar::spec::{HostIdMapping, Origin, PinnedPath, SandboxSpec};

/// Where the work is, on this host.
const WORK: &str = "/srv/work";

/// A merged-/usr host with landlock at ABI 6.
fn host() -> HostFacts {
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
    let mut paths: HashMap<PathBuf, PathKind> = HashMap::new();
    paths.extend(directories.map(|path| (path.into(), PathKind::Directory)));
    paths.extend(files.map(|path| (path.into(), PathKind::File)));
    paths.extend(links.map(|(path, target)| (path.into(), PathKind::Link(target.into()))));
    HostFacts { landlock_abi: 6, paths, ..HostFacts::default() }
}

const ROOT: HostIdMapping = HostIdMapping::Block { base: 1_000_013_824 };
const USER: HostIdMapping = HostIdMapping::Caller { uid: 1001, gid: 1002 };

/// What `wrap` asks for in [`WORK`], which has a repository.
fn spec(profile: SandboxProfile, map: HostIdMapping) -> SandboxSpec {
    let mut policy = EffectivePolicy::built_in(HomeSource::Tmp);
    policy.profile = Setting::new(profile, &PolicyLayer::CommandLine);
    let pin = |name: &str, read_only| PinnedPath {
        path: Path::new(WORK).join(name),
        read_only,
        reason: "decides what the host's git runs".into(),
        origin: Origin::BUILT_IN,
    };
    let asked = AgentSandboxRequest {
        id: SandboxId::parse("golden").unwrap(),
        id_mapping: map,
        workspace: WORK.into(),
        hidden_paths: Vec::new(),
        overlay_upper: None,
        agent_folder: None,
        home: None,
        program_mounts: Vec::new(),
        runtime_mounts: Vec::new(),
        linkless_mounts: Vec::new(),
        mailbox: None,
        model_api: None,
        pinned_paths: vec![pin(".git", false), pin(".git/config", true), pin(".git/hooks", true)],
        terminal: true,
        visible_workspace: true,
        reopen_streams: true,
        container: (profile == SandboxProfile::Container)
            .then(|| OuterContainer { shows_proc: true, host_name: "outer".into() }),
        network_fallback: None,
    };
    let mut spec = agent::lower_policy(&policy, asked).unwrap();
    spec.hidden_paths.push((Path::new(WORK).join(".env"), Origin::COMMAND_LINE));
    spec
}

fn plan_of(profile: SandboxProfile, map: HostIdMapping) -> AgentPlan {
    plan::build(&spec(profile, map), &host()).unwrap()
}
