//! The layers, their order, and how their files are found.

use super::*;
use saggar_sys::error::Code;

#[test]
fn without_any_file_the_built_in_policy_holds() {
    let scratch = Scratch::new();
    let policy = scratch.load().unwrap();
    assert_eq!(policy.effective, EffectivePolicy::built_in(HomeSource::Session));
    assert_eq!(policy.files, []);
    // A directory does not have to exist.
    let mut places = scratch.places.clone();
    places.system_directory = scratch.path("nowhere");
    places.user_directory = Some("/dev/null/saggar".into());
    places.agent_folder = None;
    assert_eq!(
        load_policy(&places, HomeSource::Tmp, PolicyOptions::default()).unwrap().effective.files.home.value,
        HomeSource::Tmp
    );
}

#[test]
fn the_later_layer_wins_and_is_named() {
    let mut scratch = Scratch::new();
    scratch.places.policy_files = vec![scratch.path("extra.toml")];
    scratch.write("extra.toml", "limits.pids = 300");
    let steps = [
        ("usr/defaults.toml", 500, PolicyLayer::Operator(scratch.path("usr/defaults.toml").into())),
        ("etc/config.toml", 501, PolicyLayer::Operator(scratch.path("etc/config.toml").into())),
        ("etc/conf.d/10-b.toml", 502, PolicyLayer::Operator(scratch.path("etc/conf.d/10-b.toml").into())),
        ("etc/conf.d/20-a.toml", 503, PolicyLayer::Operator(scratch.path("etc/conf.d/20-a.toml").into())),
        ("user/config.toml", 504, PolicyLayer::Operator(scratch.path("user/config.toml").into())),
        ("agent/saggar.toml", 200, PolicyLayer::AgentFolder("saggar.toml")),
        ("work/.saggar.toml", 199, PolicyLayer::Workspace(".saggar.toml")),
    ];
    let policies = std::mem::take(&mut scratch.places.policy_files);
    for (name, pids, layer) in steps {
        scratch.write(name, format!("limits.pids = {pids}"));
        let held = scratch.effective().limits.pids;
        assert_eq!(held, Setting { value: pids, layer });
        assert!(held.is_named());
    }
    scratch.places.policy_files = policies;
    let held = scratch.effective().limits.pids;
    assert_eq!(
        held,
        Setting { value: 300, layer: PolicyLayer::PolicyOption(scratch.path("extra.toml").into()) }
    );
    let policy = scratch.load_with(PolicyOptions { pids: Some(9999), ..PolicyOptions::default() }).unwrap();
    assert_eq!(policy.effective.limits.pids, Setting { value: 9999, layer: PolicyLayer::CommandLine });
    assert_eq!(policy.files.len(), 8);
}

#[test]
fn conf_d_takes_toml_files_alone() {
    let scratch = Scratch::with(&[
        ("etc/conf.d/.10-hidden.toml", "garbage"),
        ("etc/conf.d/10-old.toml~", "garbage"),
        ("etc/conf.d/README", "garbage"),
    ]);
    assert_eq!(scratch.effective(), EffectivePolicy::built_in(HomeSource::Session));
}

#[test]
fn a_policy_option_needs_its_file() {
    let mut scratch = Scratch::new();
    scratch.places.policy_files = vec![scratch.path("absent.toml")];
    insta::assert_snapshot!(scratch.complaint(), @"open policy /absent.toml: no such file");
}

#[test]
fn two_policies_in_one_folder_are_refused() {
    let scratch =
        Scratch::with(&[("agent/saggar.toml", "adapter='demo'"), ("agent/.saggar.toml", "adapter='demo'")]);
    insta::assert_snapshot!(scratch.complaint(), @"/agent: holds both saggar.toml and .saggar.toml");
}

#[test]
fn the_workspace_that_is_the_agent_folder_is_read_once() {
    let mut scratch = Scratch::with(&[("agent/saggar.toml", "adapter = 'demo'")]);
    std::os::unix::fs::symlink(scratch.path("agent"), scratch.path("alias")).unwrap();
    scratch.places.workspace = Some(scratch.path("alias"));
    let policy = scratch.load().unwrap();
    assert_eq!(policy.files.len(), 1);
    assert_eq!(policy.effective.adapter.unwrap().layer, PolicyLayer::AgentFolder("saggar.toml"));
}

#[test]
fn an_operator_file_that_others_can_write_is_refused_with_the_cure() {
    for name in ["usr/defaults.toml", "etc/config.toml", "etc/conf.d/a.toml", "user/config.toml"] {
        for bits in [0o664, 0o646, 0o666] {
            let scratch = Scratch::with(&[(name, "limits.pids = 100")]);
            mode(&scratch.path(name), bits);
            let refusal = scratch.refusal();
            assert_eq!(refusal.code(), Code::Refused);
            assert!(refusal.hint_text().unwrap().starts_with("chmod go-w "), "{refusal}");
        }
    }
    // The mode of a folder's file is not checked: such a file can only tighten.
    let scratch = Scratch::with(&[("agent/saggar.toml", "limits.pids = 100")]);
    mode(&scratch.path("agent/saggar.toml"), 0o666);
    scratch.effective();
}

#[test]
fn an_operator_file_of_another_user_is_refused_with_the_cure() {
    let mut scratch = Scratch::with(&[("user/config.toml", "limits.pids = 100")]);
    let me = nix::unistd::geteuid();
    if me.is_root() {
        let other = nix::unistd::Uid::from_raw(12345);
        nix::unistd::chown(&scratch.path("user/config.toml"), Some(other), None).unwrap();
    } else {
        scratch.places.operator_uid = me.as_raw() + 1;
    }
    let refusal = scratch.refusal();
    assert_eq!(refusal.code(), Code::Refused);
    assert!(refusal.hint_text().unwrap().starts_with("chown "), "{refusal}");
}

#[test]
fn a_limit_that_is_named_is_required_unless_preferred_by_the_same_word() {
    let held = EffectivePolicy::built_in(HomeSource::Tmp);
    assert!(!held.limits.memory.is_named());
    assert_eq!(held.strength(Protection::Memory), ProtectionStrength::Prefer);
    assert_eq!(held.strength(Protection::Seccomp), ProtectionStrength::Require);

    let scratch = Scratch::with(&[(
        "etc/config.toml",
        "[limits]\nmemory = '1G'\ncpus = 1\n[protections]\nprefer = ['cpu']",
    )]);
    let held = scratch.effective();
    assert_eq!(held.strength(Protection::Memory), ProtectionStrength::Require);
    assert_eq!(held.strength(Protection::Cpu), ProtectionStrength::Prefer);
    assert_eq!(held.strength(Protection::Pids), ProtectionStrength::Prefer);

    let command_line = PolicyOptions { cpus: Some(CpuCount::ONE), ..PolicyOptions::default() };
    assert_eq!(
        scratch.load_with(command_line).unwrap().effective.strength(Protection::Cpu),
        ProtectionStrength::Require
    );
}

#[test]
fn file_and_memory_sizes_follow_the_disk_limit_until_named() {
    let held = EffectivePolicy::built_in(HomeSource::Tmp);
    assert_eq!(held.fsize(), Setting { value: ByteSize::from_mebibytes(1024), layer: PolicyLayer::BuiltIn });
    let scratch = Scratch::with(&[("agent/saggar.toml", "limits.fsize = '1G'")]);
    let command_line = PolicyOptions { disk: Some(ByteSize::from_mebibytes(10)), ..PolicyOptions::default() };
    let held = scratch.load_with(command_line).unwrap().effective;
    let expected = Setting { value: ByteSize::from_mebibytes(10), layer: PolicyLayer::CommandLine };
    assert_eq!(held.fsize(), expected, "a folder's word does not outlive the limit it was held against");
    assert_eq!(held.tmp_size(), expected);

    let scratch = Scratch::with(&[("etc/config.toml", "limits.fsize = '4G'")]);
    assert_eq!(scratch.effective().fsize().value, ByteSize::from_mebibytes(4096));
}

#[test]
fn the_command_line_makes_paths_absolute_and_says_what_is_wrong() {
    let scratch = Scratch::new();
    let command_line = PolicyOptions {
        ro: vec!["lib".parse().unwrap(), "/opt:/mnt/opt".parse().unwrap()],
        rw: vec!["./out".parse().unwrap()],
        env: ["A=1", "B", "A", "B=2=3"].map(|text| text.parse().unwrap()).to_vec(),
        api_socket: Some("api.sock".into()),
        allow_home: true,
        require: vec![Protection::Cgroup],
        prefer: vec![Protection::Landlock],
        ..PolicyOptions::default()
    };
    let held = scratch.load_with(command_line).unwrap().effective;
    let rows = held.rows();
    let value = |key: &str| {
        let values = rows.iter().filter(|row| row.key == key && row.layer == PolicyLayer::CommandLine);
        values.map(|row| row.value.replace(scratch.path("work").to_str().unwrap(), "W")).collect::<Vec<_>>()
    };
    assert_eq!(value("files.ro"), ["W/lib", "/opt:/mnt/opt"]);
    assert_eq!(value("files.rw"), ["W/out"]);
    assert_eq!(value("env.pass"), ["A"]);
    assert_eq!(value("env.set"), ["B"]);
    assert_eq!(value("api.socket"), ["W/api.sock"]);
    assert_eq!(value("protections.require"), ["cgroup"]);
    assert_eq!(value("protections.prefer"), ["landlock"]);
    assert!(held.allow_home.value);

    let command_line = PolicyOptions {
        network: Some(NetworkMode::None),
        allow_host: vec!["example.org".parse().unwrap()],
        ..PolicyOptions::default()
    };
    let refusal = scratch.load_with(command_line).unwrap_err();
    assert_eq!(refusal.code(), Code::Usage);
    insta::assert_snapshot!(refusal, @"command line: network.allow: names hosts, which network.mode none does not support; leave the mode out, or name no host");
}

#[test]
fn who_names_hosts_means_a_network_by_policy() {
    let scratch = Scratch::with(&[("usr/defaults.toml", "network.allow = ['a.example']")]);
    let of = |scratch: &Scratch| scratch.effective().network.value;
    assert_eq!(of(&scratch), NetworkMode::Policy);
    for (mode, expected) in [("none", NetworkMode::None), ("host", NetworkMode::Host)] {
        scratch.write("etc/config.toml", format!("network.mode = '{mode}'"));
        assert_eq!(of(&scratch), expected);
        let command_line =
            PolicyOptions { allow_host: vec!["b.example".parse().unwrap()], ..PolicyOptions::default() };
        let held = scratch.load_with(command_line).unwrap().effective;
        assert_eq!(held.network, Setting { value: NetworkMode::Policy, layer: PolicyLayer::CommandLine });
        assert_eq!(held.hosts.rules().allow.len(), 2, "lists add up over the layers");
    }
    // A folder cannot repeat rules of a network that a later layer closed.
    for list in ["allow", "ask"] {
        let rules = format!("network.{list} = ['a.example']");
        let closed = Scratch::with(&[
            ("etc/config.toml", &rules),
            ("user/config.toml", "network.mode = 'none'"),
            ("agent/saggar.toml", &rules),
        ]);
        assert!(
            closed.complaint().contains(&format!("network.{list} = a.example")),
            "{}",
            closed.complaint()
        );
    }
    // Denying hosts opens no network.
    let deny = Scratch::with(&[("etc/config.toml", "network.deny = ['a.example']")]);
    assert_eq!(of(&deny), NetworkMode::None);
}

#[test]
fn a_network_by_policy_reaches_something_through_few_ports() {
    let many = (8000..8100).map(|port| port.to_string()).collect::<Vec<_>>().join(",");
    let complaints = [
        ("network.mode = 'policy'", "profile = 'strict'"),
        ("network.allow = ['a.example']", "network.deny = ['*']"),
        (&format!("network.allow = ['a.example:{many}']"), "network.allow = ['a.example:9000-9099']"),
    ]
    .map(|(system, user)| {
        let scratch = Scratch::with(&[("etc/config.toml", system), ("user/config.toml", user)]);
        let refusal = scratch.refusal();
        assert_eq!(refusal.code(), Code::Invalid);
        format!("{}\n  {}", scratch.complaint(), refusal.hint_text().unwrap())
    });
    insta::assert_snapshot!(complaints.join("\n"), @r"
    network.mode is policy (/etc/config.toml), and its rules allow nothing
      name a host in network.allow or with --allow-host, or set network.mode to none
    network.mode is policy (/etc/config.toml), and its rules allow nothing
      name a host in network.allow or with --allow-host, or set network.mode to none
    network.allow and ask of all layers name 200 ports, and 128 are the most
      name single ports: each is a listening socket inside
    ");
}

#[test]
fn a_locked_network_takes_no_more_hosts_from_the_command_line() {
    let scratch =
        Scratch::with(&[("etc/config.toml", "locked = ['network']\nnetwork.allow = ['a.example']")]);
    let asked = |text: &str| {
        let allow_host = vec![text.parse().unwrap()];
        scratch.load_with(PolicyOptions { allow_host, ..PolicyOptions::default() })
    };
    assert!(asked("a.example").is_ok());
    assert_eq!(asked("b.example").unwrap_err().code(), Code::Refused);
    let publish = PolicyOptions { publish: vec!["8080:3000".parse().unwrap()], ..PolicyOptions::default() };
    assert_eq!(scratch.load_with(publish).unwrap_err().code(), Code::Refused);
    let net = PolicyOptions { network: Some(NetworkMode::Host), ..PolicyOptions::default() };
    assert_eq!(scratch.load_with(net).unwrap_err().code(), Code::Refused);
}
