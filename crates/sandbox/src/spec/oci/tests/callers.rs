//! Documents as orchestrators write them, and the containers that result.

use super::*;

/// One line for each part; flags are hexadecimal.
fn rendered(config: &BundleConfig) -> String {
    let container = &config.container;
    let mut lines: Vec<String> =
        config.warnings.iter().map(|warning| format!("warning: {warning}")).collect();
    lines.push(format!("{:?}", container.root));
    lines.push(format!("{:?}", container.namespaces));
    lines.push(format!("{:?}", container.id_maps));
    lines.push(format!("hostname {:?} domainname {:?}", container.hostname, container.domainname));
    lines.extend(container.mounts.iter().map(|mount| {
        let ContainerMount {
            destination: at,
            kind,
            set,
            clear,
            set_recursive,
            clear_recursive,
            propagation,
            idmap,
            source_link: _,
            covers_link: _,
        } = mount;
        let tree = format!("tree +{set_recursive:#x} -{clear_recursive:#x}");
        format!("{} {kind:?} +{set:#x} -{clear:#x} {tree} {propagation:x?} {idmap:?}", at.display())
    }));
    lines.extend(container.devices.iter().map(|device| format!("{device:?}")));
    lines.extend(container.links.iter().map(|link| format!("link {link:?}")));
    lines.push(format!("masked {:?}", container.masked_paths));
    lines.push(format!("read-only {:?}", container.read_only_paths));
    lines.push(format!("sysctl {:?}", container.sysctl));
    lines.push(format!("{:?}", container.process));
    lines.push(format!("{:?}", container.hooks));
    lines.push(format!("seccomp {}", serde_json::to_value(&container.seccomp).unwrap()));
    lines.push(format!(
        "cgroup {:?} {}",
        container.cgroups_path,
        serde_json::to_value(&container.resources).unwrap()
    ));
    lines.push(format!("annotations {:?}", container.annotations));
    lines.join("\n")
}

fn check(name: &str, text: &str) {
    let config = parse_config(text.as_bytes().to_vec(), Path::new("/bundle")).unwrap();
    insta::assert_snapshot!(name, rendered(&config));
}

#[test]
fn docker() {
    check("docker", include_str!("callers/docker.json"));
}

#[test]
fn podman_as_root() {
    check("podman", include_str!("callers/podman.json"));
}

#[test]
fn podman_as_an_ordinary_user() {
    check("podman_rootless", include_str!("callers/podman-rootless.json"));
}

#[test]
fn buildah() {
    check("buildah", include_str!("callers/buildah.json"));
}

#[test]
fn containerd_for_kubernetes() {
    check("kubernetes", include_str!("callers/kubernetes.json"));
}

/// The document that containerd passes to `exec`.
#[test]
fn the_process_of_an_exec() {
    let config = parse_config(include_bytes!("callers/docker.json").to_vec(), Path::new("/bundle")).unwrap();
    let bytes = json!({
        "terminal": true, "consoleSize": { "height": 24, "width": 80 }, "user": { "uid": 7, "gid": 8 },
        "args": ["ls", "-l"], "env": ["A=1", "B=", "A=2"], "cwd": "/tmp", "noNewPrivileges": true,
        "capabilities": { "bounding": ["CAP_KILL"], "effective": null }, "unknown": [{}],
    });
    let (process, warnings) = parse_process(bytes.to_string().as_bytes(), &config.container).unwrap();
    assert_eq!(warnings, []);
    assert_eq!((process.uid, process.gid, process.console_size), (7, 8, Some((80, 24))));
    assert_eq!(process.program.env, [("A".into(), "2".into()), ("B".into(), "".into())]);
    assert_eq!((process.capabilities.bounding, process.capabilities.effective), (1 << 5, 0));
}

#[test]
fn a_process_of_an_exec_is_checked_as_that_of_a_container() {
    let container = changed(|_| {}).unwrap().container;
    let refused = |bytes: &str| parse_process(bytes.as_bytes(), &container).unwrap_err().to_string();
    assert_eq!(refused(r#"{"args": [], "cwd": "/"}"#), "args must hold at least the program");
    assert_eq!(refused(r#"{"args": ["a"], "cwd": "x"}"#), "cwd must be an absolute path, is \"x\"");
    assert_eq!(refused("null"), "must be a JSON object, { … }");
}

#[test]
fn a_process_of_an_exec_has_the_personality_of_the_container() {
    let container = changed(|document| document["linux"]["personality"] = json!({ "domain": "LINUX32" }))
        .unwrap()
        .container;
    let (process, _) = parse_process(br#"{"args": ["a"], "cwd": "/"}"#, &container).unwrap();
    assert_eq!(process.personality, Some(8));
}
