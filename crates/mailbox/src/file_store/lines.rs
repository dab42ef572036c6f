//! Reads a file line by line from an offset, with bounded memory.

use crate::message::MAX_LINE;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;

/// Bytes of one read.
const CHUNK: usize = 128 << 10;

/// The bytes of a file from an offset. Its position is its own, unlike that of the descriptor.
#[derive(Debug)]
pub(super) struct FileReader<'a> {
    file: &'a File,
    offset: u64,
}

impl<'a> FileReader<'a> {
    pub(super) fn new(file: &'a File, offset: u64) -> Self {
        FileReader { file, offset }
    }
}

impl Read for FileReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.offset)?;
        self.offset = self.offset.saturating_add(count.try_into().map_err(io::Error::other)?);
        Ok(count)
    }
}

/// A line of the file.
#[derive(Debug)]
pub(super) struct ScannedLine<'a> {
    /// Offset of its first byte.
    pub(super) offset: u64,
    /// Number of bytes without the newline.
    pub(super) length: u64,
    /// Its bytes; `None` if it is longer than [`MAX_LINE`].
    pub(super) text: Option<&'a [u8]>,
    /// Whether it has a newline. Only the last line of a file may have none.
    pub(super) is_complete: bool,
}

/// The lines of a file.
#[derive(Debug)]
pub(super) struct LineScanner<'a> {
    reader: BufReader<FileReader<'a>>,
    offset: u64,
    line: Vec<u8>,
}

impl<'a> LineScanner<'a> {
    pub(super) fn new(file: &'a File, offset: u64) -> Self {
        let reader = BufReader::with_capacity(CHUNK, FileReader::new(file, offset));
        LineScanner { reader, offset, line: Vec::new() }
    }

    /// The next line; `None` at the end of the file.
    pub(super) fn next_line(&mut self) -> io::Result<Option<ScannedLine<'_>>> {
        self.line.clear();
        let offset = self.offset;
        let (mut length, mut is_complete) = (0, false);
        while !is_complete {
            let chunk = self.reader.fill_buf()?;
            if chunk.is_empty() {
                break;
            }
            let end = chunk.iter().position(|byte| *byte == b'\n');
            is_complete = end.is_some();
            let count = end.unwrap_or(chunk.len());
            if self.line.len().saturating_add(count) <= MAX_LINE {
                self.line.extend(chunk.iter().take(count));
            }
            length += u64::try_from(count).map_err(io::Error::other)?;
            self.reader.consume(count + usize::from(is_complete));
        }
        self.offset += length + u64::from(is_complete);
        if length == 0 && !is_complete {
            return Ok(None);
        }
        let is_whole = u64::try_from(self.line.len()).is_ok_and(|kept| kept == length);
        Ok(Some(ScannedLine { offset, length, text: is_whole.then_some(self.line.as_slice()), is_complete }))
    }
}
