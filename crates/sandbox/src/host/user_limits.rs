//! The kernel's limits per user (namespaces(7), `user.max_*`).

use saggar_sys::read::kernel_text;

/// The value in a user namespace that sets no limit of its own.
const NO_LIMIT: u64 = 0x7fff_ffff;

/// The limits of the user who starts a sandbox; `None` if the host sets none or does not show it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserLimits {
    /// Number of inotify instances.
    pub inotify_instances: Option<u64>,
    /// Number of watches of all inotify instances together.
    pub inotify_watches: Option<u64>,
    /// Number of user namespaces; read only if programs can create some.
    pub user_namespaces: Option<u64>,
}

impl UserLimits {
    /// Reads the limits; that of user namespaces only if `namespaces` is set.
    pub(super) fn read(namespaces: bool) -> Self {
        let read = |name: &str| kernel_text(name.as_ref()).ok()?.trim().parse().ok();
        // The files in `fs` are those of the initial user namespace, above all others.
        let inotify = |name: &str| {
            read(&format!("/proc/sys/user/max_inotify_{name}"))
                .filter(|limit| *limit < NO_LIMIT)
                .or_else(|| read(&format!("/proc/sys/fs/inotify/max_user_{name}")))
        };
        UserLimits {
            inotify_instances: inotify("instances"),
            inotify_watches: inotify("watches"),
            user_namespaces: namespaces.then(|| read("/proc/sys/user/max_user_namespaces")).flatten(),
        }
    }
}
