//! Every key from every layer, seen in the sandbox that comes of it: what a folder's document adds to random documents
//! of operators shows nothing of the host that was not shown without it.

use super::random::{any_document, few_keys, operated, trees};
use super::*;
use crate::id::SandboxId;
use crate::spec::agent::{Asked, lower};
use crate::spec::{IdMap, Mount, MountKind, SandboxSpec};
use proptest::collection::vec;
use proptest::prelude::*;
use std::ffi::OsString;

fn lowered(policy: &Effective) -> SandboxSpec {
    let home = match &policy.files.home.value {
        Home::Directory(directory) => Some(directory.as_path().to_owned()),
        Home::Tmp | Home::Session => None,
    };
    let asked = Asked {
        id: SandboxId::parse("x").unwrap(),
        map: IdMap::Block { base: 1 << 20 },
        workspace: "/work".into(),
        changes: None,
        agent_folder: None,
        home,
        program: Vec::new(),
        own: Vec::new(),
        api: None,
        pins: Vec::new(),
        terminal: false,
        shown: false,
        streams: true,
        without_network: None,
    };
    lower(policy, asked).expect("these limits fit together")
}

/// What of the host a mount shows, where, and whether it can be written.
fn shown(mount: &Mount) -> Option<(&Path, &Path, bool)> {
    match &mount.kind {
        MountKind::Named { source } | MountKind::System { source } => {
            Some((source, &mount.at, mount.writable))
        }
        MountKind::Overlay { lower, .. } => Some((lower, &mount.at, mount.writable)),
        _ => None,
    }
}

/// Variables of the host that programs get.
fn passed(policy: &Effective) -> Vec<(OsString, OsString)> {
    let names = ["LANG", "FOO", "BAR", "LD_PRELOAD", "PATH", "AWS_KEY", "HOME"];
    let host = names.map(|name| (name.into(), "of-the-host".into()));
    let all = environment(policy, host.into_iter(), &[]);
    all.into_iter()
        .map(|(name, value, _)| (name, value))
        .filter(|(_, value)| value == "of-the-host")
        .collect()
}

/// What of the host the second sandbox has and the first has not.
fn added(before: (&Effective, &SandboxSpec), after: (&Effective, &SandboxSpec)) -> Option<String> {
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
    let publish = |spec: &SandboxSpec| spec.publish.iter().map(|(publish, _)| *publish).collect::<Vec<_>>();
    if publish(after.1).iter().any(|publish_| !publish(before.1).contains(publish_)) {
        return Some("a port".to_owned());
    }
    let higher = |after: &crate::spec::Rlimit| {
        before.1.rlimits.iter().any(|held| held.resource == after.resource && after.hard > held.hard)
    };
    if let Some(limit) = after.1.rlimits.iter().find(|limit| higher(limit)) {
        return Some(format!("{limit:?}"));
    }
    (after.1.identity != before.1.identity || after.1.profile > before.1.profile)
        .then(|| "ids or a profile".to_owned())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn folder_adds_nothing_of_the_host(
        operators in vec(any_document(), 0..3),
        asked in few_keys(),
        is_workspace in any::<bool>(),
        later in vec(few_keys(), 0..2),
    ) {
        let mut before = operated(&operators);
        let layer = if is_workspace { Layer::Workspace("saggar.toml") } else { Layer::AgentFolder("saggar.toml") };
        let mut after = before.clone();
        let Ok(admitted) = provenance::Admitted::of(&before, asked, &layer, &trees()) else { return Ok(()) };
        after.take(admitted);
        for document in later {
            before.merge(document.clone(), &Layer::CommandLine);
            after.merge(document, &Layer::CommandLine);
        }
        prop_assert_eq!(added((&before, &lowered(&before)), (&after, &lowered(&after))), None);
        // What shows something of the host is an operator's word, whoever repeats it.
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
        prop_assert!(owners.into_iter().flatten().chain(sockets).chain(ports).all(|layer| !layer.is_folder()));
    }

    /// Even when it is not asked whether it may: the merge itself adds no bind for a folder.
    #[test]
    fn folder_that_was_not_held_back_adds_no_bind(operators in vec(any_document(), 0..3), asked in few_keys()) {
        let before = operated(&operators);
        let mut after = before.clone();
        let binds = Document { files: document::Files { ro: asked.files.ro, rw: asked.files.rw, ..Default::default() }, ..Document::default() };
        after.merge(binds, &Layer::AgentFolder("saggar.toml"));
        let sources = |policy: &Effective| policy.files.binds.iter().map(|bind| (bind.value.source.clone(), bind.value.dest.clone())).collect::<Vec<_>>();
        prop_assert_eq!(sources(&before), sources(&after));
    }
}
