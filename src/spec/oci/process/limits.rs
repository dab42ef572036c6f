//! `process.rlimits` and `process.oomScoreAdj`.

use super::super::document::Rlimit;
use super::super::field::Field;
use crate::error::Result;
use oci_spec::runtime::PosixRlimitType as Kind;

/// setrlimit(2): number, soft, hard.
pub(super) fn rlimits(entries: Option<Vec<Rlimit>>, list: Field<'_>) -> Result<Vec<(i32, u64, u64)>> {
    let mut all: Vec<(i32, u64, u64)> = Vec::new();
    for (index, entry) in entries.unwrap_or_default().into_iter().enumerate() {
        let field = list.at(index);
        let resource = resource(entry.kind);
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

/// The type of the constants is unsigned on gnu and signed on musl.
#[expect(clippy::cast_possible_wrap, reason = "resources are numbered from 0 to 15")]
fn resource(kind: Kind) -> i32 {
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

/// Every kind.
const KINDS: [Kind; 16] = [
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

/// What a document calls the limit of this number.
pub fn limit_name(number: i32) -> String {
    let kind = KINDS.into_iter().find(|kind| resource(*kind) == number);
    kind.map_or_else(|| format!("limit {number}"), |kind| kind.to_string())
}

/// What proc_pid_oom_score_adj(5) takes.
pub(super) fn oom_score_adj(value: Option<i64>, field: Field<'_>) -> Result<Option<i32>> {
    let Some(value) = value else { return Ok(None) };
    let fits = i32::try_from(value).ok().filter(|value| (-1000..=1000).contains(value));
    fits.map(Some).ok_or_else(|| field.invalid(format_args!("must be from -1000 to 1000, is {value}")))
}
