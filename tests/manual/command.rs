//! saggar(1) and saggar-oci(8) against the command line.

use super::page::{PAGES, Page};
use clap::{Args, CommandFactory, Parser, Subcommand};
use saggar::cli::oci::OciCommand;
use saggar::cli::{Cli, CliCommand};
use std::collections::BTreeSet;

/// Long options and names of commands.
#[derive(Debug, Default)]
struct Words {
    options: BTreeSet<String>,
    names: BTreeSet<String>,
}

/// Which commands a page is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    /// All that no other page is about.
    People,
    /// Those below `saggar session`.
    Sessions,
    /// Those below `saggar pair`.
    Pairs,
    /// Those below `saggar remote`.
    Remote,
    /// The OCI verbs.
    Oci,
}

const PAGES_OF_COMMANDS: [(Of, &str); 5] = [
    (Of::People, "saggar.1"),
    (Of::Sessions, "saggar-session.1"),
    (Of::Pairs, "saggar-pair.1"),
    (Of::Remote, "saggar-remote.1"),
    (Of::Oci, "saggar-oci.8"),
];

/// Every long option that `--help` of these commands shows, and their names.
fn command_line(of: Of) -> Words {
    fn take(command: &clap::Command, words: &mut Words) {
        let shown = command.get_arguments().filter(|argument| !argument.is_hide_set());
        let longs = shown.flat_map(|argument| {
            let aliases = argument.get_visible_aliases().unwrap_or_default();
            argument.get_long().into_iter().chain(aliases)
        });
        words.options.extend(longs.map(|long| format!("-{long}")));
    }
    fn walk(command: &clap::Command, words: &mut Words) {
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            words.names.insert(sub.get_name().to_owned());
            take(sub, words);
            // `help` repeats the names of all others below itself.
            if sub.get_name() != "help" {
                walk(sub, words);
            }
        }
    }
    let verbs = OciCommand::augment_subcommands(clap::Command::new("verbs"));
    let is_verb = |name: &str| verbs.get_subcommands().any(|verb| verb.get_name() == name);
    let mut cli = Cli::command();
    // What the verbs take may stand before them, and is theirs.
    let before: Vec<_> = saggar::cli::oci::OciGlobalArgs::augment_args(clap::Command::new("before"))
        .get_arguments()
        .map(|argument| argument.get_id().clone())
        .collect();
    for id in before {
        cli = cli.mut_arg(id, |argument| argument.hide(true));
    }
    cli.build();
    let mut words = Words::default();
    match of {
        Of::Sessions => {
            let session = cli.find_subcommand("session").expect("there are sessions");
            walk(session, &mut words);
        }
        Of::Pairs => walk(cli.find_subcommand("pair").expect("there are pair runs"), &mut words),
        Of::Remote => walk(cli.find_subcommand("remote").expect("there are remote commands"), &mut words),
        Of::People | Of::Oci => {
            if of == Of::People {
                take(&cli, &mut words);
            }
            for sub in cli.get_subcommands().filter(|sub| is_verb(sub.get_name()) == (of == Of::Oci)) {
                words.names.insert(sub.get_name().to_owned());
                // These have pages of their own.
                if ["pair", "remote", "session"].contains(&sub.get_name()) {
                    continue;
                }
                take(sub, &mut words);
                if sub.get_name() != "help" {
                    walk(sub, &mut words);
                }
            }
        }
    }
    // Every command has these two, and saggar(1) says so.
    if of != Of::People {
        words.options.retain(|option| !["-help", "-version"].contains(&option.as_str()));
    }
    words.names.retain(|name| !matches!(of, Of::Sessions | Of::Pairs | Of::Remote) || name != "help");
    words
}

fn borrowed(set: &BTreeSet<String>) -> BTreeSet<&str> {
    set.iter().map(String::as_str).collect()
}

/// What a page may call an option: `-x` after `Fl` is `--x`; one letter is a short form.
fn long_options(page: &Page) -> BTreeSet<&str> {
    page.words("Fl").into_iter().filter(|word| word.len() > 1).collect()
}

#[test]
fn every_option_of_help_is_a_word_of_its_page_and_no_other() {
    for (of, name) in PAGES_OF_COMMANDS {
        let (words, page) = (command_line(of), Page::read(name));
        page.agrees("options", &long_options(&page), &borrowed(&words.options));
    }
}

#[test]
fn every_command_of_help_has_its_entry_in_its_page() {
    for (of, name) in PAGES_OF_COMMANDS {
        let (words, page) = (command_line(of), Page::read(name));
        let described = page.tags_in("DESCRIPTION", "Cm");
        let missing: Vec<_> =
            borrowed(&words.names).into_iter().filter(|name| !described.contains(name)).collect();
        assert!(missing.is_empty(), "{name} lacks commands: {missing:?}");
    }
}

#[test]
fn no_page_names_an_option_that_no_command_has() {
    let options: BTreeSet<String> =
        PAGES_OF_COMMANDS.into_iter().flat_map(|(of, _)| command_line(of).options).collect();
    // The server is a program of its own; its tests compare its options with its page.
    for name in PAGES.into_iter().filter(|name| *name != "saggar-server.8") {
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
            let end = call.find(['&', '>', '<']).unwrap_or(call.len());
            let words = shlex::split(call[..end].trim_end_matches("\\e")).unwrap();
            let parsed = Cli::try_parse_from(std::iter::once("saggar".to_owned()).chain(words));
            let cli = parsed.unwrap_or_else(|error| panic!("{name}: saggar {call}: {error}"));
            // `wrap` takes an option that it does not know for the program.
            if let CliCommand::Wrap(args) = cli.command {
                let program = args.argv[0].to_string_lossy();
                assert!(!program.starts_with('-'), "{name}: saggar {call}: no such option: {program}");
            }
            count += 1;
        }
    }
    assert!(count >= 6, "the examples were not found: {count}");
}
