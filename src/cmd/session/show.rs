//! `saggar session show`: prints a session.

use crate::cli::session::ShowArgs;
use crate::cmd::{print_raw, print_text};
use crate::error::Result;
use crate::session::record::SessionRecord;
use crate::text::DisplayEscaped;
use serde_json::{Value, json};
use std::path::Path;

pub(super) fn run(args: &ShowArgs) -> Result<u8> {
    let (_, directory, record) = SessionRecord::find(&args.id)?;
    if args.json {
        print_raw(&format!("{}\n", as_json(&record, &directory)))?;
        return Ok(0);
    }
    let pid = record.supervisor.as_ref().map(|supervisor| supervisor.pid.to_string());
    let reason = reason(&record);
    let rows = [
        ("session", Some(record.id.clone())),
        ("state", Some(record.state.to_string())),
        ("reason", reason),
        ("cause", record.cause.clone()),
        ("folder", Some(record.folder.clone())),
        ("workspace", record.workspace.clone()),
        ("directory", Some(directory.to_string_lossy().into_owned())),
        ("sandbox", record.sandbox.clone()),
        ("supervisor", pid),
        ("bridge", record.bridge_socket.clone()),
        ("control", record.control_socket.clone()),
        ("created", Some(record.created.clone())),
        ("changed", Some(record.changed)),
    ];
    let lines =
        rows.into_iter().filter_map(|(name, value)| Some(format!("{name:<11} {}\n", value?.escaped())));
    print_text(&lines.collect::<String>())?;
    Ok(0)
}

/// Returns the name of the reason.
pub(super) fn reason(record: &SessionRecord) -> Option<String> {
    serde_json::to_value(record.reason).ok()?.as_str().map(str::to_owned)
}

/// Returns a session as JSON on one line, without its options, which may contain secrets.
pub(super) fn as_json(record: &SessionRecord, directory: &Path) -> Value {
    json!({
        "version": record.version,
        "id": record.id,
        "state": record.state,
        "reason": record.reason,
        "cause": record.cause,
        "folder": record.folder,
        "workspace": record.workspace,
        "directory": directory.to_string_lossy(),
        "sandbox": record.sandbox,
        "supervisor": record.supervisor,
        "bridgeSocket": record.bridge_socket,
        "controlSocket": record.control_socket,
        "created": record.created,
        "changed": record.changed,
    })
}
