//! Who calls: root, or an ordinary user.

use std::env;
use std::path::Path;
use std::process::Command;

use nix::unistd::{Gid, Uid, User, chown, geteuid};

/// An account of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) uid: u32,
    gid: u32,
    pub(crate) name: String,
}

impl Account {
    /// Whoever runs this.
    pub(crate) fn current() -> Self {
        Account::of(User::from_uid(geteuid()).unwrap().expect("an account runs this"))
    }

    /// An ordinary user: whoever runs this, or for root the user of `SAGGAR_TEST_USER`.
    pub(crate) fn ordinary() -> Self {
        let current = Account::current();
        if current.uid != 0 {
            return current;
        }
        let name = env::var("SAGGAR_TEST_USER").unwrap_or_else(|_| "saggar-test".to_owned());
        Account::of(User::from_name(&name).unwrap().unwrap_or_else(|| panic!("there is no user {name}")))
    }

    /// Gives it a path.
    pub(crate) fn own(&self, path: &Path) {
        chown(path, Some(Uid::from_raw(self.uid)), Some(Gid::from_raw(self.gid))).unwrap();
    }

    /// `program` as this account, with nothing in its environment.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = if *self == Account::current() {
            Command::new(program)
        } else {
            let mut command = Command::new("setpriv");
            command.args([
                "--reuid",
                &self.uid.to_string(),
                "--regid",
                &self.gid.to_string(),
                "--clear-groups",
            ]);
            command.arg(program);
            command
        };
        command
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("LANG", "C.UTF-8");
        command
    }

    fn of(user: User) -> Self {
        Account { uid: user.uid.as_raw(), gid: user.gid.as_raw(), name: user.name }
    }
}
