//! Names that lists of files leave out: caches and installed packages, as in Ash.

/// Names of files and directories that are left out, with everything below them.
pub const SKIPPED_NAMES: [&str; 11] = [
    "node_modules",
    ".git",
    "__pycache__",
    ".cache",
    ".npm",
    ".pnpm-store",
    ".yarn",
    ".venv",
    "venv",
    ".tmp",
    "tmp",
];
/// Suffixes of other names that are left out.
const SKIPPED_SUFFIXES: [&str; 3] = [".sock", ".lock", ".pid"];

/// Whether a name, or a path that ends with it, has a suffix that is left out.
pub fn has_skipped_suffix(name: &str) -> bool {
    SKIPPED_SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
}
