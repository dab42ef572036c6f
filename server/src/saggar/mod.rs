//! The sandboxes of sessions, the program `saggar`, and clients of the two sockets of each session.

mod bridge;
mod control;
mod event_reader;
mod network;
mod permissions;
mod program;
mod quarantine;
mod sandbox_use;
mod sandboxes;
mod session_socket;
mod snapshots;
mod workspace;
mod workspace_change;

pub use bridge::BridgeConnection;
pub use control::{CONTROL_TIMEOUT, call_connected, call_control};
pub use event_reader::EventReader;
pub use network::{NetworkObject, allow_hosts, read_network};
pub use permissions::{PermissionObject, PermissionRequest, answer_permission, list_permissions};
pub use program::{
    CommandError, Program, SessionOrigin, SessionRecord, SessionState, StoredEvents, default_program,
};
pub use quarantine::{QuarantinedFile, Release, select_quarantined};
pub use sandbox_use::{SandboxUse, read_sandbox_use};
pub use sandboxes::Sandboxes;
pub use session_socket::{SessionSocket, SocketReader, SocketWriter};
pub use snapshots::{Settlement, Snapshot};
pub use workspace::{FileContent, FileSize, WorkspaceFile};
pub use workspace_change::WorkspaceChange;
