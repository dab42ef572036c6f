//! What comes from a folder that somebody else wrote, an agent's folder or a workspace, gives nothing: no file of the
//! host is read for it, and no value of its policy becomes a mount.

mod folder;
mod program;
