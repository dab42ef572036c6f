//! Tests of the filters, against their definition and against the kernel.

// The compiler of the build script, so that tests can compile other profiles and architectures.
#[allow(dead_code, reason = "the build script uses the rest")]
#[allow(clippy::duplicate_mod, reason = "the library has its own share of it")]
#[path = "../../../seccomp/compiler/mod.rs"]
mod compiler;

use properties::native;

mod cases;
mod kernel;
pub(crate) mod machine;
mod meaning;
mod profiles;
mod programs;
mod properties;
