//! `process.rlimits` and `process.oomScoreAdj`.

use super::super::document::OciRlimit;
use super::super::field_path::FieldPath;
use oci_spec::runtime::PosixRlimitType as Kind;
use saggar_sys::error::Result;

/// Lowers the limits for setrlimit(2): number, soft, hard.
pub(super) fn lower_rlimits(
    entries: Option<Vec<OciRlimit>>,
    list: FieldPath<'_>,
) -> Result<Vec<(i32, u64, u64)>> {
    let mut all: Vec<(i32, u64, u64)> = Vec::new();
    for (index, entry) in entries.unwrap_or_default().into_iter().enumerate() {
        let field = list.index(index);
        let resource = rlimit_number(entry.kind);
        if all.iter().any(|(other, ..)| *other == resource) {
            return Err(field.key("type").invalid(format_args!("is {} for the second time", entry.kind)));
        }
        let soft = entry.soft.ok_or_else(|| field.key("soft").missing())?;
        let hard = entry.hard.ok_or_else(|| field.key("hard").missing())?;
        if soft > hard {
            return Err(field
                .key("soft")
                .invalid(format_args!("must be at most the hard limit {hard}, is {soft}")));
        }
        all.push((resource, soft, hard));
    }
    Ok(all)
}

/// Constants of resources are unsigned in glibc and signed in musl.
#[expect(clippy::cast_possible_wrap, reason = "resources are numbered from 0 to 15")]
fn rlimit_number(kind: Kind) -> i32 {
    let resource = match kind {
        Kind::RlimitCpu => libc::RLIMIT_CPU,
        Kind::RlimitFsize => libc::RLIMIT_FSIZE,
        Kind::RlimitData => libc::RLIMIT_DATA,
        Kind::RlimitStack => libc::RLIMIT_STACK,
        Kind::RlimitCore => libc::RLIMIT_CORE,
        Kind::RlimitRss => libc::RLIMIT_RSS,
        Kind::RlimitNproc => libc::RLIMIT_NPROC,
        Kind::RlimitNofile => libc::RLIMIT_NOFILE,
        Kind::RlimitMemlock => libc::RLIMIT_MEMLOCK,
        Kind::RlimitAs => libc::RLIMIT_AS,
        Kind::RlimitLocks => libc::RLIMIT_LOCKS,
        Kind::RlimitSigpending => libc::RLIMIT_SIGPENDING,
        Kind::RlimitMsgqueue => libc::RLIMIT_MSGQUEUE,
        Kind::RlimitNice => libc::RLIMIT_NICE,
        Kind::RlimitRtprio => libc::RLIMIT_RTPRIO,
        Kind::RlimitRttime => libc::RLIMIT_RTTIME,
    };
    resource as i32
}

/// Every type of limit.
const RLIMIT_TYPES: [Kind; 16] = [
    Kind::RlimitCpu,
    Kind::RlimitFsize,
    Kind::RlimitData,
    Kind::RlimitStack,
    Kind::RlimitCore,
    Kind::RlimitRss,
    Kind::RlimitNproc,
    Kind::RlimitNofile,
    Kind::RlimitMemlock,
    Kind::RlimitAs,
    Kind::RlimitLocks,
    Kind::RlimitSigpending,
    Kind::RlimitMsgqueue,
    Kind::RlimitNice,
    Kind::RlimitRtprio,
    Kind::RlimitRttime,
];

/// The name in a document of the limit with this number.
pub fn rlimit_name(number: i32) -> String {
    let kind = RLIMIT_TYPES.into_iter().find(|kind| rlimit_number(*kind) == number);
    kind.map_or_else(|| format!("limit {number}"), |kind| kind.to_string())
}

/// Checks the range of proc_pid_oom_score_adj(5).
pub(super) fn check_oom_score_adj(value: Option<i64>, field: FieldPath<'_>) -> Result<Option<i32>> {
    let Some(value) = value else { return Ok(None) };
    let fits = i32::try_from(value).ok().filter(|value| (-1000..=1000).contains(value));
    fits.map(Some).ok_or_else(|| field.invalid(format_args!("must be from -1000 to 1000, is {value}")))
}
