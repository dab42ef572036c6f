//! How a document goes into the policy: a later scalar wins, lists grow, denials stay.

use super::document::{self, Document};
use super::effective::{Api, Effective, EnvRule, Lock};
use super::layer::{Layer, Setting};
use super::names::{Part, Protection, Strength};
use super::paths::{Access, Bind, BindSpec};
use super::permission::Modes;
use super::provenance::Admitted;
use super::resources::Rates;
use std::sync::Arc;

impl Effective {
    /// Takes what an admitted document says, in the name of its layer.
    pub(super) fn take(&mut self, admitted: Admitted<'_>) {
        self.merge_document(admitted.document, admitted.layer);
    }

    /// Takes a document whatever it says, as tests of the policy do.
    #[cfg(test)]
    pub(in crate::spec) fn merge(&mut self, document: Document, layer: &Layer) {
        self.merge_document(document, layer);
    }

    fn merge_document(&mut self, document: Document, layer: &Layer) {
        let Document {
            profile,
            agent_cmd,
            adapter,
            locked,
            files,
            env,
            network,
            limits,
            protect,
            protections,
            api,
            bridge,
            permissions,
            sandbox,
        } = document;

        put(&mut self.profile, profile, layer);
        put_optional(&mut self.agent_cmd, agent_cmd, layer);
        put_optional(&mut self.adapter, adapter, layer);
        self.merge_files(files, layer);
        self.merge_env(env, layer);
        self.merge_network(network, layer);
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

        self.merge_api(api, layer);
        let document::Bridge { socket, control, allow_reachable, directory, remembered, spool } = bridge;
        put_optional(&mut self.bridge_socket, socket, layer);
        put_optional(&mut self.control_socket, control, layer);
        put(&mut self.allow_reachable, allow_reachable, layer);
        put_optional(&mut self.bridge_directory, directory, layer);
        put(&mut self.remembered, remembered, layer);
        put(&mut self.spool, spool, layer);
        let document::Permissions { allow, deny, ask, timeout, modes } = permissions;
        add(&mut self.permissions.allow, allow, layer);
        add(&mut self.permissions.deny, deny, layer);
        add(&mut self.permissions.ask, ask, layer);
        put(&mut self.permissions.timeout, timeout, layer);
        put_optional(&mut self.permissions.modes, modes.map(Modes), layer);
        let document::Sandbox { id_range, uid, gid } = sandbox;
        put(&mut self.ids.range, id_range, layer);
        put_optional(&mut self.ids.uid, uid, layer);
        put_optional(&mut self.ids.gid, gid, layer);
        self.lock(locked, layer);
    }

    /// Locks parts as they are now.
    fn lock(&mut self, parts: Vec<Part>, layer: &Layer) {
        if parts.is_empty() {
            return;
        }
        let bounds = Arc::new(self.clone());
        for part in parts {
            if !self.locked.iter().any(|lock| lock.part == part && lock.layer == *layer) {
                self.locked.push(Lock { part, layer: layer.clone(), bounds: Arc::clone(&bounds) });
            }
        }
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
                Some(earlier) if earlier.value == bind && layer.is_folder() => {}
                // What a folder takes away is access alone: the source stays the one that an operator named.
                Some(earlier) if layer.is_folder() && earlier.value.source != bind.source => {}
                Some(earlier) => *earlier = Setting::new(bind, layer),
                None if layer.is_folder() => {}
                None => self.files.binds.push(Setting::new(bind, layer)),
            }
        }
        put(&mut self.files.home, home, layer);
        put_optional(&mut self.files.tmp_size, tmp_size, layer);
        add(&mut self.files.hide, hide, layer);
    }

    fn merge_network(&mut self, network: document::NetworkTable, layer: &Layer) {
        let meant = network.meant_mode();
        // A folder may name hosts in place of the host's whole network, and of nothing else (`tighten`). A later
        // word on the network takes that back, and then they are nothing that an operator has allowed.
        if meant.is_some() && !layer.is_folder() {
            self.hosts.allow.retain(|rule| !rule.layer.is_folder());
            self.hosts.ask.retain(|rule| !rule.layer.is_folder());
        }
        let document::NetworkTable { mode: _, allow, deny, ask, publish, sockets } = network;
        put(&mut self.network, meant, layer);
        add(&mut self.hosts.allow, allow, layer);
        add(&mut self.hosts.deny, deny, layer);
        add(&mut self.hosts.ask, ask, layer);
        add(&mut self.publish, publish, layer);
        for socket in sockets {
            match self.sockets.iter_mut().find(|earlier| earlier.value.dest() == socket.dest()) {
                // A folder that repeats one does not become its owner.
                Some(earlier) if earlier.value.source == socket.source => {}
                Some(earlier) => *earlier = Setting::new(socket, layer),
                None => self.sockets.push(Setting::new(socket, layer)),
            }
        }
    }

    /// A key goes nowhere but where its own layer, or one before, has sent it: a later upstream has none yet. And of
    /// the two ways to the API the later stands.
    fn merge_api(&mut self, api: document::Api, layer: &Layer) {
        let document::Api { socket, upstream, key_file, header, ca_file } = api;
        let new_socket = socket.is_some() && socket.as_ref() != value(&self.api_socket);
        let new_upstream = upstream.is_some() && upstream.as_ref() != value(&self.api.upstream);
        if new_socket || new_upstream {
            self.api = Api::default();
        }
        if upstream.is_some() {
            self.api_socket = None;
        }
        put_optional(&mut self.api_socket, socket, layer);
        put_optional(&mut self.api.upstream, upstream, layer);
        put_optional(&mut self.api.key_file, key_file, layer);
        put_optional(&mut self.api.header, header, layer);
        put_optional(&mut self.api.ca_file, ca_file, layer);
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
        let document::Limits {
            memory,
            memory_high,
            swap,
            hugetlb,
            disk,
            inodes,
            fsize,
            cpus,
            cpu_burst,
            cpu_weight,
            cpu_idle,
            cpuset_cpus,
            cpuset_mems,
            io,
            io_weight,
            pids,
            nofile,
            timeout,
            at_timeout,
            cpu_time,
            idle,
            script,
        } = limits;
        let named = [
            (memory.is_some(), Protection::Memory),
            (disk.is_some() || inodes.is_some(), Protection::Disk),
            (cpus.is_some(), Protection::Cpu),
            (pids.is_some(), Protection::Pids),
        ];
        let named = named.into_iter().filter_map(|(named, protection)| named.then_some(protection));
        self.set_strength(named, Strength::Require, layer);

        put(&mut self.limits.memory, memory, layer);
        put(&mut self.limits.disk, disk, layer);
        put(&mut self.limits.inodes, inodes, layer);
        put_optional(&mut self.limits.fsize, fsize, layer);
        put(&mut self.limits.cpus, cpus, layer);
        put(&mut self.limits.pids, pids, layer);
        put(&mut self.limits.nofile, nofile, layer);
        put_optional(&mut self.limits.timeout, timeout, layer);
        put_optional(&mut self.limits.cpu_time, cpu_time, layer);
        put(&mut self.limits.at_timeout, at_timeout, layer);
        put_optional(&mut self.limits.idle, idle, layer);
        put(&mut self.limits.script, script, layer);

        put_optional(&mut self.limits.memory_high, memory_high, layer);
        put_optional(&mut self.limits.swap, swap, layer);
        for (page, size) in hugetlb {
            self.limits.hugetlb.insert(page, Setting::new(size, layer));
        }
        put_optional(&mut self.limits.cpu_burst, cpu_burst, layer);
        put_optional(&mut self.limits.cpu_weight, cpu_weight, layer);
        put_optional(&mut self.limits.cpu_idle, cpu_idle, layer);
        put_optional(&mut self.limits.cpuset_cpus, cpuset_cpus, layer);
        put_optional(&mut self.limits.cpuset_mems, cpuset_mems, layer);
        for (disk, Rates { read_bps, write_bps, read_iops, write_iops }) in io {
            let held = self.limits.io.entry(disk).or_default();
            put_optional(&mut held.read_bps, read_bps, layer);
            put_optional(&mut held.write_bps, write_bps, layer);
            put_optional(&mut held.read_iops, read_iops, layer);
            put_optional(&mut held.write_iops, write_iops, layer);
        }
        put_optional(&mut self.limits.io_weight, io_weight, layer);
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

/// What holds, whoever said it.
fn value<T>(setting: &Option<Setting<T>>) -> Option<&T> {
    setting.as_ref().map(|setting| &setting.value)
}

/// The later layer wins, if it says anything; a folder that repeats what a named layer said does not become its owner.
fn put<T: PartialEq>(slot: &mut Setting<T>, value: Option<T>, layer: &Layer) {
    if let Some(value) = value
        && !(layer.is_folder() && slot.is_named() && slot.value == value)
    {
        *slot = Setting::new(value, layer);
    }
}

/// As [`put`], for what has no built-in value.
fn put_optional<T: PartialEq>(slot: &mut Option<Setting<T>>, value: Option<T>, layer: &Layer) {
    if let Some(value) = value
        && !(layer.is_folder() && slot.as_ref().is_some_and(|held| held.value == value))
    {
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
