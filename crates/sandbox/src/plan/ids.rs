//! Id maps as the kernel takes them (user_namespaces(7)).

/// The text for `/proc/PID/uid_map` and `gid_map`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserNamespaceMaps {
    /// Lines of uid_map.
    pub uid: String,
    /// Lines of gid_map.
    pub gid: String,
    /// Whether setgroups must be denied first: otherwise an ordinary user may not write gid_map.
    pub deny_setgroups: bool,
}
