//! Stand-in until the profiles are merged.
use super::SysResult;
/// Profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// programs
    Agent,
    /// nesting
    Nesting,
    /// pid 1
    Init,
}
/// program
pub fn program(_: Profile) -> &'static [u8] {
    &[]
}
/// load
pub fn load(_: &[u8]) -> SysResult<()> {
    Ok(())
}
