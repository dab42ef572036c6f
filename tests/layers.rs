//! The map of `lib.rs` holds: a module uses lower layers only, and what is said to be pure is.
//!
//! Source text is read, not types: every `crate::…` path of every file counts, in code and not in comments.

use std::fs;
use std::path::{Path, PathBuf};

/// DESIGN's table; the longest name that fits a path decides.
const LAYERS: &[(&str, u8)] = &[
    ("error", 0),
    ("log", 0),
    ("id", 0),
    ("text", 0),
    ("sys", 0),
    ("spec", 1),
    ("host", 1),
    ("bridge::proto", 1),
    ("bridge::adapter", 1),
    ("plan", 2),
    ("launch", 3),
    ("stage", 3),
    ("cgroup", 3),
    ("resctrl", 3),
    ("net", 3),
    ("state", 3),
    ("session", 3),
    ("mailbox", 3),
    ("prove", 3),
    ("api", 4),
    ("relay", 4),
    ("supervise", 4),
    ("bridge", 4),
    ("control", 4),
    ("egress", 4),
    ("cli", 5),
    ("cmd", 5),
    ("main", 5),
    ("", 5),
];

/// All that the child of a start may use: its plan, the calls, and the type of a program.
const OF_STAGE: [&str; 4] = ["sys", "plan", "stage", "spec::Program"];

/// What does no I/O, and the files of it that do.
const PURE: [&str; 5] = ["spec", "plan", "bridge::proto", "bridge::adapter", "egress"];
const DOES_IO: [&str; 3] = ["spec::policy::load", "spec::oci::load", "egress::io"];

/// A file of `src`, without its comments and its tests.
struct Source {
    /// `a::b` for src/a/b.rs and src/a/b/mod.rs.
    module: String,
    code: String,
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut directories, mut files) = (vec![root.clone()], Vec::new());
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).unwrap().flatten() {
            if entry.file_type().unwrap().is_dir() {
                directories.push(entry.path())
            } else {
                files.push(entry.path())
            }
        }
    }
    let rust = files.into_iter().filter(|file| file.extension().is_some_and(|extension| extension == "rs"));
    rust.map(|file| source(&root, &file))
        .filter(|source| !source.module.split("::").any(|part| part == "tests"))
        .collect()
}

fn source(root: &Path, file: &PathBuf) -> Source {
    let module = file.strip_prefix(root).unwrap().with_extension("").to_string_lossy().replace('/', "::");
    let module = module.trim_end_matches("::mod").to_owned();
    let module = if module == "lib" { String::new() } else { module };
    let text = fs::read_to_string(file).unwrap();
    let lines = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().lines();
    let code: Vec<&str> = lines.filter(|line| !line.trim_start().starts_with("//")).collect();
    Source { module, code: code.join("\n") }
}

fn layer(module: &str) -> u8 {
    let below = |name: &str| module == name || module.starts_with(&format!("{name}::")) || name.is_empty();
    let fits = LAYERS.iter().filter(|(name, _)| below(name));
    fits.max_by_key(|(name, _)| name.len()).expect("the empty name fits").1
}

/// Every path that begins with `crate::`, its groups taken apart: `crate::a::{b, c::d}` is `a::b`, `a::c::d`.
fn uses(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        expand("", &code[at + "crate::".len()..], &mut found);
    }
    found
}

/// Adds the paths at the start of `text` to `found`; how many bytes they take.
fn expand(prefix: &str, text: &str, found: &mut Vec<String>) -> usize {
    let word = text.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').unwrap_or(text.len());
    let path = format!("{prefix}{}", &text[..word]);
    if !text[word..].starts_with('{') || !path.ends_with("::") {
        found.push(path.trim_end_matches(':').to_owned());
        return word;
    }
    let mut at = word + 1;
    loop {
        at += text[at..].find(|c: char| !c.is_whitespace() && c != ',').expect("a group ends");
        if text[at..].starts_with('}') {
            return at + 1;
        }
        let taken = expand(&path, &text[at..], found);
        at += taken;
        // `as name`, `*` and the like.
        at += text[at..].find([',', '}']).expect("a group ends");
    }
}

#[test]
fn groups_are_taken_apart() {
    let code = "use crate::a::{self, b, c::{d, E as F}, *};\nlet x = crate::g::h(1);";
    assert_eq!(uses(code), ["a::self", "a::b", "a::c::d", "a::c::E", "a", "g::h"]);
}

#[test]
fn a_module_uses_lower_layers_only() {
    let mut wrong = Vec::new();
    for Source { module, code } in sources() {
        // The crate's root names everything.
        for used in uses(&code).iter().filter(|_| !module.is_empty()) {
            if layer(used) > layer(&module) {
                wrong.push(format!("{module} uses {used}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_child_of_a_start_uses_its_plan_and_the_calls_alone() {
    for Source { module, code } in sources().iter().filter(|source| source.module.starts_with("stage")) {
        for used in uses(code) {
            assert!(OF_STAGE.iter().any(|name| used.starts_with(name)), "{module} uses {used}");
        }
        for heap in ["Box::new", "Arc::", "Rc::", "HashMap", "BTreeMap", "println!", "log::", "format!"] {
            assert!(!code.contains(heap), "{module} has {heap}");
        }
    }
}

#[test]
fn what_is_pure_does_no_io() {
    // An address is a value, and none of the network.
    const IO: [&str; 18] = [
        "std::fs",
        "TcpStream",
        "TcpListener",
        "UdpSocket",
        "ToSocketAddrs",
        "std::env",
        "std::process",
        "std::os::unix::net",
        "std::thread",
        "nix::",
        "File::open",
        ".canonicalize()",
        "symlink_metadata()",
        ".metadata()",
        ".exists()",
        ".read_dir()",
        ".read_link()",
        "SystemTime::now",
    ];
    let below = |list: &[&str], module: &str| {
        list.iter().any(|name| module == *name || module.starts_with(&format!("{name}::")))
    };
    for Source { module, code } in
        sources().iter().filter(|source| below(&PURE, &source.module) && !below(&DOES_IO, &source.module))
    {
        for io in IO {
            assert!(!code.contains(io), "{module} has {io}");
        }
    }
}

#[test]
fn unsafe_code_is_in_sys_and_stage() {
    for Source { module, code } in sources() {
        let allowed = module.starts_with("sys") || module.starts_with("stage");
        let blocks = code.matches("unsafe {").count() + code.matches("unsafe fn").count();
        assert!(allowed || blocks == 0, "{module} has {blocks} unsafe blocks");
    }
}

#[test]
fn only_commands_print() {
    for Source { module, code } in sources().iter().filter(|source| !source.module.starts_with("cmd")) {
        for print in ["println!", "print!(", "eprintln!", "io::stdout().write"] {
            assert!(!code.contains(print), "{module} has {print}");
        }
    }
}
