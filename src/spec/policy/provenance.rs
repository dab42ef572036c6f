//! Where a value comes from, as types: what a folder asked for never becomes a mount, a program of the host, a
//! variable, a socket or a limit that is wider.
//!
//! | type | what it holds back |
//! |---|---|
//! | `Admitted` | a document goes into the policy by it alone, and that of a folder is made one by `tighten` alone |
//! | [`Trusted`] | what shows something of the host takes such a value, and no other |
//! | [`FromFolder`] | a value that a folder chose: of it only a bare name becomes trusted ([`FromFolder::bare_name`]) |
//!
//! All conversions between the two are in this file. A value that a folder repeats stays the operator's
//! (`Effective::take`): who repeats does not become the owner, and the owner is who is trusted.

use super::document::Document;
use super::effective::Effective;
use super::layer::{Layer, Setting};
use super::paths;
use super::program::AgentCommand;
use super::tighten::{Widening, tighten};
use crate::spec::agent::AGENT_FOLDER;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Directories of the host that every sandbox has at the same path.
pub const SYSTEM_TREES: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// A document that may go into the policy.
#[derive(Debug)]
pub(super) struct Admitted<'a> {
    pub(super) document: Document,
    pub(super) layer: &'a Layer,
}

impl<'a> Admitted<'a> {
    /// The document of this layer, after what holds `now`. `trees` are the folders whose content stands inside.
    ///
    /// # Errors
    /// The first key with which a folder asks for more than it may.
    pub(super) fn of(
        now: &Effective,
        document: Document,
        layer: &'a Layer,
        trees: &[&Path],
    ) -> Result<Self, Widening> {
        if layer.is_folder() {
            tighten(now, &document, layer, trees)?;
        }
        Ok(Admitted { document, layer })
    }
}

/// A value that is built in, or that an operator or the caller chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trusted<T>(T);

/// A value that a folder chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FromFolder<T>(T);

/// A value by where it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provenance<T> {
    /// From an operator.
    Trusted(Trusted<T>),
    /// From a folder.
    FromFolder(FromFolder<T>),
}

impl<T> Setting<T> {
    /// The value by the layer that set it.
    pub fn provenance(&self) -> Provenance<&T> {
        if self.layer.is_folder() {
            Provenance::FromFolder(FromFolder(&self.value))
        } else {
            Provenance::Trusted(Trusted(&self.value))
        }
    }
}

impl<T> Trusted<T> {
    /// The value.
    pub fn get(self) -> T {
        self.0
    }
}

impl<'a> FromFolder<&'a OsString> {
    /// A name without a slash is looked up on the caller's PATH, so that the caller has chosen what it finds.
    ///
    /// # Errors
    /// The value as it was, when it is a path.
    pub fn bare_name(self) -> Result<Trusted<&'a OsString>, Self> {
        if is_bare(self.0) { Ok(Trusted(self.0)) } else { Err(self) }
    }

    /// The path, to look at what stands inside already.
    pub fn path(self) -> &'a Path {
        Path::new(self.0)
    }
}

fn is_bare(program: &OsStr) -> bool {
    !program.as_encoded_bytes().contains(&b'/')
}

/// Why a folder may not name this program, if it may not: it is neither a bare name nor a path that stands inside
/// whatever the folder says. `trees` are the folders whose content stands inside.
pub(super) fn objection(now: &Effective, command: &AgentCommand, trees: &[&Path]) -> Option<&'static str> {
    const NOT_INSIDE: &str = "which stands nowhere inside: a folder may name a program of PATH by its bare name, and \
                              a path of the system directories, of the folder, of the workspace, or that the operator shows";
    let program = command.words().first().map_or("", String::as_str);
    if is_bare(program.as_ref()) {
        return None;
    }
    let path = Path::new(program);
    if paths::objection(path).is_some() {
        return Some(NOT_INSIDE);
    }
    let path = paths::tidy(path);
    let system = SYSTEM_TREES.iter().map(Path::new);
    let shown = now.files.binds.iter().map(|bind| bind.value.dest.as_path());
    let mut visible = system.chain(shown).chain(trees.iter().copied()).chain([Path::new(AGENT_FOLDER)]);
    // A relative path is one of the workspace, where programs are started.
    (path.is_absolute() && !visible.any(|tree| path.starts_with(tree))).then_some(NOT_INSIDE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::policy::Home;

    #[test]
    fn a_folder_names_what_stands_inside_already_and_nothing_else() {
        let mut now = Effective::built_in(Home::Session);
        now.merge(toml::from_str("files.ro = ['/opt/shown:/opt/at']").unwrap(), &Layer::CommandLine);
        let may = |program: &str| {
            let command = AgentCommand::try_from(vec![program.to_owned(), "x".to_owned()]).unwrap();
            objection(&now, &command, &[Path::new("/srv/folder")]).is_none()
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
        let from = |program: &str, layer: Layer| Setting { value: OsString::from(program), layer };
        let folder = |program: &str| match from(program, Layer::AgentFolder("saggar.toml")).provenance() {
            Provenance::FromFolder(name) => name.bare_name().map(|name| name.get().clone()).ok(),
            Provenance::Trusted(_) => panic!("a folder is never trusted"),
        };
        assert_eq!(folder("tool"), Some("tool".into()));
        assert_eq!(folder("./tool"), None);
        assert_eq!(folder("/srv/tool"), None);
        let option = from("/srv/tool", Layer::CommandLine);
        assert_eq!(option.provenance(), Provenance::Trusted(Trusted(&"/srv/tool".into())));
    }
}
