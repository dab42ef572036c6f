//! Finds all faults of a policy file, for one that has any. Each is found as the first one is, after the values of the
//! earlier ones were removed.

use super::document::{self, PolicyDocument};
use super::parse_fault::{ParseFault, describe, line_at, strip_position};
use super::policy_format::PolicyFormat;
use super::validate::validate;
use super::value_line::{Step, line_of_value, steps_to_key};
use serde_json::Value;
use serde_path_to_error::{Path, Segment};
use toml::de::{DeTable, DeValue};

/// The largest number of faults of one file that are reported.
const MAX_FAULTS: usize = 20;
/// The largest file of which all faults are found, in bytes: each costs one more pass.
const MAX_LENGTH: usize = 64 << 10;

/// All faults of `text`, in the order of the file, of which `first` is one; of a large file only that one.
pub(super) fn find_faults(format: PolicyFormat, text: &str, first: ParseFault) -> Vec<ParseFault> {
    if text.len() > MAX_LENGTH {
        return vec![first];
    }
    let mut faults = match read_tree(format, text) {
        Ok(mut tree) => {
            let faults = find_wrong_values(format, text, &mut tree);
            if faults.is_empty() { find_contradictions(format, text, &mut tree) } else { faults }
        }
        Err(faults) => faults,
    };
    let has_more = faults.len() >= MAX_FAULTS;
    // The first one is that of the parser of the format, which knows more of its values.
    let key = |fault: &ParseFault| fault.message.split(": ").next().map(str::to_owned);
    let is_first = |fault: &ParseFault| {
        fault.line.is_none_or(|line| Some(line) == first.line) && key(fault) == key(&first)
    };
    if let Some(at) = faults.iter().position(is_first) {
        faults.remove(at);
    }
    faults.insert(0, first);
    faults.sort_by_key(|fault| fault.line);
    if has_more {
        faults.push(ParseFault { line: None, message: "has more errors than are listed".to_owned() });
    }
    faults
}

/// The file as a tree, or its faults of syntax.
fn read_tree(format: PolicyFormat, text: &str) -> Result<Value, Vec<ParseFault>> {
    match format {
        PolicyFormat::Json => serde_json::from_str(text).map_err(|_| Vec::new()),
        PolicyFormat::Toml => {
            let (table, errors) = DeTable::parse_recoverable(text);
            let faults: Vec<ParseFault> = errors
                .iter()
                .take(MAX_FAULTS)
                .map(|error| ParseFault {
                    line: error.span().map(|span| line_at(text.as_bytes(), span.start)),
                    message: error.message().to_owned(),
                })
                .collect();
            if !faults.is_empty() {
                return Err(faults);
            }
            Ok(tree_of_table(table.get_ref()))
        }
    }
}

fn tree_of_table(table: &DeTable<'_>) -> Value {
    let entries =
        table.iter().map(|(name, value)| (name.get_ref().to_string(), tree_of_value(value.get_ref())));
    Value::Object(entries.collect())
}

/// The value in JSON. A number that JSON does not have becomes its text, which no key takes in place of a number.
fn tree_of_value(value: &DeValue<'_>) -> Value {
    let number = |text: &str| Value::String(text.to_owned());
    match value {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Integer(integer) => {
            let (digits, radix) = (integer.as_str(), integer.radix());
            let signed = i64::from_str_radix(digits, radix).map(Value::from);
            let whole = signed.or_else(|_| u64::from_str_radix(digits, radix).map(Value::from));
            // Larger than that, it is not exact, and no key takes it.
            whole.unwrap_or_else(|_| {
                digits.parse().map_or_else(|_| number(digits), |large: f64| Value::from(large))
            })
        }
        DeValue::Float(float) => {
            let finite = float.as_str().parse::<f64>().ok().and_then(serde_json::Number::from_f64);
            finite.map_or_else(|| number(float.as_str()), Value::Number)
        }
        DeValue::Boolean(value) => Value::Bool(*value),
        DeValue::Datetime(time) => Value::String(time.to_string()),
        DeValue::Array(list) => list.iter().map(|value| tree_of_value(value.get_ref())).collect(),
        DeValue::Table(table) => tree_of_table(table),
    }
}

/// Keys that do not exist, and values of the wrong type.
fn find_wrong_values(format: PolicyFormat, text: &str, tree: &mut Value) -> Vec<ParseFault> {
    let (mut faults, mut removed) = (Vec::new(), Vec::new());
    while faults.len() < MAX_FAULTS {
        let Err(error) = document::root_table(&*tree) else { break };
        let steps = steps_of(error.path());
        let original = original_steps(&steps, &removed);
        let message = describe(&path_of(&original), strip_position(&error.inner().to_string()));
        faults.push(ParseFault { line: line_of_value(format, text, &original), message });
        if !remove_value(tree, &steps) {
            break;
        }
        removed.push(original);
    }
    faults
}

/// Values that contradict each other. Without a value that is wrong already, another one could seem to be missing.
fn find_contradictions(format: PolicyFormat, text: &str, tree: &mut Value) -> Vec<ParseFault> {
    let mut faults = Vec::new();
    while faults.len() < MAX_FAULTS {
        let read: Result<PolicyDocument, _> = document::table(&*tree);
        let Some(invalid) = read.ok().and_then(|document| validate(&document).err()) else { break };
        let steps = steps_to_key(invalid.key);
        faults.push(ParseFault { line: line_of_value(format, text, &steps), message: invalid.to_string() });
        if !remove_value(tree, &steps) {
            break;
        }
    }
    faults
}

fn steps_of(path: &Path) -> Vec<Step> {
    let step = |segment: &Segment| match segment {
        Segment::Map { key } => Some(Step::Key(key.clone())),
        Segment::Seq { index } => Some(Step::Index(*index)),
        Segment::Enum { .. } | Segment::Unknown => None,
    };
    path.iter().map_while(step).collect()
}

/// The steps in the file, of which other values were removed.
fn original_steps(steps: &[Step], removed: &[Vec<Step>]) -> Vec<Step> {
    let mut original = Vec::new();
    for step in steps {
        let next = match step {
            Step::Key(key) => Step::Key(key.clone()),
            Step::Index(index) => {
                let mut gone: Vec<usize> = removed
                    .iter()
                    .filter_map(|path| match path.split_last()? {
                        (Step::Index(index), parents) if *parents == *original => Some(*index),
                        _ => None,
                    })
                    .collect();
                gone.sort_unstable();
                Step::Index(gone.into_iter().fold(*index, |at, gone| if gone <= at { at + 1 } else { at }))
            }
        };
        original.push(next);
    }
    original
}

/// The path as it is in messages: `files.ro[1]`; `.` for the whole file.
fn path_of(steps: &[Step]) -> String {
    let mut path = String::new();
    for step in steps {
        match step {
            Step::Key(key) if path.is_empty() => path.push_str(key),
            Step::Key(key) => path.extend([".", key]),
            Step::Index(index) => path.push_str(&format!("[{index}]")),
        }
    }
    if path.is_empty() { ".".to_owned() } else { path }
}

/// Removes the value at the end of the steps; false if there is none.
fn remove_value(tree: &mut Value, steps: &[Step]) -> bool {
    let Some((last, parents)) = steps.split_last() else { return false };
    let parent = parents.iter().try_fold(tree, |value, step| match step {
        Step::Key(key) => value.get_mut(key),
        Step::Index(index) => value.get_mut(index),
    });
    match (parent, last) {
        (Some(Value::Object(table)), Step::Key(key)) => table.remove(key).is_some(),
        (Some(Value::Array(list)), Step::Index(index)) if *index < list.len() => {
            list.remove(*index);
            true
        }
        _ => false,
    }
}
