//! The cgroup of an agent's sandbox: made below our own, limited, entered by the clone itself, and
//! removed with everything in it by [`crate::launch::guard`].
//!
//! ```text
//! <own>/saggar-<id>        the limits
//! <own>/saggar-<id>/main   the processes, born there; the cgroup namespace is rooted here
//! <own>/saggar-<id>/exec-N a command that a server runs beside an agent ([`leaf`])
//! ```
//! pid 1 is in `main` too: to be in a cgroup of its own it, or the first program, would have to be moved at the start,
//! and a move waits for every CPU of the host, for milliseconds (percpu_down_write of cgroup_threadgroup_rwsem). The
//! namespace is rooted where the clone puts it; so the limits lie above all that a mount of it could ever show.
//!
//! Never outside of our own subtree, which /proc/self/cgroup names, and there only the controllers that limits
//! need. Every write goes through the directory's descriptor and is read back. In a subtree that was given to us
//! the supervisor steps aside first ([`aside`]).
//!
//! | file | its one job |
//! |---|---|
//! | [`place`](mod@place) | where the cgroups of sandboxes are, and those of dead ones |
//! | [`make`] [`aside`] | the directories, and the controllers that are switched on for them |
//! | [`wanted`] [`disk`] | limits as writes: data |
//! | [`limits`] | the writes carried out, or foreseen, and what is said of one that fails |
//! | [`leaf`] | the cgroups of commands beside an agent |
//! | [`memory`] | being told that memory is about to end |
//! | [`freeze`] | stopping all of it |
//! | [`usage`] [`live`] | what was used, and what sandboxes that run use |

mod aside;
mod disk;
pub mod freeze;
pub mod leaf;
pub mod limits;
pub mod live;
mod make;
pub mod memory;
mod place;
pub mod usage;
mod wanted;

pub use place::{may_make, place, sweep};

use crate::error::{Code, Error, Result};
use crate::host::delegation::lack;
use crate::plan::Degraded;
use crate::spec::Limits;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The cgroup of one sandbox.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    main: OwnedFd,
}

impl Cgroup {
    /// The directory for clone3's CLONE_INTO_CGROUP.
    pub fn main(&self) -> &OwnedFd {
        &self.main
    }
}

const NO_HIERARCHY: &str = "this host has no cgroup v2 hierarchy";

/// What a start would find missing of its cgroup and its limits; writes nothing. What a limit reads back is
/// known only when it is written.
pub fn foresee(place: Option<&Path>, limits: &Limits) -> Vec<Degraded> {
    let own = place.and_then(Path::parent);
    let refused = match own {
        None => Some(NO_HIERARCHY.to_owned()),
        Some(own) => place::may_make_in(own)
            .err()
            .map(|errno| format!("no cgroup can be made in {}: {}", own.display(), errno.desc())),
    };
    let lack = |what: &str, why: &str| Degraded { what: what.to_owned(), why: why.to_owned() };
    let mut degraded: Vec<_> = refused.iter().map(|why| lack("cgroup", why)).collect();
    degraded.extend(limits::foresee(own, refused.as_deref(), limits));
    degraded
}

/// What [`create`] came to.
#[derive(Debug)]
pub struct Outcome {
    /// The cgroup, where one can be had.
    pub cgroup: Option<Cgroup>,
    /// What of it, and of the limits, is missing.
    pub degraded: Vec<Degraded>,
}

/// Makes the cgroup at `place` and sets the limits in it.
///
/// # Errors
/// [`Code::Unsupported`] when a limit that somebody named cannot hold; what was made is in the guard's charge.
pub fn create(place: Option<&Path>, limits: &Limits, required: bool) -> Result<Outcome> {
    let (own, mut refused) = (place.and_then(Path::parent), Vec::new());
    let made = place.ok_or_else(|| NO_HIERARCHY.to_owned());
    let made = made.and_then(|path| make::make(path, &limits::controllers(limits), &mut refused));
    let (cgroup, why) = match made {
        Ok(cgroup) => (Some(cgroup), String::new()),
        Err(why) if required => {
            return Err(Error::new(Code::Unsupported, format!("a cgroup is required: {why}"))
                .hint(lack(own, "memory", &["memory"]).cure));
        }
        Err(why) => (None, why),
    };
    let mut degraded = Vec::new();
    if cgroup.is_none() {
        degraded.push(Degraded { what: "cgroup".into(), why: why.clone() });
    }
    degraded.extend(limits::set((cgroup.as_ref(), &why), own, limits, refused)?);
    Ok(Outcome { cgroup, degraded })
}
