//! Tests of the filters, against their definition and against the kernel.

use properties::native;

mod cases;
mod kernel;
mod meaning;
mod profiles;
mod programs;
mod properties;
