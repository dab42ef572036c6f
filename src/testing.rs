//! What the unit tests of several modules share.

/// How many random cases a property is tried on: `many` with SAGGAR_TEST_LONG=1 (`.ci/full loops`), and a fifth of them
/// otherwise.
pub(crate) fn cases(many: u32) -> u32 {
    if std::env::var_os("SAGGAR_TEST_LONG").is_some_and(|wanted| wanted == "1") { many } else { many / 5 }
}
