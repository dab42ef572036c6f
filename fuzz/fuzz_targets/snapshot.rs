//! Whatever an archive says: it is refused or read, and nothing is made but in the directory that it is read into.
#![no_main]

use libfuzzer_sys::fuzz_target;
use saggar::session::snapshot::{SnapshotLimits, extract_unpacked};
use std::fs::{self, File};
use std::os::fd::AsFd;

fuzz_target!(|data: &[u8]| {
    let above = std::env::temp_dir().join(format!("saggar-fuzz-{}", std::process::id()));
    let into = above.join("into");
    fs::create_dir_all(&into).expect("a directory");
    // Checksums are right: a fuzzer finds none.
    let mut tar = data.to_vec();
    for block in tar.chunks_exact_mut(512) {
        if block[257..262] == *b"ustar" {
            let plain = |(at, byte): (usize, &u8)| if (148..156).contains(&at) { 32 } else { u32::from(*byte) };
            let sum: u32 = block.iter().enumerate().map(plain).sum();
            block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
    }
    let at = File::open(&into).expect("it was just made");
    let _ = extract_unpacked(&tar[..], at.as_fd(), SnapshotLimits { entries: 100, bytes: 1 << 20 });
    let beside: Vec<_> = fs::read_dir(&above).expect("it is there").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(beside, ["into"]);
    let _ = fs::remove_dir_all(&above);
});
