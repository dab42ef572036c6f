//! The prompt of a command line: a text, a file, or standard input.

use crate::error::{Code, Error, Result};
use crate::sys::read;
use std::io::Read;
use std::path::Path;

/// The longest prompt, in bytes. A line of the bridge can hold it, whatever JSON escapes in it.
const MAX_PROMPT: u64 = 8 << 20;
/// The word that stands for standard input.
const STDIN: &str = "-";

/// Reads the prompt of a command: `word`, standard input if that is `-`, or the content of `file`.
///
/// # Errors
/// [`Code::Invalid`] for one that cannot be read, is empty, too long or not UTF-8.
pub(super) fn read(word: Option<String>, file: Option<&Path>) -> Result<Option<String>> {
    let (source, bytes) = match (word, file) {
        (Some(word), _) if word == STDIN => ("standard input".to_owned(), read_stdin()?),
        (Some(word), _) => return Ok(Some(word)),
        (None, Some(file)) => (file.display().to_string(), read_file(file)?),
        (None, None) => return Ok(None),
    };
    let invalid = |why: &str| Error::new(Code::Invalid, format!("the prompt of {source} {why}"));
    if bytes.len() as u64 > MAX_PROMPT {
        return Err(invalid("is longer than 8 MiB").hint("put the content into the workspace, and name it"));
    }
    let text = String::from_utf8(bytes).map_err(|_| invalid("is not UTF-8"))?;
    let text = text.trim_end_matches(['\n', '\r']);
    if text.trim().is_empty() {
        return Err(invalid("is empty"));
    }
    Ok(Some(text.to_owned()))
}

/// As [`read()`], for a command that needs one.
///
/// # Errors
/// As [`read()`]; [`Code::Usage`] without a prompt.
pub(super) fn read_required(word: Option<String>, file: Option<&Path>) -> Result<String> {
    read(word, file)?.ok_or_else(|| {
        Error::new(Code::Usage, "the prompt is missing").hint("write it, or use - or --prompt-file FILE")
    })
}

fn read_stdin() -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = std::io::stdin().lock().take(MAX_PROMPT + 1).read_to_end(&mut bytes);
    read.map(|_| bytes).map_err(|e| Error::system("read the prompt from standard input", e))
}

fn read_file(file: &Path) -> Result<Vec<u8>> {
    read::whole_file(file, MAX_PROMPT)
        .map_err(|why| Error::new(Code::Invalid, format!("read the prompt of {}: {why}", file.display())))
}
