//! One test for each sentence of the specification about a field, named after it.

mod document;
mod filters;
mod isolation;
mod mounts;
mod process;

use super::*;
