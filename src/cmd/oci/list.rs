//! `saggar list`: lists containers; a damaged one does not hide the others.

use super::OciContext;
use super::container::{ContainerStatus, LoadedContainer};
use crate::cli::oci::{ContainerListArgs, ListFormat};
use crate::error::Result;
use serde_json::{Value, json};

pub(super) fn run(context: &OciContext, args: &ContainerListArgs) -> Result<u8> {
    let rows: Vec<Value> = context.root.list()?.into_iter().map(row).collect();
    let text = match (args.quiet, args.format) {
        (true, _) => rows.iter().map(|row| format!("{}\n", field_text(row, "id"))).collect(),
        (false, ListFormat::Json) => format!("{}\n", Value::from(rows)),
        (false, ListFormat::Table) => table(&rows),
    };
    crate::cmd::print_as(args.format == ListFormat::Json, &text)?;
    Ok(0)
}

fn row(directory: crate::state::container::ContainerDirectory) -> Value {
    let id = directory.id().clone();
    match LoadedContainer::load(directory.clone()) {
        Ok(found) => {
            let status = found.status();
            let mut row = found.oci_state(status);
            row["owner"] = owner(found.record.owner).into();
            row
        }
        Err(error) => {
            // A container that is being created, or was just deleted, is not damaged.
            let bare = directory.has_no_record();
            if !bare {
                log::warn!("{error}");
            }
            let status = if bare { ContainerStatus::Creating } else { ContainerStatus::Stopped };
            json!({ "id": id.as_str(), "pid": 0, "status": status.to_string(), "bundle": "", "created": "", "owner": "" })
        }
    }
}

/// Returns the name of a user, or the number. A static binary has no name service, so /etc/passwd is read.
fn owner(uid: u32) -> String {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    });
    name.unwrap_or_else(|| format!("#{uid}"))
}

fn field_text<'a>(row: &'a Value, field: &str) -> std::borrow::Cow<'a, str> {
    match &row[field] {
        Value::String(text) => text.as_str().into(),
        Value::Null => "".into(),
        other => other.to_string().into(),
    }
}

fn table(rows: &[Value]) -> String {
    const COLUMNS: [&str; 6] = ["id", "pid", "status", "bundle", "created", "owner"];
    let heads = [COLUMNS.map(|name| name.to_uppercase())];
    let lines = rows
        .iter()
        .map(|row| COLUMNS.map(|column| crate::text::one_line(&field_text(row, column)).into_owned()));
    let all: Vec<[String; 6]> = heads.into_iter().chain(lines).collect();
    aligned(&all)
}

/// Formats columns as wide as their widest field.
pub(super) fn aligned<const N: usize>(lines: &[[String; N]]) -> String {
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut out = String::new();
    for line in lines {
        let padded: Vec<String> =
            line.iter().zip(widths).map(|(field, width)| format!("{field:<width$}")).collect();
        out.push_str(padded.join("   ").trim_end());
        out.push('\n');
    }
    out
}
