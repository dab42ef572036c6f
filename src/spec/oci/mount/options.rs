//! The words of mount options: one table for the parser and for `features`.

use libc::{
    MOUNT_ATTR__ATIME, MOUNT_ATTR_NOATIME, MOUNT_ATTR_NODEV, MOUNT_ATTR_NODIRATIME, MOUNT_ATTR_NOEXEC,
    MOUNT_ATTR_NOSUID, MOUNT_ATTR_NOSYMFOLLOW, MOUNT_ATTR_RDONLY, MOUNT_ATTR_STRICTATIME,
};

/// What an option does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Meaning {
    /// Nothing: it asks for what holds anyway.
    Nothing,
    /// Bits of mount_setattr(2) that are set and cleared, on the mount or on the whole tree.
    Attribute { set: u64, clear: u64, recursive: bool },
    /// The access time goes back to the kernel's default, `relatime`, unless this choice was made before.
    Relatime { unless: u64, recursive: bool },
    /// MS_* flags of the file system itself.
    Superblock { set: u64, clear: u64 },
    /// Both of the mount and of the file system: `ro` (true) and `rw`.
    ReadOnly(bool),
    /// A tree of the host is mounted.
    Bind { recursive: bool },
    /// What is mounted there changes.
    Remount,
    /// MS_* flags of a propagation (mount_namespaces(7)).
    Propagation(u64),
    /// What lies at the path is copied into the new file system.
    CopyUp,
    /// Owners are mapped.
    IdMap { recursive: bool },
}

use Meaning::{Bind, CopyUp, IdMap, Nothing, ReadOnly, Remount};

const fn set(bits: u64) -> Meaning {
    Meaning::Attribute { set: bits, clear: 0, recursive: false }
}

const fn clear(bits: u64) -> Meaning {
    Meaning::Attribute { set: 0, clear: bits, recursive: false }
}

const fn set_all(bits: u64) -> Meaning {
    Meaning::Attribute { set: bits, clear: 0, recursive: true }
}

const fn clear_all(bits: u64) -> Meaning {
    Meaning::Attribute { set: 0, clear: bits, recursive: true }
}

/// A choice of access times: the kernel wants all bits of the field cleared with it (mount_setattr(2)).
const fn atime(choice: u64, recursive: bool) -> Meaning {
    Meaning::Attribute { set: choice, clear: MOUNT_ATTR__ATIME, recursive }
}

const fn relatime(unless: u64, recursive: bool) -> Meaning {
    Meaning::Relatime { unless, recursive }
}

const fn superblock(bits: u64) -> Meaning {
    Meaning::Superblock { set: bits, clear: 0 }
}

const fn not_superblock(bits: u64) -> Meaning {
    Meaning::Superblock { set: 0, clear: bits }
}

const fn propagation(bits: u64) -> Meaning {
    Meaning::Propagation(bits)
}

/// Every option that is not the file system's own, in the order of its name (config.md, Linux mount options).
pub(in super::super) const OPTIONS: [(&str, Meaning); 62] = [
    ("async", not_superblock(libc::MS_SYNCHRONOUS)),
    ("atime", relatime(MOUNT_ATTR_STRICTATIME, false)),
    ("bind", Bind { recursive: false }),
    ("defaults", Nothing),
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
    // As mount(8): relatime is what the kernel does where nothing else is chosen.
    ("norelatime", Nothing),
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
    ("rnorelatime", Nothing),
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
    ("strictatime", atime(MOUNT_ATTR_STRICTATIME, false)),
    ("suid", clear(MOUNT_ATTR_NOSUID)),
    ("symfollow", clear(MOUNT_ATTR_NOSYMFOLLOW)),
    ("sync", superblock(libc::MS_SYNCHRONOUS)),
    ("tmpcopyup", CopyUp),
    ("unbindable", propagation(libc::MS_UNBINDABLE)),
];

/// What `word` means; `None` for an option of the file system itself.
pub(super) fn meaning(word: &str) -> Option<Meaning> {
    let found = OPTIONS.binary_search_by(|(name, _)| (*name).cmp(word)).ok()?;
    Some(OPTIONS[found].1)
}

/// The MS_* flags of a word for a propagation, for `linux.rootfsPropagation`.
pub(in super::super) fn propagation_of(word: &str) -> Option<u64> {
    match meaning(word)? {
        Meaning::Propagation(flags) => Some(flags),
        _ => None,
    }
}

/// All options of a mount, taken together.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    /// Bits of the mount itself: set, cleared.
    pub(super) own: (u64, u64),
    /// Bits of the whole tree: set, cleared.
    pub(super) tree: (u64, u64),
    /// MS_* flags of the file system.
    pub(super) superblock: u64,
    /// Recursive or not.
    pub(super) bind: Option<bool>,
    pub(super) remount: bool,
    pub(super) propagation: Vec<u64>,
    pub(super) copy_up: bool,
    /// Recursive or not.
    pub(super) id_map: Option<bool>,
    /// Options of the file system itself: which element they come from, name, value.
    pub(super) data: Vec<(usize, String, Option<String>)>,
}

/// Takes the options in their order: a later one wins.
pub(super) fn take(options: &[String]) -> Taken {
    let mut taken = Taken::default();
    for (index, text) in options.iter().enumerate() {
        for word in words(text) {
            match meaning(word) {
                Some(meaning) => taken.apply(meaning),
                None => taken.data.push(data(index, word)),
            }
        }
    }
    taken
}

impl Taken {
    fn apply(&mut self, meaning: Meaning) {
        match meaning {
            Nothing => {}
            Meaning::Attribute { set, clear, recursive } => attribute(self.bits(recursive), set, clear),
            Meaning::Relatime { unless, recursive } => {
                let bits = self.bits(recursive);
                if bits.0 & unless == 0 {
                    attribute(bits, 0, MOUNT_ATTR__ATIME)
                }
            }
            Meaning::Superblock { set, clear } => self.superblock = self.superblock & !clear | set,
            ReadOnly(true) => {
                attribute(&mut self.own, MOUNT_ATTR_RDONLY, 0);
                self.superblock |= libc::MS_RDONLY
            }
            ReadOnly(false) => {
                attribute(&mut self.own, 0, MOUNT_ATTR_RDONLY);
                self.superblock &= !libc::MS_RDONLY
            }
            Bind { recursive } => self.bind = Some(recursive || self.bind == Some(true)),
            Remount => self.remount = true,
            Meaning::Propagation(flags) => self.propagation.push(flags),
            CopyUp => self.copy_up = true,
            IdMap { recursive } => self.id_map = Some(recursive),
        }
    }

    fn bits(&mut self, recursive: bool) -> &mut (u64, u64) {
        if recursive { &mut self.tree } else { &mut self.own }
    }
}

/// Sets and clears bits; what is set is no longer cleared, but for the field of access times.
fn attribute(bits: &mut (u64, u64), set: u64, clear: u64) {
    bits.0 = bits.0 & !clear | set;
    bits.1 = bits.1 & !set | clear;
}

/// The options of one element, which may be several with commas, as mount(8) takes them. Commas inside double
/// quotes and after a backslash do not part: labels of SELinux and directories of overlays hold some.
fn words(text: &str) -> impl Iterator<Item = &str> {
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

/// An option of the file system; quotes around a value are not part of it.
fn data(index: usize, word: &str) -> (usize, String, Option<String>) {
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

    fn taken(options: &[&str]) -> Taken {
        take(&options.iter().map(|option| (*option).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn the_table_is_in_the_order_that_the_search_needs() {
        assert!(OPTIONS.is_sorted_by(|(one, _), (other, _)| one < other));
    }

    #[test]
    fn the_later_option_wins() {
        assert_eq!(taken(&["nosuid", "suid"]).own, (0, MOUNT_ATTR_NOSUID));
        assert_eq!(taken(&["suid", "nosuid"]).own, (MOUNT_ATTR_NOSUID, 0));
        assert_eq!(taken(&["ro", "rw"]).own, (0, MOUNT_ATTR_RDONLY));
        assert_eq!(taken(&["rw", "ro"]).superblock, libc::MS_RDONLY);
        assert_eq!(taken(&["sync", "async", "lazytime"]).superblock, libc::MS_LAZYTIME);
        assert_eq!(taken(&["rro", "rrw"]).tree, (0, MOUNT_ATTR_RDONLY));
        assert_eq!(taken(&["bind", "rbind"]).bind, Some(true));
        assert_eq!(taken(&["rbind", "bind"]).bind, Some(true));
    }

    #[test]
    fn a_choice_of_access_times_clears_the_whole_field() {
        let all = MOUNT_ATTR__ATIME;
        assert_eq!(taken(&["noatime"]).own, (MOUNT_ATTR_NOATIME, all & !MOUNT_ATTR_NOATIME | all));
        assert_eq!(taken(&["strictatime", "noatime"]).own, (MOUNT_ATTR_NOATIME, all));
        assert_eq!(taken(&["noatime", "strictatime"]).own, (MOUNT_ATTR_STRICTATIME, all));
        assert_eq!(taken(&["noatime", "relatime"]).own, (0, all));
        assert_eq!(taken(&["strictatime", "atime"]).own, (MOUNT_ATTR_STRICTATIME, all));
        assert_eq!(taken(&["noatime", "atime"]).own, (0, all));
        assert_eq!(taken(&["noatime", "nostrictatime"]).own, (MOUNT_ATTR_NOATIME, all));
        assert_eq!(taken(&["strictatime", "nostrictatime"]).own, (0, all));
        assert_eq!(taken(&["norelatime"]).own, (0, 0));
        assert_eq!(taken(&["rstrictatime"]).tree, (MOUNT_ATTR_STRICTATIME, all));
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
        assert_eq!(all.data, expected);
        assert_eq!(all.own.0, MOUNT_ATTR_RDONLY);
    }
}
