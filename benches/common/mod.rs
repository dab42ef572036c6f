//! What the benches of whole commands share.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A payload whose own start hides nothing, when it is compiled.
pub(crate) const TRUE: &str = "int main(void) { return 0; }\n";

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
