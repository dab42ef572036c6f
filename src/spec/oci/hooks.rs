//! `hooks` (config.md, POSIX-platform Hooks).

use super::field::Field;
use super::text::absolute;
use crate::error::Result;
use crate::spec::container::{Hook, Hooks};
use oci_spec::runtime as oci;

/// The names of the hooks, in the order in which they run, for `features`.
pub(super) const NAMES: [&str; 6] =
    ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"];

/// All hooks of the document.
pub(super) fn hooks(entries: Option<oci::Hooks>) -> Result<Hooks> {
    let Some(entries) = entries else { return Ok(Hooks::default()) };
    let [prestart, create_runtime, create_container, start_container, poststart, poststop] = NAMES;
    Ok(Hooks {
        prestart: list(entries.prestart(), prestart)?,
        create_runtime: list(entries.create_runtime(), create_runtime)?,
        create_container: list(entries.create_container(), create_container)?,
        start_container: list(entries.start_container(), start_container)?,
        poststart: list(entries.poststart(), poststart)?,
        poststop: list(entries.poststop(), poststop)?,
    })
}

fn list(entries: &Option<Vec<oci::Hook>>, name: &str) -> Result<Vec<Hook>> {
    let hooks = Field::root("hooks");
    let field = hooks.key(name);
    entries.iter().flatten().enumerate().map(|(index, entry)| hook(entry, field.at(index))).collect()
}

fn hook(entry: &oci::Hook, field: Field<'_>) -> Result<Hook> {
    let timeout = match entry.timeout() {
        None => None,
        Some(seconds) => match u64::try_from(seconds) {
            Ok(seconds @ 1..) => Some(seconds),
            _ => {
                let error = field.key("timeout").invalid(format_args!("must be above 0, is {seconds}"));
                return Err(error.hint("leave it out for a hook without a limit"));
            }
        },
    };
    Ok(Hook {
        path: absolute(entry.path().to_string_lossy().into_owned(), field.key("path"))?,
        args: entry.args().clone().unwrap_or_default(),
        env: entry.env().clone(),
        timeout,
    })
}
