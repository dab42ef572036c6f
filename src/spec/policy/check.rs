//! `saggar policy check FILE…`: each file by itself, with what is odd about it.

use super::document::Document;
use super::effective::Effective;
use super::environment;
use super::layer::Layer;
use super::load;
use super::names::{Network, Profile, Strength};
use super::paths::Home;
use super::tighten::{FOLDERS_TIGHTEN, tighten};
use crate::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};

/// What was found in each file.
#[derive(Debug)]
pub struct Report {
    /// The files in the order in which they were given.
    pub files: Vec<Checked>,
}

/// What was found in one file.
#[derive(Debug)]
pub struct Checked {
    /// The file.
    pub path: PathBuf,
    /// The error that keeps it from being used, or what is odd about it.
    pub outcome: Result<Vec<String>, Error>,
}

impl Report {
    /// Whether every file can be used.
    pub fn is_good(&self) -> bool {
        self.files.iter().all(|file| file.outcome.is_ok())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Checked { path, outcome } in &self.files {
            match outcome {
                Ok(notes) => {
                    writeln!(f, "{}: ok", path.display())?;
                    for note in notes {
                        writeln!(f, "  note: {note}")?;
                    }
                }
                Err(error) => {
                    writeln!(f, "error: {error}")?;
                    if let Some(hint) = error.hint_text() {
                        writeln!(f, "  hint: {hint}")?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Checks each file by itself; the other layers are not looked at.
pub fn check(paths: &[PathBuf]) -> Report {
    let checked = |path: &PathBuf| {
        let outcome = load::read_document(path).map(|document| notes(path, &document));
        Checked { path: path.clone(), outcome }
    };
    Report { files: paths.iter().map(checked).collect() }
}

/// What a careful reader would remark on.
fn notes(path: &Path, document: &Document) -> Vec<String> {
    let mut notes = Vec::new();
    if document.profile == Some(Profile::Nesting) {
        notes.push("profile: nesting gives up the landlock file rules".into());
    }
    if document.network.mode == Some(Network::Host) {
        notes.push("network.mode: host reaches every service of this machine".into());
    }
    for rule in document.network.allow.iter().filter(|rule| rule.host.is_everything()) {
        notes.push(format!("network.allow: {rule} is every host that there is"));
    }
    let network = &document.network;
    for (list, rules) in [("allow", &network.allow), ("ask", &network.ask), ("deny", &network.deny)] {
        for rule in rules.iter().filter(|rule| rule.host.is_stand_ins()) {
            notes.push(format!(
                "network.{list}: the addresses of {rule} stand for names inside: it holds for names that resolve to \
                 them, and not for a call of such an address"
            ));
        }
    }
    for name in document.env.pass.iter().filter(|name| environment::is_secret(name)) {
        notes.push(format!("env.pass: {name} usually holds a secret"));
    }
    for rule in document.permissions.allow.iter().filter(|rule| rule.is_whole()) {
        notes.push(format!("permissions.allow: {rule} allows every call of it, unasked"));
    }
    for protection in &document.protections.prefer {
        if !protection.can_be_missing() {
            notes.push(format!(
                "protections.prefer: no sandbox starts without {protection}, preferred or not"
            ));
        } else if protection.default_strength() == Strength::Require {
            notes.push(format!("protections.prefer: without {protection} the sandbox starts all the same"));
        }
    }
    let in_folder =
        load::FOLDER_NAMES.iter().find(|name| path.file_name().is_some_and(|file| file == **name));
    if let Some(name) = in_folder {
        // As in a folder, above the built-in layer alone: the host's own configuration may give more.
        let refusal = tighten(&Effective::built_in(Home::Session), document, &Layer::AgentFolder(name));
        notes.extend(refusal.err().map(|widening| format!("in a folder it {widening}; {FOLDERS_TIGHTEN}")));
    }
    notes
}
