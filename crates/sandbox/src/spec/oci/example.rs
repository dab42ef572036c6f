//! The output of `spec`: a template `config.json`, as strict as an interactive shell permits.

/// The template for root. Its filter denies system calls that a shell does not need and that have been used
/// to escape containers. The numbers in it are the flags of clone(2) for namespaces, TIOCSTI, TIOCLINUX, and
/// the arguments of socket(2): of the families only AF_UNIX, AF_INET, AF_INET6 and AF_NETLINK pass, of netlink
/// only NETLINK_ROUTE, and neither IPPROTO_MPTCP nor IPPROTO_SMC; of socketpair(2) only AF_UNIX. The kernel reads
/// 32 bits of each, so that the comparisons mask the rest.
const EXAMPLE: &str = include_str!("example.json");

/// Parts of the template that an unprivileged user cannot use, and their replacements.
const ROOTLESS_REPLACEMENTS: [(&str, &str); 4] = [
    // The tty group is not mapped.
    (",\n                \"gid=5\"", ""),
    // The kernel refuses a new sysfs mount where parts of the host's are masked, as in a container.
    (
        r#"            "type": "sysfs",
            "source": "sysfs",
            "options": [
                "nosuid",
                "noexec",
                "nodev",
                "ro"
            ]"#,
        r#"            "type": "none",
            "source": "/sys",
            "options": [
                "rbind",
                "rnosuid",
                "rnoexec",
                "rnodev",
                "rro"
            ]"#,
    ),
    (
        r#"            {
                "type": "cgroup"
            }
        ],
"#,
        r#"            {
                "type": "cgroup"
            },
            {
                "type": "user"
            }
        ],
        "uidMappings": [
            {
                "containerID": 0,
                "hostID": @uid@,
                "size": 1
            }
        ],
        "gidMappings": [
            {
                "containerID": 0,
                "hostID": @gid@,
                "size": 1
            }
        ],
"#,
    ),
    // Limits need a cgroup, which a user may not have.
    (
        r#"        "resources": {
            "devices": [
                {
                    "allow": false,
                    "access": "rwm"
                }
            ],
            "pids": {
                "limit": 512
            }
        },
"#,
        "",
    ),
];

/// The limit of open files of the template, and how it is written.
const OPEN_FILES: u64 = 65536;
const OPEN_FILES_TEXT: &str = "\"hard\": 65536";

/// The `config.json` that `spec` prints. `rootless` is the uid and gid of an unprivileged user, who can run
/// the result: root in the container is mapped to that user, and nothing requires a second id or a cgroup.
/// `open_files` is the hard limit of the caller, which it may not be able to raise.
pub fn example_config(rootless: Option<(u32, u32)>, open_files: u64) -> String {
    let text = match open_files {
        ..OPEN_FILES => EXAMPLE
            .replace(OPEN_FILES_TEXT, &format!("\"hard\": {open_files}"))
            .replace("\"soft\": 1024", &format!("\"soft\": {}", open_files.min(1024))),
        _ => EXAMPLE.to_owned(),
    };
    let Some((uid, gid)) = rootless else { return text };
    let text = ROOTLESS_REPLACEMENTS.iter().fold(text, |text, (from, to)| text.replace(from, to));
    text.replace("@uid@", &uid.to_string()).replace("@gid@", &gid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::container::{ContainerMountKind, IdExtent, Namespace};
    use crate::spec::oci::parse_config;
    use std::path::Path;

    #[test]
    fn the_example_is_a_valid_document_without_a_warning() {
        let config = parse_config(example_config(None, u64::MAX).into_bytes(), Path::new("/b")).unwrap();
        assert_eq!(config.warnings, []);
        assert!(config.container.seccomp.is_some() && config.container.id_maps.is_none());
        assert!(config.container.process.unwrap().no_new_privs);
    }

    #[test]
    fn limit_of_open_files_is_at_most_that_of_the_caller() {
        for (own, limits) in
            [(u64::MAX, (65536, 1024)), (65536, (65536, 1024)), (4096, (4096, 1024)), (512, (512, 512))]
        {
            let config: serde_json::Value = serde_json::from_str(&example_config(None, own)).unwrap();
            let rlimits = config["process"]["rlimits"].as_array().unwrap();
            let open_files = rlimits.iter().find(|limit| limit["type"] == "RLIMIT_NOFILE").unwrap();
            let of = |name: &str| open_files[name].as_u64().unwrap();
            assert_eq!((of("hard"), of("soft")), limits);
        }
    }

    #[test]
    fn each_replacement_finds_its_place_once() {
        for (from, _) in ROOTLESS_REPLACEMENTS {
            assert_eq!(EXAMPLE.matches(from).count(), 1, "{from}");
        }
    }

    #[test]
    fn a_user_gets_a_document_with_the_one_id_and_without_limits() {
        let config =
            parse_config(example_config(Some((1000, 100)), u64::MAX).into_bytes(), Path::new("/b")).unwrap();
        assert_eq!(config.warnings, []);
        let container = config.container;
        let ids = container.id_maps.unwrap();
        assert_eq!(ids.uid, [IdExtent { inside: 0, outside: 1000, count: 1 }]);
        assert_eq!(ids.gid, [IdExtent { inside: 0, outside: 100, count: 1 }]);
        assert!(container.namespaces.has(Namespace::User) && container.resources.is_none());
        for mount in &container.mounts {
            if let ContainerMountKind::Filesystem { options, .. } = &mount.kind {
                assert!(options.iter().all(|(name, _)| name != "gid" && name != "uid"), "{mount:?}");
            }
        }
    }
}
