//! The raw system calls. `unsafe` lives here and in the child's side of a start, nowhere else.

pub mod seccomp;
