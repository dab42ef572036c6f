//! `saggar quarantine`: lists, restores and removes files that sandboxes left under protected names.

use super::{print_as, print_error_text};
use crate::cli::quarantine::{
    QuarantineCommand, QuarantineListArgs, QuarantineRemoveArgs, QuarantineRestoreArgs,
};
use crate::error::{Code, Error, Result};
use crate::id::SandboxId;
use crate::session::quarantine::index::{self, QuarantinedItem};
use crate::session::quarantine::restore::QuarantineRestorer;
use crate::sys::file_worker::{self, Confinement, FileAccess, WorkerLimits, WorkerOutput};
use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The exit status of `restore` if another file exists at an original path (saggar(1)). Servers match on it.
const OTHER_FILE_STATUS: u8 = 3;

pub(super) fn run(command: &QuarantineCommand) -> Result<u8> {
    match command {
        QuarantineCommand::List(args) => list(args),
        QuarantineCommand::Restore(args) => restore(args),
        QuarantineCommand::Remove(args) => remove(args),
    }
}

fn list(args: &QuarantineListArgs) -> Result<u8> {
    let all = match &args.id {
        Some(id) => vec![(id.clone(), index::find_quarantine(&SandboxId::parse(id)?)?)],
        None => index::list_quarantines(),
    };
    let mut text = String::new();
    let mut rows = Vec::new();
    for (id, directory) in &all {
        for item in index::read_items(directory) {
            if args.json {
                text += &as_json(id, &item, Some(directory));
            } else {
                rows.push([id.clone(), item.number.to_string(), shown(&item), item.why]);
            }
        }
    }
    if !args.json {
        let heads = ["SANDBOX", "NUMBER", "PATH", "WHY"];
        let width = |at: usize| rows.iter().map(|row| row[at].len()).max().unwrap_or(0).max(heads[at].len());
        let (a, b, c) = (width(0), width(1), width(2));
        let line = |row: [&str; 4]| format!("{:<a$}  {:<b$}  {:<c$}  {}\n", row[0], row[1], row[2], row[3]);
        text = line(heads);
        rows.iter().for_each(|row| text += &line([&row[0], &row[1], &row[2], &row[3]]));
    }
    print_as(args.json, &text)?;
    Ok(0)
}

fn restore(args: &QuarantineRestoreArgs) -> Result<u8> {
    let quarantine = index::find_quarantine(&SandboxId::parse(&args.id)?)?;
    let mut chosen = select_items(&args.id, &quarantine, &args.names)?;
    // In reverse order: a directory is restored before the files that were moved out of it earlier.
    chosen.reverse();
    let verb = ItemOperation {
        id: &args.id,
        json: args.json,
        operation: "restore from quarantine",
        completed: "restored",
    };
    match verb.each(&quarantine, &chosen, |release, item| release.restore_item(item, args.force)) {
        Err(error) if error.code() == Code::Exists => {
            print_error_text(&error);
            Ok(OTHER_FILE_STATUS)
        }
        restored => restored,
    }
}

fn remove(args: &QuarantineRemoveArgs) -> Result<u8> {
    let quarantine = index::find_quarantine(&SandboxId::parse(&args.id)?)?;
    let chosen = select_items(&args.id, &quarantine, &args.names)?;
    let verb = ItemOperation {
        id: &args.id,
        json: args.json,
        operation: "remove from quarantine",
        completed: "removed",
    };
    verb.each(&quarantine, &chosen, QuarantineRestorer::remove_item)
}

/// Selects the items with these names; all items without names.
fn select_items(id: &str, quarantine: &Path, names: &[String]) -> Result<Vec<QuarantinedItem>> {
    let items = index::read_items(quarantine);
    if names.is_empty() {
        return Ok(items);
    }
    let texts: HashSet<&str> = names.iter().map(String::as_str).collect();
    let paths: HashSet<&Path> = names.iter().map(Path::new).collect();
    let (mut found_texts, mut found_paths) = (HashSet::new(), HashSet::new());
    let mut chosen = Vec::new();
    for item in items {
        let (number, original) = (item.number.to_string(), item.original_path());
        let own_texts = [number.as_str(), item.name.as_str()];
        let own_paths = [item.path.as_path(), original.as_path()];
        let texts: Vec<&str> = own_texts.into_iter().filter_map(|own| texts.get(own).copied()).collect();
        let paths: Vec<&Path> = own_paths.into_iter().filter_map(|own| paths.get(own).copied()).collect();
        if !texts.is_empty() || !paths.is_empty() {
            chosen.push(item);
        }
        found_texts.extend(texts);
        found_paths.extend(paths);
    }
    let is_found = |name: &str| found_texts.contains(name) || found_paths.contains(Path::new(name));
    if let Some(name) = names.iter().find(|name| !is_found(name)) {
        return Err(Error::new(
            Code::Invalid,
            format!("find {name} in the quarantine of {id}: it is not there"),
        )
        .hint(format!("see saggar quarantine list {id}")));
    }
    Ok(chosen)
}

/// An operation on items of a quarantine.
struct ItemOperation<'a> {
    id: &'a str,
    json: bool,
    operation: &'a str,
    completed: &'a str,
}

impl ItemOperation<'_> {
    /// Applies it to each item in a worker. After a failure it continues, and returns the first error.
    fn each(
        &self,
        quarantine: &Path,
        items: &[QuarantinedItem],
        act: impl Fn(&mut QuarantineRestorer, &QuarantinedItem) -> Result<()>,
    ) -> Result<u8> {
        let workspaces: BTreeSet<PathBuf> =
            items.iter().map(|item| item.workspace.as_path().to_owned()).collect();
        // A missing workspace is an error of its items only.
        let paths = workspaces.iter().map(PathBuf::as_path).chain([quarantine]);
        let open = |path| File::options().read(true).custom_flags(libc::O_DIRECTORY).open(path);
        let opened: Vec<File> = paths.flat_map(open).collect();
        let directories: Vec<_> =
            opened.iter().map(|directory| (directory.as_fd(), FileAccess::Write)).collect();
        let confinement = Confinement {
            task: self.operation,
            owner: None,
            // One call moves a file between a directory of the workspace's owner and one of root's.
            capabilities: file_worker::MULTI_OWNER_CAPABILITIES,
            directories: &directories,
            files: &[],
            limits: WorkerLimits::default(),
        };
        let work = |output: &WorkerOutput| {
            let mut release = QuarantineRestorer::open(quarantine)?;
            let mut failed = None;
            for item in items {
                match act(&mut release, item) {
                    Ok(()) if self.json => output.write(&as_json(self.id, item, None))?,
                    Ok(()) => output.write(&format!("{} {}\n", self.completed, shown(item)))?,
                    Err(error) if failed.is_none() => failed = Some(error),
                    Err(error) => log::warn!("{error}"),
                }
            }
            failed.map_or(Ok(0), Err)
        };
        file_worker::run_worker_with_output(&confinement, work, |text| print_as(self.json, text))
    }
}

/// Formats the original path, with control characters and invisible characters escaped.
fn shown(item: &QuarantinedItem) -> String {
    item.original_path()
        .to_string_lossy()
        .chars()
        .flat_map(|c| {
            let odd = c.is_control()
                || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}');
            if odd { c.escape_default().collect::<Vec<_>>() } else { vec![c] }
        })
        .collect()
}

fn as_json(id: &str, item: &QuarantinedItem, directory: Option<&Path>) -> String {
    let aside = item.workspace_name.as_ref().map(|name| item.workspace.as_path().join(name.as_path()));
    let at = aside.or_else(|| directory.map(|directory| directory.join(&item.name)));
    let value = serde_json::json!({
        "id": id, "number": item.number, "name": item.name, "path": item.original_path().to_string_lossy(),
        "workspace": item.workspace.as_path().to_string_lossy(), "why": item.why, "replaced": item.placeholder.is_some(), "at": at.map(|at| at.to_string_lossy().into_owned()),
    });
    format!("{value}\n")
}
