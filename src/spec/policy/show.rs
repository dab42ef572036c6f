//! The policy that holds, as rows of key, value and layer: for `explain`, as text and as JSON.

use super::effective::{Effective, EnvRule};
use super::layer::{Layer, Setting};
use super::names::Strength;
use super::paths::Access;
use serde::{Serialize, Serializer};
use std::fmt::{self, Display};

/// One value of the policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The key, as in a policy file.
    pub key: &'static str,
    /// The value; of a list, one element.
    pub value: String,
    /// The layer that set it.
    #[serde(serialize_with = "as_text")]
    pub layer: Layer,
}

fn as_text<S: Serializer>(layer: &Layer, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(layer)
}

impl Effective {
    /// Every value that holds, in the order of saggar-policy(5). Values of `env.set` are left out: they
    /// may be secrets.
    pub fn rows(&self) -> Vec<Row> {
        let mut rows = Rows(Vec::new());
        rows.one("profile", &self.profile);
        rows.many("agent_cmd", &self.agent_cmd);
        rows.many("adapter", &self.adapter);
        for lock in &self.locked {
            rows.push("locked", lock.part, &lock.layer);
        }
        for bind in &self.files.binds {
            let Setting { value, layer } = bind;
            let key = if value.access == Access::ReadWrite { "files.rw" } else { "files.ro" };
            let text = match value.source == value.dest {
                true => value.source.display().to_string(),
                false => format!("{}:{}", value.source.display(), value.dest.display()),
            };
            rows.push(key, text, layer);
        }
        rows.one("files.home", &self.files.home);
        rows.one("files.tmp_size", &self.tmp_size());
        rows.many("files.hide", &self.files.hide);
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
        rows.one("network.mode", &self.network);
        rows.many("network.allow", &self.hosts.allow);
        rows.many("network.deny", &self.hosts.deny);
        rows.many("network.ask", &self.hosts.ask);
        rows.many("network.publish", &self.publish);
        rows.many("network.sockets", &self.sockets);
        let limits = &self.limits;
        rows.one("limits.memory", &limits.memory);
        rows.many("limits.memory_high", &limits.memory_high);
        rows.many("limits.swap", &limits.swap);
        for (page, size) in &limits.hugetlb {
            rows.push("limits.hugetlb", format!("{page}={}", size.value), &size.layer);
        }
        rows.one("limits.disk", &limits.disk);
        rows.one("limits.inodes", &limits.inodes);
        rows.one("limits.fsize", &self.fsize());
        rows.one("limits.cpus", &limits.cpus);
        rows.many("limits.cpu_burst", &limits.cpu_burst);
        rows.many("limits.cpu_weight", &limits.cpu_weight);
        rows.many("limits.cpu_idle", &limits.cpu_idle);
        rows.many("limits.cpuset_cpus", &limits.cpuset_cpus);
        rows.many("limits.cpuset_mems", &limits.cpuset_mems);
        for (disk, rates) in &limits.io {
            for (name, value, layer) in rates.rows() {
                rows.push("limits.io", format!("{disk}:{name}={value}"), layer);
            }
        }
        rows.many("limits.io_weight", &limits.io_weight);
        rows.one("limits.pids", &limits.pids);
        rows.one("limits.nofile", &limits.nofile);
        rows.many("limits.timeout", &limits.timeout);
        rows.one("limits.at_timeout", &limits.at_timeout);
        rows.many("limits.cpu_time", &limits.cpu_time);
        rows.many("limits.idle", &limits.idle);
        rows.one("limits.script", &limits.script);
        rows.one("protect.git_config", &self.protect.git_config);
        rows.many("protect.paths", &self.protect.paths);
        rows.one("protect.missing", &self.protect.missing);
        let (required, preferred): (Vec<_>, Vec<_>) =
            self.protections.iter().partition(|(_, strength)| strength.value == Strength::Require);
        for (key, protections) in [("protections.require", required), ("protections.prefer", preferred)] {
            for (protection, strength) in protections {
                rows.push(key, protection, &strength.layer);
            }
        }
        rows.many("api.socket", &self.api_socket);
        rows.many("api.upstream", &self.api.upstream);
        rows.many("api.key_file", &self.api.key_file);
        rows.many("api.header", &self.api.header);
        rows.many("api.ca_file", &self.api.ca_file);
        rows.many("bridge.socket", &self.bridge_socket);
        rows.many("bridge.control", &self.control_socket);
        rows.one("bridge.allow_reachable", &self.allow_reachable);
        rows.many("bridge.directory", &self.bridge_directory);
        rows.one("bridge.remembered", &self.remembered);
        rows.one("bridge.spool", &self.spool);
        rows.many("permissions.allow", &self.permissions.allow);
        rows.many("permissions.deny", &self.permissions.deny);
        rows.many("permissions.ask", &self.permissions.ask);
        rows.one("permissions.timeout", &self.permissions.timeout);
        rows.many("permissions.modes", &self.permissions.modes);
        rows.one("sandbox.id_range", &self.ids.range);
        rows.many("sandbox.uid", &self.ids.uid);
        rows.many("sandbox.gid", &self.ids.gid);
        rows.0
    }
}

/// One line a row; neighbours with the same key and the same layer share one.
impl Display for Effective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows = self.rows().into_iter().peekable();
        while let Some(Row { key, mut value, layer }) = rows.next() {
            while let Some(next) = rows.next_if(|next| next.key == key && next.layer == layer) {
                value.push(' ');
                value.push_str(&next.value);
            }
            writeln!(f, "{key} = {}  ({layer})", crate::text::line(&value))?;
        }
        Ok(())
    }
}

struct Rows(Vec<Row>);

impl Rows {
    fn push(&mut self, key: &'static str, value: impl Display, layer: &Layer) {
        self.0.push(Row { key, value: value.to_string(), layer: layer.clone() });
    }

    fn one<T: Display>(&mut self, key: &'static str, setting: &Setting<T>) {
        self.push(key, &setting.value, &setting.layer);
    }

    fn many<'a, T: Display + 'a>(
        &mut self,
        key: &'static str,
        settings: impl IntoIterator<Item = &'a Setting<T>>,
    ) {
        for setting in settings {
            self.one(key, setting);
        }
    }
}
