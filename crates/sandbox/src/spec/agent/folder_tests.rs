//! Every key from every layer, checked in the resulting sandbox: adding a folder's document to random
//! documents of operators gives no additional access to the host.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use saggar_policy::document::FilesTable;
use saggar_policy::testing::{admitted, any_document, few_keys, merge, operated};
use saggar_policy::{PolicyDocument, program_environment};
use saggar_sys::testing::cases;
use std::ffi::OsString;

fn lowered(policy: &EffectivePolicy) -> SandboxSpec {
    let home = match &policy.files.home.value {
        HomeSource::Directory(directory) => Some(directory.as_path().to_owned()),
        HomeSource::Tmp | HomeSource::Session => None,
    };
    let asked = AgentSandboxRequest {
        id: SandboxId::parse("x").unwrap(),
        id_mapping: HostIdMapping::Block { base: 1 << 20 },
        workspace: "/work".into(),
        hidden_paths: policy
            .files
            .hide
            .iter()
            .map(|entry| (entry.value.text().to_owned(), layer_origin(&entry.layer)))
            .collect(),
        overlay_upper: None,
        agent_folder: None,
        home,
        program_mounts: Vec::new(),
        runtime_mounts: Vec::new(),
        linkless_mounts: Vec::new(),
        model_api: None,
        mailbox: None,
        pinned_paths: Vec::new(),
        terminal: false,
        visible_workspace: false,
        reopen_streams: true,
        container: None,
        network_fallback: None,
    };
    lower_policy(policy, asked).expect("these limits fit together")
}

/// The host path that a mount shows, its destination, and whether it is writable.
fn shown(mount: &MountSpec) -> Option<(&Path, &Path, bool)> {
    match &mount.kind {
        MountKind::Named { source } | MountKind::System { source } => {
            Some((source, &mount.destination, mount.writable))
        }
        MountKind::Overlay { lower, .. } => Some((lower, &mount.destination, mount.writable)),
        _ => None,
    }
}

/// Variables of the host's environment that programs get.
fn passed(policy: &EffectivePolicy) -> Vec<(OsString, OsString)> {
    let names = ["LANG", "FOO", "BAR", "LD_PRELOAD", "PATH", "AWS_KEY", "HOME"];
    let host = names.map(|name| (name.into(), "of-the-host".into()));
    let all = program_environment(policy, host.into_iter(), &[]);
    all.into_iter()
        .map(|(name, value, _)| (name, value))
        .filter(|(_, value)| value == "of-the-host")
        .collect()
}

/// The access to the host that the second sandbox has and the first has not.
fn added(
    before: (&EffectivePolicy, &SandboxSpec),
    after: (&EffectivePolicy, &SandboxSpec),
) -> Option<String> {
    for mount in &after.1.mounts {
        if let Some((source, at, writable)) = shown(mount) {
            let held = before.1.mounts.iter().filter_map(shown);
            let mut same = held.filter(|held| (held.0, held.1) == (source, at));
            if !same.any(|held| held.2 || !writable) {
                return Some(format!("{mount:?}"));
            }
        }
    }
    let (had, has) = (passed(before.0), passed(after.0));
    if let Some((name, _)) = has.into_iter().find(|variable| !had.contains(variable)) {
        return Some(format!("the variable {}", name.display()));
    }
    let publish =
        |spec: &SandboxSpec| spec.published_ports.iter().map(|(publish, _)| *publish).collect::<Vec<_>>();
    if publish(after.1).iter().any(|publish_| !publish(before.1).contains(publish_)) {
        return Some("a port".to_owned());
    }
    let higher = |after: &RlimitSpec| {
        before.1.rlimits.iter().any(|held| held.resource == after.resource && after.hard > held.hard)
    };
    if let Some(limit) = after.1.rlimits.iter().find(|limit| higher(limit)) {
        return Some(format!("{limit:?}"));
    }
    (after.1.identity != before.1.identity || after.1.profile > before.1.profile)
        .then(|| "ids or a profile".to_owned())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(2000)))]

    #[test]
    fn folder_adds_nothing_of_the_host(
        operators in vec(any_document(), 0..3),
        asked in few_keys(),
        is_workspace in any::<bool>(),
        later in vec(few_keys(), 0..2),
    ) {
        let mut before = operated(&operators);
        let layer = if is_workspace { PolicyLayer::Workspace("saggar.toml") } else { PolicyLayer::AgentFolder("saggar.toml") };
        let Some(mut after) = admitted(&before, asked, &layer) else { return Ok(()) };
        for document in later {
            merge(&mut before, document.clone(), &PolicyLayer::CommandLine);
            merge(&mut after, document, &PolicyLayer::CommandLine);
        }
        prop_assert_eq!(added((&before, &lowered(&before)), (&after, &lowered(&after))), None);
        // A value that gives access to the host keeps the operator's layer, even if a folder repeats it.
        let owners = [
            after.api_socket.as_ref().map(|held| &held.layer),
            after.api.upstream.as_ref().map(|held| &held.layer),
            after.api.key_file.as_ref().map(|held| &held.layer),
            after.api.ca_file.as_ref().map(|held| &held.layer),
            after.bridge_socket.as_ref().map(|held| &held.layer),
            after.control_socket.as_ref().map(|held| &held.layer),
        ];
        let sockets = after.sockets.iter().map(|held| &held.layer);
        let ports = after.publish.iter().map(|held| &held.layer);
        prop_assert!(owners.into_iter().flatten().chain(sockets).chain(ports).all(|layer| !layer.is_agent_writable()));
    }

    /// Without admission too: the merge itself adds no bind mount for a folder.
    #[test]
    fn folder_that_was_not_held_back_adds_no_bind(operators in vec(any_document(), 0..3), asked in few_keys()) {
        let before = operated(&operators);
        let mut after = before.clone();
        let binds = PolicyDocument { files: FilesTable { ro: asked.files.ro, rw: asked.files.rw, ..Default::default() }, ..PolicyDocument::default() };
        merge(&mut after, binds, &PolicyLayer::AgentFolder("saggar.toml"));
        let sources = |policy: &EffectivePolicy| policy.files.binds.iter().map(|bind| (bind.value.source.clone(), bind.value.destination.clone())).collect::<Vec<_>>();
        prop_assert_eq!(sources(&before), sources(&after));
    }
}
