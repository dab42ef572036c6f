//! Mount options: one table for the parser and for `features`.

use crate::spec::container::SourceLink;
use libc::{
    MOUNT_ATTR__ATIME, MOUNT_ATTR_NOATIME, MOUNT_ATTR_NODEV, MOUNT_ATTR_NODIRATIME, MOUNT_ATTR_NOEXEC,
    MOUNT_ATTR_NOSUID, MOUNT_ATTR_NOSYMFOLLOW, MOUNT_ATTR_RDONLY, MOUNT_ATTR_STRICTATIME,
};

/// The effect of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum OptionEffect {
    /// None: the option requests the default.
    NoOp,
    /// Bits of mount_setattr(2) to set and clear, on the mount or on the whole tree.
    Attribute { set: u64, clear: u64, recursive: bool },
    /// Resets the access time to the kernel's default, `relatime`, unless an earlier option made the choice
    /// `unless`.
    Relatime { unless: u64, recursive: bool },
    /// MS_* flags of the superblock to set and clear.
    Superblock { set: u64, clear: u64 },
    /// Flags of both the mount and the superblock: `ro` (true) and `rw`.
    ReadOnly(bool),
    /// Bind-mounts a tree of the host.
    Bind { recursive: bool },
    /// Changes the existing mount.
    Remount,
    /// MS_* flags of a propagation type (mount_namespaces(7)).
    Propagation(u64),
    /// Copies the content at the path into the new file system.
    CopyUp,
    /// Maps the owners of files.
    IdMap { recursive: bool },
    /// Chooses what is mounted if the source is a symbolic link.
    SourceLink(SourceLink),
    /// Mounts on a symbolic link at the destination itself.
    CoverLink,
}

use OptionEffect::{Bind, CopyUp, CoverLink, IdMap, NoOp, ReadOnly, Remount};

const fn set(bits: u64) -> OptionEffect {
    OptionEffect::Attribute { set: bits, clear: 0, recursive: false }
}

const fn clear(bits: u64) -> OptionEffect {
    OptionEffect::Attribute { set: 0, clear: bits, recursive: false }
}

const fn set_all(bits: u64) -> OptionEffect {
    OptionEffect::Attribute { set: bits, clear: 0, recursive: true }
}

const fn clear_all(bits: u64) -> OptionEffect {
    OptionEffect::Attribute { set: 0, clear: bits, recursive: true }
}

/// Sets an access time mode. The kernel requires all bits of the field to be cleared as well
/// (mount_setattr(2)).
const fn atime(choice: u64, recursive: bool) -> OptionEffect {
    OptionEffect::Attribute { set: choice, clear: MOUNT_ATTR__ATIME, recursive }
}

const fn relatime(unless: u64, recursive: bool) -> OptionEffect {
    OptionEffect::Relatime { unless, recursive }
}

const fn superblock(bits: u64) -> OptionEffect {
    OptionEffect::Superblock { set: bits, clear: 0 }
}

const fn not_superblock(bits: u64) -> OptionEffect {
    OptionEffect::Superblock { set: 0, clear: bits }
}

const fn propagation(bits: u64) -> OptionEffect {
    OptionEffect::Propagation(bits)
}

/// Every option that is not specific to a file system, sorted by name (config.md, Linux mount options).
pub(in super::super) const OPTIONS: [(&str, OptionEffect); 65] = [
    ("async", not_superblock(libc::MS_SYNCHRONOUS)),
    ("atime", relatime(MOUNT_ATTR_STRICTATIME, false)),
    ("bind", Bind { recursive: false }),
    ("copy-symlink", OptionEffect::SourceLink(SourceLink::Copy)),
    ("defaults", NoOp),
    ("dest-nofollow", CoverLink),
    ("dev", clear(MOUNT_ATTR_NODEV)),
    ("diratime", clear(MOUNT_ATTR_NODIRATIME)),
    ("dirsync", superblock(libc::MS_DIRSYNC)),
    ("exec", clear(MOUNT_ATTR_NOEXEC)),
    ("idmap", IdMap { recursive: false }),
    ("iversion", superblock(libc::MS_I_VERSION)),
    ("lazytime", superblock(libc::MS_LAZYTIME)),
    ("loud", not_superblock(libc::MS_SILENT)),
    ("mand", superblock(libc::MS_MANDLOCK)),
    ("noatime", atime(MOUNT_ATTR_NOATIME, false)),
    ("nodev", set(MOUNT_ATTR_NODEV)),
    ("nodiratime", set(MOUNT_ATTR_NODIRATIME)),
    ("noexec", set(MOUNT_ATTR_NOEXEC)),
    ("noiversion", not_superblock(libc::MS_I_VERSION)),
    ("nolazytime", not_superblock(libc::MS_LAZYTIME)),
    ("nomand", not_superblock(libc::MS_MANDLOCK)),
    // As in mount(8): relatime is the kernel's default if no mode is chosen.
    ("norelatime", NoOp),
    ("nostrictatime", relatime(MOUNT_ATTR_NOATIME, false)),
    ("nosuid", set(MOUNT_ATTR_NOSUID)),
    ("nosymfollow", set(MOUNT_ATTR_NOSYMFOLLOW)),
    ("private", propagation(libc::MS_PRIVATE)),
    ("ratime", relatime(MOUNT_ATTR_STRICTATIME, true)),
    ("rbind", Bind { recursive: true }),
    ("rdev", clear_all(MOUNT_ATTR_NODEV)),
    ("rdiratime", clear_all(MOUNT_ATTR_NODIRATIME)),
    ("relatime", relatime(0, false)),
    ("remount", Remount),
    ("rexec", clear_all(MOUNT_ATTR_NOEXEC)),
    ("ridmap", IdMap { recursive: true }),
    ("rnoatime", atime(MOUNT_ATTR_NOATIME, true)),
    ("rnodev", set_all(MOUNT_ATTR_NODEV)),
    ("rnodiratime", set_all(MOUNT_ATTR_NODIRATIME)),
    ("rnoexec", set_all(MOUNT_ATTR_NOEXEC)),
    ("rnorelatime", NoOp),
    ("rnostrictatime", relatime(MOUNT_ATTR_NOATIME, true)),
    ("rnosuid", set_all(MOUNT_ATTR_NOSUID)),
    ("rnosymfollow", set_all(MOUNT_ATTR_NOSYMFOLLOW)),
    ("ro", ReadOnly(true)),
    ("rprivate", propagation(libc::MS_PRIVATE | libc::MS_REC)),
    ("rrelatime", relatime(0, true)),
    ("rro", set_all(MOUNT_ATTR_RDONLY)),
    ("rrw", clear_all(MOUNT_ATTR_RDONLY)),
    ("rshared", propagation(libc::MS_SHARED | libc::MS_REC)),
    ("rslave", propagation(libc::MS_SLAVE | libc::MS_REC)),
    ("rstrictatime", atime(MOUNT_ATTR_STRICTATIME, true)),
    ("rsuid", clear_all(MOUNT_ATTR_NOSUID)),
    ("rsymfollow", clear_all(MOUNT_ATTR_NOSYMFOLLOW)),
    ("runbindable", propagation(libc::MS_UNBINDABLE | libc::MS_REC)),
    ("rw", ReadOnly(false)),
    ("shared", propagation(libc::MS_SHARED)),
    ("silent", superblock(libc::MS_SILENT)),
    ("slave", propagation(libc::MS_SLAVE)),
    ("src-nofollow", OptionEffect::SourceLink(SourceLink::Itself)),
    ("strictatime", atime(MOUNT_ATTR_STRICTATIME, false)),
    ("suid", clear(MOUNT_ATTR_NOSUID)),
    ("symfollow", clear(MOUNT_ATTR_NOSYMFOLLOW)),
    ("sync", superblock(libc::MS_SYNCHRONOUS)),
    ("tmpcopyup", CopyUp),
    ("unbindable", propagation(libc::MS_UNBINDABLE)),
];

/// The effect of the option `word`; `None` for an option of the file system.
pub(super) fn option_effect(word: &str) -> Option<OptionEffect> {
    let found = OPTIONS.binary_search_by(|(name, _)| (*name).cmp(word)).ok()?;
    Some(OPTIONS[found].1)
}

/// The MS_* flags of a propagation type, for `linux.rootfsPropagation`.
pub(in super::super) fn propagation_of(word: &str) -> Option<u64> {
    match option_effect(word)? {
        OptionEffect::Propagation(flags) => Some(flags),
        _ => None,
    }
}

/// The combined options of a mount.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ParsedMountOptions {
    /// MOUNT_ATTR_* bits of the mount itself: set, cleared.
    pub(super) mount_attributes: (u64, u64),
    /// MOUNT_ATTR_* bits of the whole tree: set, cleared.
    pub(super) tree_attributes: (u64, u64),
    /// MS_* flags of the superblock.
    pub(super) superblock: u64,
    /// Whether a bind mount is recursive; `None` if it is not a bind mount.
    pub(super) bind: Option<bool>,
    pub(super) remount: bool,
    pub(super) propagation: Vec<u64>,
    pub(super) copy_up: bool,
    /// Whether the id mapping is recursive; `None` without `idmap` and `ridmap`.
    pub(super) id_map: Option<bool>,
    /// What is mounted if the source is a symbolic link.
    pub(super) source_link: SourceLink,
    /// Whether a symbolic link at the destination is covered itself.
    pub(super) covers_link: bool,
    /// Options of the file system: index of the array element, name, value.
    pub(super) filesystem_options: Vec<(usize, String, Option<String>)>,
}

/// Combines the options in order: a later one overrides.
pub(super) fn parse_options(options: &[String]) -> ParsedMountOptions {
    let mut taken = ParsedMountOptions::default();
    for (index, text) in options.iter().enumerate() {
        for word in split_options(text) {
            match option_effect(word) {
                Some(meaning) => taken.apply(meaning),
                None => taken.filesystem_options.push(filesystem_option(index, word)),
            }
        }
    }
    taken
}

impl ParsedMountOptions {
    fn apply(&mut self, effect: OptionEffect) {
        match effect {
            NoOp => {}
            OptionEffect::Attribute { set, clear, recursive } => {
                update_attributes(self.attributes_mut(recursive), set, clear)
            }
            OptionEffect::Relatime { unless, recursive } => {
                let bits = self.attributes_mut(recursive);
                if bits.0 & unless == 0 {
                    update_attributes(bits, 0, MOUNT_ATTR__ATIME)
                }
            }
            OptionEffect::Superblock { set, clear } => self.superblock = self.superblock & !clear | set,
            ReadOnly(true) => {
                update_attributes(&mut self.mount_attributes, MOUNT_ATTR_RDONLY, 0);
                self.superblock |= libc::MS_RDONLY
            }
            ReadOnly(false) => {
                update_attributes(&mut self.mount_attributes, 0, MOUNT_ATTR_RDONLY);
                self.superblock &= !libc::MS_RDONLY
            }
            Bind { recursive } => self.bind = Some(recursive || self.bind == Some(true)),
            Remount => self.remount = true,
            OptionEffect::Propagation(flags) => self.propagation.push(flags),
            CopyUp => self.copy_up = true,
            IdMap { recursive } => self.id_map = Some(recursive),
            // A copy follows the link no more than the link itself, whatever the order.
            OptionEffect::SourceLink(link) if self.source_link != SourceLink::Copy => self.source_link = link,
            OptionEffect::SourceLink(_) => {}
            CoverLink => self.covers_link = true,
        }
    }

    fn attributes_mut(&mut self, recursive: bool) -> &mut (u64, u64) {
        if recursive { &mut self.tree_attributes } else { &mut self.mount_attributes }
    }
}

/// Sets and clears bits. A bit that is set is removed from the cleared bits, except in the access time
/// field.
fn update_attributes(bits: &mut (u64, u64), set: u64, clear: u64) {
    bits.0 = bits.0 & !clear | set;
    bits.1 = bits.1 & !set | clear;
}

/// Splits one element into its options: it may contain several, separated by commas, as in mount(8). Commas
/// in double quotes or after a backslash do not separate: SELinux labels and directories of overlays can
/// contain them.
fn split_options(text: &str) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    let parts = text.split(move |c: char| {
        let literal = std::mem::take(&mut escaped);
        match c {
            '"' if !literal => quoted = !quoted,
            '\\' if !literal => escaped = true,
            ',' => return !quoted && !literal,
            _ => {}
        }
        false
    });
    parts.filter(|word| !word.is_empty())
}

/// Parses an option of the file system; quotes around the value are removed.
fn filesystem_option(index: usize, word: &str) -> (usize, String, Option<String>) {
    let (name, value) = match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word, None),
    };
    let bare = |value: &str| {
        let inner = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        inner.unwrap_or(value).to_owned()
    };
    (index, name.to_owned(), value.map(bare))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(options: &[&str]) -> ParsedMountOptions {
        parse_options(&options.iter().map(|option| (*option).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn the_table_is_in_the_order_that_the_search_needs() {
        assert!(OPTIONS.is_sorted_by(|(one, _), (other, _)| one < other));
    }

    #[test]
    fn the_later_option_wins() {
        assert_eq!(taken(&["nosuid", "suid"]).mount_attributes, (0, MOUNT_ATTR_NOSUID));
        assert_eq!(taken(&["suid", "nosuid"]).mount_attributes, (MOUNT_ATTR_NOSUID, 0));
        assert_eq!(taken(&["ro", "rw"]).mount_attributes, (0, MOUNT_ATTR_RDONLY));
        assert_eq!(taken(&["rw", "ro"]).superblock, libc::MS_RDONLY);
        assert_eq!(taken(&["sync", "async", "lazytime"]).superblock, libc::MS_LAZYTIME);
        assert_eq!(taken(&["rro", "rrw"]).tree_attributes, (0, MOUNT_ATTR_RDONLY));
        assert_eq!(taken(&["bind", "rbind"]).bind, Some(true));
        assert_eq!(taken(&["rbind", "bind"]).bind, Some(true));
    }

    #[test]
    fn a_choice_of_access_times_clears_the_whole_field() {
        let all = MOUNT_ATTR__ATIME;
        assert_eq!(
            taken(&["noatime"]).mount_attributes,
            (MOUNT_ATTR_NOATIME, all & !MOUNT_ATTR_NOATIME | all)
        );
        assert_eq!(taken(&["strictatime", "noatime"]).mount_attributes, (MOUNT_ATTR_NOATIME, all));
        assert_eq!(taken(&["noatime", "strictatime"]).mount_attributes, (MOUNT_ATTR_STRICTATIME, all));
        assert_eq!(taken(&["noatime", "relatime"]).mount_attributes, (0, all));
        assert_eq!(taken(&["strictatime", "atime"]).mount_attributes, (MOUNT_ATTR_STRICTATIME, all));
        assert_eq!(taken(&["noatime", "atime"]).mount_attributes, (0, all));
        assert_eq!(taken(&["noatime", "nostrictatime"]).mount_attributes, (MOUNT_ATTR_NOATIME, all));
        assert_eq!(taken(&["strictatime", "nostrictatime"]).mount_attributes, (0, all));
        assert_eq!(taken(&["norelatime"]).mount_attributes, (0, 0));
        assert_eq!(taken(&["rstrictatime"]).tree_attributes, (MOUNT_ATTR_STRICTATIME, all));
    }

    #[test]
    fn what_is_not_in_the_table_goes_to_the_file_system() {
        let all =
            taken(&["size=64k,mode=755", "newinstance", "context=\"u:r:t:s0:c1,c2\"", "lowerdir=/a\\,b,ro"]);
        let text = |value: &str| Some(value.to_owned());
        let expected = [
            (0, "size".to_owned(), text("64k")),
            (0, "mode".to_owned(), text("755")),
            (1, "newinstance".to_owned(), None),
            (2, "context".to_owned(), text("u:r:t:s0:c1,c2")),
            (3, "lowerdir".to_owned(), text("/a\\,b")),
        ];
        assert_eq!(all.filesystem_options, expected);
        assert_eq!(all.mount_attributes.0, MOUNT_ATTR_RDONLY);
    }
}
