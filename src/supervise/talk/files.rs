//! Files of the workspace for a server.

use super::control::failure;
use crate::control::files::FileCall;
use crate::control::rpc::Failure;
use crate::session::files::Workspace;
use serde_json::{Value, json};

/// Does what the call asks for.
pub(super) fn answer(workspace: &Workspace, call: &FileCall) -> Result<Value, Failure> {
    let result = match call {
        FileCall::List { path, after, limit } => {
            workspace.list(path, *after, *limit).map(|listing| json!(listing))
        }
        FileCall::Read { path, offset, limit, encoding } => {
            workspace.read(path, *offset, *limit, *encoding).map(|piece| json!(piece))
        }
        FileCall::Write { path, content } => workspace.write(path, content).map(|()| json!({})),
    };
    result.map_err(|error| failure(&error))
}
