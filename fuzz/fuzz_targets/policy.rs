//! Whatever stands in a policy, as TOML or JSON: read or refused, with a message of one printable line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use saggar::spec::policy::parse::{PolicyFormat, parse};

fuzz_target!(|data: &[u8]| {
    for format in [PolicyFormat::Toml, PolicyFormat::Json] {
        if let Err(error) = parse("fuzzed", format, data) {
            let message = error.to_string();
            assert!(message.starts_with("fuzzed:"), "{message:?}");
            assert!(!message.chars().any(char::is_control), "{message:?}");
        }
    }
});
