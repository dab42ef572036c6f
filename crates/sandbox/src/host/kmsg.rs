//! Reads OOM kills from the kernel's log (kmsg(4), dmesg(1)), the only source of the names of killed
//! processes. An unprivileged user may read it if kernel.dmesg_restrict is 0.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

/// The longest record in bytes (PRINTK_MESSAGE_MAX). Each read returns one record.
const MAX_RECORD_BYTES: usize = 8 << 10;

/// A process that the kernel killed at a memory limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OomVictim {
    /// Its pid in the initial pid namespace of the host.
    pub pid: i32,
    /// Its name, as in /proc/PID/comm: at most 15 bytes.
    pub name: String,
}

/// The kernel's log, from the time of opening.
#[derive(Debug)]
pub struct KernelLog(File);

impl KernelLog {
    /// Opens the log at its end; `None` if this user may not read it.
    pub fn open_at_end() -> Option<Self> {
        let mut file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg").ok()?;
        file.seek(SeekFrom::End(0)).ok()?;
        Some(KernelLog(file))
    }

    /// The processes killed in the cgroup of this name, or below it, since the last call.
    pub fn oom_victims_in(&mut self, cgroup: &str) -> Vec<OomVictim> {
        let mut killed = Vec::new();
        let mut record = [0; MAX_RECORD_BYTES];
        loop {
            match self.0.read(&mut record) {
                Ok(count @ 1..) => killed.extend(parse(&record[..count], cgroup)),
                // EPIPE: records were overwritten before they were read. The next read returns a later one.
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => return killed,
            }
        }
    }
}

/// Parses a record `…;oom-kill:constraint=…,oom_memcg=/…,task_memcg=/…,task=NAME,pid=N,uid=N`
/// (dump_oom_victim in mm/oom_kill.c). Returns the process if it was in `cgroup` or below it. A name may
/// contain any character.
fn parse(record: &[u8], cgroup: &str) -> Option<OomVictim> {
    let text = String::from_utf8_lossy(record);
    let (_, text) = text.split_once(';')?;
    let (_, rest) = text.strip_prefix("oom-kill:")?.split_once(",task_memcg=")?;
    let (path, rest) = rest.split_once(",task=")?;
    if !path.split('/').any(|part| part == cgroup) {
        return None;
    }
    let (name, numbers) = rest.rsplit_once(",pid=")?;
    let (pid, _) = numbers.split_once(',')?;
    Some(OomVictim { pid: pid.parse().ok()?, name: name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_names_who_was_killed_and_where() {
        let record = |name: &str| {
            format!(
                "6,1208,99201,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,\
                 oom_memcg=/a/saggar-x,task_memcg=/a/saggar-x/main,task={name},pid=1234,uid=1000\n"
            )
        };
        let killed = |name: &str| Some(OomVictim { pid: 1234, name: name.to_owned() });
        assert_eq!(parse(record("python3").as_bytes(), "saggar-x"), killed("python3"));
        assert_eq!(parse(record("a,pid=7,uid=0").as_bytes(), "saggar-x"), killed("a,pid=7,uid=0"));
        assert_eq!(parse(record("python3").as_bytes(), "saggar-"), None);
        for other in
            ["", "6,1;", "6,1208,99201,-;Memory cgroup out of memory: Killed process 1 (x)", "no;oom-kill:"]
        {
            assert_eq!(parse(other.as_bytes(), "saggar-x"), None);
        }
    }
}
