//! `hooks` (config.md, POSIX-platform Hooks).

use super::field_path::FieldPath;
use super::text::require_absolute;
use crate::spec::container::{Hook, Hooks};
use oci_spec::runtime as oci;
use saggar_sys::error::Result;

/// The names of the hooks, in execution order, for `features`.
pub(super) const HOOK_NAMES: [&str; 6] =
    ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"];

/// Validates and converts all hooks of the document.
pub(super) fn lower_hooks(entries: Option<oci::Hooks>) -> Result<Hooks> {
    let Some(entries) = entries else { return Ok(Hooks::default()) };
    let [prestart, create_runtime, create_container, start_container, poststart, poststop] = HOOK_NAMES;
    Ok(Hooks {
        prestart: lower_hook_list(entries.prestart(), prestart)?,
        create_runtime: lower_hook_list(entries.create_runtime(), create_runtime)?,
        create_container: lower_hook_list(entries.create_container(), create_container)?,
        start_container: lower_hook_list(entries.start_container(), start_container)?,
        poststart: lower_hook_list(entries.poststart(), poststart)?,
        poststop: lower_hook_list(entries.poststop(), poststop)?,
    })
}

fn lower_hook_list(entries: &Option<Vec<oci::Hook>>, name: &str) -> Result<Vec<Hook>> {
    let hooks = FieldPath::root("hooks");
    let field = hooks.key(name);
    entries.iter().flatten().enumerate().map(|(index, entry)| lower_hook(entry, field.index(index))).collect()
}

fn lower_hook(entry: &oci::Hook, field: FieldPath<'_>) -> Result<Hook> {
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
        path: require_absolute(entry.path().to_string_lossy().into_owned(), field.key("path"))?,
        args: entry.args().clone().unwrap_or_default(),
        env: entry.env().clone(),
        timeout,
    })
}
