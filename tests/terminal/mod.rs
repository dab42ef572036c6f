//! `saggar wrap` on a terminal (DECISIONS 6): a terminal of the sandbox's own inside, the host's outside.

mod isolation;
mod jobs;
mod progress;
mod questions;
mod relay;
mod screen;
