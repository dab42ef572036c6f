//! Each sentence of the specification about a field, as one test that is named after it.

mod document;
mod filters;
mod isolation;
mod mounts;
mod process;

use super::*;
