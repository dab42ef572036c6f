//! `saggar list`: one damaged container does not hide the others.

use super::Context;
use super::container::{Found, Status};
use crate::cli::oci::{ListArgs, ListFormat};
use crate::error::Result;
use serde_json::{Value, json};

pub(super) fn run(context: &Context, args: &ListArgs) -> Result<u8> {
    let rows: Vec<Value> = context.root.all()?.into_iter().map(row).collect();
    let text = match (args.quiet, args.format) {
        (true, _) => rows.iter().map(|row| format!("{}\n", text(row, "id"))).collect(),
        (false, ListFormat::Json) => format!("{}\n", Value::from(rows)),
        (false, ListFormat::Table) => table(&rows),
    };
    crate::cmd::say_as(args.format == ListFormat::Json, &text)?;
    Ok(0)
}

fn row(directory: crate::state::container::Directory) -> Value {
    let id = directory.id().clone();
    match Found::new(directory.clone()) {
        Ok(found) => {
            let status = found.status();
            let mut row = found.state(status);
            row["owner"] = owner(found.record.owner).into();
            row
        }
        Err(error) => {
            // Whatever is being made, or has gone while we looked, is no damage.
            let bare = directory.is_bare();
            if !bare {
                log::warn!("{error}");
            }
            let status = if bare { Status::Creating } else { Status::Stopped };
            json!({ "id": id.as_str(), "pid": 0, "status": status.to_string(), "bundle": "", "created": "", "owner": "" })
        }
    }
}

/// The name of a user; without one, the number. A static binary has no name service: /etc/passwd is read.
fn owner(uid: u32) -> String {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    });
    name.unwrap_or_else(|| format!("#{uid}"))
}

fn text<'a>(row: &'a Value, field: &str) -> std::borrow::Cow<'a, str> {
    match &row[field] {
        Value::String(text) => text.as_str().into(),
        Value::Null => "".into(),
        other => other.to_string().into(),
    }
}

fn table(rows: &[Value]) -> String {
    const COLUMNS: [&str; 6] = ["id", "pid", "status", "bundle", "created", "owner"];
    let heads = [COLUMNS.map(|name| name.to_uppercase())];
    let lines =
        rows.iter().map(|row| COLUMNS.map(|column| crate::text::line(&text(row, column)).into_owned()));
    let all: Vec<[String; 6]> = heads.into_iter().chain(lines).collect();
    aligned(&all)
}

/// Columns as wide as their widest field.
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
