//! The `saggar` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    saggar::cmd::main(std::env::args_os())
}
