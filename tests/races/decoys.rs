//! What the adversary puts in the place of a name, and how it puts the name back.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, lchown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::Mode;
use rustix::fs::{CWD, OFlags, RenameFlags, renameat_with};

/// What is in the place of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decoy {
    /// A link to a file or a directory of the victim, whichever the name was.
    Link,
    /// A link to the other of the two.
    OtherLink,
    /// Something of the same kind; what was in a directory are links to the victim.
    Like,
    /// A directory instead of a file, a file instead of a directory.
    Unlike,
    Fifo,
    Socket,
    /// A second name of a file of the victim.
    HardLink,
    /// The name itself, under a mount of what the victim has. Root only.
    Mount,
    /// Nothing at all.
    Nothing,
}

impl Decoy {
    pub(super) const ALL: [Decoy; 9] = [
        Decoy::Link,
        Decoy::Like,
        Decoy::Mount,
        Decoy::Fifo,
        Decoy::HardLink,
        Decoy::Nothing,
        Decoy::Unlike,
        Decoy::OtherLink,
        Decoy::Socket,
    ];
}

/// Makes decoys.
pub(super) struct Decoys {
    /// A directory on the file system of the trees.
    store: PathBuf,
    victim: PathBuf,
    /// Who owns the trees.
    owner: (u32, u32),
    made: usize,
}

/// A name that is not what it was.
#[derive(Debug)]
pub(super) enum Exchanged {
    /// What it was is in the store.
    Swapped { stored: PathBuf, name: PathBuf },
    /// It was not there: its inode, and a place for it in the store.
    Planted { inode: u64, stored: PathBuf, name: PathBuf },
    /// What is mounted there, wherever its directory goes.
    Mounted { over: OwnedFd },
    /// It is in the store.
    Gone { stored: PathBuf, name: PathBuf },
}

impl Decoys {
    /// For trees of the owner of `tree`, with an empty directory `store` of its own.
    pub(super) fn new(store: PathBuf, victim: PathBuf, tree: &Path) -> Self {
        let meta = fs::metadata(tree).unwrap();
        Decoys { store, victim, owner: (meta.uid(), meta.gid()), made: 0 }
    }

    /// Puts a decoy in the place of `name`; an error when it is none for this name.
    pub(super) fn exchange(&mut self, decoy: Decoy, name: &Path) -> io::Result<Exchanged> {
        self.made += 1;
        let stored = self.store.join(self.made.to_string());
        let meta = name.symlink_metadata().ok();
        let is_dir = meta.as_ref().is_some_and(fs::Metadata::is_dir);
        let name = name.to_owned();
        if decoy == Decoy::Nothing {
            fs::rename(&name, &stored)?;
            return Ok(Exchanged::Gone { stored, name });
        }
        if decoy == Decoy::Mount {
            let from = self.victim.join(if is_dir { "mounted" } else { "linked" });
            if meta.is_none_or(|meta| meta.is_symlink()) {
                return Err(io::ErrorKind::NotFound.into());
            }
            mount(Some(&from), &name, None::<&str>, MsFlags::MS_BIND, None::<&str>)?;
            let over = rustix::fs::open(&name, OFlags::PATH | OFlags::CLOEXEC, rustix::fs::Mode::empty())?;
            return Ok(Exchanged::Mounted { over });
        }
        self.make(decoy, is_dir, &name, &stored)?;
        if meta.is_some() {
            renameat_with(CWD, &stored, CWD, &name, RenameFlags::EXCHANGE)?;
            return Ok(Exchanged::Swapped { stored, name });
        }
        let inode = stored.symlink_metadata()?.ino();
        renameat_with(CWD, &stored, CWD, &name, RenameFlags::NOREPLACE)?;
        Ok(Exchanged::Planted { inode, stored, name })
    }

    fn make(&self, decoy: Decoy, is_dir: bool, name: &Path, at: &Path) -> io::Result<()> {
        let victim = |name: &str| self.victim.join(name);
        match decoy {
            Decoy::Link => symlink(victim(if is_dir { "dir" } else { "file" }), at)?,
            Decoy::OtherLink => symlink(victim(if is_dir { "dir/run" } else { "" }), at)?,
            Decoy::Fifo => nix::unistd::mkfifo(at, Mode::S_IRWXU)?,
            Decoy::Socket => drop(UnixListener::bind(at)?),
            // Its owner stays, since it is the victim's.
            Decoy::HardLink => return fs::hard_link(victim("linked"), at),
            Decoy::Like | Decoy::Unlike if is_dir != (decoy == Decoy::Like) => fs::write(at, "decoy\n")?,
            _ => self.make_directory(name, at)?,
        }
        lchown(at, Some(self.owner.0), Some(self.owner.1))
    }

    /// A directory with the names that `name` has, each a link out.
    fn make_directory(&self, name: &Path, at: &Path) -> io::Result<()> {
        fs::create_dir(at)?;
        let entries = fs::read_dir(name).into_iter().flatten().flatten();
        for entry in entries {
            let to = if entry.file_type()?.is_dir() { "dir" } else { "file" };
            symlink(self.victim.join(to), at.join(entry.file_name()))?;
        }
        Ok(())
    }
}

impl Exchanged {
    /// Puts the name back, unless the verb has moved it or put something else there.
    pub(super) fn put_back(self) {
        let no_replace = |from: &Path, to: &Path| renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE);
        let _ = match &self {
            Exchanged::Swapped { stored, name } => {
                let exchanged = renameat_with(CWD, stored, CWD, name, RenameFlags::EXCHANGE);
                exchanged.or_else(|_| no_replace(stored, name))
            }
            Exchanged::Planted { inode, stored, name } => {
                let is_it = name.symlink_metadata().is_ok_and(|meta| meta.ino() == *inode);
                if is_it { no_replace(name, stored) } else { Ok(()) }
            }
            Exchanged::Mounted { over } => {
                let path = format!("/proc/thread-self/fd/{}", over.as_raw_fd());
                umount2(path.as_str(), MntFlags::MNT_DETACH).unwrap();
                Ok(())
            }
            Exchanged::Gone { stored, name } => no_replace(stored, name),
        };
    }
}
