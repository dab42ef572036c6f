//! `saggar quarantine`: what sandboxes planted, listed, restored and removed.

use super::say_as;
use crate::cli::quarantine::{ListArgs, QuarantineCommand, RemoveArgs, RestoreArgs};
use crate::error::{Code, Error, Result};
use crate::id::SandboxId;
use crate::session::quarantine::index::{self, Item};
use crate::session::quarantine::restore::Release;
use crate::session::worker::{self, Access, Confinement, Limits, Output};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

pub(super) fn run(command: &QuarantineCommand) -> Result<u8> {
    match command {
        QuarantineCommand::List(args) => list(args),
        QuarantineCommand::Restore(args) => restore(args),
        QuarantineCommand::Remove(args) => remove(args),
    }
}

fn list(args: &ListArgs) -> Result<u8> {
    let all = match &args.id {
        Some(id) => vec![(id.clone(), index::of(&SandboxId::parse(id)?)?)],
        None => index::all(),
    };
    let mut text = String::new();
    let mut rows = Vec::new();
    for (id, directory) in &all {
        for item in index::items(directory) {
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
    say_as(args.json, &text)?;
    Ok(0)
}

fn restore(args: &RestoreArgs) -> Result<u8> {
    let quarantine = index::of(&SandboxId::parse(&args.id)?)?;
    let mut chosen = choose(&args.id, &quarantine, &args.names)?;
    // The last first: what was moved out of a directory before the directory itself goes back into it after.
    chosen.reverse();
    let verb = Verb { id: &args.id, json: args.json, task: "restore from quarantine", done: "restored" };
    verb.each(&quarantine, &chosen, |release, item| release.restore(item, args.force))
}

fn remove(args: &RemoveArgs) -> Result<u8> {
    let quarantine = index::of(&SandboxId::parse(&args.id)?)?;
    let chosen = choose(&args.id, &quarantine, &args.names)?;
    let verb = Verb { id: &args.id, json: args.json, task: "remove from quarantine", done: "removed" };
    verb.each(&quarantine, &chosen, Release::remove)
}

/// The things that `names` mean; all without names.
fn choose(id: &str, quarantine: &Path, names: &[String]) -> Result<Vec<Item>> {
    let items = index::items(quarantine);
    if names.is_empty() {
        return Ok(items);
    }
    let means = |item: &Item, name: &str| {
        let path = Path::new(name);
        item.number.to_string() == name
            || item.name == name
            || item.path.as_path() == path
            || item.origin() == path
    };
    if let Some(name) = names.iter().find(|name| !items.iter().any(|item| means(item, name))) {
        return Err(Error::new(
            Code::Invalid,
            format!("find {name} in the quarantine of {id}: it is not there"),
        )
        .hint(format!("saggar quarantine list {id} shows what is")));
    }
    Ok(items.into_iter().filter(|item| names.iter().any(|name| means(item, name))).collect())
}

/// What is done with things in a quarantine.
struct Verb<'a> {
    id: &'a str,
    json: bool,
    task: &'a str,
    done: &'a str,
}

impl Verb<'_> {
    /// Does it with each, in a worker; one that fails does not keep the others, and the first error is the command's.
    fn each(
        &self,
        quarantine: &Path,
        items: &[Item],
        act: impl Fn(&mut Release, &Item) -> Result<()>,
    ) -> Result<u8> {
        let workspaces: BTreeSet<PathBuf> =
            items.iter().map(|item| item.workspace.as_path().to_owned()).collect();
        // A workspace that is gone is an error of the things that were in it.
        let paths = workspaces.iter().map(PathBuf::as_path).chain([quarantine]);
        let open = |path| File::options().read(true).custom_flags(libc::O_DIRECTORY).open(path);
        let opened: Vec<File> = paths.flat_map(open).collect();
        let directories: Vec<_> = opened.iter().map(|directory| (directory.as_fd(), Access::Write)).collect();
        let confinement = Confinement {
            task: self.task,
            owner: None,
            // One call moves a name from a directory of the workspace's owner to one of root's.
            capabilities: worker::SEVERAL_OWNERS,
            directories: &directories,
            files: &[],
            limits: Limits::default(),
        };
        let work = |output: &Output| {
            let mut release = Release::open(quarantine)?;
            let mut failed = None;
            for item in items {
                match act(&mut release, item) {
                    Ok(()) if self.json => output.write(&as_json(self.id, item, None))?,
                    Ok(()) => output.write(&format!("{} {}\n", self.done, shown(item)))?,
                    Err(error) if failed.is_none() => failed = Some(error),
                    Err(error) => log::warn!("{error}"),
                }
            }
            failed.map_or(Ok(0), Err)
        };
        worker::run_with_output(&confinement, work, |text| say_as(self.json, text))
    }
}

/// Where it was, with what a terminal would obey written as escapes.
fn shown(item: &Item) -> String {
    item.origin()
        .to_string_lossy()
        .chars()
        .flat_map(|c| {
            let odd = c.is_control()
                || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}');
            if odd { c.escape_default().collect::<Vec<_>>() } else { vec![c] }
        })
        .collect()
}

fn as_json(id: &str, item: &Item, directory: Option<&Path>) -> String {
    let aside = item.aside.as_ref().map(|beside| item.workspace.as_path().join(beside.as_path()));
    let at = aside.or_else(|| directory.map(|directory| directory.join(&item.name)));
    let value = serde_json::json!({
        "id": id, "number": item.number, "name": item.name, "path": item.origin().to_string_lossy(),
        "why": item.why, "replaced": item.placed.is_some(), "at": at.map(|at| at.to_string_lossy().into_owned()),
    });
    format!("{value}\n")
}
