//! Compares filters with recorded results of libseccomp 2.5.4 for profiles with overlapping rules: the rules were added
//! as runc and crun add them, and the program was run on calls with values near those of the rules.
//!
//! The profiles are random. Not recorded are cases that libseccomp itself gets wrong: comparisons by order with values
//! above 32 bits (its tree then loses rules), and System V IPC calls on x86.

use super::{parse, run};
use crate::plan::container::seccomp::{Arch, compile};
use serde_json::Value;

#[test]
fn overlapping_rules_decide_as_with_libseccomp() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("libseccomp.json")).unwrap();
    let (mut calls, mut refused) = (0, 0);
    for case in &cases {
        let filter = compile(&parse(&case["profile"]), Arch::X86_64);
        let Some(recorded) = case["calls"].as_array() else {
            let error = filter.unwrap_err().to_string();
            assert!(error.contains("want different actions"), "{error}");
            refused += 1;
            continue;
        };
        let filter = filter.unwrap();
        for call in recorded {
            let number = |index: usize| call[index].as_u64().unwrap();
            let arch = if call[0] == "x86" { Arch::X86 } else { Arch::X86_64 };
            let nr = u32::try_from(number(1)).unwrap();
            let answer = run(&filter, arch.audit(), nr, &[number(2), number(3), number(4)]);
            assert_eq!(u64::from(answer), number(5), "{call} under {}", case["profile"]);
            calls += 1;
        }
    }
    assert!(calls > 900 && refused > 5, "{calls} calls, {refused} refused");
}
