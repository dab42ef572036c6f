//! Bytes to a [`Document`]. Pure, and total: any bytes give a document or an error that names the line
//! and the key, in time proportional to their number.

use super::document::{self, Document};
use super::schema;
use super::suggest;
use crate::error::{Code, Error, Result};
use crate::text::summary;
use std::ops::Range;
use std::path::Path;

/// The largest policy file, in bytes. The longest sensible one is a hundredth of this.
pub const MAX_BYTES: usize = 1 << 20;

/// How a policy file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// TOML 1.0
    Toml,
    /// JSON
    Json,
}

impl Format {
    /// The format of this file: JSON when its name ends in `.json` or its first visible byte is `{`, which
    /// no TOML begins with.
    pub fn of(path: &Path, bytes: &[u8]) -> Format {
        let named = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
        if named || bytes.trim_ascii_start().first() == Some(&b'{') { Format::Json } else { Format::Toml }
    }
}

/// Where in a file something is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    /// The line, from 1.
    pub(super) line: Option<usize>,
    /// What is wrong, with the key.
    pub(super) what: String,
}

/// Reads one document.
///
/// # Errors
/// [`Code::Invalid`], naming `source`, the line, the key, and for an unknown key the nearest known one.
pub fn parse(source: &str, format: Format, bytes: &[u8]) -> Result<Document> {
    text(bytes).and_then(|text| document(format, text)).map_err(|fault| error(source, fault))
}

/// The error for a fault in this file.
pub(super) fn error(source: &str, fault: Fault) -> Error {
    let what = summary(&fault.what);
    let message = match fault.line {
        Some(line) => format!("{source}:{line}: {what}"),
        None => format!("{source}: {what}"),
    };
    Error::new(Code::Invalid, message).hint("`saggar policy schema` lists every key and what it takes")
}

/// The bytes as text, if they can be a policy at all.
fn text(bytes: &[u8]) -> Result<&str, Fault> {
    let fault = |what: &str| Fault { line: None, what: what.to_owned() };
    if bytes.len() > MAX_BYTES {
        return Err(fault("is larger than 1 MiB"));
    }
    // An empty file is what a failed write leaves behind: to read it as "no restrictions" would be a trap.
    if bytes.trim_ascii().is_empty() {
        return Err(fault("is empty"));
    }
    std::str::from_utf8(bytes).map_err(|at| {
        let line = line_at(bytes, at.valid_up_to());
        Fault { line: Some(line), what: "is not UTF-8".into() }
    })
}

fn document(format: Format, text: &str) -> Result<Document, Fault> {
    match format {
        Format::Toml => {
            let fault = |key: &str, error: &toml::de::Error| Fault {
                line: error.span().map(|span: Range<usize>| line_at(text.as_bytes(), span.start)),
                what: describe(key, error.message()),
            };
            let reader = toml::Deserializer::parse(text).map_err(|error| fault(".", &error))?;
            whole(reader).map_err(|error| fault(&error.path().to_string(), error.inner()))
        }
        Format::Json => {
            let mut reader = serde_json::Deserializer::from_str(text);
            let document = whole(&mut reader).map_err(|error| {
                let (key, inner) = (error.path().to_string(), error.inner());
                Fault { line: Some(inner.line()), what: describe(&key, without_place(&inner.to_string())) }
            })?;
            reader.end().map_err(|error| Fault {
                line: Some(error.line()),
                what: "has more text after its end".into(),
            })?;
            Ok(document)
        }
    }
}

/// Reads the whole file as one table, and keeps the path to what is wrong in it.
fn whole<'de, D: serde::Deserializer<'de>>(
    reader: D,
) -> Result<Document, serde_path_to_error::Error<D::Error>> {
    let mut track = serde_path_to_error::Track::new();
    document::table(serde_path_to_error::Deserializer::new(reader, &mut track))
        .map_err(|error| serde_path_to_error::Error::new(track.path(), error))
}

/// The message of a parser, said of a key.
fn describe(key: &str, message: &str) -> String {
    // What stands beside no key is a fault of the syntax.
    if key == "." {
        return message.to_owned();
    }
    let keys = schema::keys();
    let is_unknown = message.starts_with("unknown field") && !keys.iter().any(|known| known == key);
    if !is_unknown {
        return format!("{key}: {message}");
    }
    match nearest_key(key, &keys) {
        Some(near) => format!("unknown key {key}, did you mean {near}"),
        None => format!("unknown key {key}"),
    }
}

/// The known key that this one was meant to be: the right name in the wrong table, or a slip of the pen, in
/// its own table first.
fn nearest_key<'a>(key: &str, keys: &'a [String]) -> Option<&'a str> {
    fn split(key: &str) -> (&str, &str) {
        key.rsplit_once('.').unwrap_or(("", key))
    }
    let (table, name) = split(key);
    let known = || keys.iter().map(|known| (known.as_str(), split(known)));
    let full = |near: &str| known().find(|(_, (_, name))| *name == near).map(|(known, _)| known);
    let near_in = |table: &str| {
        let near = suggest::nearest(name, known().filter(|(_, at)| at.0 == table).map(|(_, at)| at.1))?;
        known().find(|(_, at)| *at == (table, near)).map(|(known, _)| known)
    };
    full(name)
        .or_else(|| near_in(table))
        .or_else(|| suggest::nearest(key, known().map(|(_, (table, _))| table)))
        .or_else(|| full(suggest::nearest(name, known().map(|(_, (_, name))| name))?))
}

/// The message of serde_json without the line and column at its end, which stand at the front of ours.
fn without_place(message: &str) -> &str {
    message.rfind(" at line ").map_or(message, |end| &message[..end])
}

/// The line of a key in a TOML text, from 1; the line of its table when the key itself is not found.
pub(super) fn line_of(text: &str, key: &str) -> Option<usize> {
    let table = toml::de::DeTable::parse(text).ok()?;
    let mut table = Some(table.get_ref());
    let mut found = None;
    for part in key.split('.') {
        let entry = table.and_then(|table| table.iter().find(|(name, _)| name.get_ref() == part));
        let Some((name, value)) = entry else { break };
        found = Some(line_at(text.as_bytes(), name.span().start));
        table = value.get_ref().as_table();
    }
    found
}

/// The line, from 1, of the byte at `offset`.
fn line_at(bytes: &[u8], offset: usize) -> usize {
    1 + bytes.iter().take(offset).filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(cases: &[(Format, &str)]) -> String {
        let complaint = |(format, text): &(Format, &str)| match parse("f", *format, text.as_bytes()) {
            Ok(document) => panic!("{text:?} is taken: {document:?}"),
            Err(error) => error.to_string(),
        };
        cases.iter().map(complaint).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn errors_name_file_line_and_key_and_the_nearest_known_one() {
        let toml = [
            "proflie = 'strict'",
            "# one\n[limits]\nmemroy = '1G'",
            "memory = '1G'",
            "[limits]\nprofile = 'strict'",
            "[limit]\nmemory = '1G'",
            "[network]\nhosts = ['example.org']",
            "zebra = 1",
            "profile = 'stritc'",
            "profile = 3",
            "limits = 3",
            "limits = []",
            "[[limits]]\npids = 1",
            "[limits]\nmemory = '1X'",
            "[limits]\nmemory = -1",
            "[limits]\nmemory = 1.5",
            "[limits]\nmemory = nan",
            "[limits]\ncpus = inf",
            "[limits]\npids = -1",
            "[limits]\npids = 4294967296",
            "[limits]\ntimeout = 2026-01-01",
            "[files]\nro = '/opt'",
            "[files]\nro = ['/opt',\n  '/a:b']",
            "[files]\nhide = ['../x']",
            "[env]\npass = ['AWS_*']",
            "[env]\nset = { 'A=B' = '1' }",
            "[env]\nset = { A = 1 }",
            "agent_cmd = ''",
            "agent_cmd = \"sh -c 'x\"",
            "[protections]\nprefer = ['seccmop']",
            "[sandbox]\nid_range = '9-1'",
            "[bridge]\nsocket = '/tmp/{uid}'",
            "[limits]\nmemory = '1G'\nmemory = '2G'",
            "[limits]\nmemory = ",
        ];
        let toml: Vec<_> = toml.iter().map(|text| (Format::Toml, *text)).collect();
        insta::assert_snapshot!(complaints(&toml), @r#"
        f:1: unknown key proflie, did you mean profile
        f:3: unknown key limits.memroy, did you mean limits.memory
        f:1: unknown key memory, did you mean limits.memory
        f:2: unknown key limits.profile, did you mean profile
        f:1: unknown key limit, did you mean limits
        f:2: unknown key network.hosts
        f:1: unknown key zebra
        f:1: profile: unknown profile "stritc", did you mean "strict"
        f:1: profile: invalid type: integer `3`, expected a string
        f:1: limits: invalid type: integer `3`, expected a table
        f:1: limits: invalid type: sequence, expected a table
        f:1: limits: invalid type: sequence, expected a table
        f:2: limits.memory: size "1X" has an unknown unit; write 512M (binary), 512MB (decimal) or a number of bytes
        f:2: limits.memory: size "-1" does not start with a digit; write 512M (binary), 512MB (decimal) or a number of bytes
        f:2: limits.memory: size "1.5" has a fraction; write 512M (binary), 512MB (decimal) or a number of bytes
        f:2: limits.memory: size "NaN" does not start with a digit; write 512M (binary), 512MB (decimal) or a number of bytes
        f:2: limits.cpus: number of cores "inf" is not a plain number; write 2 or 0.5
        f:2: limits.pids: invalid value: integer `-1`, expected u32
        f:2: limits.pids: invalid value: integer `4294967296`, expected u32
        f:2: limits.timeout: invalid type: map, expected a duration such as 90s
        f:2: files.ro: invalid type: string "/opt", expected a sequence
        f:3: files.ro[1]: "/a:b" has a DEST that is not absolute; write PATH or PATH:DEST
        f:2: files.hide[0]: "../x" has a `..`; write a path below the workspace
        f:2: env.pass[0]: name of a variable "AWS_*" is a pattern; name each variable
        f:2: env.set.A=B: name of a variable "A=B" has the character '='
        f:2: env.set.A: invalid type: integer `1`, expected a string
        f:1: agent_cmd: a command needs a program
        f:1: agent_cmd: command "sh -c 'x" has an open quote
        f:2: protections.prefer[0]: unknown protection "seccmop", did you mean "seccomp"
        f:2: sandbox.id_range: id range "9-1" reaches into the ids of people and services; write FIRST-LAST
        f:2: bridge.socket: template "/tmp/{uid}" has a brace that is neither {id} nor {short_id}
        f:3: duplicate key
        f:2: string values must be quoted, expected literal string
        "#);
    }

    #[test]
    fn json_has_the_same_errors() {
        let json = [
            "{ \"limits\":\n { \"memroy\": 1 } }",
            "{ \"limits\": { \"memory\": \"1X\" } }",
            "{ \"limits\": { \"memory\": 1, \"memory\": 2 } }",
            "{ \"limits\": [] }",
            "{ \"limits\": [1] }",
            "{ \"limits\": null }",
            "[\"nesting\"]",
            "{ \"limits\": ",
            "{} {}",
            "[]",
        ];
        let json: Vec<_> = json.iter().map(|text| (Format::Json, *text)).collect();
        insta::assert_snapshot!(complaints(&json), @r#"
        f:2: unknown key limits.memroy, did you mean limits.memory
        f:1: limits.memory: size "1X" has an unknown unit; write 512M (binary), 512MB (decimal) or a number of bytes
        f:1: limits: duplicate field `memory`
        f:1: limits: invalid type: sequence, expected a table
        f:1: limits: invalid type: sequence, expected a table
        f:1: limits: invalid type: null, expected a table
        f:1: invalid type: sequence, expected a table
        f:1: limits: EOF while parsing a value
        f:1: has more text after its end
        f:1: invalid type: sequence, expected a table
        "#);
    }

    #[test]
    fn toml_and_json_give_the_same_document() {
        let toml = "agent_cmd = \"a 'b c'\"\nlimits = { memory = 1048576, cpus = 1.5, timeout = '1h' }\nenv.set.A = '1'";
        let json = r#" { "agent_cmd": ["a", "b c"], "limits": { "memory": "1M", "cpus": "1.5", "timeout": 3600 },
                       "env": { "set": { "A": "1" } } }"#;
        let read = |path: &str, text: &str| {
            parse(path, Format::of(Path::new(path), text.as_bytes()), text.as_bytes()).unwrap()
        };
        assert_eq!(read("a.toml", toml), read("a.toml", json));
        assert_eq!(read("a.json", json), read("a", json));
        assert!(parse("a.json", Format::of(Path::new("a.json"), toml.as_bytes()), toml.as_bytes()).is_err());
    }

    #[test]
    fn lines_are_those_of_the_key_or_its_table() {
        let text = "profile = 'strict'\n\n[limits]\npids = 1\n\n[env]\nset = { A = '1' }\nx.y = 2";
        assert_eq!(line_of(text, "profile"), Some(1));
        assert_eq!(line_of(text, "limits.pids"), Some(4));
        assert_eq!(line_of(text, "limits.memory"), Some(3));
        assert_eq!(line_of(text, "env.set"), Some(7));
        assert_eq!(line_of(text, "env.x.y"), Some(8));
        assert_eq!(line_of(text, "absent"), None);
        assert_eq!(line_of("{}", "limits"), None);
    }
}
