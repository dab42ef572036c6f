//! The tables that `packaging/build.rs` generates from the profiles.

use super::{Description, Refusal, SockFilter};

const fn insn(code: u16, jt: u8, jf: u8, k: u32) -> SockFilter {
    SockFilter { code, jt, jf, k }
}

include!(concat!(env!("OUT_DIR"), "/seccomp_tables.rs"));
