//! saggar(1) against the command line.

use super::page::{PAGES, Page};
use clap::{CommandFactory, Parser};
use saggar::cli::{Cli, Command};
use std::collections::BTreeSet;

/// Every long option that `--help` of any command shows, and every name of a command.
fn command_line() -> (BTreeSet<String>, BTreeSet<String>) {
    fn walk(command: &clap::Command, options: &mut BTreeSet<String>, names: &mut BTreeSet<String>) {
        let shown = command.get_arguments().filter(|argument| !argument.is_hide_set());
        options.extend(shown.filter_map(|argument| argument.get_long()).map(|long| format!("-{long}")));
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            // `help` repeats the names of all others below itself.
            names.insert(sub.get_name().to_owned());
            if sub.get_name() != "help" {
                walk(sub, options, names);
            }
        }
    }
    let mut cli = Cli::command();
    cli.build();
    let (mut options, mut names) = (BTreeSet::new(), BTreeSet::new());
    walk(&cli, &mut options, &mut names);
    (options, names)
}

fn borrowed(set: &BTreeSet<String>) -> BTreeSet<&str> {
    set.iter().map(String::as_str).collect()
}

/// What a page may call an option: `-x` after `Fl` is `--x`; `h` and `V` are the short forms of the two that
/// every command has.
fn long_options(page: &Page) -> BTreeSet<&str> {
    page.words("Fl").into_iter().filter(|word| !matches!(*word, "h" | "V")).collect()
}

#[test]
fn every_option_of_help_is_a_tag_or_a_word_of_saggar_1_and_no_other() {
    let (options, _) = command_line();
    let page = Page::read("saggar.1");
    page.agrees("options", &long_options(&page), &borrowed(&options));
}

#[test]
fn every_command_of_help_has_its_entry_in_saggar_1() {
    let (_, names) = command_line();
    let page = Page::read("saggar.1");
    let described = page.tags_in("DESCRIPTION", "Cm");
    let missing: Vec<_> = borrowed(&names).into_iter().filter(|name| !described.contains(name)).collect();
    assert!(missing.is_empty(), "saggar.1 lacks commands: {missing:?}");
}

#[test]
fn no_page_names_an_option_that_no_command_has() {
    let (options, _) = command_line();
    for name in PAGES {
        let page = Page::read(name);
        let invented: Vec<_> =
            long_options(&page).into_iter().filter(|option| !options.contains(*option)).collect();
        assert!(invented.is_empty(), "{name} has options that do not exist: {invented:?}");
    }
}

#[test]
fn every_call_in_an_example_is_one_that_saggar_understands() {
    let mut count = 0;
    for name in PAGES {
        let page = Page::read(name);
        for call in page.calls() {
            // What the shell would put in and take away: variables, quotes, redirections, a continued line.
            let call = call.replace("\\(dq", "\"").replace("$HOME", "/home/somebody");
            let end = call.find(['&', '>']).unwrap_or(call.len());
            let words = shlex::split(call[..end].trim_end_matches("\\e")).unwrap();
            let parsed = Cli::try_parse_from(std::iter::once("saggar".to_owned()).chain(words));
            let cli = parsed.unwrap_or_else(|error| panic!("{name}: saggar {call}: {error}"));
            // `wrap` takes an option that it does not know for the program.
            if let Command::Wrap(args) = cli.command {
                let program = args.argv[0].to_string_lossy();
                assert!(!program.starts_with('-'), "{name}: saggar {call}: no such option: {program}");
            }
            count += 1;
        }
    }
    assert!(count >= 6, "the examples were not found: {count}");
}
