//! What Cargo cannot say of the crates: a module of the program or of `crates/sandbox` uses lower layers of its own crate
//! only, as the map in its `lib.rs` says; pure modules do no I/O; the child of a start has no heap; and every cycle of
//! files that import each other has its reason in [`CYCLES`].
//!
//! Source text is read, not types. Every path counts that starts with `crate`, `super`, `self` or a module of the file,
//! in a `use` as in an expression, with its groups taken apart; comments, literals and tests do not count. A path leads
//! to the file that defines the name: `pub use` is followed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::support::source::{CRATES, Piece, crate_sources, pieces};

/// The layers of the modules of a crate, from its root.
const LAYERS: [(&str, &[(&str, u8)]); 2] = [
    (
        "crates/sandbox/src",
        &[
            ("spec", 1),
            ("host", 1),
            ("plan", 2),
            ("launch", 3),
            ("stage", 3),
            ("cgroup", 3),
            ("resctrl", 3),
            ("state", 3),
        ],
    ),
    ("src", &[("prove", 3), ("mcp", 4), ("supervise", 4), ("app", 5), ("demo", 5), ("cli", 6), ("cmd", 6)]),
];

/// All that the child of a start may use of its own crate: its plan, and the type of a program.
const OF_STAGE: [&str; 3] = ["plan", "stage", "spec::Program"];

/// All that it may use of `crates/sys`: calls, and nothing that makes text or errors.
const CALLS_OF_STAGE: [&str; 24] = [
    "Errno",
    "SysResult",
    "args",
    "caps",
    "check",
    "clone",
    "confine",
    "file",
    "futex",
    "keyring",
    "landlock",
    "mount",
    "namespace",
    "net",
    "pidfd",
    "process",
    "pty",
    "quota",
    "redirect",
    "reject_sniffer",
    "scm",
    "seccomp",
    "service_socket",
    "spawn",
];

/// What does no I/O, and the files of it that do; in a crate of its own after the name of the crate.
const PURE: [&str; 6] =
    ["sandbox::spec", "sandbox::plan", "bridge::proto", "bridge::adapter", "egress", "policy"];
const DOES_IO: [&str; 7] = [
    "sandbox::spec::oci::load",
    "egress::api",
    "egress::io",
    "egress::relay",
    "egress::service",
    "policy::load",
    "policy::testing",
];

/// Files that import each other, sorted, and why they may. A module and the files below it may as well: the file with
/// the module's name declares and re-exports them, and they use its types.
const CYCLES: &[(&[&str], &str)] = &[
    (
        &["app::mailbox", "app::model_api", "app::prepare"],
        "preparing a start configures the API and the mailbox; their paths are prepared the same way",
    ),
    (
        &["app::session::end", "app::session::remove"],
        "end --remove removes; both report a busy session alike",
    ),
    (
        &["bridge::control::files", "bridge::control::method"],
        "file methods are methods, and parse their parameters alike",
    ),
    (
        &["bridge::core::agent", "bridge::core::turn"],
        "a turn ends with its agent, and an agent with its turn",
    ),
    (
        &["bridge::core::connection", "bridge::core::dialect", "bridge::core::spool"],
        "a connection has a dialect and a replay position; both write its replies",
    ),
    (&["bridge::proto::command", "bridge::proto::event"], "commands and events answer each other by id"),
    (
        &["sandbox::cgroup::location", "sandbox::cgroup::systemd"],
        "a location in a slice is checked by the driver that uses it",
    ),
    (
        &["cmd::explain::network", "cmd::explain::report"],
        "a report has a network section of the report's values",
    ),
    (
        &["session::workspace_scan::repository", "session::workspace_scan::walk"],
        "a walk meets repositories, and a repository is walked",
    ),
    (
        &["sandbox::launch::container::channel", "sandbox::launch::container::time_offsets"],
        "the channel reports the errors of time offsets, which quote text of the system alike",
    ),
    (
        &["sandbox::plan::container::filesystem", "sandbox::plan::container::mount"],
        "mount options are of a mount or its file system",
    ),
    (
        &["policy::effective", "policy::environment", "policy::permission"],
        "the effective policy has rules of the environment and of permissions, which are decided by it",
    ),
    (
        &["policy::provenance", "policy::tighten"],
        "the program of a folder is checked when it tightens, and tightening names its provenance",
    ),
    (&["policy::validate", "policy::validate_limits"], "one check in two files; they share its error"),
    (
        &["prove::attempts::inherited", "prove::context", "prove::expectation", "prove::harness"],
        "the harness starts what the context names, and expectations depend on both",
    ),
    (&["session::diff", "session::workspace_origin"], "changes are read by their origin, which lists them"),
    (&["session::snapshot::sources", "session::snapshot::write"], "a snapshot is written from its sources"),
    (
        &["sandbox::spec::agent", "sandbox::spec::limits"],
        "an agent's limits name the layer that they come from",
    ),
    (
        &["sandbox::stage::agent::hide", "sandbox::stage::agent::overlay", "sandbox::stage::agent::steps"],
        "an overlay and what hides a path are steps, and open mount points as steps do",
    ),
    (
        &["supervise::service_process", "supervise::worker"],
        "a worker with privileges starts the process of a service",
    ),
    (
        &["supervise::memory", "supervise::privileged_operations", "supervise::worker::processes"],
        "an operation runs here or in a worker, by the same functions",
    ),
];

/// A file of a crate, without its comments, literals and tests.
struct Source {
    /// `a::b` for src/a/b.rs and src/a/b/mod.rs.
    module: String,
    code: String,
}

/// The files of all crates; those of other crates than the program after the name of the crate.
fn sources_of_all() -> impl Iterator<Item = Source> {
    CRATES.into_iter().flat_map(|(name, src)| {
        sources_in(src)
            .into_iter()
            .map(move |Source { module, code }| Source { module: in_crate(name, &module), code })
    })
}

/// A module with the name of its crate.
fn in_crate(name: &str, module: &str) -> String {
    match (name, module) {
        ("saggar", module) => module.to_owned(),
        (name, "") => name.to_owned(),
        (name, module) => format!("{name}::{module}"),
    }
}

fn sources_in(src: &str) -> Vec<Source> {
    let module = |path: PathBuf| {
        let module = path.with_extension("").to_string_lossy().replace('/', "::");
        let module = module.trim_end_matches("::mod").to_owned();
        if module == "lib" { String::new() } else { module }
    };
    let code = |text: String| without_tests(&without_comments_and_literals(&text));
    crate_sources(src)
        .into_iter()
        .map(|(path, text)| Source { module: module(path), code: code(text) })
        .collect()
}

/// Rust code with comments removed and literals emptied.
fn without_comments_and_literals(text: &str) -> String {
    let code = pieces(text).into_iter().map(|piece| match piece {
        Piece::Code(code) => code,
        Piece::Comment => "",
        Piece::Literal(_) => "\"\"",
        Piece::Character => "' '",
    });
    code.collect()
}

/// Code without the items that only tests have.
fn without_tests(code: &str) -> String {
    let mut parts = code.split("#[cfg(test)]");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |kept, part| kept + &part[item_len(part)..])
}

/// How many bytes the first item takes: to its semicolon, or to the brace that closes its body.
fn item_len(code: &str) -> usize {
    let mut depth = 0;
    let ends = |byte: u8| {
        depth += i32::from(byte == b'{') - i32::from(byte == b'}');
        depth == 0 && matches!(byte, b';' | b'}')
    };
    code.bytes().position(ends).map_or(code.len(), |at| at + 1)
}

fn layer(layers: &[(&str, u8)], module: &str) -> Option<u8> {
    let top = module.split("::").next().unwrap_or_default();
    layers.iter().find(|(name, _)| *name == top).map(|(_, layer)| *layer)
}

/// The modules that a file declares.
fn declared(code: &str) -> BTreeSet<&str> {
    let lines = code.lines().filter_map(|line| line.trim().strip_suffix(';'));
    lines
        .filter_map(|line| line.rsplit_once("mod "))
        .filter(|(before, _)| is_visibility(before))
        .map(|(_, name)| name)
        .collect()
}

fn is_visibility(before: &str) -> bool {
    before.is_empty() || before == "pub " || (before.starts_with("pub(") && before.ends_with(") "))
}

/// Every path of a file that names a module of the crate, from the crate's root.
fn uses(Source { module, code }: &Source) -> Vec<String> {
    let starts = declared(code).into_iter().chain(["crate", "super", "self"]);
    paths(code, starts).iter().map(|path| absolute(module, path)).collect()
}

/// Every path that starts with one of these names.
fn paths<'a>(code: &str, starts: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut found = Vec::new();
    for start in starts.into_iter().map(|start| format!("{start}::")) {
        let is_start = |(at, _): &(usize, &str)| {
            !code[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':')
        };
        for (at, _) in code.match_indices(&start).filter(is_start) {
            expand("", &code[at..], &mut found);
        }
    }
    found
}

/// A path as seen from the crate's root.
fn absolute(module: &str, path: &str) -> String {
    let mut parts: Vec<&str> = module.split("::").filter(|part| !part.is_empty()).collect();
    for part in path.split("::") {
        match part {
            "crate" => parts.clear(),
            "super" => drop(parts.pop()),
            "self" => {}
            part => parts.push(part),
        }
    }
    parts.join("::")
}

/// What a file makes public under its own path: the name, and the path from the crate's root.
fn exports(Source { module, code }: &Source) -> BTreeMap<String, String> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("use ") {
        let line = code[..at].rfind('\n').map_or(0, |end| end + 1);
        let before = code[line..at].trim_start();
        if !before.is_empty() && is_visibility(before) {
            expand("", &code[at + "use ".len()..], &mut found);
        }
    }
    let own = |path: &&String| {
        let start = path.split("::").next().unwrap_or_default();
        ["crate", "super", "self"].contains(&start) || declared(code).contains(start)
    };
    let named =
        |path: &String| (path.rsplit("::").next().unwrap_or_default().to_owned(), absolute(module, path));
    found.iter().filter(own).map(named).collect()
}

/// The file that defines what a path names.
fn file_of<'a>(path: &str, files: &'a BTreeMap<String, BTreeMap<String, String>>) -> &'a str {
    let mut path = path.to_owned();
    // More than any chain of `pub use`.
    for _ in 0..8 {
        // The root's file is what is left when no other is above.
        let above = path.match_indices("::").map(|(at, _)| &path[..at]).chain([path.as_str()]);
        let above = [""].into_iter().chain(above);
        let Some((file, exports)) = above.filter_map(|part| files.get_key_value(part)).last() else { break };
        let rest = path[file.len()..].trim_start_matches(':');
        let (name, below) = rest.split_once("::").unwrap_or((rest, ""));
        match exports.get(name) {
            Some(origin) => path = format!("{origin}::{below}").trim_end_matches(':').to_owned(),
            None => return file,
        }
    }
    ""
}

/// From each file to the files that it uses, but for those above and below it.
fn graph(sources: &[Source]) -> BTreeMap<String, BTreeSet<String>> {
    let files: BTreeMap<_, _> =
        sources.iter().map(|source| (source.module.clone(), exports(source))).collect();
    let is_below = |a: &str, b: &str| b.is_empty() || a == b || a.starts_with(&format!("{b}::"));
    let mut graph = BTreeMap::new();
    for source in sources {
        let used = uses(source).into_iter().map(|path| file_of(&path, &files).to_owned());
        let apart = used.filter(|file| !is_below(file, &source.module) && !is_below(&source.module, file));
        graph.insert(source.module.clone(), apart.collect());
    }
    graph
}

/// The files that `from` leads to.
fn reached<'a>(graph: &'a BTreeMap<String, BTreeSet<String>>, from: &'a str) -> BTreeSet<&'a str> {
    let (mut found, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(file) = next.pop() {
        let used = graph.get(file).into_iter().flatten();
        next.extend(used.map(String::as_str).filter(|used| found.insert(*used)));
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
fn every_form_of_a_path_is_seen() {
    let code = "pub mod k;\nuse crate::a::{self, b, c::{d, E as F}, *};\nuse super::{f};\nlet x = self::g::h(k::l());";
    let seen = uses(&Source { module: "m::n".to_owned(), code: code.to_owned() });
    assert_eq!(seen, ["m::n::k::l", "a", "a::b", "a::c::d", "a::c::E", "a", "m::f", "m::n::g::h"]);
}

#[test]
fn comments_literals_and_tests_do_not_count() {
    let code = "a // b\n\"c\\\"\" /* d */ r#\"e\"f\"# '\"' #[cfg(test)] mod tests { x; } g";
    assert_eq!(without_tests(&without_comments_and_literals(code)), "a \n\"\"  r#\"\" ' '  g");
}

#[test]
fn every_cycle_of_files_has_its_reason() {
    let mut found = BTreeSet::new();
    for (name, src) in CRATES {
        let graph = graph(&sources_in(src));
        for file in graph.keys() {
            let cycle = reached(&graph, file)
                .into_iter()
                .filter(|other| reached(&graph, other).contains(file.as_str()));
            found.insert(cycle.map(|file| in_crate(name, file)).collect::<Vec<_>>());
        }
    }
    found.remove(&Vec::new());
    let names = |files: &[&str]| files.iter().map(|file| (*file).to_owned()).collect();
    let listed: BTreeSet<Vec<String>> = CYCLES.iter().map(|(files, _)| names(files)).collect();
    let (new, gone): (Vec<_>, Vec<_>) =
        (found.difference(&listed).collect(), listed.difference(&found).collect());
    assert!(new.is_empty() && gone.is_empty(), "not listed: {new:#?}\nlisted, and no cycle: {gone:#?}");
}

#[test]
fn a_module_uses_lower_layers_only() {
    let mut wrong = Vec::new();
    for (src, layers) in LAYERS {
        let sources = sources_in(src);
        let root = sources.iter().find(|source| source.module.is_empty()).unwrap();
        let named: BTreeSet<&str> = layers.iter().map(|(name, _)| *name).collect();
        assert_eq!(declared(&root.code), named, "the modules of {src}");
        // The crate's root names everything.
        for source in &sources {
            let Some(own) = layer(layers, &source.module) else { continue };
            for used in uses(source).iter().filter(|used| layer(layers, used).is_some_and(|used| used > own))
            {
                wrong.push(format!("{} uses {used}", source.module));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_child_of_a_start_uses_its_plan_and_the_calls_alone() {
    let sources = sources_in("crates/sandbox/src");
    for source in sources.iter().filter(|source| source.module.starts_with("stage")) {
        let Source { module, code } = source;
        for used in uses(source) {
            assert!(OF_STAGE.iter().any(|name| used.starts_with(name)), "{module} uses {used}");
        }
        for used in paths(code, ["saggar_sys"]) {
            let is_call = CALLS_OF_STAGE.iter().any(|name| used.split("::").nth(1) == Some(name));
            assert!(is_call, "{module} uses {used}");
        }
        let of_crates = code.match_indices("saggar_").map(|(at, _)| (&code[..at], &code[at..]));
        for (before, used) in of_crates {
            let is_seen = used.starts_with("saggar_sys::") && !before.ends_with("::");
            assert!(is_seen, "{module} uses another crate, or this test does not see what of it");
        }
        for heap in ["Box::new", "Arc::", "Rc::", "HashMap", "BTreeMap", "println!", "log::", "format!"] {
            assert!(!code.contains(heap), "{module} has {heap}");
        }
    }
}

#[test]
fn pure_modules_do_no_io() {
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
        sources_of_all().filter(|source| below(&PURE, &source.module) && !below(&DOES_IO, &source.module))
    {
        // What bytes a path has is no I/O.
        let code = code.replace("std::os::unix::ffi::", "");
        for io in IO {
            assert!(!code.contains(io), "{module} has {io}");
        }
    }
}

/// Crates that forbid it as a whole need no look, and that of the calls is there for it.
#[test]
fn unsafe_code_is_in_the_calls_the_stage_and_the_start_of_the_program() {
    const ALLOWED: [(&str, &str); 2] = [("crates/sandbox/src", "stage"), ("src", "libc_start")];
    for (src, allowed) in ALLOWED {
        for Source { module, code } in sources_in(src) {
            let blocks = code.matches("unsafe {").count() + code.matches("unsafe fn").count();
            assert!(module.starts_with(allowed) || blocks == 0, "{module} has {blocks} unsafe blocks");
        }
    }
}

#[test]
fn only_commands_print() {
    for Source { module, code } in sources_of_all().filter(|source| !source.module.starts_with("cmd")) {
        for print in ["println!", "print!(", "eprintln!", "io::stdout().write"] {
            assert!(!code.contains(print), "{module} has {print}");
        }
    }
}
