//! How a document goes into the policy: a later scalar wins, lists grow, denials stay.

use super::document::{self, Document};
use super::effective::{Effective, EnvRule};
use super::layer::{Layer, Setting};
use super::names::{Protection, Strength};
use super::paths::{Access, Bind, BindSpec};

impl Effective {
    /// Takes what `document` says, in the name of `layer`. Whether that layer may say it was checked
    /// before (`validate`, `tighten`).
    pub(super) fn merge(&mut self, document: Document, layer: &Layer) {
        let Document {
            profile,
            agent_cmd,
            adapter,
            files,
            env,
            network,
            limits,
            protect,
            protections,
            api,
            bridge,
            sandbox,
        } = document;

        put(&mut self.profile, profile, layer);
        put_optional(&mut self.agent_cmd, agent_cmd, layer);
        put_optional(&mut self.adapter, adapter, layer);
        self.merge_files(files, layer);
        self.merge_env(env, layer);
        let document::NetworkTable { mode } = network;
        put(&mut self.network, mode, layer);
        self.merge_limits(limits, layer);

        let document::Protect { git_config, paths, missing } = protect;
        put(&mut self.protect.git_config, git_config, layer);
        put(&mut self.protect.missing, missing, layer);
        add(&mut self.protect.paths, paths, layer);

        // After the limits: `limits.memory` requires the limit, and `prefer = ["memory"]` beside it is the
        // more exact word.
        let document::Protections { require, prefer } = protections;
        self.set_strength(require, Strength::Require, layer);
        self.set_strength(prefer, Strength::Prefer, layer);

        let document::Api { socket } = api;
        put_optional(&mut self.api_socket, socket, layer);
        let document::Bridge { socket, control } = bridge;
        put_optional(&mut self.bridge_socket, socket, layer);
        put_optional(&mut self.control_socket, control, layer);
        let document::Sandbox { id_range, uid, gid } = sandbox;
        put(&mut self.ids.range, id_range, layer);
        put_optional(&mut self.ids.uid, uid, layer);
        put_optional(&mut self.ids.gid, gid, layer);
    }

    fn merge_files(&mut self, files: document::Files, layer: &Layer) {
        let document::Files { ro, rw, home, tmp_size, hide } = files;
        let binds = |specs: Vec<BindSpec>, access| {
            specs.into_iter().map(move |spec| Bind {
                dest: spec.dest().to_owned(),
                source: spec.source,
                access,
            })
        };
        for bind in binds(ro, Access::ReadOnly).chain(binds(rw, Access::ReadWrite)) {
            // Two mounts on one place would hide one of them: the later word replaces the earlier.
            let earlier = self.files.binds.iter_mut().find(|earlier| earlier.value.dest == bind.dest);
            match earlier {
                Some(earlier) => *earlier = Setting::new(bind, layer),
                None => self.files.binds.push(Setting::new(bind, layer)),
            }
        }
        put(&mut self.files.home, home, layer);
        put_optional(&mut self.files.tmp_size, tmp_size, layer);
        add(&mut self.files.hide, hide, layer);
    }

    fn merge_env(&mut self, env: document::Env, layer: &Layer) {
        let document::Env { pass, set, deny } = env;
        let passed = pass.into_iter().map(|name| (name, EnvRule::Pass));
        let set = set.into_iter().map(|(name, value)| (name, EnvRule::Set(value)));
        for (name, rule) in passed.chain(set) {
            match self.env.rules.get(&name) {
                // A folder that repeats a rule does not become its owner: `environment` trusts owners.
                Some(earlier) if earlier.value == rule && layer.is_folder() => {}
                _ => drop(self.env.rules.insert(name, Setting::new(rule, layer))),
            }
        }
        for name in deny {
            self.env.deny.entry(name).or_insert_with(|| layer.clone());
        }
    }

    fn merge_limits(&mut self, limits: document::Limits, layer: &Layer) {
        let document::Limits { memory, disk, fsize, cpus, pids, nofile, timeout } = limits;
        let named = [
            (memory.is_some(), Protection::Memory),
            (disk.is_some(), Protection::Disk),
            (cpus.is_some(), Protection::Cpu),
            (pids.is_some(), Protection::Pids),
        ];
        let named = named.into_iter().filter_map(|(named, protection)| named.then_some(protection));
        self.set_strength(named, Strength::Require, layer);

        put(&mut self.limits.memory, memory, layer);
        put(&mut self.limits.disk, disk, layer);
        put_optional(&mut self.limits.fsize, fsize, layer);
        put(&mut self.limits.cpus, cpus, layer);
        put(&mut self.limits.pids, pids, layer);
        put(&mut self.limits.nofile, nofile, layer);
        put_optional(&mut self.limits.timeout, timeout, layer);
    }

    fn set_strength(
        &mut self,
        which: impl IntoIterator<Item = Protection>,
        strength: Strength,
        layer: &Layer,
    ) {
        for protection in which {
            self.protections.insert(protection, Setting::new(strength, layer));
        }
    }
}

/// The later layer wins, if it says anything.
fn put<T>(slot: &mut Setting<T>, value: Option<T>, layer: &Layer) {
    if let Some(value) = value {
        *slot = Setting::new(value, layer);
    }
}

/// As [`put`], for what has no built-in value.
fn put_optional<T>(slot: &mut Option<Setting<T>>, value: Option<T>, layer: &Layer) {
    if let Some(value) = value {
        *slot = Some(Setting::new(value, layer));
    }
}

/// A list grows; what is there keeps the layer that first said it.
fn add<T: PartialEq>(list: &mut Vec<Setting<T>>, more: Vec<T>, layer: &Layer) {
    for value in more {
        if !list.iter().any(|earlier| earlier.value == value) {
            list.push(Setting::new(value, layer));
        }
    }
}
