//! The meaning of a profile, evaluated from its JSON as simply as possible and independently of the compiler.

use crate::testing::machine::SeccompData;
use saggar_seccomp::names;
use serde_json::Value;
use std::collections::BTreeMap;

/// One architecture's share of `syscalls.tbl` and of the ABI.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) audit: u32,
    pub(super) x32: bool,
    names: BTreeMap<u32, String>,
}

impl Machine {
    pub(super) fn new(table: &str, column: usize, audit: u32, x32: bool) -> Self {
        let rows = table.lines().filter(|line| !line.starts_with('#'));
        let entry = |line: &str| {
            let fields: Vec<_> = line.split(' ').collect();
            Some((fields[column].parse().ok()?, fields[0].to_owned()))
        };
        Machine { audit, x32, names: rows.filter_map(entry).collect() }
    }

    pub(super) fn number(&self, name: &str) -> u32 {
        *self.names.iter().find(|(_, known)| *known == name).unwrap_or_else(|| panic!("no call {name}")).0
    }
}

/// The result of a profile (the file, then the one it extends) for a call, as the kernel's return code.
pub(super) fn answer(profile: &[Value], machine: &Machine, call: &SeccompData) -> u32 {
    let key = |name: &str| code(profile.iter().find_map(|file| file.get(name)).unwrap());
    if call.arch != machine.audit {
        return key("foreign");
    }
    if let Some(name) = machine.names.get(&call.number) {
        let mut groups = profile.iter().flat_map(|file| file["groups"].as_array().unwrap());
        let group =
            groups.find(|group| group["calls"].as_array().unwrap().contains(&Value::from(name.as_str())));
        return group.map_or_else(|| key("rest"), |group| in_group(group, &call.args));
    }
    match call.number {
        u32::MAX => key("newer"),
        number if machine.x32 && number & 0xc000_0000 != 0 => key("foreign"),
        number if number > *machine.names.last_key_value().unwrap().0 => key("newer"),
        _ => key("unlisted"),
    }
}

fn in_group(group: &Value, args: &[u64; 6]) -> u32 {
    let none = Vec::new();
    let rules = group.get("rules").and_then(Value::as_array).unwrap_or(&none);
    let matches = |rule: &&Value| rule["when"].as_array().unwrap().iter().all(|test| holds(test, args));
    code(&rules.iter().find(matches).unwrap_or(group)["answer"])
}

fn holds(test: &Value, args: &[u64; 6]) -> bool {
    let whole = args[usize::try_from(test["arg"].as_u64().unwrap()).unwrap()];
    let argument = if test.get("bits") == Some(&Value::from(64)) { whole } else { whole % (1 << 32) };
    let get = |key: &str| test.get(key).map(number);
    if let Some(bits) = get("clear") {
        return argument & bits == 0;
    }
    if let Some(value) = get("not") {
        return argument != value;
    }
    if let Some(value) = get("above") {
        return argument > value;
    }
    let masked = argument & get("mask").unwrap_or(u64::MAX);
    match &test["is"] {
        Value::Array(values) => values.iter().any(|value| masked == number(value)),
        value => masked == number(value),
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| names::value(value.as_str().unwrap()).unwrap())
}

fn code(answer: &Value) -> u32 {
    match answer.as_str().unwrap() {
        "allow" => libc::SECCOMP_RET_ALLOW,
        "kill_process" => libc::SECCOMP_RET_KILL_PROCESS,
        name => {
            let (_, errno) = names::ERRORS.iter().find(|(known, _)| *known == name).unwrap();
            libc::SECCOMP_RET_ERRNO | u32::from(*errno)
        }
    }
}
