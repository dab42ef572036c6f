//! Several settings, all of them or none: what a file read before is written back when a later one does not hold.

use super::set::{Failure, hold};
use super::{Expect, Setting};
use crate::cgroup::tree::Tree;
use crate::error::Error;

/// Settings that were carried out, each with what its file read before.
#[derive(Debug, Default)]
pub(in crate::cgroup) struct Done(Vec<(Setting, Option<String>)>);

impl Done {
    /// Has every file read what it read before, the last one first; what there is to say of those that do not.
    fn take_back(&self, tree: &dyn Tree) -> Vec<String> {
        let all = self.0.iter().rev();
        all.filter_map(|(setting, was)| restore(setting, was.as_deref(), tree)).collect()
    }

    /// The same after an error of what came next; the error, with what there is to say.
    pub(in crate::cgroup) fn undo(&self, error: Error, tree: &dyn Tree) -> Error {
        let left = self.take_back(tree);
        if left.is_empty() {
            return error;
        }
        error.and(left.join("; "))
    }
}

/// Writes the settings in their order and reads each back. When one does not hold, those before it and itself are as
/// they were, and it is told by its place in the list.
pub(in crate::cgroup) fn hold_all(settings: &[Setting], tree: &dyn Tree) -> Result<Done, (usize, Failure)> {
    let mut done = Done::default();
    for (at, setting) in settings.iter().enumerate() {
        done.0.push((setting.clone(), tree.read(&setting.controller, &setting.file).ok()));
        if let Err(mut failure) = hold(setting, tree) {
            let left = done.take_back(tree);
            if !left.is_empty() {
                failure.what = format!("{}; and {}", failure.what, left.join("; "));
            }
            return Err((at, failure));
        }
    }
    Ok(done)
}

/// Writes back what the file of a setting read; what there is to say when it does not take it.
fn restore(setting: &Setting, was: Option<&str>, tree: &dyn Tree) -> Option<String> {
    let (controller, file) = (setting.controller.as_str(), setting.file.as_str());
    // What could not be read has not been written either, or tells nothing.
    let was = was?;
    if tree.read(controller, file).is_ok_and(|is| is == was) {
        return None;
    }
    before(setting, was).into_iter().find_map(|value| {
        let errno = tree.write(controller, file, &value).err()?;
        let at = tree.path(controller, file);
        Some(format!("write {value:?} back to {}: {}", at.display(), errno.desc()))
    })
}

/// The writes that make a file read what it read before this setting.
fn before(setting: &Setting, was: &str) -> Vec<String> {
    let line_of = |first: &str| was.lines().find(|line| line.split_whitespace().next() == Some(first));
    match &setting.expect {
        Expect::Key { device, key, .. } => {
            let words = line_of(device).into_iter().flat_map(str::split_whitespace);
            let value = words.filter_map(|word| word.strip_prefix(key)?.strip_prefix('=')).next();
            vec![format!("{device} {key}={}", value.unwrap_or("max"))]
        }
        Expect::NoLine(device) => line_of(device).into_iter().map(str::to_owned).collect(),
        Expect::Line(expected) => {
            let first = expected.split_whitespace().next().unwrap_or_default();
            match line_of(first) {
                Some(line) => vec![line.to_owned()],
                // 0 takes a device of v1 out.
                None => vec![format!("{first} 0")],
            }
        }
        _ if was.trim().is_empty() => vec!["\n".to_owned()],
        Expect::Somewhere => was.lines().map(str::to_owned).collect(),
        _ => vec![was.to_owned()],
    }
}
