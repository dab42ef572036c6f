//! The source of a value, as types: a value from a folder's policy never becomes a mount, a program of the
//! host, a variable, a socket, or a wider limit.
//!
//! | type | what it enforces |
//! |---|---|
//! | `AdmittedDocument` | only an admitted document is merged into the policy; a folder's document is admitted only by `tighten` |
//! | [`TrustedValue`] | code that gives access to the host accepts only such values |
//! | [`FolderValue`] | a value from a folder; only a bare name can be converted to a trusted value ([`FolderValue::bare_name`]) |
//!
//! All conversions between the two are in this file. A value that a folder repeats keeps the operator's
//! layer (`EffectivePolicy::merge_admitted`): a folder cannot take over the provenance of a value, and
//! trust depends on provenance.

use super::document::PolicyDocument;
use super::effective::EffectivePolicy;
use super::layer::{PolicyLayer, Setting};
use super::paths;
use super::program::AgentCommand;
use super::tighten::{Widening, tighten};
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The path of the agent's own folder in the sandbox, if it is not the workspace.
pub const AGENT_FOLDER: &str = "/run/agent";

/// Directories of the host that every sandbox shows at the same path.
pub const SYSTEM_TREES: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// A document that may be merged into the policy.
#[derive(Debug)]
pub(super) struct AdmittedDocument<'a> {
    pub(super) document: PolicyDocument,
    pub(super) layer: &'a PolicyLayer,
}

impl<'a> AdmittedDocument<'a> {
    /// Admits the document of a layer on top of the policy `current`. `visible_trees` are the folders whose
    /// content is visible in the sandbox.
    ///
    /// # Errors
    /// The first key with which a folder asks for more than it may.
    pub(super) fn admit(
        current: &EffectivePolicy,
        document: PolicyDocument,
        layer: &'a PolicyLayer,
        visible_trees: &[&Path],
    ) -> Result<Self, Widening> {
        if layer.is_agent_writable() {
            tighten(current, &document, layer, visible_trees)?;
        }
        Ok(AdmittedDocument { document, layer })
    }
}

/// A value that is built in, or that an operator or the caller set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrustedValue<T>(T);

/// A value that a folder set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FolderValue<T>(T);

/// A value by its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provenance<T> {
    /// A built-in value, or one of an operator or the caller.
    Trusted(TrustedValue<T>),
    /// A value of a folder's policy.
    FromFolder(FolderValue<T>),
}

impl<T> Setting<T> {
    /// The value, classified by the layer that set it.
    pub fn provenance(&self) -> Provenance<&T> {
        if self.layer.is_agent_writable() {
            Provenance::FromFolder(FolderValue(&self.value))
        } else {
            Provenance::Trusted(TrustedValue(&self.value))
        }
    }
}

impl<T> TrustedValue<T> {
    /// Unwraps the value.
    pub fn get(self) -> T {
        self.0
    }
}

impl<'a> FolderValue<&'a OsString> {
    /// Converts a program name without a slash to a trusted value: it is looked up on the caller's PATH, so
    /// the caller determines which file is run.
    ///
    /// # Errors
    /// The value unchanged, if it contains a slash.
    pub fn bare_name(self) -> Result<TrustedValue<&'a OsString>, Self> {
        if is_bare(self.0) { Ok(TrustedValue(self.0)) } else { Err(self) }
    }

    /// The path, to compare with paths that are visible in the sandbox already.
    pub fn path(self) -> &'a Path {
        Path::new(self.0)
    }
}

fn is_bare(program: &OsStr) -> bool {
    !program.as_encoded_bytes().contains(&b'/')
}

/// The reason why a folder may not name this program, or `None` if it may: a bare name, or a path that is
/// visible in the sandbox independently of the folder's policy. `visible_trees` are the folders whose
/// content is visible in the sandbox.
pub(super) fn program_objection(
    current: &EffectivePolicy,
    command: &AgentCommand,
    visible_trees: &[&Path],
) -> Option<&'static str> {
    const NOT_INSIDE: &str = "which is not available inside: a folder may name a program of PATH by its bare name, and \
                              a path of the system directories, of the folder, of the workspace, or that the operator shows";
    let program = command.words().first().map_or("", String::as_str);
    if is_bare(program.as_ref()) {
        return None;
    }
    let path = Path::new(program);
    if paths::path_objection(path).is_some() {
        return Some(NOT_INSIDE);
    }
    let path = paths::normalize(path);
    let system = SYSTEM_TREES.iter().map(Path::new);
    let shown = current.files.binds.iter().map(|bind| bind.value.destination.as_path());
    let mut visible =
        system.chain(shown).chain(visible_trees.iter().copied()).chain([Path::new(AGENT_FOLDER)]);
    // A relative path is resolved in the workspace, where programs are started.
    (path.is_absolute() && !visible.any(|tree| path.starts_with(tree))).then_some(NOT_INSIDE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HomeSource;

    #[test]
    fn a_folder_names_what_stands_inside_already_and_nothing_else() {
        let mut now = EffectivePolicy::built_in(HomeSource::Session);
        now.merge(toml::from_str("files.ro = ['/opt/shown:/opt/at']").unwrap(), &PolicyLayer::CommandLine);
        let may = |program: &str| {
            let command = AgentCommand::try_from(vec![program.to_owned(), "x".to_owned()]).unwrap();
            program_objection(&now, &command, &[Path::new("/srv/folder")]).is_none()
        };
        for program in [
            "tool",
            "./tool",
            "bin/tool",
            "/usr/bin/env",
            "/srv/folder/tool",
            "/opt/at/tool",
            "/run/agent/tool",
        ] {
            assert!(may(program), "{program}");
        }
        for program in [
            "/opt/shown/tool",
            "/srv/tool",
            "/srv/folder-of-another/tool",
            "/srv/folder/../tool",
            "../tool",
            "./../tool",
            "/usr/../srv/tool",
            "/root/bin/tool",
            "/proc/self/root/srv/tool",
        ] {
            assert!(!may(program), "{program}");
        }
    }

    #[test]
    fn only_a_bare_name_of_a_folder_becomes_trusted() {
        let from = |program: &str, layer: PolicyLayer| Setting { value: OsString::from(program), layer };
        let folder = |program: &str| match from(program, PolicyLayer::AgentFolder("saggar.toml")).provenance()
        {
            Provenance::FromFolder(name) => name.bare_name().map(|name| name.get().clone()).ok(),
            Provenance::Trusted(_) => panic!("a folder is never trusted"),
        };
        assert_eq!(folder("tool"), Some("tool".into()));
        assert_eq!(folder("./tool"), None);
        assert_eq!(folder("/srv/tool"), None);
        let option = from("/srv/tool", PolicyLayer::CommandLine);
        assert_eq!(option.provenance(), Provenance::Trusted(TrustedValue(&"/srv/tool".into())));
    }
}
