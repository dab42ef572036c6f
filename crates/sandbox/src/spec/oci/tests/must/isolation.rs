//! config-linux.md: namespaces, maps, clocks, devices, paths.

use super::*;
use crate::spec::container::{DeviceSpec, Namespace, TimeOffsets};

fn linux_refused(change: impl FnOnce(&mut Value)) -> String {
    let error = refused(|document| change(&mut document["linux"]));
    error.strip_prefix("config.json: linux").unwrap().to_owned()
}

fn container_with(change: impl FnOnce(&mut Value)) -> ContainerSpec {
    changed(|document| change(&mut document["linux"])).unwrap().container
}

#[test]
fn namespaces_are_new_joined_or_inherited() {
    let list =
        json!([{ "type": "pid" }, { "type": "network", "path": "/run/n" }, { "type": "ipc", "path": "" }]);
    let namespaces = container_with(|linux| linux["namespaces"] = list).namespaces;
    assert_eq!(namespaces.new, [Namespace::Pid, Namespace::Ipc]);
    assert_eq!(namespaces.joined.into_iter().collect::<Vec<_>>(), [(Namespace::Network, "/run/n".into())]);
}

#[test]
fn duplicated_namespaces_must_be_an_error() {
    let list = json!([{ "type": "pid" }, { "type": "pid", "path": "/p" }]);
    let error = linux_refused(|linux| linux["namespaces"] = list);
    assert_eq!(error, ".namespaces[1].type is a second pid namespace");
}

#[test]
fn the_path_of_a_namespace_must_be_absolute() {
    let error =
        linux_refused(|linux| linux["namespaces"] = json!([{ "type": "pid", "path": "proc/1/ns/pid" }]));
    assert_eq!(error, ".namespaces[0].path must be an absolute path, is \"proc/1/ns/pid\"");
}

#[test]
fn unknown_namespaces_are_errors() {
    let error = linux_refused(|linux| linux["namespaces"] = json!([{ "type": "net" }]));
    assert!(error.starts_with(".namespaces[0].type: unknown variant `net`"), "{error}");
    let error = linux_refused(|linux| linux["namespaces"] = json!([{ "path": "/a" }]));
    assert!(error.starts_with(".namespaces[0]: missing field `type`"), "{error}");
}

fn extent(inside: u32, outside: u32, size: u32) -> Value {
    json!({ "containerID": inside, "hostID": outside, "size": size })
}

fn user(uid: Value, gid: Value) -> impl FnOnce(&mut Value) {
    move |linux| {
        linux["namespaces"] = json!([{ "type": "user" }]);
        (linux["uidMappings"], linux["gidMappings"]) = (uid, gid);
    }
}

#[test]
fn a_user_namespace_without_gid_mappings_is_taken() {
    let ids = container_with(user(json!([extent(0, 1000, 1)]), Value::Null)).id_maps.unwrap();
    assert_eq!((ids.uid.len(), ids.gid.len()), (1, 0));
}

#[test]
fn a_new_user_namespace_needs_a_map() {
    assert_eq!(linux_refused(user(json!([]), json!([extent(0, 1, 1)]))), ".uidMappings is missing");
}

#[test]
fn mappings_without_a_user_namespace_are_an_error() {
    for key in ["uidMappings", "gidMappings"] {
        let error = linux_refused(|linux| linux[key] = json!([extent(0, 1, 1)]));
        assert_eq!(error, format!(".{key} is given without a user namespace"));
    }
}

#[test]
fn mappings_beside_a_joined_user_namespace_are_a_warning() {
    let config = changed(|document| {
        document["linux"]["namespaces"] = json!([{ "type": "user", "path": "/n" }]);
        document["linux"]["uidMappings"] = json!([extent(0, 1, 1)]);
    });
    let config = config.unwrap();
    assert_eq!(config.container.id_maps, None);
    let expected = "linux.uidMappings is ignored: the user namespace at /n has a map of its own";
    assert_eq!(config.warnings[0].to_string(), expected);
}

#[test]
fn maps_that_the_kernel_refuses_are_errors() {
    let of = |map: Value| linux_refused(user(map, Value::Null));
    assert_eq!(of(json!([extent(0, 1, 0)])), ".uidMappings[0].size must be at least 1");
    assert_eq!(of(json!([extent(1, 1, u32::MAX)])), ".uidMappings[0].size reaches beyond the last id");
    assert_eq!(of(json!([extent(0, 10, 5), extent(4, 100, 1)])), ".uidMappings[1] overlaps entry 0");
    assert_eq!(of(json!([extent(0, 10, 5), extent(9, 14, 1)])), ".uidMappings[1] overlaps entry 0");
    assert_eq!(of(json!([{ "containerID": 0, "size": 1 }])), ".uidMappings[0].hostID is missing");
    assert!(
        of(json!([{ "containerID": -1, "hostID": 0, "size": 1 }]))
            .starts_with(".uidMappings[0].containerID:")
    );
    let many: Vec<Value> = (0..341).map(|id| extent(id, id, 1)).collect();
    assert_eq!(of(json!(many)), ".uidMappings has 341 entries; the kernel takes 340");
    container_with(user(json!(many[..340]), Value::Null));
    container_with(user(json!([extent(0, 0, u32::MAX)]), json!([extent(5, 0, 1), extent(0, 5, 5)])));
}

#[test]
fn time_offsets_are_those_of_the_clocks() {
    let offsets = json!({ "monotonic": { "secs": -5 }, "boottime": { "secs": 7, "nanosecs": 999_999_999 } });
    let time = container_with(|linux| linux["timeOffsets"] = offsets).time_offsets;
    assert_eq!(time, TimeOffsets { monotonic: Some((-5, 0)), boottime: Some((7, 999_999_999)) });
    let error = linux_refused(|linux| linux["timeOffsets"] = json!({ "realtime": {} }));
    assert_eq!(
        error,
        ".timeOffsets.realtime is not a clock with an offset; those are monotonic and boottime"
    );
    let error =
        linux_refused(|linux| linux["timeOffsets"] = json!({ "boottime": { "nanosecs": 1_000_000_000u32 } }));
    assert_eq!(error, ".timeOffsets.boottime.nanosecs must be below 1000000000, is 1000000000");
}

#[test]
fn time_offsets_need_a_new_time_namespace() {
    for list in [json!([]), json!([{ "type": "time", "path": "/t" }])] {
        let error = linux_refused(|linux| {
            linux["namespaces"] = list;
            linux["timeOffsets"] = json!({ "monotonic": { "secs": 1 } });
        });
        assert_eq!(error, ".timeOffsets is given without a new time namespace");
    }
}

#[test]
fn default_devices_must_be_supplied() {
    let container = container_with(|_| {});
    let paths: Vec<_> = container.devices.iter().map(|device| device.path.to_str().unwrap()).collect();
    assert_eq!(paths, ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"]);
    let links: Vec<_> = container.links.iter().map(|(path, _)| path.to_str().unwrap()).collect();
    assert_eq!(links, ["/dev/ptmx", "/dev/fd", "/dev/stdin", "/dev/stdout", "/dev/stderr"]);
}

#[test]
fn devices_are_added_to_the_default_ones() {
    let list = json!([
        { "path": "/dev/fuse", "type": "c", "major": 10, "minor": 229, "fileMode": 0o600, "uid": 1, "gid": 2 },
        { "path": "/srv/disk", "type": "b", "major": 8, "minor": 0 },
        { "path": "/run/pipe", "type": "p" },
        { "path": "/dev/raw", "type": "u", "major": 4095, "minor": 1_048_575, "fileMode": 0o20660 },
    ]);
    let devices = container_with(|linux| linux["devices"] = list).devices;
    let device = |path: &str, kind, major, minor, mode, uid, gid| DeviceSpec {
        path: path.into(),
        kind,
        major,
        minor,
        mode,
        uid,
        gid,
    };
    let expected = [
        device("/dev/fuse", libc::S_IFCHR, 10, 229, 0o600, 1, 2),
        device("/srv/disk", libc::S_IFBLK, 8, 0, 0o666, 0, 0),
        device("/run/pipe", libc::S_IFIFO, 0, 0, 0o666, 0, 0),
        device("/dev/raw", libc::S_IFCHR, 4095, 1_048_575, 0o660, 0, 0),
    ];
    assert_eq!(devices[6..], expected);
}

#[test]
fn a_device_stands_for_the_default_one_at_its_path() {
    let list = json!([{ "path": "/dev/null", "type": "c", "major": 1, "minor": 3, "fileMode": 0o600 }]);
    let devices = container_with(|linux| linux["devices"] = list).devices;
    let null: Vec<u32> = devices
        .iter()
        .filter(|device| device.path == Path::new("/dev/null"))
        .map(|device| device.mode)
        .collect();
    assert_eq!(null, [0o600]);
}

#[test]
fn ptmx_must_be_that_of_the_containers_devpts() {
    let list = json!([{ "path": "/dev/ptmx", "type": "c", "major": 5, "minor": 2 }]);
    let container = container_with(|linux| linux["devices"] = list);
    assert_eq!(container.links[0], ("/dev/ptmx".into(), "pts/ptmx".into()));
    assert!(container.devices.iter().all(|device| device.path != Path::new("/dev/ptmx")));
}

#[test]
fn nothing_is_made_in_a_bound_dev() {
    let config = changed(|document| {
        document["mounts"] = json!([{ "destination": "/dev", "source": "/dev", "options": ["rbind"] }]);
        let device = |path: &str| json!({ "path": path, "type": "c", "major": 1, "minor": 3 });
        document["linux"]["devices"] = json!([device("/dev/x"), device("/srv/null")]);
    });
    let container = config.unwrap().container;
    let paths: Vec<_> = container.devices.iter().map(|device| device.path.to_str().unwrap()).collect();
    assert_eq!((paths, container.links.len()), (vec!["/srv/null"], 0));
}

#[test]
fn devices_that_cannot_be_are_errors() {
    let of = |entry: Value| linux_refused(|linux| linux["devices"] = json!([entry]));
    assert_eq!(of(json!({ "type": "c", "major": 1, "minor": 1 })), ".devices[0].path is missing");
    let relative = of(json!({ "path": "dev/x", "type": "p" }));
    assert_eq!(relative, ".devices[0].path must be an absolute path, is \"dev/x\"");
    assert!(of(json!({ "path": "/d" })).starts_with(".devices[0]: missing field `type`"));
    assert!(of(json!({ "path": "/d", "type": "x" })).starts_with(".devices[0].type: unknown variant `x`"));
    assert_eq!(of(json!({ "path": "/d", "type": "a" })), ".devices[0].type must be c, u, b or p, is a");
    assert_eq!(of(json!({ "path": "/d", "type": "c", "minor": 1 })), ".devices[0].major is missing");
    let negative = of(json!({ "path": "/d", "type": "b", "major": 8, "minor": -1 }));
    assert_eq!(negative, ".devices[0].minor must be from 0 to 1048575, is -1");
    let mode = of(json!({ "path": "/d", "type": "p", "fileMode": 0o1_000_000 }));
    assert_eq!(mode, ".devices[0].fileMode is not a mode: 262144; it is a decimal number");
}

#[test]
fn two_devices_at_one_path_are_an_error() {
    let device = |minor: u32| json!({ "path": "/d", "type": "c", "major": 1, "minor": minor });
    let error = linux_refused(|linux| linux["devices"] = json!([device(1), device(1), device(2)]));
    assert_eq!(error, ".devices[2].path is that of another device, too");
}

#[test]
fn masked_and_read_only_paths_must_be_absolute() {
    for key in ["maskedPaths", "readonlyPaths"] {
        let error = linux_refused(|linux| linux[key] = json!(["/proc/a", "proc/b"]));
        assert_eq!(error, format!(".{key}[1] must be an absolute path, is \"proc/b\""));
        let error = linux_refused(|linux| {
            linux["namespaces"] = json!([]);
            linux[key] = json!(["/proc/a"]);
        });
        assert_eq!(error, format!(".{key} would change the host: the container has no mount namespace"));
    }
}

#[test]
fn net_devices_move_under_their_name_or_a_new_one() {
    let entries =
        json!({ "eth0": {}, "eth1": { "name": "" }, "eth2": { "name": "a%d" }, "eth3": { "name": "x" } });
    let devices = container_with(|linux| linux["netDevices"] = entries).net_devices;
    let expected = [("eth0", "eth0"), ("eth1", "eth1"), ("eth2", "a%d"), ("eth3", "x")];
    assert!(devices.iter().map(|(outside, inside)| (outside.as_str(), inside.as_str())).eq(expected));
}

#[test]
fn net_devices_need_a_network_namespace_and_good_names() {
    let error = linux_refused(|linux| {
        linux["namespaces"] = json!([]);
        linux["netDevices"] = json!({ "eth0": {} });
    });
    assert_eq!(error, ".netDevices need a network namespace to move to");
    for name in ["", ".", "..", "a/b", "a:b", "a b", "sixteen-bytes-ab", "a\tb", "a%", "%s"] {
        let error = linux_refused(|linux| linux["netDevices"] = json!({ "eth0": {}, (name): {} }));
        assert!(error.contains("is not the name of a network device"), "{name}: {error}");
        if !name.is_empty() {
            let error = linux_refused(|linux| linux["netDevices"] = json!({ "eth0": { "name": name } }));
            assert!(error.starts_with(".netDevices.eth0.name is not the name"), "{name}: {error}");
        }
    }
    let twice = json!({ "eth0": { "name": "x" }, "eth1": { "name": "x" } });
    let error = linux_refused(|linux| linux["netDevices"] = twice);
    assert_eq!(error, ".netDevices.eth1.name is that of another device, too: x");
}

#[test]
fn sysctl_is_for_the_namespaces_of_the_container_alone() {
    let sysctl = json!({ "net.ipv4.ip_forward": "1", "kernel.shmmax": "4096" });
    assert_eq!(container_with(|linux| linux["sysctl"] = sysctl).sysctl["kernel.shmmax"], "4096");
    let error = linux_refused(|linux| linux["sysctl"] = json!({ "vm.swappiness": "1" }));
    assert_eq!(error, ".sysctl.vm.swappiness belongs to no namespace and would change the host");
    let error = linux_refused(|linux| {
        linux["namespaces"] = json!([]);
        linux["sysctl"] = json!({ "net.core.somaxconn": "1" });
    });
    assert_eq!(error, ".sysctl.net.core.somaxconn would change the host: the container has no net namespace");
}
