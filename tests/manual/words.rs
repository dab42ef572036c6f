//! The words of help texts, manual pages, README and messages are the field's.
//!
//! [`AVOIDED`] lists words and constructions that none of these texts may use, each with what to write instead;
//! [`EXCEPTIONS`] lists the places where one of them is meant literally. Every command and option of `--help` starts
//! with a verb in the imperative, from [`IMPERATIVES`]; public types of the crate have unique names.

use super::page::PAGES;
use crate::support::source::{CRATES, Piece, crate_sources, pieces, top};
use clap::CommandFactory;
use saggar::cli::Cli;
use std::collections::BTreeMap;
use std::fs;

/// Words and constructions to avoid, in lower case, with what to write instead.
const AVOIDED: &[(&[&str], &str)] = &[
    (&["nobody", "somebody", "anybody", "someone", "anyone"], "name the process, client, user or file"),
    (&["whoever", "whomever", "to whom", "of whom"], "name the process, client, user or file"),
    (&["the one that", "none that", "is none"], "a noun: invalid, missing, not a …"),
    (&["say", "says", "said", "saying"], "use or pass (an option), report, log, show"),
    (&["tell", "tells", "told", "telling"], "report, send, notify, distinguish"),
    (&["hear", "hears", "heard", "hearing"], "receive"),
    (&["speak", "speaks", "spoke", "spoken", "speaking"], "connect, send, support, use"),
    (&["cure", "cures", "cured"], "fix"),
    (&["stand", "stands", "stood"], "be mounted, be given, represent"),
    (&["goes on", "go on", "went on", "going on"], "continue, start"),
    (&["is had", "to be had"], "available, supported"),
    (&["wall", "walls", "fence", "fences"], "isolation, control, boundary"),
    (&["verb", "verbs"], "command"),
    (&["for good"], "permanently"),
    (&["in vain"], "without effect"),
];

/// Where an avoided word is meant literally: the end of the file's name, and the words around it.
const EXCEPTIONS: &[(&str, &str)] = &[
    // The name of the user.
    ("saggar-security.7", "runs as nobody"),
    // A measure of time.
    ("", "wall-clock"),
    // Quotations: the replies of the demo agent.
    ("README.md", "you said:"),
    ("src/demo.rs", "you said:"),
];

/// With what a command or an option may start.
const IMPERATIVES: &str = "Accept Add Allocate Allow Append Apply Ask Check Continue Count Create Delete Deny Deploy \
    Detach Disable Discard End Exclude Explain Follow Forward Include Join Keep Kill Limit List Log Manage Mount \
    Overwrite Pass Pause Print Publish Quarantine Read Refuse Remove Restore Resume Run Save Send Serve Set Show \
    Start Store Update Use Write";

/// The text of a file, by its path below the top of the repository.
fn read(path: &str) -> String {
    let file = top().join(path);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The avoided words of `text` that no exception of `file` covers, with their replacement.
fn avoided(file: &str, text: &str) -> Vec<String> {
    let mut text = format!(" {} ", words_only(text));
    for (_, around) in EXCEPTIONS.iter().filter(|(end, _)| file.ends_with(end)) {
        text = text.replace(&format!(" {} ", words_only(around)), " ");
    }
    let has = |phrase: &&&str| text.contains(&format!(" {phrase} "));
    AVOIDED
        .iter()
        .flat_map(|(phrases, instead)| phrases.iter().filter(has).map(move |phrase| (phrase, instead)))
        .map(|(phrase, instead)| format!("{file}: \"{phrase}\" (write: {instead})"))
        .collect()
}

/// Words in lower case with one space between them; paths of tests (`a::b`) and of files are left out.
fn words_only(text: &str) -> String {
    let words = text.split_whitespace().filter(|word| !word.contains("::") && !word.contains('/'));
    let lower = words.flat_map(|word| word.split(|c: char| !c.is_alphanumeric() && c != '_'));
    lower.filter(|word| !word.is_empty()).map(str::to_lowercase).collect::<Vec<_>>().join(" ")
}

/// Every Rust file of these crates without its tests, by its path below the top.
fn sources() -> Vec<(String, String)> {
    let without_tests =
        |text: String| text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default().to_owned();
    let of_crate = |(_, src): &(&str, &'static str)| {
        let src = *src;
        let named = crate_sources(src).into_iter();
        named.map(move |(path, text)| (format!("{src}/{}", path.display()), without_tests(text)))
    };
    CRATES.iter().flat_map(of_crate).collect()
}

/// The string literals of Rust code, without what their placeholders name.
fn literals(code: &str) -> Vec<String> {
    let literal = |piece| match piece {
        Piece::Literal(literal) => Some(without_placeholders(literal)),
        _ => None,
    };
    pieces(code).into_iter().filter_map(literal).collect()
}

/// `{name}` out of a format; a continued line is one line, `\n` a space.
fn without_placeholders(literal: &str) -> String {
    let mut text = String::new();
    let mut rest = literal;
    while let Some((before, after)) = rest.split_once('{') {
        text.push_str(before);
        rest = after.split_once('}').map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    text.replace("\\n", " ").replace('\\', " ")
}

/// Every command below `command` and itself.
fn commands(command: &clap::Command) -> Vec<&clap::Command> {
    let below = command.get_subcommands().filter(|sub| sub.get_name() != "help").flat_map(commands);
    std::iter::once(command).chain(below).collect()
}

#[test]
fn literals_are_found_in_code() {
    let code = "f('\"', \"a {b} c\", r#\"d \"e\"#); // \"no\"\nlet x: &'a str = \"g\\\"h\\n\";";
    assert_eq!(literals(code), ["a  c", "d \"e", "g \"h "]);
}

#[test]
fn pages_and_readme_avoid_words_that_need_a_second_reading() {
    let files = PAGES.iter().map(|page| format!("man/{page}")).chain(["README.md".to_owned()]);
    let found: Vec<_> = files.flat_map(|file| avoided(&file, &read(&file))).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn messages_avoid_words_that_need_a_second_reading() {
    let mut found = Vec::new();
    for (file, code) in sources() {
        // One word alone is a key or a name on the wire.
        let texts = literals(&code).into_iter().filter(|literal| literal.trim().contains(' '));
        found.extend(texts.flat_map(|text| avoided(&file, &text)));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn help_avoids_words_that_need_a_second_reading() {
    let mut cli = Cli::command();
    cli.build();
    let found: Vec<_> = commands(&cli)
        .into_iter()
        .flat_map(|command| avoided(command.get_name(), &command.clone().render_long_help().to_string()))
        .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn help_of_commands_and_options_starts_with_an_imperative() {
    let mut cli = Cli::command();
    cli.build();
    let mut lines = Vec::new();
    for command in commands(&cli) {
        lines.push((command.get_name().to_owned(), command.get_about()));
        let options = command.get_arguments().filter(|argument| argument.get_long().is_some());
        lines.extend(
            options
                .map(|option| (format!("{} --{}", command.get_name(), option.get_id()), option.get_help())),
        );
    }
    let is_imperative = |help: &str| IMPERATIVES.split(' ').any(|verb| help.split(' ').next() == Some(verb));
    let wrong: Vec<_> = lines
        .into_iter()
        .map(|(of, help)| (of, help.map(ToString::to_string).unwrap_or_default()))
        .filter(|(_, help)| !is_imperative(help))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn public_types_have_unique_names() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (file, code) in sources() {
        for line in code.lines().map(str::trim_start) {
            let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            let kinds = ["struct", "enum", "trait", "type", "union"];
            if words.next() == Some("pub") && words.next().is_some_and(|kind| kinds.contains(&kind)) {
                let name = words.next().unwrap_or_default().to_owned();
                places.entry(name).or_default().push(file.clone());
            }
        }
    }
    assert!(places.len() > 500, "the types were not found: {}", places.len());
    places.retain(|_, files| files.len() > 1);
    assert!(places.is_empty(), "{places:#?}");
}
