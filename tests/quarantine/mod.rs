//! What appears in a workspace under a protected name, and what becomes of it (DECISIONS 5).

mod agent;
mod hostile;
mod pins;
mod told;
mod wrapped;
