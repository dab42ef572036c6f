//! Merges a document into the effective policy: a later scalar overrides, lists grow, denials are
//! permanent.

use super::document::{self, PolicyDocument};
use super::effective::{ApiPolicy, EffectivePolicy, EnvRule, PolicyLock};
use super::layer::{PolicyLayer, Setting};
use super::names::{PolicyPart, Protection, ProtectionStrength};
use super::paths::{BindAccess, BindMount, BindSpec};
use super::permission::PermissionModes;
use super::provenance::AdmittedDocument;
use super::resources::DiskRates;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

impl EffectivePolicy {
    /// Merges an admitted document as its layer.
    pub(super) fn merge_admitted(&mut self, admitted: AdmittedDocument<'_>) {
        self.merge_document(admitted.document, admitted.layer);
    }

    /// Merges a document without admission, for tests of the policy.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn merge(&mut self, document: PolicyDocument, layer: &PolicyLayer) {
        self.merge_document(document, layer);
    }

    fn merge_document(&mut self, document: PolicyDocument, layer: &PolicyLayer) {
        let PolicyDocument {
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
            mailbox,
            mcp,
            permissions,
            sandbox,
        } = document;

        set_value(&mut self.profile, profile, layer);
        set_optional_value(&mut self.agent_cmd, agent_cmd, layer);
        set_optional_value(&mut self.adapter, adapter, layer);
        self.merge_files(files, layer);
        self.merge_env(env, layer);
        self.merge_network(network, layer);
        self.merge_limits(limits, layer);

        let document::ProtectTable { git_config, paths, missing } = protect;
        set_value(&mut self.protect.git_config, git_config, layer);
        set_value(&mut self.protect.missing, missing, layer);
        extend_list(&mut self.protect.paths, paths, layer);

        // After the limits: `limits.memory` requires the limit, and `prefer = ["memory"]` in the same file
        // is the more specific setting.
        let strengths = protections.strengths();
        let document::ProtectionsTable { require: _, prefer: _, quiet } = protections;
        set_value(&mut self.quiet_degraded, quiet, layer);
        self.protections.extend(strengths.map(|(one, strength)| (one, Setting::new(strength, layer))));

        self.merge_api(api, layer);
        let document::BridgeTable { socket, control, allow_reachable, directory, remembered, spool } = bridge;
        set_optional_value(&mut self.bridge_socket, socket, layer);
        set_optional_value(&mut self.control_socket, control, layer);
        set_value(&mut self.allow_reachable, allow_reachable, layer);
        set_optional_value(&mut self.bridge_directory, directory, layer);
        set_value(&mut self.remembered_uuids, remembered, layer);
        set_value(&mut self.spool_size, spool, layer);
        let document::MailboxTable { run, name, root, repo, register } = mailbox;
        set_optional_value(&mut self.mailbox.run, run, layer);
        set_optional_value(&mut self.mailbox.name, name, layer);
        set_optional_value(&mut self.mailbox.root, root, layer);
        set_optional_value(&mut self.mailbox.repo, repo, layer);
        set_value(&mut self.mailbox.register, register, layer);
        let document::McpTable { sessions } = mcp;
        extend_list(&mut self.mcp_sessions, sessions, layer);
        let document::PermissionsTable { allow, deny, ask, timeout, modes } = permissions;
        extend_list(&mut self.permissions.allow, allow, layer);
        extend_list(&mut self.permissions.deny, deny, layer);
        extend_list(&mut self.permissions.ask, ask, layer);
        set_value(&mut self.permissions.timeout, timeout, layer);
        set_optional_value(&mut self.permissions.modes, modes.map(PermissionModes), layer);
        let document::SandboxTable { id_range, uid, gid, cgroup_parent, cgroup_driver, keep_session } =
            sandbox;
        set_value(&mut self.keep_session, keep_session, layer);
        set_value(&mut self.cgroup.parent, cgroup_parent, layer);
        set_value(&mut self.cgroup.driver, cgroup_driver, layer);
        set_value(&mut self.ids.range, id_range, layer);
        set_optional_value(&mut self.ids.uid, uid, layer);
        set_optional_value(&mut self.ids.gid, gid, layer);
        self.lock(locked, layer);
    }

    /// Locks parts with their current values.
    fn lock(&mut self, parts: Vec<PolicyPart>, layer: &PolicyLayer) {
        if parts.is_empty() {
            return;
        }
        let bounds = Arc::new(self.clone());
        for part in parts {
            if !self.locked.iter().any(|lock| lock.part == part && lock.layer == *layer) {
                self.locked.push(PolicyLock {
                    part,
                    layer: layer.clone(),
                    policy_at_lock: Arc::clone(&bounds),
                });
            }
        }
    }

    fn merge_files(&mut self, files: document::FilesTable, layer: &PolicyLayer) {
        let document::FilesTable { ro, rw, home, tmp_size, hide } = files;
        let binds = |specs: Vec<BindSpec>, access| {
            specs.into_iter().map(move |spec| BindMount {
                destination: spec.destination().to_owned(),
                source: spec.source,
                access,
            })
        };
        let held = self.files.binds.iter().enumerate();
        let mut positions: HashMap<PathBuf, usize> =
            held.map(|(at, earlier)| (earlier.value.destination.clone(), at)).collect();
        for bind in binds(ro, BindAccess::ReadOnly).chain(binds(rw, BindAccess::ReadWrite)) {
            // Of two mounts on one destination, one would hide the other: the later bind replaces the
            // earlier.
            let earlier = positions.get(&bind.destination).and_then(|at| self.files.binds.get_mut(*at));
            match earlier {
                Some(earlier) if earlier.value == bind && layer.is_agent_writable() => {}
                // A folder may only reduce access: the source stays the one that an operator named.
                Some(earlier) if layer.is_agent_writable() && earlier.value.source != bind.source => {}
                Some(earlier) => *earlier = Setting::new(bind, layer),
                None if layer.is_agent_writable() => {}
                None => {
                    positions.insert(bind.destination.clone(), self.files.binds.len());
                    self.files.binds.push(Setting::new(bind, layer));
                }
            }
        }
        set_value(&mut self.files.home, home, layer);
        set_optional_value(&mut self.files.tmp_size, tmp_size, layer);
        extend_list(&mut self.files.hide, hide, layer);
    }

    fn merge_network(&mut self, network: document::NetworkTable, layer: &PolicyLayer) {
        let meant = network.implied_mode();
        // A folder may name hosts only in place of the host's whole network (`tighten`). A later operator
        // setting of the network overrides that; the folder's hosts are then removed, because no operator
        // allowed them.
        if meant.is_some() && !layer.is_agent_writable() {
            self.hosts.allow.retain(|rule| !rule.layer.is_agent_writable());
            self.hosts.ask.retain(|rule| !rule.layer.is_agent_writable());
        }
        let document::NetworkTable { mode: _, allow, deny, ask, publish, sockets } = network;
        set_value(&mut self.network, meant, layer);
        extend_list(&mut self.hosts.allow, allow, layer);
        extend_list(&mut self.hosts.deny, deny, layer);
        extend_list(&mut self.hosts.ask, ask, layer);
        extend_list(&mut self.publish, publish, layer);
        for socket in sockets {
            match self.sockets.iter_mut().find(|earlier| earlier.value.destination() == socket.destination())
            {
                // A socket that a folder repeats keeps the operator's layer.
                Some(earlier) if earlier.value.source == socket.source => {}
                Some(earlier) => *earlier = Setting::new(socket, layer),
                None => self.sockets.push(Setting::new(socket, layer)),
            }
        }
    }

    /// A key is sent only to the upstream that its own layer or an earlier one set: a later upstream starts
    /// without a key. Of socket and upstream, the later setting applies.
    fn merge_api(&mut self, api: document::ApiTable, layer: &PolicyLayer) {
        let document::ApiTable { socket, upstream, key_file, header, ca_file } = api;
        let new_socket = socket.is_some() && socket.as_ref() != setting_value(&self.api_socket);
        let new_upstream = upstream.is_some() && upstream.as_ref() != setting_value(&self.api.upstream);
        if new_socket || new_upstream {
            self.api = ApiPolicy::default();
        }
        if upstream.is_some() {
            self.api_socket = None;
        }
        set_optional_value(&mut self.api_socket, socket, layer);
        set_optional_value(&mut self.api.upstream, upstream, layer);
        set_optional_value(&mut self.api.key_file, key_file, layer);
        set_optional_value(&mut self.api.header, header, layer);
        set_optional_value(&mut self.api.ca_file, ca_file, layer);
    }

    fn merge_env(&mut self, env: document::EnvTable, layer: &PolicyLayer) {
        let document::EnvTable { pass, set, deny } = env;
        let passed = pass.into_iter().map(|name| (name, EnvRule::Pass));
        let set = set.into_iter().map(|(name, value)| (name, EnvRule::Set(value)));
        for (name, rule) in passed.chain(set) {
            match self.env.rules.get(&name) {
                // A rule that a folder repeats keeps its layer: `environment` trusts layers.
                Some(earlier) if earlier.value == rule && layer.is_agent_writable() => {}
                _ => drop(self.env.rules.insert(name, Setting::new(rule, layer))),
            }
        }
        for name in deny {
            self.env.deny.entry(name).or_insert_with(|| layer.clone());
        }
    }

    fn merge_limits(&mut self, limits: document::LimitsTable, layer: &PolicyLayer) {
        let document::LimitsTable {
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
            agent_idle,
            script,
        } = limits;
        let named = [
            (memory.is_some(), Protection::Memory),
            (disk.is_some() || inodes.is_some(), Protection::Disk),
            (cpus.is_some(), Protection::Cpu),
            (pids.is_some(), Protection::Pids),
        ];
        let named = named.into_iter().filter_map(|(named, protection)| named.then_some(protection));
        let required = Setting::new(ProtectionStrength::Require, layer);
        self.protections.extend(named.map(|protection| (protection, required.clone())));

        set_value(&mut self.limits.memory, memory, layer);
        set_value(&mut self.limits.disk, disk, layer);
        set_value(&mut self.limits.inodes, inodes, layer);
        set_optional_value(&mut self.limits.fsize, fsize, layer);
        set_value(&mut self.limits.cpus, cpus, layer);
        set_value(&mut self.limits.pids, pids, layer);
        set_value(&mut self.limits.nofile, nofile, layer);
        set_optional_value(&mut self.limits.timeout, timeout, layer);
        set_optional_value(&mut self.limits.cpu_time, cpu_time, layer);
        set_value(&mut self.limits.at_timeout, at_timeout, layer);
        set_optional_value(&mut self.limits.idle, idle, layer);
        set_optional_value(&mut self.limits.agent_idle, agent_idle, layer);
        set_value(&mut self.limits.script, script, layer);

        set_optional_value(&mut self.limits.memory_high, memory_high, layer);
        set_optional_value(&mut self.limits.swap, swap, layer);
        for (page, size) in hugetlb {
            self.limits.hugetlb.insert(page, Setting::new(size, layer));
        }
        set_optional_value(&mut self.limits.cpu_burst, cpu_burst, layer);
        set_optional_value(&mut self.limits.cpu_weight, cpu_weight, layer);
        set_optional_value(&mut self.limits.cpu_idle, cpu_idle, layer);
        set_optional_value(&mut self.limits.cpuset_cpus, cpuset_cpus, layer);
        set_optional_value(&mut self.limits.cpuset_mems, cpuset_mems, layer);
        for (disk, DiskRates { read_bps, write_bps, read_iops, write_iops }) in io {
            let held = self.limits.io.entry(disk).or_default();
            set_optional_value(&mut held.read_bps, read_bps, layer);
            set_optional_value(&mut held.write_bps, write_bps, layer);
            set_optional_value(&mut held.read_iops, read_iops, layer);
            set_optional_value(&mut held.write_iops, write_iops, layer);
        }
        set_optional_value(&mut self.limits.io_weight, io_weight, layer);
    }
}

/// The value without its layer.
fn setting_value<T>(setting: &Option<Setting<T>>) -> Option<&T> {
    setting.as_ref().map(|setting| &setting.value)
}

/// Sets the value if the layer has one. A value that a folder repeats keeps the layer that set it.
fn set_value<T: PartialEq>(slot: &mut Setting<T>, value: Option<T>, layer: &PolicyLayer) {
    if let Some(value) = value
        && !(layer.is_agent_writable() && slot.is_named() && slot.value == value)
    {
        *slot = Setting::new(value, layer);
    }
}

/// As [`set_value`], for a setting without a built-in value.
fn set_optional_value<T: PartialEq>(slot: &mut Option<Setting<T>>, value: Option<T>, layer: &PolicyLayer) {
    if let Some(value) = value
        && !(layer.is_agent_writable() && slot.as_ref().is_some_and(|held| held.value == value))
    {
        *slot = Some(Setting::new(value, layer));
    }
}

/// Extends a list. An entry that exists keeps the layer that added it first.
fn extend_list<T: PartialEq>(list: &mut Vec<Setting<T>>, more: Vec<T>, layer: &PolicyLayer) {
    for value in more {
        if !list.iter().any(|earlier| earlier.value == value) {
            list.push(Setting::new(value, layer));
        }
    }
}
