//! The `saggar` binary.

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    if args.get(1).is_some_and(|first| first == saggar::demo::ENTRY) {
        let input = std::io::BufReader::new(std::io::stdin());
        return ExitCode::from(saggar::demo::run(input, std::io::stdout()));
    }
    if args.get(1).is_some_and(|first| first == saggar::cmd::BESIDE) {
        return ExitCode::from(saggar::cmd::beside(&args[2..]));
    }
    saggar::cmd::main(&args)
}
