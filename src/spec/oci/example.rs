//! What `spec` prints: a `config.json` to start from, as tight as a shell bears.

/// For root. System calls that a shell does not need and that have let others out are refused; what stands in
/// numbers there are the flags of clone(2) for namespaces, AF_ALG and AF_VSOCK, TIOCSTI and TIOCLINUX.
const EXAMPLE: &str = include_str!("example.json");

/// What an ordinary user cannot have, and what stands there instead.
const FOR_USER: [(&str, &str); 4] = [
    // The group of terminals is not mapped.
    (",\n                \"gid=5\"", ""),
    // A new sysfs is refused where parts of the host's are covered, as in a container.
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

/// The `config.json` that `spec` prints. With the user and group id of an ordinary user, one that this user can run:
/// root inside is that user, and nothing is asked for that takes more than one id or a cgroup.
pub fn example(rootless: Option<(u32, u32)>) -> String {
    let Some((uid, gid)) = rootless else { return EXAMPLE.to_owned() };
    let text = FOR_USER.iter().fold(EXAMPLE.to_owned(), |text, (from, to)| text.replace(from, to));
    text.replace("@uid@", &uid.to_string()).replace("@gid@", &gid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::container::{ContainerMountKind, IdExtent, Namespace};
    use crate::spec::oci::parse;
    use std::path::Path;

    #[test]
    fn the_example_is_a_valid_document_without_a_warning() {
        let config = parse(example(None).into_bytes(), Path::new("/b")).unwrap();
        assert_eq!(config.warnings, []);
        assert!(config.container.seccomp.is_some() && config.container.ids.is_none());
        assert!(config.container.process.unwrap().no_new_privs);
    }

    #[test]
    fn each_replacement_finds_its_place_once() {
        for (from, _) in FOR_USER {
            assert_eq!(EXAMPLE.matches(from).count(), 1, "{from}");
        }
    }

    #[test]
    fn a_user_gets_a_document_with_the_one_id_and_without_limits() {
        let config = parse(example(Some((1000, 100))).into_bytes(), Path::new("/b")).unwrap();
        assert_eq!(config.warnings, []);
        let container = config.container;
        let ids = container.ids.unwrap();
        assert_eq!(ids.uid, [IdExtent { inside: 0, outside: 1000, count: 1 }]);
        assert_eq!(ids.gid, [IdExtent { inside: 0, outside: 100, count: 1 }]);
        assert!(container.namespaces.has(Namespace::User) && container.resources.is_none());
        for mount in &container.mounts {
            if let ContainerMountKind::New { options, .. } = &mount.kind {
                assert!(options.iter().all(|(name, _)| name != "gid" && name != "uid"), "{mount:?}");
            }
        }
    }
}
