//! The effective policy as rows of key, value and layer, for `explain`, as text and as
//! JSON.

use super::effective::{EffectivePolicy, EnvRule};
use super::layer::{PolicyLayer, Setting};
use super::names::ProtectionStrength;
use super::paths::BindAccess;
use serde::{Serialize, Serializer};
use std::fmt::{self, Display};

/// One value of the policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PolicyRow {
    /// The key, as in a policy file.
    pub key: &'static str,
    /// The value; for a list, one element.
    pub value: String,
    /// The layer that set it.
    #[serde(serialize_with = "as_text")]
    pub layer: PolicyLayer,
}

fn as_text<S: Serializer>(layer: &PolicyLayer, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(layer)
}

impl EffectivePolicy {
    /// Every value of the effective policy, in the order of saggar-policy(5). Values of `env.set` are
    /// omitted: they may be secrets.
    pub fn rows(&self) -> Vec<PolicyRow> {
        let mut rows = PolicyRows(Vec::new());
        rows.push_setting("profile", &self.profile);
        rows.push_settings("agent_cmd", &self.agent_cmd);
        rows.push_settings("adapter", &self.adapter);
        for lock in &self.locked {
            rows.push("locked", lock.part, &lock.layer);
        }
        for bind in &self.files.binds {
            let Setting { value, layer } = bind;
            let key = if value.access == BindAccess::ReadWrite { "files.rw" } else { "files.ro" };
            let text = match value.source == value.destination {
                true => value.source.display().to_string(),
                false => format!("{}:{}", value.source.display(), value.destination.display()),
            };
            rows.push(key, text, layer);
        }
        rows.push_setting("files.home", &self.files.home);
        rows.push_setting("files.tmp_size", &self.tmp_size());
        rows.push_settings("files.hide", &self.files.hide);
        let (passed, set): (Vec<_>, Vec<_>) =
            self.env.rules.iter().partition(|(_, rule)| rule.value == EnvRule::Pass);
        for (key, rules) in [("env.pass", passed), ("env.set", set)] {
            for (name, rule) in rules {
                rows.push(key, name, &rule.layer);
            }
        }
        for (name, layer) in &self.env.deny {
            rows.push("env.deny", name, layer);
        }
        rows.push_setting("network.mode", &self.network);
        rows.push_settings("network.allow", &self.hosts.allow);
        rows.push_settings("network.deny", &self.hosts.deny);
        rows.push_settings("network.ask", &self.hosts.ask);
        rows.push_settings("network.publish", &self.publish);
        rows.push_settings("network.sockets", &self.sockets);
        let limits = &self.limits;
        rows.push_setting("limits.memory", &limits.memory);
        rows.push_settings("limits.memory_high", &limits.memory_high);
        rows.push_settings("limits.swap", &limits.swap);
        for (page, size) in &limits.hugetlb {
            rows.push("limits.hugetlb", format!("{page}={}", size.value), &size.layer);
        }
        rows.push_setting("limits.disk", &limits.disk);
        rows.push_setting("limits.inodes", &limits.inodes);
        rows.push_setting("limits.fsize", &self.fsize());
        rows.push_setting("limits.cpus", &limits.cpus);
        rows.push_settings("limits.cpu_burst", &limits.cpu_burst);
        rows.push_settings("limits.cpu_weight", &limits.cpu_weight);
        rows.push_settings("limits.cpu_idle", &limits.cpu_idle);
        rows.push_settings("limits.cpuset_cpus", &limits.cpuset_cpus);
        rows.push_settings("limits.cpuset_mems", &limits.cpuset_mems);
        for (disk, rates) in &limits.io {
            for (name, value, layer) in rates.named_rates() {
                rows.push("limits.io", format!("{disk}:{name}={value}"), layer);
            }
        }
        rows.push_settings("limits.io_weight", &limits.io_weight);
        rows.push_setting("limits.pids", &limits.pids);
        rows.push_setting("limits.nofile", &limits.nofile);
        rows.push_settings("limits.timeout", &limits.timeout);
        rows.push_setting("limits.at_timeout", &limits.at_timeout);
        rows.push_settings("limits.cpu_time", &limits.cpu_time);
        rows.push_settings("limits.idle", &limits.idle);
        rows.push_settings("limits.agent_idle", &limits.agent_idle);
        rows.push_setting("limits.script", &limits.script);
        rows.push_setting("protect.git_config", &self.protect.git_config);
        rows.push_settings("protect.paths", &self.protect.paths);
        rows.push_setting("protect.missing", &self.protect.missing);
        let (required, preferred): (Vec<_>, Vec<_>) =
            self.protections.iter().partition(|(_, strength)| strength.value == ProtectionStrength::Require);
        for (key, protections) in [("protections.require", required), ("protections.prefer", preferred)] {
            for (protection, strength) in protections {
                rows.push(key, protection, &strength.layer);
            }
        }
        if self.quiet_degraded.is_named() {
            rows.push_setting("protections.quiet", &self.quiet_degraded);
        }
        rows.push_settings("api.socket", &self.api_socket);
        rows.push_settings("api.upstream", &self.api.upstream);
        rows.push_settings("api.key_file", &self.api.key_file);
        rows.push_settings("api.header", &self.api.header);
        rows.push_settings("api.ca_file", &self.api.ca_file);
        rows.push_settings("bridge.socket", &self.bridge_socket);
        rows.push_settings("bridge.control", &self.control_socket);
        rows.push_setting("bridge.allow_reachable", &self.allow_reachable);
        rows.push_settings("bridge.directory", &self.bridge_directory);
        rows.push_setting("bridge.remembered", &self.remembered_uuids);
        rows.push_setting("bridge.spool", &self.spool_size);
        let mailbox = &self.mailbox;
        rows.push_settings("mailbox.run", &mailbox.run);
        rows.push_settings("mailbox.name", &mailbox.name);
        rows.push_settings("mailbox.root", &mailbox.root);
        rows.push_settings("mailbox.repo", &mailbox.repo);
        if mailbox.run.is_some() || mailbox.register.is_named() {
            rows.push_setting("mailbox.register", &mailbox.register);
        }
        rows.push_settings("mcp.sessions", &self.mcp_sessions);
        rows.push_settings("permissions.allow", &self.permissions.allow);
        rows.push_settings("permissions.deny", &self.permissions.deny);
        rows.push_settings("permissions.ask", &self.permissions.ask);
        rows.push_setting("permissions.timeout", &self.permissions.timeout);
        rows.push_settings("permissions.modes", &self.permissions.modes);
        rows.push_setting("sandbox.id_range", &self.ids.range);
        rows.push_settings("sandbox.uid", &self.ids.uid);
        rows.push_settings("sandbox.gid", &self.ids.gid);
        let cgroup = &self.cgroup;
        if cgroup.parent.is_named() {
            rows.push_setting("sandbox.cgroup_parent", &cgroup.parent);
        }
        if cgroup.driver.is_named() {
            rows.push_setting("sandbox.cgroup_driver", &cgroup.driver);
        }
        if self.keep_session.is_named() {
            rows.push_setting("sandbox.keep_session", &self.keep_session);
        }
        rows.0
    }
}

/// One line per row. Adjacent rows with the same key and layer share a line.
impl Display for EffectivePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows = self.rows().into_iter().peekable();
        while let Some(PolicyRow { key, mut value, layer }) = rows.next() {
            while let Some(next) = rows.next_if(|next| next.key == key && next.layer == layer) {
                value.push(' ');
                value.push_str(&next.value);
            }
            writeln!(f, "{key} = {}  ({layer})", saggar_sys::text::one_line(&value))?;
        }
        Ok(())
    }
}

struct PolicyRows(Vec<PolicyRow>);

impl PolicyRows {
    fn push(&mut self, key: &'static str, value: impl Display, layer: &PolicyLayer) {
        self.0.push(PolicyRow { key, value: value.to_string(), layer: layer.clone() });
    }

    fn push_setting<T: Display>(&mut self, key: &'static str, setting: &Setting<T>) {
        self.push(key, &setting.value, &setting.layer);
    }

    fn push_settings<'a, T: Display + 'a>(
        &mut self,
        key: &'static str,
        settings: impl IntoIterator<Item = &'a Setting<T>>,
    ) {
        for setting in settings {
            self.push_setting(key, setting);
        }
    }
}
