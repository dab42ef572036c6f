//! Folders as tar archives, compressed with gzip.

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Writes a folder to a new file with mode 0600. Symbolic links are written as links.
pub(crate) fn pack_folder(folder: &Path, file: &Path) -> io::Result<()> {
    pack_folder_to(folder, create_private(file)?)?.flush()
}

/// Writes a folder, and returns the writer. Symbolic links are written as links.
pub(crate) fn pack_folder_to<W: Write>(folder: &Path, output: W) -> io::Result<W> {
    let mut archive = tar::Builder::new(GzEncoder::new(output, Compression::default()));
    archive.follow_symlinks(false);
    archive.append_dir_all(".", folder)?;
    archive.into_inner()?.finish()
}

/// Creates a folder with the content of an archive. Its members stay in the folder.
pub(crate) fn unpack_folder(file: &Path, folder: &Path) -> io::Result<()> {
    fs::create_dir(folder)?;
    tar::Archive::new(GzDecoder::new(BufReader::new(File::open(file)?))).unpack(folder)
}

/// Compresses lines of text into a new file with mode 0600, and returns the last line.
pub(crate) fn compress_lines(from: &Path, to: &Path) -> io::Result<Vec<u8>> {
    let mut lines = BufReader::new(File::open(from)?);
    let mut encoder = GzEncoder::new(create_private(to)?, Compression::default());
    let (mut line, mut last) = (Vec::new(), Vec::new());
    while lines.read_until(b'\n', &mut line)? > 0 {
        encoder.write_all(&line)?;
        std::mem::swap(&mut line, &mut last);
        line.clear();
    }
    encoder.finish()?.flush()?;
    Ok(last)
}

/// Decompresses a file into a new one with mode 0600.
pub(crate) fn decompress(from: &Path, to: &Path) -> io::Result<()> {
    let mut output = create_private(to)?;
    io::copy(&mut GzDecoder::new(BufReader::new(File::open(from)?)), &mut output)?;
    output.flush()
}

fn create_private(file: &Path) -> io::Result<BufWriter<File>> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    Ok(BufWriter::new(opened))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_is_the_same_after_it_was_packed() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir_all(path("from/sub")).unwrap();
        fs::write(path("from/sub/f"), "x").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", path("from/link")).unwrap();
        pack_folder(&path("from"), &path("archive")).unwrap();
        unpack_folder(&path("archive"), &path("to")).unwrap();
        assert_eq!(fs::read_to_string(path("to/sub/f")).unwrap(), "x");
        assert_eq!(fs::read_link(path("to/link")).unwrap(), Path::new("/etc/passwd"));
    }

    #[test]
    fn lines_are_the_same_after_they_were_compressed() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for (text, last) in [("a\nb\n", "b\n"), ("", "")] {
            fs::write(path("from"), text).unwrap();
            assert_eq!(compress_lines(&path("from"), &path("gz")).unwrap(), last.as_bytes());
            decompress(&path("gz"), &path("to")).unwrap();
            assert_eq!(fs::read_to_string(path("to")).unwrap(), text);
            for file in ["gz", "to"] {
                fs::remove_file(path(file)).unwrap();
            }
        }
    }
}
