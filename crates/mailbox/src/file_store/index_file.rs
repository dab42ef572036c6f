//! The file of an index: a header and records of fixed size.

use super::record::{HEADER_SIZE, IndexRecord, RECORD_SIZE, header};
use crate::directory::Directory;
use crate::error::{Error, Result};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

/// An open index.
#[derive(Debug)]
pub(super) struct IndexFile {
    file: File,
    /// Path for errors.
    path: PathBuf,
}

impl IndexFile {
    /// Opens an index; `None` if it does not exist.
    pub(super) fn open(directory: &Directory, name: &str) -> Result<Option<Self>> {
        let file = directory.open_file_at_offsets(name)?;
        Ok(file.map(|file| IndexFile { file, path: directory.path_of(name) }))
    }

    /// Creates the index of a messages' file, without records.
    pub(super) fn create(directory: &Directory, name: &str, log: &Metadata) -> Result<Self> {
        let index = IndexFile { file: directory.create_anew(name)?, path: directory.path_of(name) };
        let header = header(log.dev(), log.ino());
        index.file.write_all_at(&header, 0).map_err(|cause| index.failed("write", cause))?;
        Ok(index)
    }

    /// Whether this is the index of a messages' file.
    pub(super) fn is_of(&self, log: &Metadata) -> Result<bool> {
        let mut found = [0; HEADER_SIZE];
        match self.file.read_exact_at(&mut found, 0) {
            Ok(()) => Ok(found == header(log.dev(), log.ino())),
            Err(cause) if cause.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(cause) => Err(self.failed("read", cause)),
        }
    }

    /// Whether another index has its name.
    pub(super) fn is_replaced(&self) -> Result<bool> {
        Ok(self.metadata()?.nlink() == 0)
    }

    /// Number of whole records; `None` if they are more than a segment can have.
    pub(super) fn count(&self) -> Result<Option<u32>> {
        let size = self.metadata()?.size().saturating_sub(HEADER_SIZE as u64);
        Ok(u32::try_from(size / RECORD_SIZE as u64).ok())
    }

    /// `count` records from line `first`; `None` if one is damaged.
    pub(super) fn read(&self, first: u32, count: u32) -> Result<Option<Vec<IndexRecord>>> {
        let mut bytes = vec![0; count as usize * RECORD_SIZE];
        self.file.read_exact_at(&mut bytes, offset_of(first)).map_err(|cause| self.failed("read", cause))?;
        let (records, _) = bytes.as_chunks::<RECORD_SIZE>();
        Ok(records.iter().map(IndexRecord::decode).collect())
    }

    /// Writes encoded records from line `first`.
    pub(super) fn write(&self, first: u32, records: &[u8]) -> Result<()> {
        self.file.write_all_at(records, offset_of(first)).map_err(|cause| self.failed("write", cause))
    }

    fn metadata(&self) -> Result<Metadata> {
        self.file.metadata().map_err(|cause| self.failed("stat", cause))
    }

    fn failed(&self, operation: &str, cause: io::Error) -> Error {
        Error::system(format_args!("{operation} {}", self.path.display()), cause)
    }
}

fn offset_of(line: u32) -> u64 {
    HEADER_SIZE as u64 + u64::from(line) * RECORD_SIZE as u64
}
