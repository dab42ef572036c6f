//! config.md: version, root, names, hooks, annotations, extensibility.

use super::*;

#[test]
fn oci_version_must_be_semver() {
    assert!(changed(|document| document["ociVersion"] = "1.0.2-dev".into()).is_ok());
    assert!(
        refused(|document| document["ociVersion"] = "1.0".into())
            .contains("ociVersion must be SemVer, is \"1.0\"")
    );
}

#[test]
fn a_version_of_another_major_number_is_an_error() {
    let error = changed(|document| document["ociVersion"] = "2.0.0".into()).unwrap_err();
    assert_eq!(error.to_string(), "config.json: ociVersion must be a version 1.x.y, is 2.0.0");
    assert_eq!(error.hint_text(), Some("saggar knows 1.0.0 to 1.3.0"));
}

#[test]
fn a_later_minor_version_is_taken_with_a_warning() {
    let config = changed(|document| document["ociVersion"] = "1.9.0".into()).unwrap();
    assert_eq!(config.warnings[0].to_string(), "ociVersion is 1.9.0; features newer than 1.3.0 are ignored");
}

#[test]
fn root_is_required() {
    assert_eq!(refused(|document| document["root"] = Value::Null), "config.json: root is missing");
    assert_eq!(refused(|document| document["root"]["path"] = "".into()), "config.json: root.path is missing");
}

#[test]
fn the_root_path_is_absolute_or_relative_to_the_bundle() {
    let path =
        |path: &str| changed(|document| document["root"]["path"] = path.into()).unwrap().container.root.path;
    assert_eq!(path("rootfs"), Path::new("/bundle/rootfs"));
    assert_eq!(path("/srv/root"), Path::new("/srv/root"));
}

#[test]
fn readonly_defaults_to_false() {
    assert!(!changed(|_| {}).unwrap().container.root.read_only);
    assert!(changed(|document| document["root"]["readonly"] = true.into()).unwrap().container.root.read_only);
}

#[test]
fn process_is_optional_until_start() {
    let config = changed(|document| document["process"] = Value::Null).unwrap();
    assert!(config.container.process.is_none());
}

#[test]
fn hostname_and_domainname_need_a_uts_namespace() {
    for name in ["hostname", "domainname"] {
        assert!(changed(|document| document[name] = "a".into()).is_ok());
        let error = refused(|document| {
            document[name] = "a".into();
            document["linux"]["namespaces"] = json!([{ "type": "mount" }]);
        });
        assert_eq!(
            error,
            format!("config.json: {name} would rename the host: the container has no uts namespace")
        );
        let long = refused(|document| document[name] = "a".repeat(65).into());
        assert_eq!(long, format!("config.json: {name} must have at most 64 bytes, has 65"));
        // An empty name is ignored.
        changed(|document| {
            document[name] = "".into();
            document["linux"]["namespaces"] = json!([]);
        })
        .unwrap();
    }
}

#[test]
fn a_joined_uts_namespace_can_be_named() {
    let joined = json!([{ "type": "uts", "path": "/proc/1/ns/uts" }]);
    let config = changed(|document| {
        document["hostname"] = "a".into();
        document["linux"]["namespaces"] = joined;
    });
    assert_eq!(config.unwrap().container.hostname.as_deref(), Some("a"));
}

#[test]
fn the_path_of_a_hook_must_be_absolute() {
    let error =
        refused(|document| document["hooks"]["poststop"] = json!([{ "path": "/a" }, { "path": "b" }]));
    assert_eq!(error, "config.json: hooks.poststop[1].path must be an absolute path, is \"b\"");
    assert!(
        refused(|document| document["hooks"]["prestart"] = json!([{ "args": [] }]))
            .contains("hooks.prestart[0]")
    );
}

#[test]
fn the_timeout_of_a_hook_must_be_greater_than_zero() {
    for seconds in [0, -1] {
        let hook = json!([{ "path": "/a", "timeout": seconds }]);
        let error = refused(|document| document["hooks"]["createRuntime"] = hook);
        assert_eq!(
            error,
            format!("config.json: hooks.createRuntime[0].timeout must be above 0, is {seconds}")
        );
    }
    let hook = json!([{ "path": "/a", "timeout": 5, "args": ["a", "b"], "env": ["A=1"] }]);
    let hook = changed(|document| document["hooks"]["startContainer"] = hook)
        .unwrap()
        .container
        .hooks
        .start_container;
    assert_eq!(
        (hook[0].timeout, hook[0].args.len(), hook[0].env.as_deref()),
        (Some(5), 2, Some(&["A=1".to_owned()][..]))
    );
}

#[test]
fn hooks_keep_the_listed_order() {
    let list = json!([{ "path": "/1" }, { "path": "/2" }, { "path": "/3" }]);
    let hooks = changed(|document| document["hooks"]["createContainer"] = list).unwrap().container.hooks;
    let paths: Vec<_> = hooks.create_container.iter().map(|hook| hook.path.to_str().unwrap()).collect();
    assert_eq!(paths, ["/1", "/2", "/3"]);
}

#[test]
fn annotation_values_must_be_strings() {
    let config = changed(|document| document["annotations"] = json!({ "a.b": "", "c": "d" })).unwrap();
    assert_eq!(config.container.annotations["a.b"], "");
    let error = refused(|document| document["annotations"] = json!({ "a": 1 }));
    assert!(
        error.starts_with("config.json: annotations.a: invalid type: integer `1`, expected a string"),
        "{error}"
    );
}

#[test]
fn unknown_properties_must_be_ignored() {
    let plain = format!("{:?}", changed(|_| {}).unwrap().container);
    let strange = changed(|document| {
        for section in ["/root", "/process", "/process/user", "/linux", "/linux/namespaces/0", ""] {
            let place = document.pointer_mut(section).unwrap();
            place["org.example"] = json!([{ "deep": [null, 1.5, "\u{0}"] }]);
        }
        // Sections of other platforms are not parsed.
        document["windows"] = json!({ "layerFolders": 7 });
        document["vm"] = "x".into();
        document["solaris"] = json!([1]);
        document["zos"] = json!(false);
    });
    assert_eq!(format!("{:?}", strange.unwrap().container), plain);
}

#[test]
fn a_null_is_an_absent_value() {
    let keys = ["mounts", "hostname", "domainname", "hooks", "annotations"];
    let linux = [
        "uidMappings",
        "gidMappings",
        "sysctl",
        "resources",
        "cgroupsPath",
        "devices",
        "netDevices",
        "seccomp",
        "rootfsPropagation",
        "maskedPaths",
        "readonlyPaths",
        "mountLabel",
        "intelRdt",
        "memoryPolicy",
        "personality",
        "timeOffsets",
    ];
    let process = [
        "terminal",
        "consoleSize",
        "env",
        "capabilities",
        "rlimits",
        "noNewPrivileges",
        "apparmorProfile",
        "oomScoreAdj",
        "selinuxLabel",
        "ioPriority",
        "scheduler",
        "execCPUAffinity",
    ];
    changed(|document| {
        keys.iter().for_each(|key| document[key] = Value::Null);
        linux.iter().for_each(|key| document["linux"][key] = Value::Null);
        process.iter().for_each(|key| document["process"][key] = Value::Null);
    })
    .unwrap();
}

#[test]
fn the_bytes_are_kept_as_they_are() {
    let text = format!(" {}\n", smallest());
    assert_eq!(
        parse_config(text.clone().into_bytes(), Path::new("/bundle")).unwrap().bytes,
        text.into_bytes()
    );
}
