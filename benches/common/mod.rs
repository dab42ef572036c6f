//! What the benches of whole commands share; each takes what it needs.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::Command;

/// A payload whose own start hides nothing, when it is compiled.
pub(crate) const TRUE: &str = "int main(void) { return 0; }\n";

/// A root as comparable as bubblewrap makes one: the same system directories, private /proc /dev /tmp /run and
/// home, the workspace, every namespace.
pub(crate) const BWRAP: &str = "--unshare-all --die-with-parent --new-session --clearenv --cap-drop ALL \
    --ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/sbin /sbin --symlink usr/lib /lib \
    --symlink usr/lib64 /lib64 --ro-bind-try /etc/ssl /etc/ssl --ro-bind-try /etc/alternatives /etc/alternatives \
    --ro-bind-try /etc/ca-certificates /etc/ca-certificates --ro-bind-try /etc/ld.so.cache /etc/ld.so.cache \
    --ro-bind-try /etc/ld.so.conf /etc/ld.so.conf --ro-bind-try /etc/ld.so.conf.d /etc/ld.so.conf.d \
    --proc /proc --dev /dev --tmpfs /tmp --tmpfs /run --tmpfs /home/agent";

/// The static program `directory/name` made of C; none without a compiler that takes it.
pub(crate) fn compile(directory: &Path, name: &str, source: &str) -> Option<PathBuf> {
    let (text, program) = (directory.join(name).with_extension("c"), directory.join(name));
    std::fs::write(&text, source).expect("write the source");
    let built = Command::new("cc").args(["-O2", "-static", "-o"]).arg(&program).arg(&text).status();
    built.is_ok_and(|status| status.success()).then_some(program)
}

/// The program that PATH finds.
pub(crate) fn which(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|path| path.is_file())
}

/// The middle one, or the upper of two.
pub(crate) fn median<T: Copy + PartialOrd>(values: &[T]) -> T {
    let mut values = values.to_vec();
    values.sort_by(|a, b| a.partial_cmp(b).expect("no NaN"));
    values[values.len() / 2]
}
