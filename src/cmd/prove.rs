//! `saggar doctor --prove`, and the same around any other command.

use super::prepare;
use crate::cli::DoctorArgs;
use crate::error::{Code, Error, Result};
use crate::prove::expect::Expect;
use crate::prove::outside::{Bounds, Outside};
use crate::prove::report::Report;
use crate::spec::policy::{self, CommandLine, Home, Places, Policy};
use std::ffi::OsString;
use std::process::Command;

/// Bounds for sandboxes that say nothing of theirs.
const OF_OTHERS: Bounds = Bounds { pids: 512, disk: 1 << 30 };

/// Starts the sandbox that the policy gives, by `saggar wrap`, and tries it. Exit status 0 when everything that is
/// required held, 1 when not.
pub(super) fn doctor(args: &DoctorArgs) -> Result<u8> {
    let policy = load(args)?;
    let limits = &policy.effective.limits;
    let outside = Outside::new(Bounds { pids: limits.pids.value, disk: limits.disk.value.bytes() })?;
    let mut command = Command::new("/proc/self/exe");
    command.arg("wrap");
    if let Some(file) = &args.policy {
        command.arg("--policy").arg(prepare::canonical(file)?);
    }
    if let Some(profile) = args.profile {
        command.arg("--profile").arg(profile.to_string());
    }
    command.arg("--").args(outside.words());
    say(&outside.run(command, &Expect::of(&policy.effective))?, args.json)
}

/// The policy that the sandbox is going to have.
fn load(args: &DoctorArgs) -> Result<Policy> {
    let current = std::env::current_dir().map_err(|e| Error::system("find the current directory", e))?;
    let mut places = Places::of_this_host(current, nix::unistd::geteuid().as_raw());
    places.policies.extend(args.policy.clone());
    policy::load(&places, Home::Tmp, CommandLine { profile: args.profile, ..CommandLine::default() })
}

/// Another program's sandbox: the words after [`crate::prove::AROUND`] are its command line, in which `{work}` is the
/// workspace and `{probe}` alone stands for the probe and its arguments. Prints JSON.
pub(super) fn around(words: &[OsString]) -> u8 {
    match try_around(words) {
        Ok(status) => status,
        Err(error) => {
            super::report(&error, crate::cli::LogFormat::Text);
            error.code().exit_status()
        }
    }
}

fn try_around(words: &[OsString]) -> Result<u8> {
    let outside = Outside::new(OF_OTHERS)?;
    let work = outside.scene().work.to_string_lossy().into_owned();
    let mut line = words.iter().flat_map(|word| match word.to_str() {
        Some("{probe}") => outside.words().to_vec(),
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
    say(&outside.run(command, &Expect::default())?, true)
}

fn say(report: &Report, json: bool) -> Result<u8> {
    super::say_as(json, &if json { report.json() } else { report.text() })?;
    Ok(u8::from(!report.ok))
}
