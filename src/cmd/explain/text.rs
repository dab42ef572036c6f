//! The report for people: sections, and columns that stand below one another.

use super::environment::Owner;
use super::report::{Files, Report, Valued};
use crate::text::line;
use std::fmt::{self, Display, Formatter};

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Valued { value, layer, what } = &self.profile;
        writeln!(f, "profile {value} ({layer}): {what}")?;
        writeln!(f, "workspace {}", line(&self.workspace))?;
        files(&self.files, f)?;
        self.environment(f)?;
        self.system_calls(f)?;
        self.landlock(f)?;
        self.limits(f)?;
        write!(f, "{}", self.network)?;
        if !self.api.is_empty() {
            let rows = self
                .api
                .iter()
                .map(|row| [row.key.replace("api.", ""), row.value.clone(), row.layer.to_string()]);
            let title = match self.api.iter().any(|row| row.key == "api.upstream") {
                true => "model API, to which saggar adds the key outside",
                false => "model API",
            };
            section(f, title, rows, "none")?;
        }
        let rows = self
            .permissions
            .iter()
            .map(|row| [row.key.replace("permissions.", ""), row.value.clone(), row.layer.to_string()]);
        section(f, "questions of the agent", rows, "asked")?;
        if !self.scripts.is_empty() {
            let rows = self.scripts.iter().map(|script| {
                let limit = format!("{} ({})", script.limit, script.layer);
                [script.name.to_owned(), script.when.to_owned(), limit]
            });
            section(f, "scripts of the folder, inside, before the agent", rows, "none")?;
        }
        if !self.locked.is_empty() {
            let rows = self.locked.iter().map(|row| [row.value.clone(), row.layer.to_string()]);
            section(f, "locked, so that nobody widens it any more", rows, "nothing")?;
        }
        let rows = self
            .bridge
            .iter()
            .map(|row| [row.key.replace("bridge.", ""), row.value.clone(), row.layer.to_string()]);
        section(f, "bridge of an agent", rows, "as it is built in")?;
        let (inside, outside) = (&self.identity.inside, &self.identity.outside);
        writeln!(f, "\nidentity\n  inside   uid {} gid {}, no capability", inside.uid, inside.gid)?;
        writeln!(f, "  outside  uid {} gid {}: {}", outside.uid, outside.gid, self.identity.what)?;
        writeln!(f, "\nnamespaces of its own\n  {}", self.namespaces.join(" "))?;
        let rows = self.degraded.iter().map(|lack| [lack.what.clone(), lack.why.clone()]);
        section(f, "degraded", rows, "nothing: every protection holds")
    }
}

impl Report {
    fn environment(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let rows = self.environment.iter().map(|variable| {
            let value = match (&variable.value, variable.from) {
                (Some(value), _) => format!("= {}", line(value)),
                (None, Owner::Caller) => "the caller's value".to_owned(),
                (None, Owner::Policy) => "a value that is not shown".to_owned(),
                (None, Owner::Saggar) => "known at the start".to_owned(),
            };
            [variable.name.clone(), variable.layer.clone(), value]
        });
        section(f, "environment", rows, "empty")
    }

    fn system_calls(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let calls = &self.system_calls;
        let heading =
            format!("system calls: profile {}, {} allowed, refused are", calls.profile, calls.allowed);
        let rows = calls.refused.iter().map(|refused| {
            let part = if refused.in_part { "in part" } else { "" };
            [refused.group.to_owned(), part.to_owned(), refused.why.to_owned()]
        });
        section(f, &heading, rows, "none")
    }

    fn landlock(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.landlock.abi == 0 {
            return writeln!(f, "\nlandlock\n  no domain");
        }
        let scopes = match self.landlock.scopes.join(" and ") {
            none if none.is_empty() => "no scopes".to_owned(),
            scopes => format!("{scopes} of the host are out of reach"),
        };
        let heading = format!("landlock: ABI {}, {scopes}", self.landlock.abi);
        let rules = self.landlock.rules.iter().map(|rule| [rule.path.clone(), rule.words.to_owned()]);
        let ports = self.landlock.ports.iter().map(|port| [format!("TCP port {port}"), "connect".to_owned()]);
        let rows = rules.chain(ports);
        section(f, &heading, rows, "no file rules")
    }

    fn limits(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let rows = self.limits.iter().map(|row| {
            let holds = if row.holds { "holds" } else { "degraded" };
            [row.name.to_owned(), row.value.clone(), row.layer.clone(), format!("{holds}: {}", row.why)]
        });
        section(f, "limits", rows, "none")
    }
}

fn files(files: &Files, f: &mut Formatter<'_>) -> fmt::Result {
    let mounts = files.mounts.iter().map(|mount| {
        let access = if mount.writable { "read-write" } else { "read-only" };
        [mount.path.clone(), access.to_owned(), mount.what.clone(), mount.layer.clone(), mount.why.clone()]
    });
    section(f, "files", mounts, "none")?;
    let pins = files.protected.iter().map(|pin| {
        let how = match (pin.read_only, pin.made) {
            (true, true) => "read-only, made at the start",
            (true, false) => "read-only",
            (false, _) => "cannot be renamed",
        };
        [pin.path.clone(), how.to_owned(), pin.layer.clone(), pin.why.clone()]
    });
    section(f, "protected in writable files", pins, "nothing")?;
    let links = files.links.iter().map(|link| [link.path.clone(), format!("-> {}", link.target)]);
    section(f, "links", links, "none")?;
    section(f, "files that saggar writes", files.made.iter().map(|path| [path.clone()]), "none")?;
    let masks = files.masks.iter().map(|mask| [mask.path.clone(), mask.how.to_owned()]);
    section(f, "masks", masks, "none")
}

/// A heading and rows in columns, or one line that says there are none.
fn section<const N: usize>(
    f: &mut Formatter<'_>,
    heading: &str,
    rows: impl Iterator<Item = [String; N]>,
    none: &str,
) -> fmt::Result {
    let shown = |row: [String; N]| row.map(|cell| line(&cell).into_owned());
    let rows: Vec<[String; N]> = rows.map(shown).collect();
    writeln!(f, "\n{heading}")?;
    if rows.is_empty() {
        return writeln!(f, "  {none}");
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    for row in &rows {
        let mut text = String::from(" ");
        for (cell, width) in row.iter().zip(&widths) {
            text.push_str(&format!(" {cell:<width$} "));
        }
        writeln!(f, "{}", text.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::environment::Variable;
    use super::super::landlock::{Landlock, Rule};
    use super::super::limits::Row;
    use super::super::network::Network;
    use super::super::report::{Calls, Identity, Ids, Lack, Link, Mask, MountRow, PinRow, Refused};
    use super::*;
    use crate::spec::policy;

    fn mount(path: &str, what: &str, writable: bool, layer: &str, why: &str) -> MountRow {
        let [path, what, layer, why] = [path, what, layer, why].map(str::to_owned);
        MountRow { path, what, writable, layer, why }
    }

    fn report() -> Report {
        let row = |name, value: &str, named, holds, why: &str| Row {
            name,
            value: value.to_owned(),
            layer: if named { "command line" } else { "built-in" }.to_owned(),
            named,
            holds,
            why: why.to_owned(),
        };
        Report {
            version: 1,
            profile: Valued { value: "strict".into(), layer: "built-in".into(), what: "an allow-list" },
            workspace: "/srv/work".into(),
            files: Files {
                mounts: vec![
                    mount("/usr", "of the host", false, "built-in", "programs and libraries"),
                    mount("/srv/work", "of the host", true, "command line", "the workspace"),
                ],
                links: vec![Link { path: "/bin".into(), target: "usr/bin".into() }],
                made: vec!["/etc/passwd".into()],
                protected: vec![PinRow {
                    path: "/srv/work/.git/hooks".into(),
                    read_only: true,
                    made: true,
                    layer: "built-in".into(),
                    why: "decides what the host's git runs".into(),
                }],
                masks: vec![Mask { path: "/proc/kcore".into(), how: "/dev/null lies over it" }],
            },
            environment: vec![
                Variable {
                    name: "ANTHROPIC_API_KEY".into(),
                    from: Owner::Caller,
                    value: None,
                    layer: "built-in".into(),
                },
                Variable {
                    name: "HOME".into(),
                    from: Owner::Saggar,
                    value: Some("/home/agent".into()),
                    layer: "built-in".into(),
                },
            ],
            system_calls: Calls {
                profile: "agent",
                what: "programs",
                allowed: 2,
                refused: vec![Refused {
                    group: "keys",
                    why: "shared by uid",
                    in_part: true,
                    calls: &["keyctl"],
                }],
            },
            landlock: Landlock {
                abi: 6,
                handled: vec!["execute"],
                rules: vec![Rule { path: "/usr".into(), words: "read and execute", rights: vec!["execute"] }],
                ports: vec![443],
                scopes: vec!["signals"],
            },
            limits: vec![
                row("memory", "2G", false, false, "no cgroup"),
                row("timeout", "10m", true, true, "saggar kills everything then"),
            ],
            network: Network {
                mode: Valued { value: "policy".into(), layer: "command line".into(), what: "what is named" },
                rules: vec![
                    policy::show::Row {
                        key: "network.allow",
                        value: "*.example.org:443".into(),
                        layer: policy::Layer::CommandLine,
                    },
                    policy::show::Row {
                        key: "network.deny",
                        value: "evil.example.org".into(),
                        layer: policy::Layer::BuiltIn,
                    },
                ],
                warnings: Vec::new(),
            },
            api: Vec::new(),
            permissions: vec![
                policy::show::Row {
                    key: "permissions.deny",
                    value: "Bash(rm *)".into(),
                    layer: policy::Layer::CommandLine,
                },
                policy::show::Row {
                    key: "permissions.timeout",
                    value: "10m".into(),
                    layer: policy::Layer::BuiltIn,
                },
            ],
            locked: Vec::new(),
            scripts: Vec::new(),
            bridge: vec![policy::show::Row {
                key: "bridge.spool",
                value: "64M".into(),
                layer: policy::Layer::BuiltIn,
            }],
            identity: Identity {
                inside: Ids { uid: 1000, gid: 1000 },
                outside: Ids { uid: 1_879_049_192, gid: 1_879_049_192 },
                what: "a block",
            },
            namespaces: vec!["user", "mount"],
            degraded: vec![Lack { what: "memory".into(), why: "no cgroup".into() }],
        }
    }

    #[test]
    fn the_report_reads_well() {
        insta::assert_snapshot!(report().to_string());
    }

    #[test]
    fn the_json_is_stable() {
        insta::assert_json_snapshot!(report());
    }
}
