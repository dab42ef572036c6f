//! Kernel quotas of the user who starts a sandbox: the probe takes all it can get, and while it holds them the starter
//! tries whether enough is left for it.

use crate::sys::process;
use crate::sys::throwaway::{Ended, Throwaway, throwaway};
use serde::{Deserialize, Serialize};

/// Seconds that the probe holds a quota at most.
const SECONDS: u32 = 60;

/// One quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quota {
    /// Instances of inotify.
    InotifyInstances,
    /// POSIX message queues.
    MessageQueues,
    /// Signals that are queued.
    PendingSignals,
}

/// What the probe says while it holds one; it goes on when a line comes on its standard input.
#[derive(Debug, Serialize, Deserialize)]
pub struct Held {
    /// Which.
    pub quota: Quota,
    /// How many it got.
    pub taken: u32,
}

impl Quota {
    /// All of them.
    pub const ALL: [Quota; 3] = [Quota::InotifyInstances, Quota::MessageQueues, Quota::PendingSignals];

    /// The attempt's name.
    pub fn name(self) -> &'static str {
        match self {
            Quota::InotifyInstances => "quota-inotify",
            Quota::MessageQueues => "quota-message-queues",
            Quota::PendingSignals => "quota-pending-signals",
        }
    }

    /// What the attempt does.
    pub fn does(self) -> &'static str {
        match self {
            Quota::InotifyInstances => "Leave the starter fewer than 16 inotify instances",
            Quota::MessageQueues => "Leave the starter fewer than 2 message queues",
            Quota::PendingSignals => "Leave the starter fewer than 1000 queued signals",
        }
    }

    /// How many must be left for the starter.
    fn needed(self) -> u32 {
        match self {
            Quota::InotifyInstances => 16,
            Quota::MessageQueues => 2,
            Quota::PendingSignals => 1000,
        }
    }

    /// How many the probe takes at most.
    fn most(self) -> u32 {
        match self {
            Quota::InotifyInstances | Quota::MessageQueues => 4096,
            Quota::PendingSignals => 200_000,
        }
    }

    /// Takes `most` of it or as many as there are. They are this process's, and go with it.
    fn take(self, child: &Throwaway, most: u32) -> u32 {
        let own = u64::from(std::process::id());
        let signal = libc::SIGRTMIN().unsigned_abs();
        if self == Quota::PendingSignals {
            let mask = 1_u64 << (signal - 1);
            let _ = child.call(libc::SYS_rt_sigprocmask, &[0, address(&mask), 0, 8]);
        }
        let mut info = [0_u32; 32];
        // The signal, no error, SI_QUEUE.
        (info[0], info[2]) = (signal, u32::MAX);
        let one = |number: u32| match self {
            Quota::InotifyInstances => child.call(libc::SYS_inotify_init1, &[0]),
            Quota::PendingSignals => {
                child.call(libc::SYS_rt_sigqueueinfo, &[own, signal.into(), address(&info)])
            }
            Quota::MessageQueues => queue(child, own, number),
        };
        (0..most).find(|number| one(*number).is_err()).unwrap_or(most)
    }

    /// Whether enough is left for this process.
    pub fn is_left(self) -> bool {
        let all = |child: &Throwaway| u8::from(self.take(child, self.needed()) < self.needed());
        throwaway(SECONDS, all) == Ok(Ended::Exited(0))
    }
}

/// A message queue without a name.
fn queue(child: &Throwaway, own: u64, number: u32) -> crate::sys::SysResult<i64> {
    let name = format!("saggar-probe-{own}-{number}\0");
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
    let open = [address(name.as_str()), u64::from(flags.unsigned_abs()), 0o600, 0];
    let queue = child.call(libc::SYS_mq_open, &open)?;
    let _ = child.call(libc::SYS_mq_unlink, &[address(name.as_str())]);
    Ok(queue)
}

fn address<T: ?Sized>(value: &T) -> u64 {
    std::ptr::from_ref(value).cast::<u8>().addr() as u64
}

/// The probe's part: each quota in a child that takes it, says so and waits.
pub fn hold_each() {
    for quota in Quota::ALL {
        let _ = throwaway(SECONDS, |child| hold(child, quota));
    }
}

fn hold(child: &Throwaway, quota: Quota) -> u8 {
    let limit = [u64::MAX; 2];
    // As many descriptors as there may be.
    let _ = child.call(libc::SYS_prlimit64, &[0, libc::RLIMIT_NOFILE.into(), address(&limit), 0]);
    let held = Held { quota, taken: quota.take(child, quota.most()) };
    let line = format!("{}\n", serde_json::to_string(&held).unwrap_or_default());
    let _ = nix::unistd::write(std::io::stdout(), line.as_bytes());
    let _ = nix::unistd::read(std::io::stdin(), &mut [0]);
    process::exit_now(0)
}
