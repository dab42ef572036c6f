//! `saggar policy check FILE…`: validates each file separately and notes suspicious settings.

use super::document::PolicyDocument;
use super::effective::EffectivePolicy;
use super::environment;
use super::folder::FolderParser;
use super::layer::PolicyLayer;
use super::load;
use super::names::{NetworkMode, ProtectionStrength, SandboxProfile};
use super::paths::HomeSource;
use super::tighten::{FOLDER_MAY_ONLY_TIGHTEN, tighten};
use saggar_sys::error::{Code, Error};
use saggar_sys::text::{DisplayEscaped, one_line, summary};
use std::fmt;
use std::path::{Path, PathBuf};

/// The result for each file.
#[derive(Debug)]
pub struct PolicyCheckReport {
    /// The files in the order in which they were given.
    pub files: Vec<CheckedFile>,
}

/// The result for one file.
#[derive(Debug)]
pub struct CheckedFile {
    /// The path of the file.
    pub path: PathBuf,
    /// The notes on a valid file, or the error that makes it unusable.
    pub outcome: Result<Vec<String>, Error>,
}

impl PolicyCheckReport {
    /// Whether every file is valid.
    pub fn is_valid(&self) -> bool {
        self.files.iter().all(|file| file.outcome.is_ok())
    }
}

impl fmt::Display for PolicyCheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for CheckedFile { path, outcome } in &self.files {
            match outcome {
                Ok(notes) => {
                    writeln!(f, "{}: ok", path.escaped())?;
                    for note in notes {
                        writeln!(f, "  note: {}", one_line(note))?;
                    }
                }
                Err(error) => {
                    writeln!(f, "error: {}", one_line(&error.to_string()))?;
                    for other in error.others() {
                        writeln!(f, "error: {}", one_line(other))?;
                    }
                    if let Some(hint) = error.hint_text() {
                        writeln!(f, "  hint: {}", one_line(hint))?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Checks each file separately, without the other layers. `parser` parses the policies of folders, and `folder_notes` notes
/// what of such a policy does not fit its folder.
pub fn check_policy_files(
    paths: &[PathBuf],
    parser: &dyn FolderParser,
    folder_notes: &dyn Fn(&Path, &PolicyDocument) -> Vec<String>,
) -> PolicyCheckReport {
    let checked = |path: &PathBuf| {
        let outcome = load::read_document(path, parser).and_then(|document| {
            let in_folder = folder_note(path, &document)?;
            let folder = load::folder_of(path).map(|(folder, _)| folder_notes(&folder, &document));
            Ok(notes(&document).into_iter().chain(in_folder).chain(folder.unwrap_or_default()).collect())
        });
        CheckedFile { path: path.clone(), outcome }
    };
    PolicyCheckReport { files: paths.iter().map(checked).collect() }
}

/// Settings that are valid but suspicious.
fn notes(document: &PolicyDocument) -> Vec<String> {
    let mut notes = Vec::new();
    if document.profile == Some(SandboxProfile::Nesting) {
        notes.push("profile: nesting gives up the landlock file rules".into());
    }
    if document.profile == Some(SandboxProfile::Container) {
        notes.push("profile: container shows the processes of a container whose /proc is masked".into());
    }
    if document.network.mode == Some(NetworkMode::Host) {
        notes.push("network.mode: host reaches every service of this machine".into());
    }
    for rule in document.network.allow.iter().filter(|rule| rule.host.matches_everything()) {
        notes.push(format!("network.allow: {rule} is every host that there is"));
    }
    let network = &document.network;
    for (list, rules) in [("allow", &network.allow), ("ask", &network.ask), ("deny", &network.deny)] {
        for rule in rules.iter().filter(|rule| rule.host.is_synthetic()) {
            notes.push(format!(
                "network.{list}: the addresses of {rule} represent names inside: it applies to names that resolve \
                 to them, and not to connections to such an address"
            ));
        }
    }
    for name in document.env.pass.iter().filter(|name| environment::is_secret(name)) {
        notes.push(format!("env.pass: {name} usually holds a secret"));
    }
    for rule in document.permissions.allow.iter().filter(|rule| rule.covers_whole_tool()) {
        notes.push(format!("permissions.allow: {rule} allows every call of it, unasked"));
    }
    for protection in &document.protections.prefer {
        if !protection.is_optional() {
            notes.push(format!(
                "protections.prefer: no sandbox starts without {protection}, preferred or not"
            ));
        } else if protection.default_strength() == ProtectionStrength::Require {
            notes.push(format!("protections.prefer: without {protection} the sandbox starts all the same"));
        }
    }
    notes
}

/// The settings that would be refused in a folder, if the file name is that of a folder's policy. The
/// document is compared with the built-in layer only: the host's configuration may permit more. No
/// configuration mounts the program that the document names, so an `agent_cmd` outside the sandbox is an
/// error.
///
/// # Errors
/// [`Code::Refused`] for an `agent_cmd` that is not visible in the sandbox.
fn folder_note(path: &Path, document: &PolicyDocument) -> Result<Option<String>, Error> {
    let Some((tree, name)) = load::folder_of(path) else { return Ok(None) };
    let built_in = EffectivePolicy::built_in(HomeSource::Session);
    let layer = PolicyLayer::AgentFolder(name);
    let program = PolicyDocument { agent_cmd: document.agent_cmd.clone(), ..PolicyDocument::default() };
    tighten(&built_in, &program, &layer, &[&tree]).map_err(|widening| {
        let message = summary(&format!("{}: in a folder it {widening}", path.display()));
        Error::new(Code::Refused, message)
            .hint("name it by --agent-cmd, --policy FILE or the configuration of the user or the host")
    })?;
    let refusal = tighten(&built_in, document, &layer, &[&tree]).err();
    Ok(refusal.map(|widening| format!("in a folder it {widening}; {FOLDER_MAY_ONLY_TIGHTEN}")))
}
