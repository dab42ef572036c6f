//! What the kernel counts to a user, and how much of it there may be (namespaces(7), `user.max_*`).

/// What a user namespace says where it sets no limit of its own.
const NO_LIMIT: u64 = 0x7fff_ffff;

/// Limits of whoever starts a sandbox; nothing where this host has or says none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Quotas {
    /// Instances of inotify.
    pub inotify_instances: Option<u64>,
    /// Watches of all of them.
    pub inotify_watches: Option<u64>,
    /// User namespaces; looked at where programs can make some.
    pub user_namespaces: Option<u64>,
}

impl Quotas {
    /// Reads them.
    pub(super) fn read(namespaces: bool) -> Self {
        let read = |name: &str| std::fs::read_to_string(name).ok()?.trim().parse().ok();
        // The files of `fs` are those of the first user namespace, above all others.
        let inotify = |name: &str| {
            read(&format!("/proc/sys/user/max_inotify_{name}"))
                .filter(|limit| *limit < NO_LIMIT)
                .or_else(|| read(&format!("/proc/sys/fs/inotify/max_user_{name}")))
        };
        Quotas {
            inotify_instances: inotify("instances"),
            inotify_watches: inotify("watches"),
            user_namespaces: namespaces.then(|| read("/proc/sys/user/max_user_namespaces")).flatten(),
        }
    }
}
