//! Device nodes of a container: where each comes from.

use std::ffi::CString;

/// A device of the container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedDevice {
    /// Path below the root.
    pub path: CString,
    /// Type, number, mode, and the owner inside.
    pub node: DeviceNode,
    /// Where the node comes from.
    pub source: DeviceSource,
}

/// A device node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceNode {
    /// S_IFCHR, S_IFBLK or S_IFIFO.
    pub kind: u32,
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// The source of a device node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceSource {
    /// It is made, by mknod(2).
    New,
    /// The host's node at this absolute path is bind mounted, with the host's owner and mode: mknod(2) is denied in a user
    /// namespace.
    Host(CString),
    /// The parent made it outside of the user namespace; it is the tree with this index.
    Received(usize),
}

/// A node that the parent makes for a container in a user namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParentDevice {
    /// Path below the root of the container.
    pub path: CString,
    /// Type, number, mode, and the owner outside.
    pub node: DeviceNode,
    /// The host's node, which is bind mounted if the parent may not make one either.
    pub host: CString,
}
