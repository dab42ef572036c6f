//! Parses bytes to a [`PolicyDocument`]. No I/O; total: any input gives a document or an error that names
//! the line and the key, in time linear in its size.

use super::document::{self, PolicyDocument};
use super::faults::find_faults;
use super::parse_fault::{ParseFault, describe, line_at, strip_position};
pub use super::policy_format::PolicyFormat;
use super::validate::validate;
use super::value_line::{line_in_toml, steps_to_key};
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::text::summary;
use std::ops::Range;
use std::path::Path;

/// The largest policy file, in bytes. The longest realistic one is a hundredth of this.
pub const MAX_BYTES: usize = 1 << 20;

/// Parses one document.
///
/// # Errors
/// [`Code::Invalid`], naming `source`, the line, the key, and for an unknown key the nearest known one.
pub fn parse(source: &str, format: PolicyFormat, bytes: &[u8]) -> Result<PolicyDocument> {
    let text = decode_text(bytes).map_err(|fault| fault_error(source, fault))?;
    deserialize(format, text).map_err(|fault| faults_error(source, find_faults(format, text, fault)))
}

/// Parses one document and validates it on its own.
///
/// # Errors
/// As for [`parse`], and for values that contradict each other.
pub(super) fn parse_validated(path: &Path, bytes: &[u8]) -> Result<PolicyDocument> {
    let source = path.display().to_string();
    let format = PolicyFormat::detect(path, bytes);
    let document = parse(&source, format, bytes)?;
    validate(&document).map_err(|invalid| {
        let text = std::str::from_utf8(bytes).unwrap_or_default();
        let first = ParseFault { line: line_of(text, invalid.key), message: invalid.to_string() };
        faults_error(&source, find_faults(format, text, first))
    })?;
    Ok(document)
}

/// Converts a policy to JSON that gives the same document.
///
/// # Errors
/// As for [`parse`].
pub(super) fn to_json(source: &str, format: PolicyFormat, bytes: &[u8]) -> Result<String> {
    let plain = |text: &str| -> Result<String, String> {
        let value: serde_json::Value = match format {
            PolicyFormat::Toml => toml::from_str(text).map_err(|error| error.message().to_owned())?,
            PolicyFormat::Json => serde_json::from_str(text).map_err(|error| error.to_string())?,
        };
        Ok(value.to_string())
    };
    let plain = decode_text(bytes)
        .and_then(|text| plain(text).map_err(|what| ParseFault { line: None, message: what }));
    plain.map_err(|fault| fault_error(source, fault))
}

/// As [`parse_validated`], for JSON that [`to_json`] made in another process.
///
/// # Errors
/// As for [`parse_validated`].
pub(super) fn parse_validated_json(source: &str, json: &str) -> Result<PolicyDocument> {
    let fails = |fault: ParseFault| fault_error(source, ParseFault { line: None, ..fault });
    let document = deserialize(PolicyFormat::Json, json).map_err(fails)?;
    validate(&document).map_err(|invalid| fails(ParseFault { line: None, message: invalid.to_string() }))?;
    Ok(document)
}

/// The error for a fault in the file `source`.
pub(super) fn fault_error(source: &str, fault: ParseFault) -> Error {
    faults_error(source, vec![fault])
}

/// The error for all faults in the file `source`.
fn faults_error(source: &str, faults: Vec<ParseFault>) -> Error {
    let message = |fault: ParseFault| {
        let what = summary(&fault.message);
        match fault.line {
            Some(line) => format!("{source}:{line}: {what}"),
            None => format!("{source}: {what}"),
        }
    };
    let mut messages = faults.into_iter().map(message);
    let first = messages.next().unwrap_or_default();
    Error::new(Code::Invalid, first)
        .with_others(messages.collect())
        .hint("`saggar policy schema` lists every key and what it takes")
}

/// Decodes the bytes as text. An empty, too large or non-UTF-8 file is a fault.
fn decode_text(bytes: &[u8]) -> Result<&str, ParseFault> {
    let fault = |what: &str| ParseFault { line: None, message: what.to_owned() };
    if bytes.len() > MAX_BYTES {
        return Err(fault("is larger than 1 MiB"));
    }
    // A failed write can leave an empty file behind; reading it as "no restrictions" would be dangerous.
    if bytes.trim_ascii().is_empty() {
        return Err(fault("is empty"));
    }
    std::str::from_utf8(bytes).map_err(|at| {
        let line = line_at(bytes, at.valid_up_to());
        ParseFault { line: Some(line), message: "is not UTF-8".into() }
    })
}

fn deserialize(format: PolicyFormat, text: &str) -> Result<PolicyDocument, ParseFault> {
    match format {
        PolicyFormat::Toml => {
            let fault = |key: &str, error: &toml::de::Error| ParseFault {
                line: error.span().map(|span: Range<usize>| line_at(text.as_bytes(), span.start)),
                message: describe(key, error.message()),
            };
            let reader = toml::Deserializer::parse(text).map_err(|error| fault(".", &error))?;
            document::root_table(reader).map_err(|error| fault(&error.path().to_string(), error.inner()))
        }
        PolicyFormat::Json => {
            let mut reader = serde_json::Deserializer::from_str(text);
            let document = document::root_table(&mut reader).map_err(|error| {
                let (key, inner) = (error.path().to_string(), error.inner());
                ParseFault {
                    line: Some(inner.line()),
                    message: describe(&key, strip_position(&inner.to_string())),
                }
            })?;
            reader.end().map_err(|error| ParseFault {
                line: Some(error.line()),
                message: "has more text after its end".into(),
            })?;
            Ok(document)
        }
    }
}

/// The line of a key in a TOML text, counted from 1; the line of its table if the key itself is not found.
pub(super) fn line_of(text: &str, key: &str) -> Option<usize> {
    line_in_toml(text, &steps_to_key(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(cases: &[(PolicyFormat, &str)]) -> String {
        let complaint = |(format, text): &(PolicyFormat, &str)| match parse("f", *format, text.as_bytes()) {
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
        let toml: Vec<_> = toml.iter().map(|text| (PolicyFormat::Toml, *text)).collect();
        insta::assert_snapshot!(complaints(&toml), @r#"
        f:1: unknown key proflie, did you mean profile
        f:3: unknown key limits.memroy, did you mean limits.memory
        f:1: unknown key memory, did you mean limits.memory
        f:2: unknown key limits.profile, did you mean profile
        f:1: unknown key limit, did you mean limits
        f:2: unknown key network.hosts
        f:1: unknown key zebra
        f:1: profile: unknown profile "stritc", did you mean "strict"
        f:1: profile: must be a string, and is the number 3
        f:1: limits: must be a table, and is the number 3
        f:1: limits: must be a table, and is a list
        f:1: limits: must be a table, and is a list
        f:2: limits.memory: size "1X" has an unknown unit; write 512M (binary), 512MB (decimal) or a number of bytes
        f:2: limits.memory: size "-1" does not start with a digit; write 512M (binary), 512MB (decimal) or a number of bytes
        f:2: limits.memory: size "1.5" has a fraction; write 512M (binary), 512MB (decimal) or a number of bytes
        f:2: limits.memory: size "NaN" does not start with a digit; write 512M (binary), 512MB (decimal) or a number of bytes
        f:2: limits.cpus: number of cores "inf" is not a plain number; write 2 or 0.5
        f:2: limits.pids: must be a whole number from 0 to 4294967295, and is the number -1
        f:2: limits.pids: must be a whole number from 0 to 4294967295, and is the number 4294967296
        f:2: limits.timeout: must be a duration such as 90s, and is a table
        f:2: files.ro: must be a list, and is the string "/opt"
        f:3: files.ro[1]: "/a:b" has a DEST that is not absolute; write PATH or PATH:DEST, with \: for a colon of a path
        f:2: files.hide[0]: "../x" has a `..`; write a path below the workspace
        f:2: env.pass[0]: name of a variable "AWS_*" is a pattern; name each variable
        f:2: env.set.A=B: name of a variable "A=B" has the character '='
        f:2: env.set.A: must be a string, and is the number 1
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
        let json: Vec<_> = json.iter().map(|text| (PolicyFormat::Json, *text)).collect();
        insta::assert_snapshot!(complaints(&json), @r#"
        f:2: unknown key limits.memroy, did you mean limits.memory
        f:1: limits.memory: size "1X" has an unknown unit; write 512M (binary), 512MB (decimal) or a number of bytes
        f:1: limits: duplicate field `memory`
        f:1: limits: must be a table, and is a list
        f:1: limits: must be a table, and is a list
        f:1: limits: must be a table, and is null
        f:1: must be a table, and is a list
        f:1: limits: EOF while parsing a value
        f:1: has more text after its end
        f:1: must be a table, and is a list
        "#);
    }

    /// Every line of the error for one file.
    fn all_complaints(path: &str, text: &str) -> String {
        let error = parse_validated(Path::new(path), text.as_bytes()).unwrap_err();
        let lines = [error.to_string()].into_iter().chain(error.others().iter().cloned());
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn all_faults_are_found_in_the_order_of_the_file() {
        let toml = "profile = 5\nbanana = 1\n[limits]\npids = -3\nmemory = nan\n\n[files]\n\
                    ro = ['/opt', 3, '/usr',\n  '/a:b', '/bin', '/c:d']\nhid = ['x']\n";
        insta::assert_snapshot!(all_complaints("f.toml", toml), @r#"
        f.toml:1: profile: must be a string, and is the number 5
        f.toml:2: unknown key banana
        f.toml:4: limits.pids: must be a whole number from 0 to 4294967295, and is the number -3
        f.toml:5: limits.memory: size "nan" does not start with a digit; write 512M (binary), 512MB (decimal) or a number of bytes
        f.toml:8: files.ro[1]: must be a string, and is the number 3
        f.toml:9: files.ro[3]: "/a:b" has a DEST that is not absolute; write PATH or PATH:DEST, with \: for a colon of a path
        f.toml:9: files.ro[5]: "/c:d" has a DEST that is not absolute; write PATH or PATH:DEST, with \: for a colon of a path
        f.toml:10: unknown key files.hid, did you mean files.hide
        "#);
        let json = "{ \"profile\": 5,\n \"files\": { \"ro\": [\"/opt\", 3,\n \"/usr\", \"/a:b\"] },\n \"limits\": [],\n\
                    \"network\": { \"mdoe\": \"none\" } }";
        insta::assert_snapshot!(all_complaints("f.json", json), @r#"
        f.json:1: profile: must be a string, and is the number 5
        f.json:3: files.ro[1]: must be a string, and is the number 3
        f.json:3: files.ro[3]: "/a:b" has a DEST that is not absolute; write PATH or PATH:DEST, with \: for a colon of a path
        f.json:4: limits: must be a table, and is a list
        f.json:5: unknown key network.mdoe, did you mean network.mode
        "#);
        // Several on one line, and numbers of which JSON has none.
        let line = "{ \"profile\": 5, \"banana\": 1, \"limits\": { \"pids\": -3 } }";
        insta::assert_snapshot!(all_complaints("f.json", line), @r#"
        f.json:1: profile: must be a string, and is the number 5
        f.json:1: unknown key banana
        f.json:1: limits.pids: must be a whole number from 0 to 4294967295, and is the number -3
        "#);
        let numbers = "limits = { pids = 18446744073709551616, memory = nan, nofile = 99999999999999999999 }\nprofile = 5\nx = 1\n";
        insta::assert_snapshot!(all_complaints("f.toml", numbers), @r#"
        f.toml:1: limits.memory: size "NaN" does not start with a digit; write 512M (binary), 512MB (decimal) or a number of bytes
        f.toml:1: limits.nofile: must be a whole number from 0 to 4294967295, and is the number 1e+20
        f.toml:1: limits.pids: must be a whole number from 0 to 4294967295, and is the number 1.8446744073709552e+19
        f.toml:2: profile: must be a string, and is the number 5
        f.toml:3: unknown key x
        "#);
        let syntax = "profile = \n[limits]\nmemory = '1G'\nmemory = '2G'\n";
        insta::assert_snapshot!(all_complaints("f.toml", syntax), @r#"
        f.toml:1: string values must be quoted, expected literal string
        f.toml:4: duplicate key
        "#);
        let contradictions =
            "[limits]\nmemory = '1G'\nmemory_high = '2G'\npids = 0\n[bridge]\nremembered = 0\n";
        insta::assert_snapshot!(all_complaints("f.toml", contradictions), @r#"
        f.toml:3: limits.memory_high: 2G is never reached below limits.memory = 1G; give less
        f.toml:4: limits.pids: 0 leaves no process to run
        f.toml:6: bridge.remembered: 0 is not in 1 to 1000000
        "#);
    }

    #[test]
    fn the_number_of_faults_that_are_reported_has_a_bound() {
        let text: String = (0..1000).map(|number| format!("banana{number} = 1\n")).collect();
        let error = parse_validated(Path::new("f.toml"), text.as_bytes()).unwrap_err();
        let [listed @ .., last] = error.others() else { panic!("{error}") };
        assert_eq!((listed.len(), last.as_str()), (19, "f.toml: has more errors than are listed"));
        let large = "x".repeat(70_000);
        let error =
            parse_validated(Path::new("f.toml"), format!("#{large}\na = 1\nb = 2\n").as_bytes()).unwrap_err();
        assert_eq!((error.to_string().as_str(), error.others().len()), ("f.toml:2: unknown key a", 0));
    }

    #[test]
    fn toml_and_json_give_the_same_document() {
        let toml = "agent_cmd = \"a 'b c'\"\nlimits = { memory = 1048576, cpus = 1.5, timeout = '1h' }\nenv.set.A = '1'";
        let json = r#" { "agent_cmd": ["a", "b c"], "limits": { "memory": "1M", "cpus": "1.5", "timeout": 3600 },
                       "env": { "set": { "A": "1" } } }"#;
        let read = |path: &str, text: &str| {
            parse(path, PolicyFormat::detect(Path::new(path), text.as_bytes()), text.as_bytes()).unwrap()
        };
        assert_eq!(read("a.toml", toml), read("a.toml", json));
        assert_eq!(read("a.json", json), read("a", json));
        assert!(
            parse("a.json", PolicyFormat::detect(Path::new("a.json"), toml.as_bytes()), toml.as_bytes())
                .is_err()
        );
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
