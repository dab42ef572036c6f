//! Where the real agent is, and the settings under which it speaks to nothing but its API.

use std::env;
use std::path::{Path, PathBuf};

/// Set for every run: with these the only requests that the agent makes are the model's turns.
pub(super) const ENVIRONMENT: [(&str, &str); 5] = [
    ("ANTHROPIC_API_KEY", "sk-ant-mock"),
    ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
    ("DISABLE_TELEMETRY", "1"),
    ("DISABLE_ERROR_REPORTING", "1"),
    ("DISABLE_AUTOUPDATER", "1"),
];

/// The agent's program, or why there is none.
pub(super) fn claude() -> Result<PathBuf, String> {
    if let Some(named) = env::var_os("SAGGAR_TEST_CLAUDE") {
        let named = PathBuf::from(named);
        assert!(named.is_file(), "SAGGAR_TEST_CLAUDE names no file: {}", named.display());
        return Ok(named);
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("target/tmp is below target");
    // npm links or copies, as its version likes: the sandbox is given the file itself.
    let installed = target.join("agent/node_modules/.bin/claude");
    installed.canonicalize().map_err(|_| "Claude Code is not installed: run .ci/install-agent".to_owned())
}
