//! Compiles the seccomp profiles beside this file to BPF. (Filled by the profile work.)
fn main() {
    println!("cargo::rerun-if-changed=seccomp");
}
