//! A session's own file system in a file: `<session>/disk.img`, mounted at `<session>/disk` for as long as a sandbox
//! runs (DECISIONS 29). It holds home and workspace where the file system of the sessions has no project quotas.
//!
//! ```text
//! no file ── made: holes and a few blocks ──> disk.img ── a loop device ──> mounted ── the last process ends ──┐
//!                                                 ^──────────── the kernel unmounts, and lets the device go ───┘
//! ```
//! It is mounted in a mount namespace of this process, which the sandbox and the watcher come from: when all of them
//! have ended, by whatever, nothing is left to unmount. What is in it was written by the kernel alone: no sandbox
//! sees the file itself.

#![expect(
    clippy::disallowed_methods,
    reason = "the session's own directory, where no program of a sandbox can write"
)]

mod ext4;

use crate::error::{Code, Error, Result};
use crate::sys::file::{self, FileId, Resolve};
use crate::sys::{Errno, SysResult, loopback, mount, random};
use ext4::{BLOCK, Layout};
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// How often somebody else may take a device before us.
const TRIES: usize = 64;
/// How long the device of a sandbox that was killed a moment ago may take to go.
const PATIENCE: Duration = Duration::from_secs(5);
/// The room for a new name, while a file is made.
const NEW: &str = "disk.img.new";

/// The image of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    session: PathBuf,
}

impl Image {
    /// Of the session in this directory, whether it has one or not.
    pub fn of(session: &Path) -> Self {
        Image { session: session.to_owned() }
    }

    /// Its file.
    pub fn file(&self) -> PathBuf {
        self.session.join("disk.img")
    }

    /// Where it is mounted.
    pub fn place(&self) -> PathBuf {
        self.session.join("disk")
    }

    /// Whether it is there.
    pub fn exists(&self) -> bool {
        self.file().exists()
    }

    /// Refuses what is to be done with the trees of a session that has one: they are not where a session's are.
    ///
    /// # Errors
    /// [`Code::Unsupported`] when there is one.
    pub fn refuse(&self) -> Result<()> {
        if !self.exists() {
            return Ok(());
        }
        let (file, place) = (self.file(), self.place());
        let (file, place) = (file.display(), place.display());
        let message = format!("look at the changes of a session that has them in a file system of {file}");
        Err(Error::new(Code::Unsupported, message)
            .hint(format!("when nobody serves it: mount -o loop {file} {place}, and take over by hand")))
    }

    /// Takes it away again from this process, which has mounted it.
    pub fn unmount(&self) {
        let _ = nix::mount::umount2(&self.place(), nix::mount::MntFlags::MNT_DETACH);
    }

    /// Removes it; only when nothing is in it that anybody would miss.
    pub fn remove(&self) {
        let _ = fs::remove_file(self.file());
    }

    /// Mounts it in a new mount namespace of this process, which has one thread; makes it first, with room for so
    /// many bytes and inodes, where it is not there.
    ///
    /// # Errors
    /// [`Code::Invalid`] when it is there with other limits; [`Code::Exists`] when it is mounted elsewhere;
    /// [`Code::Unsupported`] when there is none of that size; [`Code::System`].
    pub fn mount(&self, bytes: u64, inodes: u64) -> Result<()> {
        let layout = Layout::new(bytes, inodes).ok_or_else(|| {
            Error::new(
                Code::Unsupported,
                format!("make an image with {bytes} bytes and {inodes} inodes: ext4 has no such size"),
            )
            .hint("an inode for each 8M, and 4T at most: choose other --disk and --inodes")
        })?;
        if !self.exists() {
            self.make(&layout)?;
        }
        let path = self.file();
        let fail = |e: Errno| Error::system(format_args!("mount {}", path.display()), e.desc());
        let image = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(&path);
        let image = image.map_err(|e| Error::system(format_args!("open {}", path.display()), e))?;
        self.check(&image, &layout)?;
        self.wait_until_free(&image)?;
        // Nothing that the host mounts later is missed, and nothing that we mount gets there.
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).map_err(fail)?;
        let root = file::open(file::cwd(), c"/", libc::O_PATH, 0, Resolve::Ordinary).map_err(fail)?;
        mount::change(root.as_fd(), 0, 0, libc::MS_SLAVE, true).map_err(fail)?;
        crate::state::own_directory(&self.place())?;
        let place = File::open(self.place()).map_err(|e| Error::system("open the place of an image", e))?;
        let (name, device) = attach(&image).map_err(|errno| {
            fail(errno)
                .hint("give saggar /dev/loop-control and loop devices, or leave --disk and --inodes out")
        })?;
        let mounted = filesystem(&name).and_then(|tree| mount::attach(tree.as_fd(), place.as_fd()));
        mounted.map_err(|errno| {
            // Nobody has mounted it: closing it would do, and this is sooner.
            let _ = loopback::clear(device.as_fd());
            fail(errno)
        })
    }

    fn make(&self, layout: &Layout) -> Result<()> {
        let (new, path) = (self.session.join(NEW), self.file());
        let fail = |e: &dyn std::fmt::Display| Error::system(format_args!("make {}", path.display()), e);
        let mut uuid = [0; 16];
        random::fill(&mut uuid).map_err(|e| fail(&e.desc()))?;
        let now = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
        let write = || -> std::io::Result<()> {
            let mut options = OpenOptions::new();
            let file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
            file.set_len(layout.size())?;
            for (number, block) in layout.format(uuid, u32::try_from(now).unwrap_or(u32::MAX)) {
                file.write_all_at(&block, number * BLOCK)?;
            }
            file.sync_all()?;
            fs::rename(&new, &path)
        };
        write().map_err(|e| fail(&e))
    }

    /// Whether it has these limits: the kernel can change none of them.
    fn check(&self, image: &File, layout: &Layout) -> Result<()> {
        let mut superblock = vec![0; 1024];
        let shown = self.file();
        let read = image.read_exact_at(&mut superblock, 1024);
        read.map_err(|e| Error::system(format_args!("read {}", shown.display()), e))?;
        let size = image.metadata().map_or(0, |meta| meta.len());
        if layout.is_of(&superblock) && size == layout.size() {
            return Ok(());
        }
        let message = format!("use {}: the session was begun with other limits of its disk", shown.display());
        Err(Error::new(Code::Invalid, message)
            .hint("say the --disk and --inodes of its first run, or begin another session"))
    }

    /// Two devices of one file would be two file systems that know nothing of each other.
    fn wait_until_free(&self, image: &File) -> Result<()> {
        let ours = file::identity(image.as_fd())
            .map_err(|e| Error::system(format_args!("look at {}", self.file().display()), e.desc()))?;
        let begin = Instant::now();
        while let Some(device) = device_of(ours) {
            if begin.elapsed() > PATIENCE {
                let message = format!("use {}: {} has it", self.file().display(), device.display());
                return Err(Error::new(Code::Exists, message)
                    .hint(format!("unmount it: umount {}", device.display())));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

/// The loop device of a file, if it has one.
fn device_of(image: FileId) -> Option<PathBuf> {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let bound = devices.filter(|device| device.path().join("loop").exists());
    let mut paths = bound.map(|device| Path::new("/dev").join(device.file_name()));
    paths.find(|path| {
        let device = File::open(path);
        device.is_ok_and(|device| loopback::file_of(device.as_fd()) == Ok(image))
    })
}

/// Gives the file a device of its own; the device stays as long as it is open or mounted.
fn attach(image: &File) -> SysResult<(CString, File)> {
    let open = |path: &str| {
        let opened = OpenOptions::new().read(true).write(true).open(path);
        opened.map_err(|e| e.raw_os_error().map_or(Errno::EIO, Errno::from_raw))
    };
    let control = open("/dev/loop-control")?;
    for _ in 0..TRIES {
        let path = format!("/dev/loop{}", loopback::free(control.as_fd())?);
        let device = open(&path)?;
        match loopback::configure(device.as_fd(), image.as_fd(), u32::try_from(BLOCK).unwrap_or(0)) {
            Err(Errno::EBUSY) => continue,
            other => other?,
        }
        return Ok((CString::new(path).map_err(|_| Errno::EINVAL)?, device));
    }
    Err(Errno::EBUSY)
}

/// The file system on a device. What is removed there is given back to the host.
fn filesystem(device: &CString) -> SysResult<std::os::fd::OwnedFd> {
    let options = [(c"source", Some(device.as_c_str())), (c"discard", None)];
    mount::new_filesystem(c"ext4", &options, mount::MOUNT_ATTR_NOSUID | mount::MOUNT_ATTR_NODEV)
}
