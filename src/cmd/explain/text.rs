//! The report as text: sections with aligned columns.

use super::environment::VariableSource;
use super::report::{FilesSection, PolicyValue, SandboxReport};
use crate::spec::MailboxSpec;
use crate::spec::policy::rows::PolicyRow;
use crate::text::one_line;
use std::fmt::{self, Display, Formatter};

impl Display for SandboxReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let PolicyValue { value, layer, what } = &self.profile;
        writeln!(f, "profile {value} ({layer}): {what}")?;
        write!(f, "workspace {}", one_line(&self.workspace))?;
        if self.start_directory != self.workspace {
            write!(f, ", programs start in {}", one_line(&self.start_directory))?;
        }
        writeln!(f)?;
        if let Some(agent) = &self.agent {
            writeln!(f, "agent {agent}")?;
        }
        if let Some(problem) = &self.git_problem {
            writeln!(f, "{}", one_line(problem))?;
        }
        files(&self.files, f)?;
        self.environment(f)?;
        self.system_calls(f)?;
        self.landlock(f)?;
        self.limits(f)?;
        write!(f, "{}", self.network)?;
        if !self.api.is_empty() {
            let title = match self.api.iter().any(|row| row.key == "api.upstream") {
                true => "model API, to which saggar adds the key outside",
                false => "model API",
            };
            section(f, title, table_rows("api.", &self.api), "none")?;
        }
        if !self.mcp.is_empty() {
            section(f, "MCP clients outside (saggar mcp control)", table_rows("mcp.", &self.mcp), "none")?;
        }
        if !self.mailbox.is_empty() {
            let title = format!("mailbox, at {}", MailboxSpec::SOCKET_PATH);
            section(f, &title, table_rows("mailbox.", &self.mailbox), "none")?;
        }
        let rows = table_rows("permissions.", &self.permissions);
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
            section(f, "locked: later layers cannot widen it", rows, "nothing")?;
        }
        section(f, "bridge of an agent", table_rows("bridge.", &self.bridge), "as it is built in")?;
        self.processes(f)?;
        let (inside, outside) = (&self.identity.inside, &self.identity.outside);
        writeln!(f, "\nidentity\n  inside   uid {} gid {}, no capability", inside.uid, inside.gid)?;
        writeln!(f, "  outside  uid {} gid {}: {}", outside.uid, outside.gid, self.identity.what)?;
        writeln!(f, "\nnamespaces of its own\n  {}", self.namespaces.join(" "))?;
        let rows = self.degraded.iter().map(|entry| [entry.what.clone(), entry.why.clone()]);
        section(f, "degraded", rows, "nothing: every protection holds")
    }
}

impl SandboxReport {
    fn environment(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let rows = self.environment.iter().map(|variable| {
            let value = match (&variable.value, variable.from) {
                (Some(value), _) => format!("= {}", one_line(value)),
                (None, VariableSource::Caller) => "the caller's value".to_owned(),
                (None, VariableSource::Policy) => "a value that is not shown".to_owned(),
                (None, VariableSource::Saggar) => "known at the start".to_owned(),
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
        let rules = self.landlock.rules.iter().map(|rule| [rule.path.clone(), rule.description.to_owned()]);
        let ports = self.landlock.ports.iter().map(|port| [format!("TCP port {port}"), "connect".to_owned()]);
        let rows = rules.chain(ports);
        section(f, &heading, rows, "no file rules")
    }

    fn processes(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let rows = self.processes.iter().map(|process| {
            let user = match process.uid {
                Some(uid) => format!("uid {uid} ({})", process.user),
                None => process.user.to_owned(),
            };
            let capabilities = match process.capabilities.len() {
                0 => "no capability".to_owned(),
                // Root has all of them.
                more @ 20.. => format!("{more} capabilities"),
                _ => process.capabilities.join(" ").replace("CAP_", ""),
            };
            let filter = process.filter.map_or("no filter".to_owned(), |profile| format!("filter {profile}"));
            let landlock = process
                .landlock
                .map_or("no landlock domain".to_owned(), |allows| format!("landlock: {allows}"));
            [
                process.role.to_owned(),
                process.name.clone(),
                process.when.to_owned(),
                user,
                filter,
                landlock,
                capabilities,
            ]
        });
        section(f, "processes", rows, "none")
    }

    fn limits(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let rows = self.limits.iter().map(|row| {
            let holds = if row.holds { "holds" } else { "degraded" };
            [row.name.to_owned(), row.value.clone(), row.layer.clone(), format!("{holds}: {}", row.why)]
        });
        section(f, "limits", rows, "none")
    }
}

fn files(files: &FilesSection, f: &mut Formatter<'_>) -> fmt::Result {
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
    let masks = files.masks.iter().map(|mask| [mask.path.clone(), mask.how.to_owned(), mask.layer.clone()]);
    section(f, "masks", masks, "none")?;
    if files.unmatched.is_empty() {
        return Ok(());
    }
    let unmatched =
        files.unmatched.iter().map(|row| [row.key.to_owned(), row.value.clone(), row.layer.clone()]);
    section(f, "names nothing in the workspace", unmatched, "none")
}

/// The rows of a table of the policy, without its name.
fn table_rows<'a>(table: &'a str, rows: &'a [PolicyRow]) -> impl Iterator<Item = [String; 3]> + 'a {
    rows.iter().map(move |row| [row.key.replace(table, ""), row.value.clone(), row.layer.to_string()])
}

/// Formats a heading and rows in columns, or one line if there are no rows.
fn section<const N: usize>(
    f: &mut Formatter<'_>,
    heading: &str,
    rows: impl Iterator<Item = [String; N]>,
    none: &str,
) -> fmt::Result {
    let shown = |row: [String; N]| row.map(|cell| one_line(&cell).into_owned());
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
    use super::super::agent::AgentSection;
    use super::super::environment::VariableRow;
    use super::super::landlock::{LandlockRow, LandlockSection};
    use super::super::limits::LimitRow;
    use super::super::network::NetworkSection;
    use super::super::processes::ProcessRow;
    use super::super::report::{
        DegradedRow, IdentitySection, LinkRow, MaskRow, MountRow, PinRow, RefusedCalls, SystemCallsSection,
        UidAndGid, UnmatchedRow,
    };
    use super::*;
    use crate::spec::policy;

    fn mount(path: &str, what: &str, writable: bool, layer: &str, why: &str) -> MountRow {
        let [path, what, layer, why] = [path, what, layer, why].map(str::to_owned);
        MountRow { path, what, writable, layer, why }
    }

    fn report() -> SandboxReport {
        let row = |name, value: &str, named, holds, why: &str| LimitRow {
            name,
            value: value.to_owned(),
            layer: if named { "command line" } else { "built-in" }.to_owned(),
            named,
            holds,
            why: why.to_owned(),
        };
        SandboxReport {
            version: 1,
            profile: PolicyValue { value: "strict".into(), layer: "built-in".into(), what: "an allow-list" },
            workspace: "/srv/work".into(),
            start_directory: "/srv/work/src".into(),
            agent: Some(AgentSection::Program {
                command: vec!["claude".into(), "--verbose".into()],
                adapter: "stream-json".into(),
            }),
            git_problem: None,
            files: FilesSection {
                mounts: vec![
                    mount("/usr", "of the host", false, "built-in", "programs and libraries"),
                    mount("/srv/work", "of the host", true, "command line", "the workspace"),
                ],
                links: vec![LinkRow { path: "/bin".into(), target: "usr/bin".into() }],
                made: vec!["/etc/passwd".into()],
                protected: vec![PinRow {
                    path: "/srv/work/.git/hooks".into(),
                    read_only: true,
                    made: true,
                    layer: "built-in".into(),
                    why: "decides what the host's git runs".into(),
                }],
                masks: vec![MaskRow {
                    path: "/proc/kcore".into(),
                    how: "/dev/null lies over it",
                    layer: "built-in".into(),
                }],
                unmatched: vec![UnmatchedRow {
                    key: "files.hide",
                    value: "*.evn".into(),
                    layer: "workspace saggar.toml".into(),
                }],
            },
            environment: vec![
                VariableRow {
                    name: "ANTHROPIC_API_KEY".into(),
                    from: VariableSource::Caller,
                    value: None,
                    layer: "built-in".into(),
                },
                VariableRow {
                    name: "HOME".into(),
                    from: VariableSource::Saggar,
                    value: Some("/home/agent".into()),
                    layer: "built-in".into(),
                },
            ],
            system_calls: SystemCallsSection {
                profile: "agent",
                what: "programs",
                allowed: 2,
                refused: vec![RefusedCalls {
                    group: "keys",
                    why: "shared by uid",
                    in_part: true,
                    calls: &["keyctl"],
                }],
            },
            landlock: LandlockSection {
                abi: 6,
                handled: vec!["execute"],
                rules: vec![LandlockRow {
                    path: "/usr".into(),
                    description: "read and execute",
                    rights: vec!["execute"],
                }],
                ports: vec![443],
                scopes: vec!["signals"],
            },
            limits: vec![
                row("memory", "2G", false, false, "no cgroup"),
                row("timeout", "10m", true, true, "saggar kills everything then"),
            ],
            network: NetworkSection {
                mode: PolicyValue {
                    value: "policy".into(),
                    layer: "command line".into(),
                    what: "what is named",
                },
                rules: vec![
                    PolicyRow {
                        key: "network.allow",
                        value: "*.example.org:443".into(),
                        layer: policy::PolicyLayer::CommandLine,
                    },
                    PolicyRow {
                        key: "network.deny",
                        value: "evil.example.org".into(),
                        layer: policy::PolicyLayer::BuiltIn,
                    },
                ],
                warnings: Vec::new(),
            },
            api: Vec::new(),
            mcp: Vec::new(),
            mailbox: Vec::new(),
            permissions: vec![
                PolicyRow {
                    key: "permissions.deny",
                    value: "Bash(rm *)".into(),
                    layer: policy::PolicyLayer::CommandLine,
                },
                PolicyRow {
                    key: "permissions.timeout",
                    value: "10m".into(),
                    layer: policy::PolicyLayer::BuiltIn,
                },
            ],
            locked: Vec::new(),
            scripts: Vec::new(),
            bridge: vec![PolicyRow {
                key: "bridge.spool",
                value: "64M".into(),
                layer: policy::PolicyLayer::BuiltIn,
            }],
            processes: vec![
                ProcessRow {
                    role: "supervisor",
                    name: "saggar".into(),
                    when: "while the sandbox runs",
                    uid: None,
                    user: "an id of its own",
                    capabilities: Vec::new(),
                    no_new_privs: true,
                    filter: Some("supervisor"),
                    landlock: Some("its cgroup"),
                },
                ProcessRow {
                    role: "launcher",
                    name: "saggar:launch".into(),
                    when: "while the sandbox runs",
                    uid: Some(0),
                    user: "the caller",
                    capabilities: vec!["CAP_CHOWN".into(), "CAP_KILL".into()],
                    no_new_privs: true,
                    filter: Some("launcher"),
                    landlock: None,
                },
            ],
            identity: IdentitySection {
                inside: UidAndGid { uid: 1000, gid: 1000 },
                outside: UidAndGid { uid: 1_879_049_192, gid: 1_879_049_192 },
                what: "a block",
            },
            namespaces: vec!["user", "mount"],
            degraded: vec![DegradedRow { what: "memory".into(), why: "no cgroup".into() }],
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
