//! One write, its check, and the cure when it fails.

use super::{Expect, Setting, cpu};
use crate::cgroup::tree::Tree;
use nix::errno::Errno;
use std::collections::BTreeSet;

/// Why a setting does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cgroup) struct Failure {
    /// What was done, with the file and the value, and what came of it.
    pub what: String,
    /// What to do.
    pub hint: String,
    /// Whether it was the controller that is missing, or not ours: the surroundings tell more.
    pub is_lack: bool,
}

/// Writes a setting and reads it back.
pub(in crate::cgroup) fn hold(setting: &Setting, tree: &dyn Tree) -> Result<(), Failure> {
    let (controller, file) = (setting.controller.as_str(), setting.file.as_str());
    match tree.write(controller, file, &setting.value) {
        Err(_) if setting.tentative => return Ok(()),
        Err(errno) => return Err(refused(setting, tree, errno)),
        Ok(()) => {}
    }
    if setting.tentative {
        return Ok(());
    }
    let told = if let Expect::Effective(told) = setting.expect { told } else { file };
    let at = || tree.path(controller, told).display().to_string();
    match tree.read(controller, told) {
        Ok(text) if holds(setting, &text) => Ok(()),
        Ok(text) => Err(differs(setting, &at(), &text)),
        // Some files can only be written.
        Err(Errno::EINVAL | Errno::EACCES | Errno::EOPNOTSUPP) if setting.expect == Expect::Somewhere => {
            Ok(())
        }
        Err(errno) => Err(Failure {
            what: format!("read {} back: {}", at(), errno.desc()),
            hint: "leave the limit out: nobody knows whether it holds".to_owned(),
            is_lack: false,
        }),
    }
}

/// Whether a file that reads `text` has what was written to it.
fn holds(setting: &Setting, text: &str) -> bool {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let lines = || text.lines().map(words);
    let written = words(&setting.value);
    match &setting.expect {
        Expect::Number(step) => match (number(&setting.value), number(text)) {
            (Some(was), Some(is)) => is == was || (is <= was && was - is < *step),
            _ => false,
        },
        Expect::Words => words(text) == written,
        Expect::Line(expected) => {
            let expected = words(expected);
            lines().any(|line| line.starts_with(&expected))
        }
        Expect::Key { device, key, value } => {
            let line = lines().find(|line| line.first() == Some(device));
            let found = line.and_then(|line| {
                line.iter().find_map(|word| Some(word.strip_prefix(key)?.strip_prefix('=')?.to_owned()))
            });
            found.as_deref().unwrap_or("max") == value
        }
        Expect::NoLine(device) => !lines().any(|line| line.first() == Some(device)),
        Expect::Set | Expect::Effective(_) => {
            cpu::numbers(text).is_some_and(|is| cpu::numbers(&setting.value) == Some(is))
        }
        Expect::Somewhere => somewhere(&written, text),
    }
}

/// Whether some line of `text` has all words; a number alone may have been rounded to a page, and a list may be
/// written in another way.
fn somewhere(written: &[String], text: &str) -> bool {
    let has_all = |line: &str| {
        let line: BTreeSet<_> = line.split_whitespace().collect();
        written.iter().all(|word| line.contains(word.as_str()))
    };
    if written.is_empty() || text.lines().any(has_all) {
        return true;
    }
    let [word] = written else { return false };
    let page = super::memory::page();
    match (number(word), number(text)) {
        // A number below that is no number of bytes, and is not rounded.
        (Some(was), Some(is)) => is == was || (was >= page && is == was - was % page),
        _ => cpu::numbers(word).is_some_and(|was| cpu::numbers(text) == Some(was)),
    }
}

/// A number, where `max`, -1, and what the kernel has for no limit in v1, are the same.
fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    if text == "max" || text == "-1" {
        return Some(u64::MAX);
    }
    let number: u64 = text.parse().ok()?;
    let top = i64::MAX.unsigned_abs() - (1 << 21);
    Some(if number >= top { u64::MAX } else { number })
}

fn refused(setting: &Setting, tree: &dyn Tree, errno: Errno) -> Failure {
    let controller = setting.controller.as_str();
    let at = tree.path(controller, &setting.file);
    let mut message = format!("write {:?} to {}: {}", setting.value, at.display(), errno.desc());
    let mut is_lack = matches!(errno, Errno::ENOENT | Errno::EACCES | Errno::EPERM);
    let hint = match errno {
        Errno::ENOENT => match tree.refusal(controller) {
            Some((path, value, why)) => {
                message = format!(
                    "{message}, since the {controller} controller could not be switched on: write {value:?} to {}: {}",
                    path.display(),
                    why.desc()
                );
                not_delegated(controller, why)
            }
            None if tree.read(controller, "cgroup.controllers").is_ok_and(|on| has_word(&on, controller)) => {
                is_lack = false;
                format!("this kernel was built or booted without {}; leave the limit out", setting.file)
            }
            None => not_delegated(controller, errno),
        },
        Errno::EACCES | Errno::EPERM | Errno::EROFS => not_delegated(controller, errno),
        Errno::EBUSY if controller == "memory" => {
            let used = ["memory.usage_in_bytes", "memory.current"];
            let used = used.iter().find_map(|file| tree.read(controller, file).ok());
            if let Some(used) = used {
                message = format!("{message} (in use: {used} bytes)");
            }
            "the container uses more than that already: give it more, or stop some of its programs first".to_owned()
        }
        Errno::EBUSY => "another limit, or a cgroup below, stands in the way: change that first".to_owned(),
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
    Failure { what: message, hint, is_lack }
}

fn has_word(text: &str, word: &str) -> bool {
    text.split_whitespace().any(|one| one == word)
}

/// What to do about a controller that we have not been given.
fn not_delegated(controller: &str, errno: Errno) -> String {
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

fn differs(setting: &Setting, at: &str, text: &str) -> Failure {
    let mut text: String = text.lines().collect::<Vec<_>>().join("; ");
    if text.len() > 200 {
        text = text.chars().take(200).chain("…".chars()).collect();
    }
    Failure {
        what: format!("{at} reads {text:?} after {:?} was written", setting.value),
        hint: "the kernel bounds this value: give one that it takes as it is, or leave the limit out"
            .to_owned(),
        is_lack: false,
    }
}
