//! `saggar doctor --prove`: probes saggar's sandbox, or that of another program.

use crate::app::prepare;
use crate::cli::DoctorArgs;
use crate::error::{Code, Error, Result};
use crate::host::proc_obstacle;
use crate::prove::expectation::{Expectation, HostGaps};
use crate::prove::harness::{ProveHarness, ResourceBounds};
use crate::prove::report::ProveReport;
use crate::session::policy_parser::WorkerPolicyParser;
use crate::spec::policy::{
    self, EffectivePolicy, HomeSource, LoadedPolicy, PolicyOptions, PolicySources, SandboxProfile,
};
use crate::sys::caps;
use std::ffi::OsString;
use std::process::Command;

/// Limits for sandboxes that do not declare theirs.
const OTHER_BOUNDS: ResourceBounds = ResourceBounds { pids: 512, disk: 1 << 30 };

/// Starts the sandbox of the policy with `saggar wrap` and probes it. Returns exit status 0 if every required
/// protection holds, 1 if not.
pub(super) fn run(args: &DoctorArgs) -> Result<u8> {
    let policy = load(args)?;
    let limits = &policy.effective.limits;
    let outside =
        ProveHarness::new(ResourceBounds { pids: limits.pids.value, disk: limits.disk.value.bytes() })?;
    let mut command = Command::new("/proc/self/exe");
    command.arg("wrap");
    if let Some(file) = &args.policy {
        command.arg("--policy").arg(prepare::canonical(file)?);
    }
    if let Some(profile) = args.profile {
        command.arg("--profile").arg(profile.to_string());
    }
    command.arg("--").args(outside.probe_command());
    let expectation = Expectation::of(&policy.effective, host_gaps(&policy.effective));
    print_report(&outside.run(command, &expectation)?, args.json)
}

/// What the start of this sandbox will not have here.
fn host_gaps(policy: &EffectivePolicy) -> HostGaps {
    let is_container = policy.profile.value == SandboxProfile::Container;
    HostGaps {
        new_proc: is_container && proc_obstacle::refuses_new_proc(),
        own_ids: nix::unistd::geteuid().is_root() && !caps::is_privileged_root(),
    }
}

/// Loads the policy of the sandbox.
fn load(args: &DoctorArgs) -> Result<LoadedPolicy> {
    let current = std::env::current_dir().map_err(|e| Error::system("find the current directory", e))?;
    let mut places =
        PolicySources::of_this_host(current, nix::unistd::geteuid().as_raw(), &WorkerPolicyParser);
    places.policy_files.extend(args.policy.clone());
    policy::load_policy(
        &places,
        HomeSource::Tmp,
        PolicyOptions { profile: args.profile, ..PolicyOptions::default() },
    )
}

/// Probes the sandbox of another program: the words after [`crate::prove::PROVE_OTHER`] are its command line, in
/// which `{work}` is replaced by the workspace and the word `{probe}` by the probe and its arguments. Prints JSON.
pub(super) fn run_around(words: &[OsString]) -> u8 {
    match try_around(words) {
        Ok(status) => status,
        Err(error) => {
            super::print_error(&error, crate::cli::LogFormat::Text);
            error.code().exit_status()
        }
    }
}

fn try_around(words: &[OsString]) -> Result<u8> {
    let outside = ProveHarness::new(OTHER_BOUNDS)?;
    let work = outside.context().work.to_string_lossy().into_owned();
    let mut line = words.iter().flat_map(|word| match word.to_str() {
        Some("{probe}") => outside.probe_command().to_vec(),
        Some(text) => vec![text.replace("{work}", &work).into()],
        None => vec![word.clone()],
    });
    let Some(program) = line.next() else {
        return Err(Error::new(Code::Usage, "run the probe in a sandbox: no command is given").hint(
            "give the command line of a sandbox, with {work} for the workspace and {probe} for the program",
        ));
    };
    let mut command = Command::new(program);
    command.args(line);
    print_report(&outside.run(command, &Expectation::default())?, true)
}

fn print_report(report: &ProveReport, json: bool) -> Result<u8> {
    super::print_as(json, &if json { report.json() } else { report.text() })?;
    Ok(u8::from(!report.ok))
}
