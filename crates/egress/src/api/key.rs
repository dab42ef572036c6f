//! The key of the model API. The supervisor opens the key file and checks its permissions. Only the API process reads
//! it.

use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue};
use nix::unistd::geteuid;
use saggar_policy::KeyHeader;
use saggar_policy::api::MAX_KEY_LENGTH;
use saggar_sys::error::{Code, Error, Result};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use zeroize::Zeroizing;

const HINT: &str = "the file holds the key alone, on one line, without Bearer";

/// The header field that carries the key.
#[derive(Debug)]
pub(super) struct ApiKey {
    /// The name of the field.
    pub(super) name: HeaderName,
    /// The value of the field. `Debug` does not print it.
    pub(super) value: HeaderValue,
}

/// Opens a key file without reading it.
///
/// # Errors
/// [`Code::Invalid`] for a file that is not regular or is too long, [`Code::Refused`] for a file that other users can
/// read.
pub fn open_key_file(path: &Path) -> Result<File> {
    let shown = path.display();
    let fail = |e: std::io::Error| {
        let error = Error::new(Code::Invalid, format!("open the key file {shown}: {e}"));
        match e.kind() {
            ErrorKind::NotFound => error.hint("write the key there, and chmod 600 it; or name another file"),
            _ => error,
        }
    };
    let kind = |file: &std::fs::Metadata| match file.is_file() {
        true => Ok(()),
        false => Err(Error::new(Code::Invalid, format!("the key file {shown} is not a regular file"))
            .hint("a descriptor of anything else is given with --api-key-fd")),
    };
    // Another type of file is not opened, because opening a device can have side effects.
    kind(&path.metadata().map_err(fail)?)?;
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(fail)?;
    let metadata = file.metadata().map_err(fail)?;
    kind(&metadata)?;
    let refuse = |why: String, hint: String| {
        Err(Error::new(Code::Refused, format!("the key file {shown} {why}")).hint(hint))
    };
    let (owner, own) = (metadata.uid(), geteuid().as_raw());
    if owner != own && owner != 0 {
        return refuse(format!("belongs to user {owner}"), format!("chown {own} {shown}"));
    }
    if metadata.mode() & 0o077 != 0 {
        let mode = metadata.mode() & 0o777;
        return refuse(format!("is open to others (mode {mode:04o})"), format!("chmod 600 {shown}"));
    }
    match metadata.len() > MAX_KEY_LENGTH as u64 {
        true => {
            Err(Error::new(Code::Invalid, format!("the key file {shown} is longer than 16 KiB")).hint(HINT))
        }
        false => Ok(file),
    }
}

/// Checks that a key can be read from this descriptor.
///
/// # Errors
/// [`Code::Invalid`] for a directory or a terminal.
pub fn check_key_descriptor(file: &File) -> Result<()> {
    let kind =
        file.metadata().map_err(|e| Error::system("look at the descriptor of --api-key-fd", e))?.file_type();
    match kind.is_file() || kind.is_fifo() || kind.is_socket() {
        true => Ok(()),
        false => Err(Error::new(Code::Invalid, "--api-key-fd: it is no file, pipe or socket")
            .hint("as in --api-key-fd 3 3<FILE")),
    }
}

/// Reads the key. The read buffer is overwritten. The only remaining copy is the value of the header field.
///
/// # Errors
/// [`Code::Invalid`] for data that is not a valid key.
pub(super) fn read_key(mut file: File, header: KeyHeader) -> Result<ApiKey> {
    let bad =
        |why: &str| Error::new(Code::Invalid, format!("read the key of the model API: {why}")).hint(HINT);
    // Allocated at full size, because a vector that grows leaves copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_KEY_LENGTH + 1));
    bytes.resize(MAX_KEY_LENGTH + 1, 0);
    let mut length = 0;
    // An earlier process may have read the file. A pipe cannot be rewound.
    let _ = file.rewind();
    while let Some(room) = bytes.get_mut(length..).filter(|room| !room.is_empty()) {
        match file.read(room) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(bad(&e.to_string())),
        }
    }
    let text = bytes
        .get(..length)
        .filter(|_| length <= MAX_KEY_LENGTH)
        .ok_or_else(|| bad("it is longer than 16 KiB"))?;
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    if text.is_empty() {
        return Err(bad("it is empty"));
    }
    if text.contains(&b'\n') {
        return Err(bad("it has more than one line"));
    }
    if !text.iter().all(u8::is_ascii_graphic) {
        return Err(bad("it has characters that no key has"));
    }
    let (name, prefix): (_, &[u8]) = match header {
        KeyHeader::ApiKey => (HeaderName::from_static("x-api-key"), b""),
        KeyHeader::Authorization => (AUTHORIZATION, b"Bearer "),
    };
    let header_bytes = Zeroizing::new([prefix, text].concat());
    let mut value =
        HeaderValue::from_bytes(&header_bytes).map_err(|_| bad("it has characters that no key has"))?;
    value.set_sensitive(true);
    Ok(ApiKey { name, value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn of(bytes: &[u8], header: KeyHeader) -> Result<ApiKey> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        read_key(file.reopen().unwrap(), header)
    }

    #[test]
    fn a_key_is_one_line_and_is_not_shown() {
        for text in ["sk-1~/+=.", "sk-1~/+=.\n", "sk-1~/+=.\r\n"] {
            let key = of(text.as_bytes(), KeyHeader::ApiKey).unwrap();
            assert_eq!(key.value.as_bytes(), b"sk-1~/+=.");
            assert!(!format!("{key:?}").contains("sk-1"));
        }
        let key = of(b"sk-1", KeyHeader::Authorization).unwrap();
        assert_eq!((key.name.as_str(), key.value.as_bytes()), ("authorization", &b"Bearer sk-1"[..]));
    }

    #[test]
    fn what_is_no_key_is_refused_and_not_repeated() {
        let long = [b'k'; MAX_KEY_LENGTH + 1];
        for (bytes, why) in [
            (&b""[..], "empty"),
            (b"\n", "empty"),
            (b"sk-1\nsk-2\n", "more than one line"),
            (b"sk-1\n\n", "more than one line"),
            (b"Bearer sk-1", "characters"),
            (b"sk-1\0", "characters"),
            (b"sk-1\r\r\n", "characters"),
            (b"sk-\xc3\xa4", "characters"),
            (&long, "longer"),
        ] {
            let error = of(bytes, KeyHeader::ApiKey).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains("sk-"), "{error}");
        }
        assert!(of(&long[1..], KeyHeader::ApiKey).is_ok());
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let file = tempfile::NamedTempFile::new().unwrap();
        for (mode, good) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false), (0o610, false)] {
            std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            let opened = open_key_file(file.path());
            assert_eq!(opened.is_ok(), good, "{mode:o}: {opened:?}");
        }
        assert_eq!(open_key_file(Path::new("/dev/null")).unwrap_err().code(), Code::Invalid);
        assert_eq!(open_key_file(Path::new("/nonexistent")).unwrap_err().code(), Code::Invalid);
    }
}
