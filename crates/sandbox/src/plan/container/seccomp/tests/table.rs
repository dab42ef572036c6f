//! Tests that the table of calls is complete and correct.

use super::meaning::numbers;
use crate::plan::container::seccomp::Arch;
use crate::plan::container::seccomp::names::Call;

#[test]
fn every_call_is_found_with_its_numbers_and_nothing_else_is() {
    for arch in Arch::ALL {
        let numbers = numbers(arch);
        assert!(numbers.len() > 300, "{arch:?}: {}", numbers.len());
        for (name, number) in numbers {
            assert_eq!(
                Call::find(name).and_then(|call| call.number(arch)),
                Some(number),
                "{name} on {arch:?}"
            );
        }
    }
    assert_eq!(Call::find("openat2").unwrap().number(Arch::X32), Some(0x4000_0000 | 437));
    assert_eq!(Call::find("waitpid").unwrap().number(Arch::X86_64), None);
    for name in ["", "raed", "SYS_read", "read ", "0"] {
        assert!(Call::find(name).is_none(), "{name:?}");
    }
}

#[test]
fn the_numbers_are_those_of_the_installed_headers() {
    for (arch, file) in
        [(Arch::X86_64, "unistd_64.h"), (Arch::X86, "unistd_32.h"), (Arch::X32, "unistd_x32.h")]
    {
        let header = format!("/usr/include/x86_64-linux-gnu/asm/{file}");
        let Ok(text) = std::fs::read_to_string(&header) else {
            eprintln!("skipped: {header} is not there");
            continue;
        };
        for line in text.lines().filter_map(|line| line.strip_prefix("#define __NR_")) {
            let (name, value) = line.split_once(' ').unwrap();
            let bit = if value.starts_with("(__X32_SYSCALL_BIT") { 0x4000_0000 } else { 0 };
            let digits = value.trim_matches(|c: char| !c.is_ascii_digit()).rsplit(' ').next().unwrap();
            let number = digits.parse::<u32>().unwrap() | bit;
            assert_eq!(
                Call::find(name).and_then(|call| call.number(arch)),
                Some(number),
                "{name} on {arch:?}"
            );
        }
    }
}
