//! The profile files: their form, and `extends`.

use crate::{Result, names};
use serde::Deserialize;

/// A profile as it stands in its file. The base says everything; one that `extends` it says only what changes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// What the profile is for.
    pub comment: String,
    /// The profile that this one changes.
    pub extends: Option<String>,
    /// The answer to the calls that no group names; without it the build fails where one is forgotten.
    pub rest: Option<Answer>,
    /// The answer to a number between the known ones.
    pub unlisted: Option<Answer>,
    /// The answer to a number above the known ones.
    pub newer: Option<Answer>,
    /// The answer to a call by another architecture's entry.
    pub foreign: Option<Answer>,
    /// Calls whose errors the supervisor gives: it is asked each time (seccomp_unotify(2)).
    #[serde(default)]
    pub ask: Vec<String>,
    /// The calls, in groups that share a reason.
    pub groups: Vec<Group>,
}

/// Calls that share a reason and an answer.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// A few words, unique in the file.
    pub name: String,
    /// What the calls are for, or why they are refused.
    pub comment: String,
    /// Their names in `syscalls.tbl`.
    pub calls: Vec<String>,
    /// Tried top down; the first that matches answers.
    #[serde(default)]
    pub rules: Vec<Rule>,
    /// The answer when no rule matches.
    pub answer: Answer,
}

/// An answer that depends on the arguments.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// All of these must hold.
    pub when: Vec<Condition>,
    /// The answer if they do.
    pub answer: Answer,
}

/// A test of one argument: exactly one of `is`, `not`, `above` and `clear`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// Which argument, from 0 to 5.
    pub arg: u8,
    /// How many low bits of it the kernel looks at: 32 (the default) or 64.
    pub bits: Option<u8>,
    /// With `is`: compare only these bits.
    pub mask: Option<Value>,
    /// Equal to this, or to one of these.
    pub is: Option<OneOrMany>,
    /// Different from this.
    pub not: Option<Value>,
    /// Greater than this, unsigned.
    pub above: Option<Value>,
    /// None of these bits is set.
    pub clear: Option<Value>,
}

/// A number: as such, or as names of `names.rs` joined by `|`.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// As a JSON number.
    Number(u64),
    /// As names, or as a number in `0x` form.
    Text(String),
}

impl Value {
    /// The number.
    pub fn get(&self) -> Result<u64> {
        match self {
            Value::Number(number) => Ok(*number),
            Value::Text(text) => names::value(text),
        }
    }
}

/// One value or a list of them.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum OneOrMany {
    /// One value.
    One(Value),
    /// Any of several.
    Many(Vec<Value>),
}

impl OneOrMany {
    /// All the values.
    pub fn as_slice(&self) -> &[Value] {
        match self {
            OneOrMany::One(value) => std::slice::from_ref(value),
            OneOrMany::Many(values) => values,
        }
    }
}

/// What the kernel does with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub enum Answer {
    /// Run it.
    Allow,
    /// Fail with this error number.
    Errno(u16),
    /// Ask whoever has the filter's listener; without one it fails with ENOSYS.
    Ask,
    /// End the process with SIGSYS.
    KillProcess,
}

impl Group {
    /// Every error becomes a question.
    fn ask(&mut self) {
        let answers = self.rules.iter_mut().map(|rule| &mut rule.answer).chain([&mut self.answer]);
        for answer in answers.filter(|answer| matches!(answer, Answer::Errno(_))) {
            *answer = Answer::Ask;
        }
    }
}

impl TryFrom<String> for Answer {
    type Error = String;

    fn try_from(text: String) -> Result<Self> {
        match text.as_str() {
            "allow" => Ok(Answer::Allow),
            "ask" => Ok(Answer::Ask),
            "kill_process" => Ok(Answer::KillProcess),
            name => match names::ERRORS.iter().find(|(known, _)| *known == name) {
                Some((_, number)) => Ok(Answer::Errno(*number)),
                None => Err(format!(
                    "answer {name:?} is not allow, ask, kill_process or an error of seccomp/src/names.rs"
                )),
            },
        }
    }
}

impl Answer {
    /// What the filter returns for it (linux/seccomp.h, SECCOMP_RET_*).
    pub fn code(self) -> u32 {
        match self {
            Answer::Allow => 0x7fff_0000,
            Answer::Errno(number) => 0x0005_0000 | u32::from(number),
            Answer::Ask => 0x7fc0_0000,
            Answer::KillProcess => 0x8000_0000,
        }
    }
}

/// A whole profile: a base, with the changes of those that extend it laid over.
#[derive(Debug)]
pub struct Profile {
    /// What it is for.
    pub comment: String,
    /// The answer to the calls that no group names.
    pub rest: Option<Answer>,
    /// The answer to a number between the known ones.
    pub unlisted: Answer,
    /// The answer to a number above the known ones.
    pub newer: Answer,
    /// The answer to a call by another architecture's entry.
    pub foreign: Answer,
    /// Every call stands in one of them, unless there is an answer to the rest.
    pub groups: Vec<Group>,
}

impl Profile {
    /// Reads the profile `name`; `read` gives the text of a profile's file.
    pub fn load(name: &str, read: &dyn Fn(&str) -> Result<String>) -> Result<Self> {
        let file: File =
            serde_json::from_str(&read(name)?).map_err(|error| format!("seccomp/{name}.json: {error}"))?;
        file.complete(read).map_err(|error| format!("seccomp/{name}.json: {error}"))
    }
}

impl File {
    fn complete(self, read: &dyn Fn(&str) -> Result<String>) -> Result<Profile> {
        self.check_unique()?;
        let asked = self.ask.clone();
        let mut whole = self.lay_over(read)?;
        for call in &asked {
            let group = whole.groups.iter_mut().find(|group| group.calls.contains(call));
            group.ok_or_else(|| format!("ask: no group says what {call} gets"))?.ask();
        }
        Ok(whole)
    }

    fn lay_over(self, read: &dyn Fn(&str) -> Result<String>) -> Result<Profile> {
        let Some(base) = &self.extends else {
            let need = |answer: Option<Answer>, key| answer.ok_or_else(|| format!("{key:?} is missing"));
            return Ok(Profile {
                rest: self.rest,
                unlisted: need(self.unlisted, "unlisted")?,
                newer: need(self.newer, "newer")?,
                foreign: need(self.foreign, "foreign")?,
                comment: self.comment,
                groups: self.groups,
            });
        };
        let mut whole = Profile::load(base, read)?;
        for call in self.groups.iter().flat_map(|group| &group.calls) {
            whole.groups.iter_mut().for_each(|group| group.calls.retain(|other| other != call));
        }
        whole.groups.retain(|group| !group.calls.is_empty());
        whole.groups.extend(self.groups);
        Ok(Profile {
            comment: self.comment,
            rest: self.rest.or(whole.rest),
            unlisted: self.unlisted.unwrap_or(whole.unlisted),
            newer: self.newer.unwrap_or(whole.newer),
            foreign: self.foreign.unwrap_or(whole.foreign),
            groups: whole.groups,
        })
    }

    fn check_unique(&self) -> Result<()> {
        let mut seen = std::collections::BTreeMap::new();
        for group in &self.groups {
            for call in &group.calls {
                if let Some(first) = seen.insert(call, &group.name) {
                    return Err(format!("{call} stands in group {first:?} and again in {:?}", group.name));
                }
            }
        }
        Ok(())
    }
}
