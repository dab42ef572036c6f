//! The manual page against the command line: every command and every flag is in it.

use clap::{Command, CommandFactory};
use saggar::cli::Cli;
use std::path::Path;

/// The words of a command and of those below it that the page must have.
fn words(command: &Command, found: &mut Vec<String>) {
    for argument in command.get_arguments() {
        // Every command has them, and clap explains them.
        if let Some(long) = argument.get_long().filter(|long| !["help", "version"].contains(long)) {
            found.push(format!("--{long}"));
        }
    }
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        found.push(below.get_name().to_owned());
        words(below, found);
    }
}

#[test]
fn every_command_and_flag_is_in_the_manual() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("man/saggar.1");
    let page = std::fs::read_to_string(&page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
    // roff writes a hyphen that is one as \-.
    let page = page.replace("\\-", "-");
    let mut wanted = Vec::new();
    words(&Cli::command(), &mut wanted);
    wanted.sort_unstable();
    wanted.dedup();
    let holds = |word: &String| {
        page.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).any(|other| other == word)
    };
    let missing: Vec<&String> = wanted.iter().filter(|word| !holds(word)).collect();
    assert!(missing.is_empty(), "man/saggar.1 does not mention {missing:?}");
}
