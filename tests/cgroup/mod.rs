//! Cgroups of containers on the kernel at hand, whichever hierarchies it has: what is asserted is what the
//! kernel tells, or does, of limits that were set through the engine.

mod leaves;
mod limits;
mod member;
mod processes;
mod rooms;
mod swept;
