//! Any bytes as a `config.json`, as the `process.json` of an `exec`, and as the resources of an `update`.
//!
//! Run with `cargo +nightly fuzz run config_json fuzz/corpus/config_json crates/sandbox/src/spec/oci/tests/callers`. The same is done
//! with random documents by `spec::oci::tests::random` in every `cargo test`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use saggar::spec::oci;
use std::path::Path;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(config) = oci::parse_config(bytes.to_vec(), Path::new("/bundle")) {
        assert!(config.container.root.path.is_absolute());
        assert!(config.container.mounts.iter().all(|mount| mount.destination.is_absolute()));
        let _ = oci::parse_process(bytes, &config.container);
    }
    let _ = oci::parse_resources(bytes);
});
