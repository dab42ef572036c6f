//! `saggar policy check FILE…`: each file by itself, with what is odd about it.

use super::document::Document;
use super::effective::Effective;
use super::environment;
use super::layer::Layer;
use super::load;
use super::names::{Network, Profile, Strength};
use super::paths::Home;
use super::tighten::{FOLDERS_TIGHTEN, tighten};
use crate::error::{Code, Error};
use crate::text::{Show, line, summary};
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
                    writeln!(f, "{}: ok", path.shown())?;
                    for note in notes {
                        writeln!(f, "  note: {}", line(note))?;
                    }
                }
                Err(error) => {
                    writeln!(f, "error: {}", line(&error.to_string()))?;
                    if let Some(hint) = error.hint_text() {
                        writeln!(f, "  hint: {}", line(hint))?;
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
        let outcome = load::read_document(path).and_then(|document| {
            let in_folder = in_folder(path, &document)?;
            Ok(notes(&document).into_iter().chain(in_folder).collect())
        });
        Checked { path: path.clone(), outcome }
    };
    Report { files: paths.iter().map(checked).collect() }
}

/// What a careful reader would remark on.
fn notes(document: &Document) -> Vec<String> {
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
    notes
}

/// What would be refused in a folder, of a file whose name says that it is the policy of one: above the built-in layer
/// alone, since the host's own configuration may give more. No configuration makes a mount of the program that it names.
///
/// # Errors
/// [`Code::Refused`] for an `agent_cmd` that stands nowhere inside.
fn in_folder(path: &Path, document: &Document) -> Result<Option<String>, Error> {
    let Some((tree, name)) = load::folder_of(path) else { return Ok(None) };
    let built_in = Effective::built_in(Home::Session);
    let layer = Layer::AgentFolder(name);
    let program = Document { agent_cmd: document.agent_cmd.clone(), ..Document::default() };
    tighten(&built_in, &program, &layer, &[&tree]).map_err(|widening| {
        let message = summary(&format!("{}: in a folder it {widening}", path.display()));
        Error::new(Code::Refused, message)
            .hint("name it by --agent-cmd, --policy FILE or the configuration of the user or the host")
    })?;
    let refusal = tighten(&built_in, document, &layer, &[&tree]).err();
    Ok(refusal.map(|widening| format!("in a folder it {widening}; {FOLDERS_TIGHTEN}")))
}
