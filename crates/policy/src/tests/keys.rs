//! Every key has a rule for the policy of a folder, and the rule is enforced.

use super::*;
use saggar_sys::error::Code;
use std::collections::BTreeSet;

/// The rule of a key for the policy of a folder.
enum Rule {
    /// Refused: the value widens the built-in layer.
    Refused(&'static str),
    /// Refused: the value widens the operator's layer.
    RefusedAbove { operator: &'static str, folder: &'static str },
    /// Accepted: the key can only tighten.
    OnlyTightens(&'static str),
    /// Accepted from the agent folder, refused from the workspace.
    AgentFolderChooses(&'static str),
    /// Reserved: refused in every layer.
    NotInThisVersion(&'static str),
}
use Rule::*;

const RULES: &[(&str, Rule)] = &[
    ("profile", Refused("profile = 'nesting'")),
    ("agent_cmd", AgentFolderChooses("agent_cmd = 'claude --print'")),
    ("adapter", AgentFolderChooses("adapter = 'demo'")),
    ("locked", Refused("locked = ['limits']")),
    ("files.ro", Refused("[files]\nro = ['/etc/shadow']")),
    ("files.rw", RefusedAbove { operator: "[files]\nro = ['/srv']", folder: "[files]\nrw = ['/srv']" }),
    ("files.home", Refused("[files]\nhome = '/root'")),
    ("files.tmp_size", Refused("[files]\ntmp_size = '2G'")),
    ("files.hide", OnlyTightens("[files]\nhide = ['secrets']")),
    ("env.pass", Refused("[env]\npass = ['AWS_SECRET_ACCESS_KEY']")),
    ("env.set", Refused("[env]\nset = { LD_PRELOAD = '/tmp/x.so' }")),
    ("env.deny", OnlyTightens("[env]\ndeny = ['TERM']")),
    ("network.mode", Refused("[network]\nmode = 'host'")),
    (
        "network.allow",
        RefusedAbove {
            operator: "network.allow = ['*.example.org:443']",
            folder: "network.allow = ['api.example.org:443']",
        },
    ),
    ("network.deny", OnlyTightens("[network]\ndeny = ['example.org']")),
    (
        "network.ask",
        RefusedAbove {
            operator: "network.ask = ['*.example.org:443']",
            folder: "network.ask = ['api.example.org:443']",
        },
    ),
    (
        "network.publish",
        RefusedAbove {
            operator: "network.publish = ['8080:3000']",
            folder: "network.publish = ['0.0.0.0:8080:3000']",
        },
    ),
    (
        "network.sockets",
        RefusedAbove {
            operator: "network.sockets = ['/run/a.sock']",
            folder: "network.sockets = ['/run/b.sock:/run/a.sock']",
        },
    ),
    ("limits.memory", Refused("[limits]\nmemory = '4G'")),
    ("limits.disk", Refused("[limits]\ndisk = '1025M'")),
    ("limits.inodes", Refused("[limits]\ninodes = 262145")),
    ("limits.fsize", Refused("[limits]\nfsize = '2G'")),
    ("limits.cpus", Refused("[limits]\ncpus = 1.001")),
    ("limits.pids", Refused("[limits]\npids = 513")),
    ("limits.nofile", Refused("[limits]\nnofile = 65537")),
    (
        "limits.memory_high",
        RefusedAbove { operator: "[limits]\nmemory_high = '1G'", folder: "[limits]\nmemory_high = '1025M'" },
    ),
    ("limits.swap", Refused("[limits]\nswap = '1M'")),
    (
        "limits.hugetlb",
        RefusedAbove { operator: "limits.hugetlb.2MB = '8M'", folder: "limits.hugetlb.2MB = '10M'" },
    ),
    ("limits.cpu_burst", Refused("[limits]\ncpu_burst = '1ms'")),
    ("limits.cpu_weight", Refused("[limits]\ncpu_weight = 101")),
    (
        "limits.cpu_idle",
        RefusedAbove { operator: "[limits]\ncpu_idle = true", folder: "[limits]\ncpu_idle = false" },
    ),
    (
        "limits.cpuset_cpus",
        RefusedAbove { operator: "[limits]\ncpuset_cpus = '0-3'", folder: "[limits]\ncpuset_cpus = '3-4'" },
    ),
    (
        "limits.cpuset_mems",
        RefusedAbove { operator: "[limits]\ncpuset_mems = '0'", folder: "[limits]\ncpuset_mems = '0-1'" },
    ),
    (
        "limits.io",
        RefusedAbove {
            operator: "limits.io.'/dev/sda'.write_bps = '1M'",
            folder: "limits.io.'/dev/sda' = { read_bps = '1M', write_bps = '2M' }",
        },
    ),
    ("limits.io_weight", Refused("[limits]\nio_weight = 101")),
    (
        "limits.timeout",
        RefusedAbove { operator: "[limits]\ntimeout = '1h'", folder: "[limits]\ntimeout = '61m'" },
    ),
    (
        "limits.at_timeout",
        RefusedAbove { operator: "[limits]\nat_timeout = 'kill'", folder: "[limits]\nat_timeout = 'pause'" },
    ),
    (
        "limits.cpu_time",
        RefusedAbove { operator: "[limits]\ncpu_time = '1h'", folder: "[limits]\ncpu_time = '61m'" },
    ),
    ("limits.idle", RefusedAbove { operator: "[limits]\nidle = '10m'", folder: "[limits]\nidle = '601s'" }),
    (
        "limits.agent_idle",
        RefusedAbove { operator: "[limits]\nagent_idle = '10m'", folder: "[limits]\nagent_idle = '601s'" },
    ),
    ("limits.script", Refused("[limits]\nscript = '121s'")),
    ("protect.git_config", Refused("[protect]\ngit_config = false")),
    ("protect.paths", OnlyTightens("[protect]\npaths = ['Makefile']")),
    ("protect.missing", NotInThisVersion("[protect]\nmissing = 'placeholder'")),
    ("protections.require", OnlyTightens("[protections]\nrequire = ['cgroup']")),
    ("protections.prefer", Refused("[protections]\nprefer = ['seccomp']")),
    ("protections.quiet", Refused("[protections]\nquiet = true")),
    ("api.socket", Refused("[api]\nsocket = '/run/docker.sock'")),
    ("api.upstream", Refused("[api]\nupstream = 'https://example.org'")),
    (
        "api.key_file",
        RefusedAbove {
            operator: "api = { upstream = 'https://example.org', key_file = '/etc/saggar/key' }",
            folder: "api.key_file = '/work/key'",
        },
    ),
    ("api.header", Refused("[api]\nheader = 'authorization'")),
    ("api.ca_file", Refused("[api]\nca_file = '/work/ca.pem'")),
    ("bridge.socket", Refused("[bridge]\nsocket = '/tmp/ash-{short_id}.sock'")),
    ("bridge.control", Refused("[bridge]\ncontrol = '/tmp/c-{id}.sock'")),
    ("bridge.allow_reachable", Refused("[bridge]\nallow_reachable = true")),
    ("bridge.directory", Refused("[bridge]\ndirectory = '/run/agents'")),
    ("bridge.remembered", Refused("[bridge]\nremembered = 3000")),
    ("bridge.spool", Refused("[bridge]\nspool = '65M'")),
    ("mailbox.run", Refused("[mailbox]\nrun = 1")),
    ("mailbox.name", Refused("[mailbox]\nname = 'claude'")),
    ("mailbox.root", Refused("[mailbox]\nroot = '/work'")),
    ("mailbox.repo", Refused("[mailbox]\nrepo = '/'")),
    (
        "mailbox.register",
        RefusedAbove { operator: "[mailbox]\nregister = false", folder: "[mailbox]\nregister = true" },
    ),
    ("mcp.sessions", Refused("[mcp]\nsessions = ['*']")),
    ("permissions.allow", Refused("[permissions]\nallow = ['Bash(ls *)']")),
    ("permissions.deny", OnlyTightens("[permissions]\ndeny = ['WebFetch']")),
    ("permissions.ask", OnlyTightens("[permissions]\nask = ['Write']")),
    ("permissions.timeout", Refused("[permissions]\ntimeout = '11m'")),
    ("permissions.modes", Refused("[permissions]\nmodes = ['plan', 'bypassPermissions']")),
    ("sandbox.cgroup_parent", Refused("[sandbox]\ncgroup_parent = 'agents'")),
    ("sandbox.cgroup_driver", Refused("[sandbox]\ncgroup_driver = 'systemd'")),
    ("sandbox.keep_session", Refused("[sandbox]\nkeep_session = true")),
    ("sandbox.id_range", Refused("[sandbox]\nid_range = '100000-200000'")),
    ("sandbox.uid", Refused("[sandbox]\nuid = 1001")),
    ("sandbox.gid", Refused("[sandbox]\ngid = 1001")),
];

#[test]
fn every_key_of_the_document_has_a_rule() {
    let ruled: BTreeSet<String> = RULES.iter().map(|(key, _)| (*key).to_owned()).collect();
    let known: BTreeSet<String> = schema::keys().into_iter().collect();
    assert_eq!(ruled, known);
}

#[test]
fn a_folder_that_asks_for_more_is_refused_by_the_name_of_the_key() {
    for (key, rule) in RULES {
        for (folder, place) in [("agent", "agent folder"), ("work", "workspace")] {
            let (operator, text) = match rule {
                Refused(text) => ("profile = 'strict'", *text),
                RefusedAbove { operator, folder } => (*operator, *folder),
                AgentFolderChooses(text) if folder == "work" => ("profile = 'strict'", *text),
                AgentFolderChooses(_) | OnlyTightens(_) | NotInThisVersion(_) => continue,
            };
            let name = format!("{folder}/saggar.toml");
            let refused = Scratch::with(&[("etc/config.toml", operator), (&name, text)]).refusal();
            let message = refused.to_string();
            assert_eq!(refused.code(), Code::Refused, "{message}");
            assert!(message.starts_with(&format!("saggar.toml in the {place} (line ")), "{message}");
            assert!(message.contains(&format!(" asks for {key} = ")), "{message}");
            assert!(message.ends_with("may only tighten"), "{message}");
            assert!(refused.hint_text().is_some());

            // An operator may set the same value.
            let operator = format!("{operator}\n");
            Scratch::with(&[("etc/config.toml", &operator), ("user/config.toml", text)]).effective();
        }
    }
}

#[test]
fn what_this_version_does_not_have_is_refused_to_everybody_by_name() {
    for (key, rule) in RULES {
        let NotInThisVersion(text) = rule else { continue };
        for place in ["etc/config.toml", "user/config.toml", "agent/saggar.toml"] {
            let refused = Scratch::with(&[(place, text)]).refusal();
            let message = refused.to_string();
            assert_eq!(refused.code(), Code::Invalid, "{message}");
            assert!(message.contains(key) && message.contains("this version"), "{message}");
        }
    }
}

#[test]
fn what_only_tightens_is_taken_from_a_folder() {
    for (key, rule) in RULES {
        let (OnlyTightens(text) | AgentFolderChooses(text)) = rule else { continue };
        let held = Scratch::with(&[("agent/saggar.toml", text)]).effective();
        let layer = PolicyLayer::AgentFolder("saggar.toml");
        assert!(held.rows().iter().any(|row| row.key == *key && row.layer == layer), "{key}");
    }
}

#[test]
fn what_is_equal_or_tighter_is_taken_from_a_folder() {
    let operator = "
        profile = 'nesting'
        [files]\nro = ['/opt/sdk']\nrw = ['/srv/data:/data']\nhome = '/srv/home'
        [env]\npass = ['FOO']\nset = { BAR = '1', LD_PRELOAD = '/usr/lib/x.so' }
        [network]\nmode = 'host'
        [limits]\nmemory = '8G'\ntimeout = '1h'
        [api]\nsocket = '/run/api.sock'
        [bridge]\nsocket = '/tmp/a-{id}'
        [permissions]\nallow = ['Read', 'Bash(ls *)']\ntimeout = '5m'\nmodes = ['plan', 'bypassPermissions']
        [sandbox]\nuid = 1001";
    for folder in [
        operator,
        "profile = 'strict'",
        "[files]\nro = ['/opt/sdk', '/srv/data:/data']\nhome = 'session'",
        "[files]\nhome = 'tmp'\ntmp_size = '10M'",
        "[env]\npass = ['LANG', 'FOO']\nset = { ORDINARY = 'x', LC_ALL = 'C' }",
        "[network]\nmode = 'none'",
        "[limits]\nmemory = '8G'\ndisk = '1G'\ninodes = 262144\nfsize = '1G'\ncpus = 1\npids = 512\nnofile = 65536\ntimeout = 3600",
        "[limits]\nmemory = '1M'\ndisk = '1M'\ninodes = 64\nfsize = '1M'\ncpus = 0.01\npids = 1\nnofile = 64\ntimeout = '1ms'",
        "[limits]\nmemory_high = '1M'\nswap = 0\ncpu_weight = 100\nio_weight = 1\ncpuset_cpus = '9'\ncpuset_mems = '7'",
        "[limits]\ncpu_idle = true\nhugetlb = { 2MB = 0 }\nio = { '8:0' = { read_iops = 1 } }",
        "[permissions]\nallow = ['Read']\ndeny = ['Bash']\nask = ['*']\ntimeout = '1s'\nmodes = []",
        "[protect]\ngit_config = true\nmissing = 'none'",
        "[protections]\nprefer = ['keyring', 'landlock-scope']",
    ] {
        Scratch::with(&[("etc/config.toml", operator), ("agent/saggar.toml", folder)]).effective();
    }
}

#[test]
fn a_bind_is_equal_only_with_its_source_and_its_destination() {
    for asked in ["/srv/link", "/srv:/mnt", "/etc:/srv", "/etc:/data", "/data", "/:/host"] {
        let folder = format!("files.ro = ['{asked}']");
        let files =
            [("etc/config.toml", "files.rw = ['/srv', '/var/data:/data']"), ("agent/saggar.toml", &*folder)];
        assert!(Scratch::with(&files).complaint().contains("asks for files.ro = "), "{asked}");
    }
}

#[test]
fn a_folder_names_hosts_only_where_they_can_be_reached_already() {
    let held = "network.allow = ['*.example.org', 'example.net:22']";
    let may = |operator: &str, folder: &str| {
        let files = [("etc/config.toml", operator), ("agent/saggar.toml", folder)];
        Scratch::with(&files).load().map(|policy| policy.effective)
    };
    // An equal rule changes nothing, including its layer.
    let same = may(held, held).unwrap().hosts.allow;
    assert!(
        same.len() == 2 && same.iter().all(|rule| matches!(rule.layer, PolicyLayer::Operator(_))),
        "{same:?}"
    );
    for folder in [
        "network.allow = ['*.example.org:22']",
        "network.allow = ['example.net']",
        "network.allow = ['a.example.org']",
        "network.allow = ['*']",
        "network.mode = 'host'",
    ] {
        assert_eq!(may(held, folder).unwrap_err().code(), Code::Refused, "{folder}");
    }
    // Hosts that one layer named and a later layer removed.
    let taken_back = [("etc/config.toml", held), ("user/config.toml", "network.mode = 'none'")];
    let scratch = Scratch::with(&taken_back);
    scratch.write("agent/saggar.toml", held);
    assert_eq!(scratch.refusal().code(), Code::Refused);
    // Any hosts are accepted in place of the whole network of the host.
    let instead = may("network.mode = 'host'", "network.allow = ['x.example']").unwrap();
    assert_eq!(
        instead.network,
        Setting { value: NetworkMode::Policy, layer: PolicyLayer::AgentFolder("saggar.toml") }
    );
}

/// The hosts that a folder named in place of the host's network are dropped when a later layer sets the
/// network.
#[test]
fn a_later_word_on_the_network_drops_the_hosts_of_a_folder() {
    let files = [
        ("etc/config.toml", "network.mode = 'host'"),
        ("agent/saggar.toml", "network.allow = ['x.example']"),
    ];
    let command_line =
        PolicyOptions { allow_host: vec!["y.example".parse().unwrap()], ..PolicyOptions::default() };
    let held = Scratch::with(&files).load_with(command_line).unwrap().effective;
    let rules: Vec<String> = held.hosts.allow.iter().map(|rule| rule.value.to_string()).collect();
    assert_eq!(rules, ["y.example"]);
}

#[test]
fn a_home_that_is_kept_is_wider_than_one_in_memory() {
    let files = [("etc/config.toml", "files.home = 'tmp'"), ("agent/saggar.toml", "files.home = 'session'")];
    assert!(Scratch::with(&files).complaint().contains("files.home = session, other than the tmp of"));
}

#[test]
fn a_folder_cannot_set_variables_that_load_code_or_move_traffic() {
    for name in [
        "LD_PRELOAD",
        "LD_AUDIT",
        "NODE_OPTIONS",
        "NODE_PATH",
        "PYTHONSTARTUP",
        "PYTHONPATH",
        "PERL5OPT",
        "RUBYOPT",
        "BASH_ENV",
        "ENV",
        "GIT_SSH_COMMAND",
        "GIT_EXTERNAL_DIFF",
        "PATH",
        "HOME",
        "ANTHROPIC_BASE_URL",
        "ANTHROPIC_NEW",
        "CLAUDE_CONFIG_DIR",
        "CLAUDE_CODE_EXECUTABLE",
        "ASH_BRIDGE_SOCKET",
        "IS_SANDBOX",
        "https_proxy",
        "HTTPS_PROXY",
        "NODE_TLS_REJECT_UNAUTHORIZED",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
    ] {
        let text = format!("env.set.{name} = 'hunter2'");
        let complaint = Scratch::with(&[("agent/saggar.toml", &text)]).complaint();
        assert!(complaint.contains(&format!("asks for env.set = {name}, which")), "{complaint}");
        assert!(!complaint.contains("hunter2"), "a value is not for the log: {complaint}");
    }
    let held = Scratch::with(&[("agent/saggar.toml", "env.set.CI = '1'")]).effective();
    assert!(held.env.rules.contains_key("CI"));
}

#[test]
fn a_folder_cannot_overrule_a_variable_that_an_operator_rules_on() {
    for rule in ["env.set.CI = '0'", "env.pass = ['CI']"] {
        let files = [("etc/config.toml", rule), ("agent/saggar.toml", "env.set.CI = '1'")];
        assert!(Scratch::with(&files).complaint().contains("which /etc/config.toml rules on"));
    }
}

#[test]
fn the_workspace_is_held_against_what_the_agent_folder_left() {
    let files = [("agent/saggar.toml", "limits.memory = '1G'"), ("work/saggar.toml", "limits.memory = '2G'")];
    insta::assert_snapshot!(Scratch::with(&files).complaint(), @"saggar.toml in the workspace (line 1) asks for limits.memory = 2G, above the 1G of agent folder saggar.toml; a policy from the agent's own folder may only tighten");
}

/// A command that starts no agent ignores the choice of an agent; other keys that widen are refused as
/// usual.
#[test]
fn without_an_agent_the_workspace_may_name_one() {
    let mut scratch =
        Scratch::with(&[("work/saggar.toml", "agent_cmd = 'claude'\nadapter = 'demo'\n[limits]\npids = 9")]);
    scratch.places.agent_folder = None;
    let effective = scratch.effective();
    assert!(effective.agent_cmd.is_none() && effective.adapter.is_none());
    assert_eq!(effective.limits.pids.value, 9);
    let widening = "adapter = 'demo'\n[network]\nmode = 'host'";
    scratch.write("work/saggar.toml", widening);
    assert!(scratch.complaint().contains("network.mode"), "{}", scratch.complaint());
    // An invalid value is still an error.
    scratch.write("work/saggar.toml", "adapter = 'telepathy'");
    assert!(scratch.complaint().contains("adapter"), "{}", scratch.complaint());
}
