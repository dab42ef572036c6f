//! The `saggar` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os();
    if std::env::args_os().nth(1).is_some_and(|first| first == saggar::demo::ENTRY) {
        let input = std::io::BufReader::new(std::io::stdin());
        return ExitCode::from(saggar::demo::run(input, std::io::stdout()));
    }
    saggar::cmd::main(&mut args)
}
