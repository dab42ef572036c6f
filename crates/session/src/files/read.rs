//! Reads a range of a file.

use super::list::to_milliseconds;
use super::{Workspace, file_error, parse_workspace_path};
use saggar_bridge::content::{Encoding, to_base64};
use saggar_sys::beneath;
use saggar_sys::error::Result;
use serde::Serialize;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The result of a read.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct FileChunk {
    /// The bytes, encoded.
    pub content: String,
    /// Encoding of the content.
    pub encoding: Encoding,
    /// First byte of the next range; `None` at the end of the file.
    pub next: Option<u64>,
    /// Size of the file in bytes.
    pub size: u64,
    /// Time of the last change of the content, in milliseconds since the Unix epoch.
    pub mtime: i64,
}

impl Workspace {
    /// Reads at most `limit` bytes of the regular file at `path`, from byte `offset` on. A range of text ends at a
    /// character boundary.
    ///
    /// # Errors
    /// As [`Workspace::list`]; `Refused` also for bytes that are not UTF-8 when text was requested.
    pub fn read(&self, path: &str, offset: u64, limit: usize, encoding: Encoding) -> Result<FileChunk> {
        let path = parse_workspace_path(path)?;
        self.read_chunk(&path, offset, limit, encoding).map_err(|e| file_error("read", &path, &e))
    }

    fn read_chunk(
        &self,
        path: &Path,
        offset: u64,
        limit: usize,
        encoding: Encoding,
    ) -> io::Result<FileChunk> {
        let (file, meta) = beneath::open_file(self.root.as_fd(), path)?;
        let mut bytes = vec![0; limit.min(usize::try_from(meta.size).unwrap_or(usize::MAX))];
        let mut count = 0;
        while count < bytes.len() {
            match file.read_at(&mut bytes[count..], offset.saturating_add(count as u64))? {
                0 => break,
                more => count += more,
            }
        }
        bytes.truncate(count);
        let is_end = offset.saturating_add(count as u64) >= meta.size;
        let content = match encoding {
            Encoding::Base64 => to_base64(&bytes),
            Encoding::Utf8 => decode_text(&mut bytes, offset, is_end)?,
        };
        let next = offset.saturating_add(bytes.len() as u64);
        let next = (!is_end).then_some(next);
        Ok(FileChunk { content, encoding, next, size: meta.size, mtime: to_milliseconds(meta.mtime) })
    }
}

/// Decodes bytes that begin at `offset`. An incomplete character at the end is left for the next range.
fn decode_text(bytes: &mut Vec<u8>, offset: u64, is_end: bool) -> io::Result<String> {
    let whole = match std::str::from_utf8(bytes) {
        Ok(_) => bytes.len(),
        Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 && !is_end => {
            error.valid_up_to()
        }
        Err(error) => {
            let at = offset.saturating_add(error.valid_up_to() as u64);
            return Err(io::Error::other(format!("byte {at} is not UTF-8: ask for base64, or for more")));
        }
    };
    bytes.truncate(whole);
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;

    #[test]
    fn what_is_not_utf_8_is_told_by_its_place() {
        let scratch = tempfile::tempdir().unwrap();
        fs::write(scratch.path().join("x"), b"abc\xff\xc3").unwrap();
        let workspace = Workspace::new(beneath::open_root(scratch.path()).unwrap(), Vec::new());
        let refusal =
            |offset, limit| workspace.read("x", offset, limit, Encoding::Utf8).unwrap_err().to_string();
        assert!(refusal(0, 9).contains("byte 3 is"), "{}", refusal(0, 9));
        // A character that the end of the file cuts off.
        assert!(refusal(4, 9).contains("byte 4 is"), "{}", refusal(4, 9));
        assert_eq!(workspace.read("x", 0, 3, Encoding::Utf8).unwrap().next, Some(3));
        let rest = workspace.read("x", 3, 9, Encoding::Base64).unwrap();
        assert_eq!((rest.content.as_str(), rest.next, rest.size), ("/8M=", None, 5));
        let beyond = workspace.read("x", u64::MAX, 9, Encoding::Utf8);
        assert!(
            beyond.is_err() || beyond.is_ok_and(|piece| piece.content.is_empty() && piece.next.is_none())
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]
        #[test]
        fn pieces_of_a_text_are_the_text(content in "(a|ä|€|😀){0,60}", limit in 4usize..20) {
            let scratch = tempfile::tempdir().unwrap();
            fs::write(scratch.path().join("x"), &content).unwrap();
            let workspace = Workspace::new(beneath::open_root(scratch.path()).unwrap(), Vec::new());
            let (mut read, mut at) = (String::new(), Some(0));
            while let Some(offset) = at {
                let piece = workspace.read("x", offset, limit, Encoding::Utf8).unwrap();
                read += &piece.content;
                at = piece.next;
            }
            prop_assert_eq!(read, content);
        }
    }
}
