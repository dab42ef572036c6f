//! The program under test.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// saggar of this build. `SAGGAR_TEST_BINARY=PATH` names another one: `.ci/full` tests the release, and a change that a test
/// must notice is tried so.
pub(crate) fn saggar() -> &'static Path {
    static BINARY: LazyLock<PathBuf> = LazyLock::new(|| {
        let other = std::env::var_os("SAGGAR_TEST_BINARY").filter(|path| !path.is_empty());
        other.map_or_else(|| env!("CARGO_BIN_EXE_saggar").into(), PathBuf::from)
    });
    &BINARY
}
