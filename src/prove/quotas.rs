//! Per-user kernel quotas. The probe consumes as much of each as it can; meanwhile the caller checks whether enough is
//! left for itself.

use crate::sys::disposable_child::{ChildExit, DisposableChild, run_disposable_child};
use crate::sys::process;
use serde::{Deserialize, Serialize};

/// Maximum time in seconds for which the probe holds a quota.
const TIMEOUT_SECONDS: u32 = 60;

/// A per-user quota of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UserQuota {
    /// Instances of inotify (fs.inotify.max_user_instances).
    InotifyInstances,
    /// POSIX message queues (RLIMIT_MSGQUEUE).
    MessageQueues,
    /// Queued signals (RLIMIT_SIGPENDING).
    PendingSignals,
}

/// The probe's output while it holds a quota. A line on its standard input lets it continue.
#[derive(Debug, Serialize, Deserialize)]
pub struct QuotaReport {
    /// The quota that is held.
    pub quota: UserQuota,
    /// Number of units that the probe obtained.
    pub taken: u32,
}

impl UserQuota {
    /// All quotas, in the order of the attempts.
    pub const ALL: [UserQuota; 3] =
        [UserQuota::InotifyInstances, UserQuota::MessageQueues, UserQuota::PendingSignals];

    /// The name of the attempt.
    pub fn name(self) -> &'static str {
        match self {
            UserQuota::InotifyInstances => "quota-inotify",
            UserQuota::MessageQueues => "quota-message-queues",
            UserQuota::PendingSignals => "quota-pending-signals",
        }
    }

    /// A description of the attempt.
    pub fn action(self) -> &'static str {
        match self {
            UserQuota::InotifyInstances => "Leave the starter fewer than 16 inotify instances",
            UserQuota::MessageQueues => "Leave the starter fewer than 2 message queues",
            UserQuota::PendingSignals => "Leave the starter fewer than 1000 queued signals",
        }
    }

    /// Number of units that must be left for the caller.
    fn required_count(self) -> u32 {
        match self {
            UserQuota::InotifyInstances => 16,
            UserQuota::MessageQueues => 2,
            UserQuota::PendingSignals => 1000,
        }
    }

    /// Maximum number of units that the probe consumes.
    fn max_count(self) -> u32 {
        match self {
            UserQuota::InotifyInstances | UserQuota::MessageQueues => 4096,
            UserQuota::PendingSignals => 200_000,
        }
    }

    /// Consumes `max` units, or as many as are available. They belong to this process and are released at its exit.
    fn consume(self, child: &DisposableChild, max: u32) -> u32 {
        let own = u64::from(std::process::id());
        let signal = libc::SIGRTMIN().unsigned_abs();
        if self == UserQuota::PendingSignals {
            let mask = 1_u64 << (signal - 1);
            let _ = child.call(libc::SYS_rt_sigprocmask, &[0, address(&mask), 0, 8]);
        }
        let mut info = [0_u32; 32];
        // Fields of siginfo: the signal, no error, SI_QUEUE.
        (info[0], info[2]) = (signal, u32::MAX);
        let one = |number: u32| match self {
            UserQuota::InotifyInstances => child.call(libc::SYS_inotify_init1, &[0]),
            UserQuota::PendingSignals => {
                child.call(libc::SYS_rt_sigqueueinfo, &[own, signal.into(), address(&info)])
            }
            UserQuota::MessageQueues => open_queue(child, own, number),
        };
        (0..max).find(|number| one(*number).is_err()).unwrap_or(max)
    }

    /// Whether enough is left for this process.
    pub fn is_available(self) -> bool {
        let all = |child: &DisposableChild| {
            u8::from(self.consume(child, self.required_count()) < self.required_count())
        };
        run_disposable_child(TIMEOUT_SECONDS, all) == Ok(ChildExit::Exited(0))
    }
}

/// Opens a message queue and removes its name.
fn open_queue(child: &DisposableChild, own: u64, number: u32) -> crate::sys::SysResult<i64> {
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

/// The probe's part: consumes each quota in a child, which reports the number and waits.
pub fn consume_each() {
    for quota in UserQuota::ALL {
        let _ = run_disposable_child(TIMEOUT_SECONDS, |child| consume_and_wait(child, quota));
    }
}

fn consume_and_wait(child: &DisposableChild, quota: UserQuota) -> u8 {
    let limit = [u64::MAX; 2];
    // Raises the limit of open descriptors to its maximum.
    let _ = child.call(libc::SYS_prlimit64, &[0, libc::RLIMIT_NOFILE.into(), address(&limit), 0]);
    let report = QuotaReport { quota, taken: quota.consume(child, quota.max_count()) };
    let line = format!("{}\n", serde_json::to_string(&report).unwrap_or_default());
    let _ = nix::unistd::write(std::io::stdout(), line.as_bytes());
    let _ = nix::unistd::read(std::io::stdin(), &mut [0]);
    process::exit_now(0)
}
