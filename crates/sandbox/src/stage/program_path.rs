//! Where a program is looked for.

use crate::spec::ProgramSpec;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// The paths to try in turn for a program whose first argument is `name`: its file where that is known, a name with a
/// slash as it is, else the name in every absolute directory of `search`, a PATH. A relative directory there would
/// mean another one after the change of the working directory. An empty name is that of no program.
pub fn candidates(program: &ProgramSpec, name: &[u8], search: &OsStr) -> Vec<Vec<u8>> {
    if let Some(file) = &program.file {
        return vec![file.as_os_str().as_bytes().to_vec()];
    }
    if name.contains(&b'/') {
        return vec![name.to_vec()];
    }
    if name.is_empty() {
        return Vec::new();
    }
    let directories = search.as_bytes().split(|byte| *byte == b':').filter(|path| path.starts_with(b"/"));
    directories.map(|directory| [directory, b"/", name].concat()).collect()
}
