//! A command that a shell runs elsewhere, and its result: what `session exec` and `remote exec` have in common.

use super::print_raw;
use crate::error::{Code, Error, Result};
use std::ffi::OsString;
use std::io::Write;

/// Quotes words for a shell.
///
/// # Errors
/// [`Code::Usage`] for a word that is not valid UTF-8 or contains a NUL character.
pub(super) fn join(words: &[OsString]) -> Result<String> {
    let words: Option<Vec<&str>> = words.iter().map(|word| word.to_str()).collect();
    words
        .and_then(|words| shlex::try_join(words).ok())
        .ok_or_else(|| Error::new(Code::Usage, "the command is not valid UTF-8 or contains a NUL character"))
}

/// Prints the output of a command, and whether a part of it was removed.
///
/// # Errors
/// [`Code::System`] if standard output takes nothing.
pub(super) fn print_output(stdout: &str, stderr: &str, truncated: bool) -> Result<()> {
    print_raw(stdout)?;
    // It may be closed; the exit status remains.
    let _ = std::io::stderr().write_all(stderr.as_bytes());
    if truncated {
        crate::log::print_line("output was removed: of each stream, at most 10 MiB remain");
    }
    Ok(())
}
