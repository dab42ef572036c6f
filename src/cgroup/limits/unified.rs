//! `linux.resources.unified`: files of cgroup v2, written as they are given.

use super::{Expect, Settings, invalid};
use crate::cgroup::tree::Tree;
use crate::error::{Code, Error, Result};
use crate::host::cgroups::Version;
use std::collections::{BTreeMap, HashMap};

/// What moves, stops or kills processes is no limit.
const NOT_LIMITS: [&str; 5] =
    ["cgroup.procs", "cgroup.threads", "cgroup.kill", "cgroup.freeze", "cgroup.type"];

pub(super) fn lower(
    unified: &HashMap<String, String>,
    tree: &dyn Tree,
    settings: &mut Settings,
) -> Result<()> {
    // In the same order every time.
    for (file, value) in unified.iter().collect::<BTreeMap<_, _>>() {
        let field = format!("unified.{file}");
        let controller = file.split_once('.').map(|(controller, _)| controller);
        let Some(controller) = controller.filter(|name| !name.is_empty() && !file.contains('/')) else {
            return Err(invalid(
                "unified",
                format!("{file:?} is no name of a control file such as memory.high"),
            ));
        };
        if NOT_LIMITS.contains(&file.as_str()) {
            return Err(invalid("unified", format!("{file} is no limit")));
        }
        if tree.version(controller) != Some(Version::V2) {
            let message =
                format!("linux.resources.{field} cannot hold: cgroup v2 has no controller {controller} here");
            return Err(Error::new(Code::Unsupported, message).hint(
                "boot with systemd.unified_cgroup_hierarchy=1 where the controllers are in cgroup v1, or use the \
                 fields of linux.resources, which mean the same in v1 and v2",
            ));
        }
        // The kernel takes one line in one write.
        for line in value.lines() {
            settings.push(&field, (controller, file), line, Expect::Somewhere);
        }
    }
    Ok(())
}
