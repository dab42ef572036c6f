//! The policy as shown to people: text, JSON and schema.

use super::*;

#[test]
fn the_built_in_policy_in_full() {
    insta::assert_snapshot!(EffectivePolicy::built_in(HomeSource::Session), @r"
    profile = strict  (built-in)
    files.home = session  (built-in)
    files.tmp_size = 1G  (built-in)
    env.pass = ANTHROPIC_API_KEY ANTHROPIC_BASE_URL ANTHROPIC_CUSTOM_HEADERS ANTHROPIC_UNIX_SOCKET ASH_DEBUG_TIMING ASH_PERMISSION_MODE ASH_REAL_SDK CLAUDE_AGENT_SDK_VERSION CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC CLAUDE_CODE_ENTRYPOINT CLAUDE_CODE_EXECUTABLE CLAUDE_CODE_SDK_READS_SESSION_STATE CLAUDE_CODE_USE_BEDROCK DISABLE_AUTOUPDATER DISABLE_ERROR_REPORTING DISABLE_TELEMETRY LANG NODE_PATH OTEL_EXPORTER_OTLP_ENDPOINT OTEL_SERVICE_NAME PATH TERM  (built-in)
    network.mode = none  (built-in)
    limits.memory = 2G  (built-in)
    limits.disk = 1G  (built-in)
    limits.inodes = 262144  (built-in)
    limits.fsize = 1G  (built-in)
    limits.cpus = 1  (built-in)
    limits.pids = 512  (built-in)
    limits.nofile = 65536  (built-in)
    limits.at_timeout = pause  (built-in)
    limits.script = 2m  (built-in)
    protect.git_config = true  (built-in)
    protect.missing = none  (built-in)
    protections.require = namespaces root capabilities no-new-privs seccomp landlock network limits  (built-in)
    protections.prefer = landlock-scope cgroup memory cpu pids disk keyring  (built-in)
    bridge.allow_reachable = false  (built-in)
    bridge.remembered = 2000  (built-in)
    bridge.spool = 64M  (built-in)
    permissions.timeout = 10m  (built-in)
    sandbox.id_range = 1879048192-2147418111  (built-in)
    ");
}

#[test]
fn a_policy_of_many_layers_names_each() {
    let scratch = Scratch::with(&[
        (
            "etc/config.toml",
            "agent_cmd = \"claude --append-system-prompt 'be kind'\"
            [files]\nro = ['/opt/sdk']\nrw = ['/srv/cache:/cache']
            [env]\npass = ['GITHUB_TOKEN']\nset = { CI = '1' }
            [network]\nallow = ['*.example.org:443,80', 'API.Example.com.']\ndeny = ['evil.example.org']\nask = ['*']
            [limits]\nmemory = '8GB'\ncpus = 2.5\ncpuset_cpus = '0-7'\nio = { '/dev/sda' = { write_bps = '20M', read_iops = 100 } }",
        ),
        ("user/config.toml", "[files]\nro = ['/cache', '/opt/tools']\n[protections]\nprefer = ['landlock']"),
        (
            "agent/saggar.toml",
            "adapter = 'stream-json'\nfiles.hide = ['.env']\nlimits.memory = '4G'\nenv.deny = ['CI']
            protect.paths = ['Makefile']",
        ),
        (
            "work/.saggar.toml",
            "limits.timeout = '1h30m'\nprotect.paths = ['Makefile', 'ci/']\nlimits.io.'/dev/sda'.write_bps = '10M'",
        ),
    ]);
    let command_line = PolicyOptions {
        allow_host: vec!["[2001:db8::]/32:443".parse().unwrap()],
        api_socket: Some("/run/api.sock".into()),
        bridge_socket: Some("/tmp/ash-{short_id}.sock".parse().unwrap()),
        ..PolicyOptions::default()
    };
    let held = scratch.load_with(command_line).unwrap().effective.to_string();
    let short: Vec<&str> = held.lines().filter(|line| !line.ends_with("(built-in)")).collect();
    let text = short.join("\n").replace(scratch.directory.path().to_str().unwrap(), "");
    insta::assert_snapshot!(text, @r"
    agent_cmd = claude --append-system-prompt 'be kind'  (/etc/config.toml)
    adapter = stream-json  (agent folder saggar.toml)
    files.ro = /opt/sdk  (/etc/config.toml)
    files.ro = /cache /opt/tools  (/user/config.toml)
    files.hide = .env  (agent folder saggar.toml)
    env.pass = GITHUB_TOKEN  (/etc/config.toml)
    env.set = CI  (/etc/config.toml)
    env.deny = CI  (agent folder saggar.toml)
    network.mode = policy  (command line)
    network.allow = *.example.org:80,443 api.example.com  (/etc/config.toml)
    network.allow = [2001:db8::]/32:443  (command line)
    network.deny = evil.example.org  (/etc/config.toml)
    network.ask = *  (/etc/config.toml)
    limits.memory = 4G  (agent folder saggar.toml)
    limits.cpus = 2.5  (/etc/config.toml)
    limits.cpuset_cpus = 0-7  (/etc/config.toml)
    limits.io = /dev/sda:write_bps=10M  (workspace .saggar.toml)
    limits.io = /dev/sda:read_iops=100  (/etc/config.toml)
    limits.timeout = 1h30m  (workspace .saggar.toml)
    protect.paths = Makefile  (agent folder saggar.toml)
    protect.paths = ci  (workspace .saggar.toml)
    protections.require = memory  (agent folder saggar.toml)
    protections.require = cpu  (/etc/config.toml)
    protections.prefer = landlock  (/user/config.toml)
    api.socket = /run/api.sock  (command line)
    bridge.socket = /tmp/ash-{short_id}.sock  (command line)
    ");
}

#[test]
fn rows_are_json_with_the_layer_as_text() {
    let rows = EffectivePolicy::built_in(HomeSource::Tmp).rows();
    let row = serde_json::to_string(rows.iter().find(|row| row.key == "limits.memory").unwrap()).unwrap();
    assert_eq!(row, r#"{"key":"limits.memory","value":"2G","layer":"built-in"}"#);
}

#[test]
fn values_of_variables_are_not_shown() {
    let scratch = Scratch::with(&[("etc/config.toml", "env.set.TOKEN = 'hunter2'")]);
    let text = scratch.effective().to_string();
    assert!(text.contains("TOKEN") && !text.contains("hunter2"));
}

#[test]
fn the_schema_has_every_key_with_a_description() {
    let schema = schema();
    for key in schema::keys() {
        let mut at = &schema;
        for part in key.split('.') {
            at = &at["properties"][part];
            assert!(at["description"].is_string(), "{key}: no description at {part}: {at}");
        }
    }
    assert_eq!(schema["additionalProperties"], false);
    assert_eq!(schema["properties"]["limits"]["additionalProperties"], false);
    assert_eq!(
        schema["properties"]["profile"]["enum"],
        serde_json::json!(["strict", "container", "nesting", null])
    );
    insta::assert_snapshot!(schema::keys().join("\n"), @r"
    adapter
    agent_cmd
    api.ca_file
    api.header
    api.key_file
    api.socket
    api.upstream
    bridge.allow_reachable
    bridge.control
    bridge.directory
    bridge.remembered
    bridge.socket
    bridge.spool
    env.deny
    env.pass
    env.set
    files.hide
    files.home
    files.ro
    files.rw
    files.tmp_size
    limits.agent_idle
    limits.at_timeout
    limits.cpu_burst
    limits.cpu_idle
    limits.cpu_time
    limits.cpu_weight
    limits.cpus
    limits.cpuset_cpus
    limits.cpuset_mems
    limits.disk
    limits.fsize
    limits.hugetlb
    limits.idle
    limits.inodes
    limits.io
    limits.io_weight
    limits.memory
    limits.memory_high
    limits.nofile
    limits.pids
    limits.script
    limits.swap
    limits.timeout
    locked
    mailbox.name
    mailbox.register
    mailbox.repo
    mailbox.root
    mailbox.run
    mcp.sessions
    network.allow
    network.ask
    network.deny
    network.mode
    network.publish
    network.sockets
    permissions.allow
    permissions.ask
    permissions.deny
    permissions.modes
    permissions.timeout
    profile
    protect.git_config
    protect.missing
    protect.paths
    protections.prefer
    protections.quiet
    protections.require
    sandbox.cgroup_driver
    sandbox.cgroup_parent
    sandbox.gid
    sandbox.id_range
    sandbox.keep_session
    sandbox.uid
    ");
}

#[test]
fn a_check_reports_each_file_by_itself() {
    let scratch = Scratch::with(&[
        ("good.toml", "limits.memory = '1G'"),
        ("bad.toml", "[limits]\n\nmemroy = '1G'"),
        (
            "odd.json",
            r#"{ "profile": "nesting", "env": { "pass": ["AWS_PROFILE"] }, "protections": { "prefer": ["seccomp", "network"] } }"#,
        ),
        ("agent/saggar.toml", "network.mode = 'host'"),
        ("open.toml", "network.allow = ['*', '0.0.0.0/0:443', '*.example.org']"),
        (
            "lab.toml",
            "network.allow = ['198.16.0.0/14', '[fd73:6167:6761:7200::1]']\nnetwork.deny = ['198.19.1.0/24']",
        ),
    ]);
    let files =
        ["good.toml", "bad.toml", "odd.json", "agent/saggar.toml", "open.toml", "lab.toml", "absent.toml"]
            .map(|name| scratch.path(name));
    let report = check_policy_files(&files, &InProcess, &|_, _| Vec::new());
    assert!(!report.is_valid());
    let text = report.to_string().replace(scratch.directory.path().to_str().unwrap(), "");
    insta::assert_snapshot!(text, @r"
    /good.toml: ok
    error: /bad.toml:3: unknown key limits.memroy, did you mean limits.memory
      hint: `saggar policy schema` lists every key and what it takes
    /odd.json: ok
      note: profile: nesting gives up the landlock file rules
      note: env.pass: AWS_PROFILE usually holds a secret
      note: protections.prefer: no sandbox starts without seccomp, preferred or not
      note: protections.prefer: without network the sandbox starts all the same
    /agent/saggar.toml: ok
      note: network.mode: host reaches every service of this machine
      note: in a folder it asks for network.mode = host, above the none of built-in; a policy from the agent's own folder may only tighten
    /open.toml: ok
      note: network.allow: * is every host that there is
      note: network.allow: 0.0.0.0/0:443 is every host that there is
    /lab.toml: ok
      note: network.allow: the addresses of [fd73:6167:6761:7200::1] represent names inside: it applies to names that resolve to them, and not to connections to such an address
      note: network.deny: the addresses of 198.19.1.0/24 represent names inside: it applies to names that resolve to them, and not to connections to such an address
    error: open policy /absent.toml: no such file
    ");
}

#[test]
fn the_example_that_ships_is_a_good_folder_policy() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/hello/saggar.toml");
    let report = check_policy_files(&[example], &InProcess, &|_, _| Vec::new());
    assert!(report.is_valid());
    assert_eq!(report.files[0].outcome.as_ref().unwrap(), &Vec::<String>::new());
}
