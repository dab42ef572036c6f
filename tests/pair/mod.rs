//! Pair runs: two agents in sandboxes of their own that work on one task (saggar-pair(1); AM-19 to AM-22).

mod full;
mod killed;
mod life;
pub(crate) mod place;
mod refused;
