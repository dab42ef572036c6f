//! A profile with its names resolved for one architecture, and its meaning.

use crate::Result;
use crate::arch::{Arch, X32_BIT};
use crate::profile::{Answer, Condition, Group, Profile, Rule, Value};
use crate::table::Table;
use std::collections::BTreeMap;

/// What a call gets: the first of `rules` that matches, else `answer`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Verdict {
    /// The checks of arguments, in order.
    pub rules: Vec<Check>,
    /// The answer when none matches.
    pub answer: Answer,
}

/// One answer and the tests that must all hold for it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Check {
    /// The tests.
    pub tests: Vec<Test>,
    /// The answer if all hold.
    pub answer: Answer,
}

/// A test of one argument.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Test {
    /// Which argument.
    pub arg: u8,
    /// Whether all 64 bits count; else the low 32.
    pub wide: bool,
    /// What must hold.
    pub op: Op,
}

/// A comparison of an argument with constants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Op {
    /// `argument & mask == value`
    Masked {
        /// The bits that count.
        mask: u64,
        /// What they must be.
        value: u64,
    },
    /// `argument == value`
    Is(u64),
    /// `argument != value`
    Not(u64),
    /// `argument > value`
    Above(u64),
}

/// The meaning of a profile on one architecture.
#[derive(Debug)]
pub struct Policy {
    /// The architecture.
    pub arch: Arch,
    calls: BTreeMap<u32, Verdict>,
    newest: u32,
    unlisted: Answer,
    newer: Answer,
    /// The answer to a call by another architecture's entry.
    pub foreign: Answer,
}

impl From<Answer> for Verdict {
    fn from(answer: Answer) -> Self {
        Verdict { rules: Vec::new(), answer }
    }
}

impl Verdict {
    /// Whether some arguments are allowed.
    pub fn ever_allows(&self) -> bool {
        self.answer == Answer::Allow || self.rules.iter().any(|rule| rule.answer == Answer::Allow)
    }
}

impl Policy {
    /// Resolves `profile` for `arch`. Without an answer to the rest every call of the table must stand in a group, so
    /// that a call which is added to the table is also decided on.
    pub fn resolve(profile: &Profile, table: &Table, arch: Arch) -> Result<Self> {
        let mut calls = BTreeMap::new();
        for group in &profile.groups {
            let verdict = verdict(group).map_err(|error| format!("group {:?}: {error}", group.name))?;
            for call in &group.calls {
                let number =
                    table.number(call).map_err(|error| format!("group {:?}: {error}", group.name))?;
                calls.extend(number.map(|number| (number, verdict.clone())));
            }
        }
        let grouped =
            |name: &str| profile.groups.iter().any(|group| group.calls.iter().any(|call| call == name));
        for name in table.names().filter(|name| !grouped(name)) {
            let Some(rest) = profile.rest else { return Err(format!("no group says what {name} gets")) };
            calls.extend(table.number(name)?.map(|number| (number, rest.into())));
        }
        let Profile { unlisted, newer, foreign, .. } = *profile;
        Ok(Policy { arch, calls, newest: table.newest(), unlisted, newer, foreign })
    }

    /// How many calls are allowed, at least with some arguments.
    pub fn allowed(&self) -> usize {
        self.calls.values().filter(|verdict| verdict.ever_allows()).count()
    }

    /// The first number of a foreign ABI that shares `seccomp_data.arch`.
    fn foreign_from(&self) -> Option<u32> {
        (self.arch == Arch::X86_64).then_some(X32_BIT)
    }

    /// The verdict on a number of the own architecture.
    pub fn verdict(&self, number: u32) -> Verdict {
        let foreign_from = self.foreign_from().unwrap_or(u32::MAX);
        match self.calls.get(&number) {
            Some(verdict) => verdict.clone(),
            None if number <= self.newest => self.unlisted.into(),
            // A tracer sets the number to -1 to skip a call (ptrace(2), strace --inject): no foreign ABI.
            None if number < foreign_from || number == u32::MAX => self.newer.into(),
            None => self.foreign.into(),
        }
    }

    /// All numbers from 0 to `u32::MAX`, as the starts of ranges with one verdict each.
    pub fn ranges(&self) -> Vec<(u32, Verdict)> {
        let starts = (0..=self.newest + 1).chain(self.foreign_from()).chain([u32::MAX]);
        let mut ranges: Vec<(u32, Verdict)> = starts.map(|start| (start, self.verdict(start))).collect();
        ranges.dedup_by(|later, earlier| later.1 == earlier.1);
        ranges
    }

    /// One past the highest known number: what the kernel tries when a filter is loaded, more or less.
    pub fn known(&self) -> u32 {
        self.newest + 1
    }
}

fn verdict(group: &Group) -> Result<Verdict> {
    let mut rules = Vec::new();
    for rule in &group.rules {
        rules.extend(checks(rule)?);
    }
    Ok(Verdict { rules, answer: group.answer })
}

/// A rule whose conditions offer several values is one check for each combination of them.
fn checks(rule: &Rule) -> Result<Vec<Check>> {
    if rule.when.is_empty() {
        return Err("a rule without conditions hides the rules below it".to_owned());
    }
    let mut combinations: Vec<Vec<Test>> = vec![Vec::new()];
    for condition in &rule.when {
        let tests = tests(condition).map_err(|error| format!("argument {}: {error}", condition.arg))?;
        combinations = combinations
            .iter()
            .flat_map(|before| tests.iter().map(move |test| [before, std::slice::from_ref(test)].concat()))
            .collect();
    }
    Ok(combinations.into_iter().map(|tests| Check { tests, answer: rule.answer }).collect())
}

/// The tests of which one must hold for `condition` to hold.
fn tests(condition: &Condition) -> Result<Vec<Test>> {
    if condition.arg > 5 {
        return Err("a call has six arguments, 0 to 5".to_owned());
    }
    let wide = match condition.bits {
        None | Some(32) => false,
        Some(64) => true,
        Some(other) => return Err(format!("{other} bits: say 32 or 64")),
    };
    let get = |value: &Value| match value.get()? {
        number if !wide && number > u64::from(u32::MAX) => {
            Err(format!("{number:#x} can never match in 32 bits: say \"bits\": 64"))
        }
        number => Ok(number),
    };
    let ops = match condition {
        Condition { mask, is: Some(values), not: None, above: None, clear: None, .. } => {
            let mask = mask.as_ref().map(get).transpose()?;
            let op = |value| match mask {
                Some(mask) if value & !mask != 0 => {
                    Err(format!("{value:#x} has bits outside the mask {mask:#x}"))
                }
                Some(mask) => Ok(Op::Masked { mask, value }),
                None => Ok(Op::Is(value)),
            };
            values.as_slice().iter().map(|value| op(get(value)?)).collect::<Result<_>>()?
        }
        Condition { mask: None, is: None, not: Some(value), above: None, clear: None, .. } => {
            vec![Op::Not(get(value)?)]
        }
        Condition { mask: None, is: None, not: None, above: Some(value), clear: None, .. } => {
            vec![Op::Above(get(value)?)]
        }
        Condition { mask: None, is: None, not: None, above: None, clear: Some(value), .. } => {
            vec![Op::Masked { mask: get(value)?, value: 0 }]
        }
        _ => return Err("say exactly one of is, not, above and clear (mask goes with is)".to_owned()),
    };
    Ok(ops.into_iter().map(|op| Test { arg: condition.arg, wide, op }).collect())
}
