//! What a start with `--verbose` says of the sandbox, before it starts.

use super::prepare::PreparedSandbox;
use crate::cgroup::SandboxCgroups;
use crate::spec::SandboxIdentity;
use crate::spec::policy::load::PolicyFile;
use std::path::Path;

/// Logs one line for each part of the sandbox and for each control that is missing.
pub(super) fn log(prepared: &PreparedSandbox, cgroups: &SandboxCgroups) {
    if log::log_enabled!(log::Level::Info) {
        lines(prepared, cgroups).iter().for_each(|line| log::info!("{line}"));
    }
}

fn lines(prepared: &PreparedSandbox, cgroups: &SandboxCgroups) -> Vec<String> {
    let effective = &prepared.policy.effective;
    let (profile, network) = (&effective.profile, &effective.network);
    let mut lines = vec![
        format!("sandbox {}, profile {} ({})", prepared.id, profile.value, profile.layer),
        policy_files(&prepared.policy.files),
        workspace(&prepared.workspace, &prepared.start_directory),
        format!("network {} ({})", network.value, network.layer),
        programs(&prepared.spec.identity, prepared.plan.program_ids()),
    ];
    lines.extend(cgroups.directories().map(|path| format!("cgroup {}", path.display())));
    lines.extend(
        prepared.plan.degraded.iter().map(|one| format!("not enforced: {}: {}", one.name, one.reason)),
    );
    lines
}

fn policy_files(files: &[PolicyFile]) -> String {
    let read: Vec<String> = files.iter().map(|file| file.path.display().to_string()).collect();
    match read.is_empty() {
        true => "no policy file was found".to_owned(),
        false => format!("policy files: {}", read.join(", ")),
    }
}

fn workspace(workspace: &Path, start: &Path) -> String {
    let workspace_text = format!("workspace {}", workspace.display());
    match start == workspace {
        true => workspace_text,
        false => format!("{workspace_text}, programs start in {}", start.display()),
    }
}

/// `host` are the ids on the host, if they are not the caller's.
fn programs(identity: &SandboxIdentity, host: Option<(u32, u32)>) -> String {
    let inside = format!("programs have uid {} and gid {}", identity.uid, identity.gid);
    match host {
        Some((uid, gid)) => format!("{inside}, outside {uid} and {gid}"),
        None => format!("{inside}, outside those of the caller"),
    }
}
