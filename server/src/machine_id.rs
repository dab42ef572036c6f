//! The id of a data directory, for what servers on several machines store in one database: the file `machine-id`.

use crate::durable_file::replace;
use crate::error::{Context, Error, Result};
use std::fs;
use std::io;
use std::path::Path;
use uuid::Uuid;

/// Returns the id of a data directory: a UUID, created at the first call.
///
/// # Errors
/// Fails if the file cannot be read or written, or has no id.
pub fn machine_id(data_dir: &Path) -> Result<String> {
    let file = data_dir.join("machine-id");
    match fs::read_to_string(&file) {
        Ok(text) => {
            let id = text.trim().parse::<Uuid>();
            let invalid = |_| Error::new(format!("{} has no UUID: remove the file", file.display()));
            Ok(id.map_err(invalid)?.to_string())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let id = Uuid::new_v4().to_string();
            replace(&file, id.as_bytes()).context(|| format!("cannot write {}", file.display()))?;
            Ok(id)
        }
        Err(error) => Err(error).context(|| format!("cannot read {}", file.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_stays_and_is_that_of_one_directory() {
        let [one, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let id = machine_id(one.path()).unwrap();
        assert_eq!(machine_id(one.path()).unwrap(), id);
        assert_ne!(machine_id(other.path()).unwrap(), id);
        fs::write(other.path().join("machine-id"), "").unwrap();
        assert!(machine_id(other.path()).unwrap_err().to_string().contains("has no UUID"));
    }
}
