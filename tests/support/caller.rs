//! Who calls saggar: root or an ordinary user. Nearly everything must hold for both.

use std::env;
use std::io;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nix::unistd::{Gid, Uid, User, chown, getegid, geteuid};

/// Taken when `SAGGAR_TEST_USER` names nobody: a user that no account has, so that it owns nothing.
const SCRATCH_ID: u32 = 65432;

/// The identity a test runs saggar with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caller {
    uid: Uid,
    gid: Gid,
}

impl Caller {
    /// Root, or why not.
    pub(crate) fn root() -> Result<Self, &'static str> {
        let caller = Caller::current();
        if caller.is_root() { Ok(caller) } else { Err("this test needs to be started as root") }
    }

    /// An ordinary user: whoever runs the tests, or for root the user of `SAGGAR_TEST_USER` (name or number).
    pub(crate) fn ordinary() -> Result<Self, String> {
        let current = Caller::current();
        if !current.is_root() {
            return Ok(current);
        }
        let Ok(name) = env::var("SAGGAR_TEST_USER") else {
            return Ok(Caller { uid: Uid::from_raw(SCRATCH_ID), gid: Gid::from_raw(SCRATCH_ID) });
        };
        if let Ok(id) = name.parse::<u32>() {
            return Ok(Caller { uid: Uid::from_raw(id), gid: Gid::from_raw(id) });
        }
        match User::from_name(&name) {
            Ok(Some(user)) => Ok(Caller { uid: user.uid, gid: user.gid }),
            _ => Err(format!("SAGGAR_TEST_USER names no user: {name}")),
        }
    }

    /// This account, for tests that root starts.
    pub(crate) fn named(name: &str) -> Self {
        let user = User::from_name(name).unwrap().unwrap_or_else(|| panic!("there is no user {name}"));
        Caller { uid: user.uid, gid: user.gid }
    }

    /// Whoever runs the tests.
    pub(crate) fn current() -> Self {
        Caller { uid: geteuid(), gid: getegid() }
    }

    /// Whether this is root.
    pub(crate) fn is_root(self) -> bool {
        self.uid.is_root()
    }

    /// The user id.
    pub(crate) fn uid(self) -> Uid {
        self.uid
    }

    /// Gives a path to this user.
    pub(crate) fn own(self, path: &Path) {
        chown(path, Some(self.uid), Some(self.gid))
            .unwrap_or_else(|errno| panic!("cannot give {} to user {}: {errno}", path.display(), self.uid));
    }

    /// Connects to a unix socket as this user.
    pub(crate) fn connect(self, socket: &Path) -> io::Result<UnixStream> {
        let socket = socket.to_owned();
        let connect = move || {
            if self != Caller::current() {
                // Of this thread alone.
                rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(self.uid.as_raw()))?;
            }
            UnixStream::connect(socket)
        };
        std::thread::spawn(connect).join().expect("no panic")
    }

    /// Makes `command` run as this user. Without other groups: std drops them when root sets a uid.
    pub(crate) fn apply(self, command: &mut Command) {
        if self != Caller::current() {
            command.gid(self.gid.as_raw()).uid(self.uid.as_raw());
        }
    }
}
