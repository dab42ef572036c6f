//! Several settings, all of them or none: what a file read before is written back when a later one does not hold.

use super::set::{Failure, hold};
use super::{Expect, Setting};
use crate::cgroup::tree::Tree;

/// Writes the settings in their order and reads each back. When one does not hold, those before it and itself are as
/// they were, and it is told by its place in the list.
pub(in crate::cgroup) fn hold_all(settings: &[Setting], tree: &dyn Tree) -> Result<(), (usize, Failure)> {
    let mut done: Vec<(&Setting, Option<String>)> = Vec::new();
    for (at, setting) in settings.iter().enumerate() {
        done.push((setting, tree.read(&setting.controller, &setting.file).ok()));
        if let Err(mut failure) = hold(setting, tree) {
            let left: Vec<String> = done
                .iter()
                .rev()
                .filter_map(|(setting, was)| restore(setting, was.as_deref(), tree))
                .collect();
            if !left.is_empty() {
                failure.what = format!("{}; and {}", failure.what, left.join("; "));
            }
            return Err((at, failure));
        }
    }
    Ok(())
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
