//! config.md: mounts.

use super::*;
use crate::spec::container::SourceLink;
use libc::{
    MOUNT_ATTR__ATIME, MOUNT_ATTR_NOATIME, MOUNT_ATTR_NODEV, MOUNT_ATTR_NODIRATIME, MOUNT_ATTR_NOEXEC,
    MOUNT_ATTR_NOSUID, MOUNT_ATTR_NOSYMFOLLOW, MOUNT_ATTR_RDONLY, MOUNT_ATTR_STRICTATIME, MS_DIRSYNC,
    MS_I_VERSION, MS_LAZYTIME, MS_MANDLOCK, MS_PRIVATE, MS_RDONLY, MS_REC, MS_SHARED, MS_SILENT, MS_SLAVE,
    MS_SYNCHRONOUS, MS_UNBINDABLE,
};

fn tmpfs(options: &[&str]) -> ContainerMount {
    mount(json!({ "destination": "/m", "type": "tmpfs", "options": options })).unwrap()
}

fn bind(options: &[&str]) -> ContainerMount {
    let options = [&["bind"], options].concat();
    mount(json!({ "destination": "/m", "source": "/s", "options": options })).unwrap()
}

type Options = Vec<(String, Option<String>)>;

fn new(mount: ContainerMount) -> (String, String, Options, u64, bool) {
    match mount.kind {
        ContainerMountKind::Filesystem { fstype, source, options, superblock, copy_up } => {
            (fstype, source, options, superblock, copy_up)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn mounts_must_be_in_the_listed_order() {
    let list = ["/a", "/b", "/a/c", "/a"].map(|at| json!({ "destination": at, "type": "tmpfs" }));
    let mounts = changed(|document| document["mounts"] = json!(list)).unwrap().container.mounts;
    let order: Vec<_> = mounts.iter().map(|mount| mount.destination.to_str().unwrap()).collect();
    assert_eq!(order, ["/a", "/b", "/a/c", "/a"]);
}

#[test]
fn a_relative_destination_must_start_from_the_root() {
    assert_eq!(
        mount(json!({ "destination": "a/b", "type": "tmpfs" })).unwrap().destination,
        Path::new("/a/b")
    );
    assert_eq!(mount_refused(json!({ "type": "tmpfs" })), "config.json: mounts[0].destination is missing");
}

#[test]
fn a_mount_is_a_bind_mount_if_it_has_bind_or_rbind() {
    let source = || "/s".into();
    assert_eq!(bind(&[]).kind, ContainerMountKind::Bind { source: source(), recursive: false });
    assert_eq!(bind(&["rbind"]).kind, ContainerMountKind::Bind { source: source(), recursive: true });
    let dummy = json!({ "destination": "/m", "type": "ext4", "source": "/s", "options": ["rbind"] });
    assert_eq!(mount(dummy).unwrap().kind, ContainerMountKind::Bind { source: source(), recursive: true });
    let of_type = json!({ "destination": "/m", "type": "bind", "source": "/s" });
    assert_eq!(mount(of_type).unwrap().kind, ContainerMountKind::Bind { source: source(), recursive: false });
}

#[test]
fn the_source_of_a_bind_mount_is_absolute_or_relative_to_the_bundle() {
    let entry = json!({ "destination": "/m", "source": "data/x", "options": ["bind"] });
    let expected = ContainerMountKind::Bind { source: "/bundle/data/x".into(), recursive: false };
    assert_eq!(mount(entry).unwrap().kind, expected);
    let without = json!({ "destination": "/m", "options": ["bind"] });
    assert_eq!(mount_refused(without), "config.json: mounts[0].source is missing");
}

#[test]
fn a_type_is_needed_unless_something_else_says_what_is_mounted() {
    for kind in [Value::Null, "".into(), "none".into()] {
        let entry = json!({ "destination": "/m", "type": kind, "source": "x" });
        assert_eq!(mount_refused(entry), "config.json: mounts[0].type is missing");
    }
}

#[test]
fn unknown_options_become_data_of_the_file_system() {
    let (fstype, source, options, ..) = new(tmpfs(&["size=64k", "nosuid", "mode=1777", "huge"]));
    assert_eq!((fstype.as_str(), source.as_str()), ("tmpfs", "none"));
    let text = |value: &str| Some(value.to_owned());
    let expected =
        [("size".to_owned(), text("64k")), ("mode".to_owned(), text("1777")), ("huge".to_owned(), None)];
    assert_eq!(options, expected);
}

#[test]
fn options_of_a_file_system_on_a_bind_mount_are_left_out_and_told() {
    let entry = json!({ "destination": "/m", "source": "/s", "options": ["ro", "bind", "size=1k"] });
    let warnings = mount_warnings(entry);
    assert_eq!(
        warnings,
        ["mounts[0].options[2] is left out: size is for a file system, and this is a bind mount"]
    );
}

#[test]
fn flags_of_the_mount_are_attributes() {
    for (set, clear, attribute) in [
        ("nosuid", "suid", MOUNT_ATTR_NOSUID),
        ("nodev", "dev", MOUNT_ATTR_NODEV),
        ("noexec", "exec", MOUNT_ATTR_NOEXEC),
        ("nodiratime", "diratime", MOUNT_ATTR_NODIRATIME),
        ("nosymfollow", "symfollow", MOUNT_ATTR_NOSYMFOLLOW),
        ("ro", "rw", MOUNT_ATTR_RDONLY),
    ] {
        assert_eq!((bind(&[set]).set, bind(&[set]).clear), (attribute, 0), "{set}");
        assert_eq!((bind(&[clear]).set, bind(&[clear]).clear), (0, attribute), "{clear}");
    }
}

#[test]
fn the_recursive_set_is_for_the_whole_tree() {
    for (set, clear, attribute) in [
        ("rnosuid", "rsuid", MOUNT_ATTR_NOSUID),
        ("rnodev", "rdev", MOUNT_ATTR_NODEV),
        ("rnoexec", "rexec", MOUNT_ATTR_NOEXEC),
        ("rnodiratime", "rdiratime", MOUNT_ATTR_NODIRATIME),
        ("rnosymfollow", "rsymfollow", MOUNT_ATTR_NOSYMFOLLOW),
        ("rro", "rrw", MOUNT_ATTR_RDONLY),
    ] {
        let (one, other) = (bind(&["rbind", set]), bind(&["rbind", clear]));
        assert_eq!(
            (one.set, one.clear, one.set_recursive, one.clear_recursive),
            (0, 0, attribute, 0),
            "{set}"
        );
        assert_eq!((other.set, other.set_recursive, other.clear_recursive), (0, 0, attribute), "{clear}");
    }
    for (word, choice) in
        [("rnoatime", MOUNT_ATTR_NOATIME), ("rstrictatime", MOUNT_ATTR_STRICTATIME), ("rrelatime", 0)]
    {
        let mount = bind(&["rbind", word]);
        assert_eq!((mount.set_recursive, mount.clear_recursive), (choice, MOUNT_ATTR__ATIME), "{word}");
    }
}

#[test]
fn flags_of_the_file_system_are_the_superblocks() {
    for (set, clear, flag) in [
        ("sync", "async", MS_SYNCHRONOUS),
        ("lazytime", "nolazytime", MS_LAZYTIME),
        ("iversion", "noiversion", MS_I_VERSION),
        ("mand", "nomand", MS_MANDLOCK),
        ("silent", "loud", MS_SILENT),
        ("ro", "rw", MS_RDONLY),
    ] {
        assert_eq!(new(tmpfs(&[set])).3, flag, "{set}");
        assert_eq!(new(tmpfs(&[set, clear])).3, 0, "{clear}");
    }
    assert_eq!(new(tmpfs(&["dirsync"])).3, MS_DIRSYNC);
    assert_eq!(new(tmpfs(&["defaults"])).3, 0);
}

#[test]
fn flags_of_a_file_system_on_a_bind_mount_are_a_warning() {
    let entry = json!([{ "destination": "/m", "source": "/s", "options": ["bind", "sync"] }]);
    let config = changed(|document| document["mounts"] = entry).unwrap();
    assert!(
        config.warnings[0].to_string().starts_with("mounts[0].options has options of a whole file system")
    );
}

#[test]
fn propagation_words_are_applied_in_their_order() {
    for (word, flags) in
        [("shared", MS_SHARED), ("slave", MS_SLAVE), ("private", MS_PRIVATE), ("unbindable", MS_UNBINDABLE)]
    {
        assert_eq!(bind(&[word]).propagation, [flags]);
        assert_eq!(bind(&[&format!("r{word}")]).propagation, [flags | MS_REC]);
    }
    assert_eq!(bind(&["rslave", "shared"]).propagation, [MS_SLAVE | MS_REC, MS_SHARED]);
    let alone = mount(json!({ "destination": "/m", "type": "none", "options": ["rshared"] })).unwrap();
    assert_eq!(
        (alone.kind, alone.propagation),
        (ContainerMountKind::ChangeAttributes, vec![MS_SHARED | MS_REC])
    );
}

#[test]
fn remount_changes_what_is_there() {
    assert_eq!(bind(&["remount", "ro"]).kind, ContainerMountKind::Remount);
    let options = ["remount", "ro", "size=1m"];
    let whole = mount(json!({ "destination": "/m", "type": "tmpfs", "options": options })).unwrap();
    let size = ("size".to_owned(), Some("1m".to_owned()));
    assert_eq!(whole.kind, ContainerMountKind::Reconfigure { options: vec![size], superblock: MS_RDONLY });
    assert_eq!(whole.set, MOUNT_ATTR_RDONLY);
}

#[test]
fn tmpcopyup_is_for_a_tmpfs_alone() {
    let (_, _, options, _, copy_up) = new(tmpfs(&["tmpcopyup", "nodev"]));
    assert!(copy_up && options.is_empty());
    let error = mount_refused(json!({ "destination": "/m", "type": "proc", "options": ["tmpcopyup"] }));
    assert!(error.starts_with("config.json: mounts[0].options has tmpcopyup"), "{error}");
}

/// Options of crun: of a bind mount alone, and the strictest of a list applies in any order.
#[test]
fn links_at_the_ends_of_a_bind_mount() {
    for (options, source_link, covers_link) in [
        (&["ro"][..], SourceLink::Target, false),
        (&["src-nofollow"], SourceLink::Itself, false),
        (&["copy-symlink"], SourceLink::Copy, false),
        (&["copy-symlink", "src-nofollow"], SourceLink::Copy, false),
        (&["src-nofollow", "copy-symlink"], SourceLink::Copy, false),
        (&["dest-nofollow", "src-nofollow"], SourceLink::Itself, true),
    ] {
        let mount = bind(options);
        assert_eq!((mount.source_link, mount.covers_link), (source_link, covers_link), "{options:?}");
    }
    for option in ["copy-symlink", "dest-nofollow", "src-nofollow"] {
        for options in [json!([option]), json!(["bind", "remount", option])] {
            let error = mount_refused(json!({ "destination": "/m", "type": "tmpfs", "options": options }));
            assert!(error.starts_with("config.json: mounts[0].options has copy-symlink, "), "{error}");
        }
    }
}

#[test]
fn cgroup_and_cgroup2_are_the_containers_own() {
    for kind in ["cgroup", "cgroup2"] {
        let mount =
            mount(json!({ "destination": "/sys/fs/cgroup", "type": kind, "options": ["ro"] })).unwrap();
        assert_eq!((mount.kind, mount.set), (ContainerMountKind::Cgroup, MOUNT_ATTR_RDONLY));
    }
}

fn mapped(options: &[&str], uid: bool, gid: bool) -> Value {
    let map =
        |wanted: bool| if wanted { json!([{ "containerID": 0, "hostID": 7, "size": 2 }]) } else { json!([]) };
    json!({ "destination": "/m", "source": "/s", "options": options, "uidMappings": map(uid), "gidMappings": map(gid) })
}

#[test]
fn uid_mappings_and_gid_mappings_must_be_specified_together() {
    let error = mount_refused(mapped(&["bind", "idmap"], false, true));
    assert_eq!(error, "config.json: mounts[0].uidMappings must be given along with gidMappings");
    let error = mount_refused(mapped(&["bind", "idmap"], true, false));
    assert_eq!(error, "config.json: mounts[0].gidMappings must be given along with uidMappings");
}

#[test]
fn mappings_of_a_mount_must_be_used_for_it() {
    for (options, recursive) in
        [(&["bind", "idmap"][..], false), (&["rbind", "ridmap"], true), (&["rbind"], false)]
    {
        let idmap = mount(mapped(options, true, true)).unwrap().idmap.unwrap();
        assert_eq!((idmap.recursive, idmap.maps.unwrap().uid[0].outside), (recursive, 7), "{options:?}");
    }
}

#[test]
fn idmap_without_a_map_and_without_a_user_namespace_must_be_an_error() {
    for word in ["idmap", "ridmap"] {
        let error = mount_refused(mapped(&["bind", word], false, false));
        assert_eq!(error, "config.json: mounts[0].options ask for mapped owners without a map");
    }
}

#[test]
fn idmap_without_a_map_has_that_of_the_container() {
    let config = changed(|document| {
        document["mounts"] = json!([mapped(&["bind", "idmap"], false, false)]);
        document["linux"]["namespaces"] = json!([{ "type": "mount" }, { "type": "user", "path": "/n" }]);
    });
    assert_eq!(config.unwrap().container.mounts[0].idmap.as_ref().unwrap().maps, None);
}

#[test]
fn only_a_bind_mount_has_mapped_owners() {
    let mut entry = mapped(&["idmap"], true, true);
    entry["type"] = "tmpfs".into();
    assert!(
        mount_refused(entry)
            .starts_with("config.json: mounts[0].options ask for mapped owners, which only a bind")
    );
}

#[test]
fn mounts_in_the_namespace_of_the_caller_are_a_warning() {
    let config = changed(|document| {
        document["mounts"] = json!([{ "destination": "/m", "type": "tmpfs" }]);
        document["linux"]["namespaces"] = json!([]);
    });
    assert!(config.unwrap().warnings[0].to_string().starts_with("mounts are made in the mount namespace"));
}

#[test]
fn rootfs_propagation_is_one_of_the_words() {
    for (word, flags) in
        [("shared", MS_SHARED), ("slave", MS_SLAVE), ("private", MS_PRIVATE), ("unbindable", MS_UNBINDABLE)]
    {
        for (word, flags) in [(word.to_owned(), flags), (format!("r{word}"), flags | MS_REC)] {
            let config = changed(|document| document["linux"]["rootfsPropagation"] = word.into()).unwrap();
            assert_eq!(config.container.root.propagation, Some(flags));
        }
    }
    for word in ["public", "ro", "bind"] {
        let error = refused(|document| document["linux"]["rootfsPropagation"] = word.into());
        assert_eq!(error, format!("config.json: linux.rootfsPropagation is not known: {word:?}"));
    }
}
