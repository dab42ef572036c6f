//! Applies several settings, all of them or none: if a later one does not hold, the previous content of each file is
//! written back.

use super::setting::{SettingFailure, apply_setting};
use super::{CgroupSetting, ExpectedValue};
use crate::cgroup::control_files::ControlFiles;
use saggar_sys::error::Error;

/// Settings that were applied, each with the previous content of its file.
#[derive(Debug, Default)]
pub(in crate::cgroup) struct AppliedSettings(Vec<(CgroupSetting, Option<String>)>);

impl AppliedSettings {
    /// Restores the previous content of every file, in reverse order. Returns a message for each file that could not be
    /// restored.
    fn roll_back(&self, tree: &dyn ControlFiles) -> Vec<String> {
        let all = self.0.iter().rev();
        all.filter_map(|(setting, was)| restore_setting(setting, was.as_deref(), tree)).collect()
    }

    /// Rolls back after an error of a later operation. Returns the error, with the messages of the roll-back.
    pub(in crate::cgroup) fn undo(&self, error: Error, tree: &dyn ControlFiles) -> Error {
        let failures = self.roll_back(tree);
        if failures.is_empty() {
            return error;
        }
        error.and(failures.join("; "))
    }
}

/// Applies the settings in their order and reads each back. If one does not hold, it and those before it are rolled
/// back, and the error holds its index in the list.
pub(in crate::cgroup) fn apply_all(
    settings: &[CgroupSetting],
    tree: &dyn ControlFiles,
) -> Result<AppliedSettings, (usize, SettingFailure)> {
    let mut done = AppliedSettings::default();
    for (at, setting) in settings.iter().enumerate() {
        done.0.push((setting.clone(), tree.read(&setting.controller, &setting.file).ok()));
        if let Err(mut failure) = apply_setting(setting, tree) {
            let failures = done.roll_back(tree);
            if !failures.is_empty() {
                failure.message = format!("{}; and {}", failure.message, failures.join("; "));
            }
            return Err((at, failure));
        }
    }
    Ok(done)
}

/// Writes back the previous content of the file of a setting. Returns a message on failure.
fn restore_setting(setting: &CgroupSetting, was: Option<&str>, tree: &dyn ControlFiles) -> Option<String> {
    let (controller, file) = (setting.controller.as_str(), setting.file.as_str());
    // If the content could not be read, the setting was not written either, or the file is write-only.
    let was = was?;
    if tree.read(controller, file).is_ok_and(|is| is == was) {
        return None;
    }
    restoring_writes(setting, was).into_iter().find_map(|value| {
        let errno = tree.write(controller, file, &value).err()?;
        let at = tree.path(controller, file);
        Some(format!("write {value:?} back to {}: {}", at.display(), errno.desc()))
    })
}

/// The writes that restore the content that the file had before this setting.
fn restoring_writes(setting: &CgroupSetting, was: &str) -> Vec<String> {
    let line_of = |first: &str| was.lines().find(|line| line.split_whitespace().next() == Some(first));
    match &setting.expected {
        ExpectedValue::DeviceKey { device, key, .. } => {
            let words = line_of(device).into_iter().flat_map(str::split_whitespace);
            let value = words.filter_map(|word| word.strip_prefix(key)?.strip_prefix('=')).next();
            vec![format!("{device} {key}={}", value.unwrap_or("max"))]
        }
        ExpectedValue::NoDeviceLine(device) => line_of(device).into_iter().map(str::to_owned).collect(),
        ExpectedValue::LineStart(expected) => {
            let first = expected.split_whitespace().next().unwrap_or_default();
            match line_of(first) {
                Some(line) => vec![line.to_owned()],
                // A value of 0 removes a device in v1.
                None => vec![format!("{first} 0")],
            }
        }
        _ if was.trim().is_empty() => vec!["\n".to_owned()],
        ExpectedValue::ContainsWords => was.lines().map(str::to_owned).collect(),
        _ => vec![was.to_owned()],
    }
}
