//! `linux.resources.unified`: files of cgroup v2, written as given.

use super::{CgroupSettings, ExpectedValue, invalid_value_error};
use crate::cgroup::control_files::ControlFiles;
use crate::host::cgroups::CgroupVersion;
use saggar_sys::error::{Code, Error, Result};
use std::collections::{BTreeMap, HashMap};

/// Files that move, freeze or kill processes; they are not limits.
const NOT_LIMITS: [&str; 5] =
    ["cgroup.procs", "cgroup.threads", "cgroup.kill", "cgroup.freeze", "cgroup.type"];

pub(super) fn lower(
    unified: &HashMap<String, String>,
    tree: &dyn ControlFiles,
    settings: &mut CgroupSettings,
) -> Result<()> {
    // Sorted, so that the order is the same every time.
    for (file, value) in unified.iter().collect::<BTreeMap<_, _>>() {
        let field = format!("unified.{file}");
        let controller = file.split_once('.').map(|(controller, _)| controller);
        let Some(controller) = controller.filter(|name| !name.is_empty() && !file.contains('/')) else {
            return Err(invalid_value_error(
                "unified",
                format!("{file:?} is no name of a control file such as memory.high"),
            ));
        };
        if NOT_LIMITS.contains(&file.as_str()) {
            return Err(invalid_value_error("unified", format!("{file} is no limit")));
        }
        if tree.version(controller) != Some(CgroupVersion::V2) {
            let message =
                format!("linux.resources.{field} cannot hold: cgroup v2 has no controller {controller} here");
            return Err(Error::new(Code::Unsupported, message).hint(
                "boot with systemd.unified_cgroup_hierarchy=1 where the controllers are in cgroup v1, or use the \
                 fields of linux.resources, which mean the same in v1 and v2",
            ));
        }
        // The kernel accepts one line for each write.
        for line in value.lines() {
            settings.push(&field, (controller, file), line, ExpectedValue::ContainsWords);
        }
    }
    Ok(())
}
