//! What appears in a workspace under a protected name, and what becomes of it (DECISIONS 34).

mod agent;
mod attacks;
mod battery;
mod bounds;
mod commands;
mod hostile;
mod killed;
mod pins;
mod repositories;
mod told;
mod wrapped;
