//! A session's own file system in a file: `<session>/disk.img`, mounted at `<session>/disk` while a sandbox runs
//! (DECISIONS 29). It contains home and workspace if the file system of the sessions has no project quotas.
//!
//! ```text
//! no file ── created: holes and a few blocks ──> disk.img ── a loop device ──> mounted ── the last process exits ──┐
//!                                                   ^──────────── the kernel unmounts, and frees the device ───────┘
//! ```
//! It is mounted in a mount namespace of this process, from which the sandbox and the watcher are forked. When all of
//! them have exited, for any reason, nothing is left to unmount. Only the kernel writes to the file: no sandbox can
//! access it.

#![expect(
    clippy::disallowed_methods,
    reason = "the session's own directory, where no program of a sandbox can write"
)]

mod ext4;

use ext4::{BLOCK_SIZE, Ext4Layout};
use saggar_sys::clock;
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::file::{self, FileId, Resolve};
use saggar_sys::replace_file::{SyncPolicy, Writers, replace_file};
use saggar_sys::{Errno, SysResult, loop_device, mount, random};
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Most attempts when another process takes the free device first.
const MAX_TRIES: usize = 64;
/// How long the device of a sandbox that was just killed may take to be freed.
const DETACH_TIMEOUT: Duration = Duration::from_secs(5);

/// The image of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskImage {
    session: PathBuf,
}

impl DiskImage {
    /// The image of the session in this directory, whether it exists or not.
    pub fn for_session(session: &Path) -> Self {
        DiskImage { session: session.to_owned() }
    }

    /// Path of the file.
    pub fn file_path(&self) -> PathBuf {
        self.session.join("disk.img")
    }

    /// Path of the mount point.
    pub fn mount_point(&self) -> PathBuf {
        self.session.join("disk")
    }

    /// Whether the file exists.
    pub fn exists(&self) -> bool {
        self.file_path().exists()
    }

    /// Rejects operations on the trees of a session with an image, in which the trees are not at their usual paths.
    ///
    /// # Errors
    /// [`Code::Unsupported`] when the image exists.
    pub fn reject_if_present(&self) -> Result<()> {
        if !self.exists() {
            return Ok(());
        }
        let (file, place) = (self.file_path(), self.mount_point());
        let (file, place) = (file.display(), place.display());
        let message = format!("look at the changes of a session that has them in a file system of {file}");
        Err(Error::new(Code::Unsupported, message).hint(format!(
            "when it is not served: mount -o loop {file} {place}, and copy the changes by hand"
        )))
    }

    /// Unmounts it in this process, which has mounted it.
    pub fn unmount(&self) {
        let _ = nix::mount::umount2(&self.mount_point(), nix::mount::MntFlags::MNT_DETACH);
    }

    /// Removes the file; call it only for an image without data of the user.
    pub fn remove(&self) {
        let _ = fs::remove_file(self.file_path());
    }

    /// Mounts it in a new mount namespace of this process, which must have one thread. Creates it first, with room for
    /// this many bytes and inodes, if it does not exist.
    ///
    /// # Errors
    /// [`Code::Invalid`] when it exists with other limits; [`Code::Exists`] when it is mounted elsewhere;
    /// [`Code::Unsupported`] when that size is not possible; [`Code::System`].
    pub fn mount(&self, bytes: u64, inodes: u64) -> Result<()> {
        let layout = Ext4Layout::new(bytes, inodes).ok_or_else(|| {
            Error::new(
                Code::Unsupported,
                format!("make an image with {bytes} bytes and {inodes} inodes: ext4 has no such size"),
            )
            .hint("an inode for each 8M, and 4T at most: choose other --disk and --inodes")
        })?;
        if !self.exists() {
            self.create(&layout)?;
        }
        let path = self.file_path();
        let fail = |e: Errno| Error::system(format_args!("mount {}", path.display()), e.desc());
        let image = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(&path);
        let image = image.map_err(|e| Error::system(format_args!("open {}", path.display()), e))?;
        self.check_limits(&image, &layout)?;
        self.wait_until_free(&image)?;
        // Later mounts of the host are not needed, and our mounts must not propagate to the host.
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).map_err(fail)?;
        let root = file::open(file::cwd(), c"/", libc::O_PATH, 0, Resolve::Ordinary).map_err(fail)?;
        mount::change(root.as_fd(), 0, 0, libc::MS_SLAVE, true).map_err(fail)?;
        saggar_sandbox::state::ensure_private_directory(&self.mount_point())?;
        let place =
            File::open(self.mount_point()).map_err(|e| Error::system("open the place of an image", e))?;
        let (name, device) = attach_loop_device(&image).map_err(|errno| {
            fail(errno)
                .hint("give saggar /dev/loop-control and loop devices, or leave --disk and --inodes out")
        })?;
        let mounted = open_filesystem(&name).and_then(|tree| mount::attach(tree.as_fd(), place.as_fd()));
        mounted.map_err(|errno| {
            // It is not mounted: a close would free the device too, but later.
            let _ = loop_device::clear(device.as_fd());
            fail(errno)
        })
    }

    fn create(&self, layout: &Ext4Layout) -> Result<()> {
        let path = self.file_path();
        let fail = |e: &dyn std::fmt::Display| Error::system(format_args!("make {}", path.display()), e);
        let mut uuid = [0; 16];
        random::fill(&mut uuid).map_err(|e| fail(&e.desc()))?;
        let now = clock::since_epoch().as_secs();
        let write = |file: &mut File| {
            file.set_len(layout.size())?;
            for (number, block) in layout.format(uuid, u32::try_from(now).unwrap_or(u32::MAX)) {
                file.write_all_at(&block, number * BLOCK_SIZE)?;
            }
            Ok(())
        };
        replace_file(&path, Writers::One, 0o600, SyncPolicy::Content, write).map_err(|e| fail(&e))
    }

    /// Checks that it has these limits: the kernel cannot change them.
    fn check_limits(&self, image: &File, layout: &Ext4Layout) -> Result<()> {
        let mut superblock = vec![0; 1024];
        let shown = self.file_path();
        let read = image.read_exact_at(&mut superblock, 1024);
        read.map_err(|e| Error::system(format_args!("read {}", shown.display()), e))?;
        let size = image.metadata().map_or(0, |meta| meta.len());
        if layout.matches(&superblock) && size == layout.size() {
            return Ok(());
        }
        let message = format!("use {}: the session was begun with other limits of its disk", shown.display());
        Err(Error::new(Code::Invalid, message)
            .hint("use the --disk and --inodes of its first run, or start another session"))
    }

    /// Two loop devices of one file would be two independent file systems on the same blocks.
    fn wait_until_free(&self, image: &File) -> Result<()> {
        let ours = file::identity(image.as_fd())
            .map_err(|e| Error::system(format_args!("look at {}", self.file_path().display()), e.desc()))?;
        let begin = Instant::now();
        while let Some(device) = find_loop_device(ours) {
            if begin.elapsed() > DETACH_TIMEOUT {
                let message = format!("use {}: {} has it", self.file_path().display(), device.display());
                return Err(Error::new(Code::Exists, message)
                    .hint(format!("unmount it: umount {}", device.display())));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

/// The loop device of a file, if it has one.
fn find_loop_device(image: FileId) -> Option<PathBuf> {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let bound = devices.filter(|device| device.path().join("loop").exists());
    let mut paths = bound.map(|device| Path::new("/dev").join(device.file_name()));
    paths.find(|path| {
        let device = File::open(path);
        device.is_ok_and(|device| loop_device::file_of(device.as_fd()) == Ok(image))
    })
}

/// Attaches a loop device to the file; it stays attached while it is open or mounted.
fn attach_loop_device(image: &File) -> SysResult<(CString, File)> {
    let open = |path: &str| {
        let opened = OpenOptions::new().read(true).write(true).open(path);
        opened.map_err(|e| e.raw_os_error().map_or(Errno::EIO, Errno::from_raw))
    };
    let control = open("/dev/loop-control")?;
    for _ in 0..MAX_TRIES {
        let path = format!("/dev/loop{}", loop_device::free_number(control.as_fd())?);
        let device = open(&path)?;
        match loop_device::configure(device.as_fd(), image.as_fd(), u32::try_from(BLOCK_SIZE).unwrap_or(0)) {
            Err(Errno::EBUSY) => continue,
            other => other?,
        }
        return Ok((file::c_path(&path)?, device));
    }
    Err(Errno::EBUSY)
}

/// The file system on a device. Freed blocks are returned to the host (discard).
fn open_filesystem(device: &CString) -> SysResult<std::os::fd::OwnedFd> {
    let options = [(c"source", Some(device.as_c_str())), (c"discard", None)];
    mount::new_filesystem(c"ext4", &options, mount::MOUNT_ATTR_NOSUID | mount::MOUNT_ATTR_NODEV)
}
