//! Where a name stands in the table of calls that the build script makes.

/// How many places there are: a power of two, and some four for each name, so that most have their own.
pub const PLACES: usize = 2048;

/// The place of `name`; when it is taken, the next one that is free (FNV-1a, folded).
pub fn place(name: &str) -> usize {
    let hash =
        name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    (hash ^ (hash >> 16)) as usize % PLACES
}
