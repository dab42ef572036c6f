//! `saggar spec`: writes a template of config.json.

use crate::cli::oci::SpecArgs;
use crate::error::{Code, Error, Result};
use crate::spec::oci;
use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::{getegid, geteuid};
use std::fs::OpenOptions;
use std::io::Write;

pub(super) fn run(args: &SpecArgs, rootless: bool) -> Result<u8> {
    let path = args.bundle.join("config.json");
    let (_, open_files) = getrlimit(Resource::RLIMIT_NOFILE)
        .map_err(|e| Error::system("read the limit of open files (RLIMIT_NOFILE)", e.desc()))?;
    let user = rootless.then(|| (geteuid().as_raw(), getegid().as_raw()));
    let text = oci::example_config(user, open_files);
    let mut file =
        OpenOptions::new().write(true).create_new(true).open(&path).map_err(|e| match e.kind() {
            std::io::ErrorKind::AlreadyExists => {
                Error::new(Code::Exists, format!("{} exists", path.display()))
                    .hint("remove it first, or choose another --bundle")
            }
            _ => Error::system(format_args!("make {}", path.display()), e),
        })?;
    file.write_all(text.as_bytes())
        .map_err(|e| Error::system(format_args!("write {}", path.display()), e))?;
    Ok(0)
}
