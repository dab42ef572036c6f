//! One write, its check, and a hint if it fails.

use super::{CgroupSetting, ExpectedValue, cpu};
use crate::cgroup::control_files::ControlFiles;
use crate::host::cgroups::CgroupVersion;
use nix::errno::Errno;
use std::collections::BTreeSet;

/// The failure of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cgroup) struct SettingFailure {
    /// The operation with the file and the value, and the error.
    pub message: String,
    /// How to fix it.
    pub hint: String,
    /// Whether the controller is missing or not delegated: the caller can then give a more specific hint.
    pub is_missing_controller: bool,
}

/// Writes a setting and reads it back.
pub(in crate::cgroup) fn apply_setting(
    setting: &CgroupSetting,
    tree: &dyn ControlFiles,
) -> Result<(), SettingFailure> {
    let (controller, file) = (setting.controller.as_str(), setting.file.as_str());
    match tree.write(controller, file, &setting.value) {
        Err(_) if setting.tentative => return Ok(()),
        Err(errno) => return Err(write_failure(setting, tree, errno)),
        Ok(()) => {}
    }
    if setting.tentative {
        return Ok(());
    }
    let read_file = if let ExpectedValue::NumberSetIn(told) = setting.expected { told } else { file };
    let at = || tree.path(controller, read_file).display().to_string();
    match tree.read(controller, read_file) {
        Ok(text) if matches_expected(setting, &text) => Ok(()),
        Ok(text) => Err(mismatch_failure(setting, &at(), &text)),
        // Some files can only be written.
        Err(Errno::EINVAL | Errno::EACCES | Errno::EOPNOTSUPP)
            if setting.expected == ExpectedValue::ContainsWords =>
        {
            Ok(())
        }
        Err(errno) => Err(SettingFailure {
            message: format!("read {} back: {}", at(), errno.desc()),
            hint: "leave the limit out: its effect is unknown".to_owned(),
            is_missing_controller: false,
        }),
    }
}

/// Whether `text`, the content of the file, matches the setting.
fn matches_expected(setting: &CgroupSetting, text: &str) -> bool {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let lines = || text.lines().map(words);
    let written = words(&setting.value);
    match &setting.expected {
        ExpectedValue::Number(step) => match (number(&setting.value), number(text)) {
            (Some(was), Some(is)) => is == was || (is <= was && was - is < *step),
            _ => false,
        },
        ExpectedValue::Words => words(text) == written,
        ExpectedValue::LineStart(expected) => {
            let expected = words(expected);
            lines().any(|line| line.starts_with(&expected))
        }
        ExpectedValue::DeviceKey { device, key, value } => {
            let line = lines().find(|line| line.first() == Some(device));
            let found = line.and_then(|line| {
                line.iter().find_map(|word| Some(word.strip_prefix(key)?.strip_prefix('=')?.to_owned()))
            });
            found.as_deref().unwrap_or("max") == value
        }
        ExpectedValue::NoDeviceLine(device) => !lines().any(|line| line.first() == Some(device)),
        ExpectedValue::NumberSet | ExpectedValue::NumberSetIn(_) => {
            cpu::parse_number_list(text).is_some_and(|is| cpu::parse_number_list(&setting.value) == Some(is))
        }
        ExpectedValue::ContainsWords => contains_words(&written, text),
    }
}

/// Whether a line of `text` contains all words. A number may have been rounded to pages if it is the only word, and a
/// list may be in another notation.
fn contains_words(written: &[String], text: &str) -> bool {
    let has_all = |line: &str| {
        let line: BTreeSet<_> = line.split_whitespace().collect();
        written.iter().all(|word| line.contains(word.as_str()))
    };
    if written.is_empty() || text.lines().any(has_all) {
        return true;
    }
    let [word] = written else { return false };
    let page = super::memory::page_size();
    match (number(word), number(text)) {
        // A number below the page size is not a number of bytes, and is not rounded.
        (Some(was), Some(is)) => is == was || (was >= page && is == was - was % page),
        _ => cpu::parse_number_list(word).is_some_and(|was| cpu::parse_number_list(text) == Some(was)),
    }
}

/// From here on a number of version 1 is no limit: the kernel rounds its largest number down to pages.
pub(in crate::cgroup) const V1_NO_LIMIT: u64 = i64::MAX.cast_unsigned() - (1 << 21);

/// Parses a number; `max`, -1 and v1's value for no limit are equal.
fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    if text == "max" || text == "-1" {
        return Some(u64::MAX);
    }
    let number: u64 = text.parse().ok()?;
    Some(if number >= V1_NO_LIMIT { u64::MAX } else { number })
}

fn write_failure(setting: &CgroupSetting, tree: &dyn ControlFiles, errno: Errno) -> SettingFailure {
    let controller = setting.controller.as_str();
    let at = tree.path(controller, &setting.file);
    let mut message = format!("write {:?} to {}: {}", setting.value, at.display(), errno.desc());
    let mut is_lack = matches!(errno, Errno::ENOENT | Errno::EACCES | Errno::EPERM);
    let is_v1 = tree.version(controller) == Some(CgroupVersion::V1);
    let hint = match errno {
        // What a cpuset of version 1 says of CPUs that the one above does not have (validate_change).
        Errno::EACCES if is_v1 && controller == "cpuset" => {
            is_lack = false;
            "the cgroup above does not have all of these: name CPUs or memory nodes that it has".to_owned()
        }
        Errno::ENOENT => match tree.refusal(controller) {
            Some((path, value, why)) => {
                message = format!(
                    "{message}, since the {controller} controller could not be switched on: write {value:?} to {}: {}",
                    path.display(),
                    why.desc()
                );
                delegation_hint(controller, why)
            }
            None if tree.read(controller, "cgroup.controllers").is_ok_and(|on| has_word(&on, controller)) => {
                is_lack = false;
                format!("this kernel was built or booted without {}; leave the limit out", setting.file)
            }
            None => delegation_hint(controller, errno),
        },
        Errno::EACCES | Errno::EPERM | Errno::EROFS => delegation_hint(controller, errno),
        Errno::EBUSY if controller == "memory" => {
            let used = ["memory.usage_in_bytes", "memory.current"];
            let used = used.iter().find_map(|file| tree.read(controller, file).ok());
            if let Some(used) = used {
                message = format!("{message} (in use: {used} bytes)");
            }
            "the container uses more than that already: give it more, or stop some of its programs first".to_owned()
        }
        Errno::EBUSY => "another limit, or a cgroup below, prevents it: change that first".to_owned(),
        Errno::EINVAL if setting.file == "cpu.rt_runtime_us" => format!(
            "the cgroup above has no such realtime budget to give: write one to its {0} first, then to the {0} of \
             each cgroup between; or set linux.cgroupsPath to a path below a cgroup that has one; or give the program \
             a policy by process.scheduler without this limit",
            setting.file
        ),
        Errno::EINVAL | Errno::ERANGE | Errno::EDOM => {
            "the kernel does not take this value: it is out of range, does not go with another limit, or is more than \
             the cgroup above has"
                .to_owned()
        }
        Errno::ENODEV | Errno::ENXIO | Errno::ENOTBLK => {
            "no whole disk or device has this number or name: lsblk lists them".to_owned()
        }
        Errno::ENOSPC => "the set must not be empty: name CPUs or memory nodes that the cgroup above has".to_owned(),
        Errno::EOPNOTSUPP => "the device, or its scheduler, does not know this limit; leave it out".to_owned(),
        _ => "leave the limit out where the kernel does not give it".to_owned(),
    };
    SettingFailure { message, hint, is_missing_controller: is_lack }
}

fn has_word(text: &str, word: &str) -> bool {
    text.split_whitespace().any(|one| one == word)
}

/// The hint for a controller that was not delegated to this process.
fn delegation_hint(controller: &str, errno: Errno) -> String {
    match errno {
        Errno::EBUSY => format!(
            "there are processes in the cgroup above, which cannot give {controller} away while it has any: start saggar \
             in a cgroup of its own (systemd-run --scope -p Delegate=yes), or give linux.cgroupsPath"
        ),
        Errno::EROFS => "mount the cgroup file system read-write".to_owned(),
        _ => format!(
            "have the {controller} controller delegated: systemctl edit user@.service with [Service] Delegate=cpu cpuset \
             io memory pids, then log in again; or systemd-run -p Delegate=yes; or run as root"
        ),
    }
}

fn mismatch_failure(setting: &CgroupSetting, at: &str, text: &str) -> SettingFailure {
    let mut text: String = text.lines().collect::<Vec<_>>().join("; ");
    if text.len() > 200 {
        text = text.chars().take(200).chain("…".chars()).collect();
    }
    SettingFailure {
        message: format!("{at} reads {text:?} after {:?} was written", setting.value),
        hint: "the kernel bounds this value: give one that it takes as it is, or leave the limit out"
            .to_owned(),
        is_missing_controller: false,
    }
}
