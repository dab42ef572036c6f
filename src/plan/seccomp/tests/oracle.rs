//! What libseccomp makes of overlapping rules, as it was recorded.

use super::{parse, run};
use crate::plan::seccomp::{Arch, compile};
use serde_json::Value;

#[test]
fn trial() {
    let Ok(path) = std::env::var("ORACLE") else { return };
    let cases: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let (mut bad, mut bad_profiles, mut total) = (0, 0, 0);
    let mut refused = (0, 0, 0);
    for case in &cases {
        let ours = compile(&parse(&case["profile"]), Arch::X86_64);
        let theirs = case.get("error");
        match (&ours, theirs) {
            (Err(e), None) => {
                refused.0 += 1;
                if refused.0 < 8 {
                    println!("ONLY WE {e} {}", case["profile"]);
                }
                continue;
            }
            (Ok(_), Some(e)) => {
                refused.1 += 1;
                if refused.1 < 4 {
                    println!("ONLY THEY {e} {}", case["profile"]);
                }
                continue;
            }
            (Err(_), Some(_)) => {
                refused.2 += 1;
                continue;
            }
            _ => {}
        }
        let ours = ours.unwrap();
        let mut wrong = false;
        for call in case["calls"].as_array().unwrap() {
            let n = |i: usize| call[i].as_u64().unwrap();
            let answer = run(&ours, n(0) as u32, n(1) as u32, &[n(2), n(3), n(4)]);
            total += 1;
            if u64::from(answer) != n(5) {
                bad += 1;
                if !wrong && bad_profiles < 14 {
                    println!("{call:?} ours {answer:#x} theirs {:#x} {}", n(5), case["profile"]);
                }
                wrong = true;
            }
        }
        bad_profiles += usize::from(wrong);
    }
    println!(
        "calls {total} bad {bad} profiles {} bad {bad_profiles} refused only-we {} only-they {} both {}",
        cases.len(),
        refused.0,
        refused.1,
        refused.2
    );
}
