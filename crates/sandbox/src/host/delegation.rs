//! Diagnoses why a controller of cgroup v2 is not available to a sandbox, with the exact remedy: for
//! `doctor`, and for the error of a limit that is refused.
//!
//! Used only if a limit cannot be set; changes nothing. systemd.resource-control(5), "Delegate=", and
//! user@.service describe which controllers systemd delegates.

use super::cgroups::{
    CgroupLayout, CgroupVersion, V1_LIMIT_CONTROLLERS, has_processes, is_hierarchy_root, own_processes,
    read_words,
};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{AccessFlags, access, geteuid};
use std::fmt::{Display, Write};
use std::path::{Path, PathBuf};

/// The controllers that systemd can delegate, in the order of its `Delegate=`.
const SYSTEMD_CONTROLLERS: [&str; 5] = ["cpu", "cpuset", "io", "memory", "pids"];

/// The kernel command line that moves all controllers to cgroup v2.
pub(crate) const UNIFIED_HIERARCHY_REMEDY: &str = "add systemd.unified_cgroup_hierarchy=1 cgroup_no_v1=all to GRUB_CMDLINE_LINUX in \
                         /etc/default/grub, run update-grub, and boot";

/// The reason where no process can be in a cgroup of version 2.
pub(crate) const NO_HIERARCHY: &str = "no cgroup v2 hierarchy is mounted here";

/// What mounts one.
const MOUNT_REMEDY: &str = "as root: `mount -t cgroup2 none /sys/fs/cgroup`; in a container, start it with a cgroup that can \
                            be written";

/// What an ordinary user can do on a host with version 1.
pub(crate) const V1_REMEDY: &str = "start saggar as root, for whom it uses the controllers of version 1; or give version 2 all \
                         controllers: add systemd.unified_cgroup_hierarchy=1 cgroup_no_v1=all to GRUB_CMDLINE_LINUX in \
                         /etc/default/grub, run update-grub, and boot";

/// The reason why a controller is not available, and the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingController {
    /// The reason, as the end of a sentence.
    pub reason: String,
    /// The remedy: a command to run or a file to change.
    pub remedy: String,
}

/// Diagnoses why no cgroup below `own_cgroup` has `controller`. `own_cgroup` is this process's v2 cgroup,
/// or `None` if there is no v2 hierarchy. The remedy covers all of `needed`.
pub(crate) fn diagnose_controller(
    own_cgroup: Option<&Path>,
    controller: &str,
    needed: &[&str],
) -> MissingController {
    let layout = CgroupLayout::discover().unwrap_or_default();
    let old = if controller == "io" { "blkio" } else { controller };
    let old = layout.hierarchy_of(old).filter(|home| home.version == CgroupVersion::V1);
    if let Some(old) = old {
        let why =
            format!("cgroup v1 has the {controller} controller of this host ({})", old.mount_point.display());
        let is_used = V1_LIMIT_CONTROLLERS.contains(&controller) && !geteuid().is_root();
        let remedy = if is_used { V1_REMEDY } else { UNIFIED_HIERARCHY_REMEDY };
        return MissingController { reason: why, remedy: remedy.to_owned() };
    }
    let Some(own) = own_cgroup else {
        let remedy = if layout.hierarchies.is_empty() { MOUNT_REMEDY } else { UNIFIED_HIERARCHY_REMEDY };
        return MissingController { reason: NO_HIERARCHY.into(), remedy: remedy.into() };
    };
    let has = |path: &Path| read_words(path, "cgroup.controllers").iter().any(|one| one == controller);
    let root = layout.v2_hierarchy().map(|unified| unified.mount_point.clone());
    if let Some(root) = root.filter(|root| !has(root)) {
        if !is_hierarchy_root(&root) {
            let remedy = format!(
                "let the host give this container the {controller} controller, or leave the limit out"
            );
            let why = format!("the cgroup of this container has no {controller} controller");
            return MissingController { reason: why, remedy };
        }
        let why = format!("this kernel gives no {controller} controller in cgroup v2");
        let remedy = format!(
            "boot with cgroup_enable={controller} where the kernel has it switched off, or leave the limit out"
        );
        return MissingController { reason: why, remedy };
    }
    let shown = own.display();
    let why = if !has(own) {
        format!("the {controller} controller was not delegated to {shown}")
    } else if let Err(errno) = access(own, AccessFlags::W_OK) {
        format!("no cgroup can be made in {shown}: {}", errno.desc())
    } else if !is_hierarchy_root(own) && own_processes(own).is_none() {
        format!("other processes are in {shown}, which then cannot give the {controller} controller away")
    } else {
        format!("{shown} does not give the {controller} controller away")
    };
    MissingController {
        reason: why,
        remedy: delegation_remedy(&DelegationContext::of_this_process(own), needed),
    }
}

/// The facts that determine a remedy, as data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DelegationContext {
    /// The uid of this process.
    pub uid: u32,
    /// Whether systemd is pid 1.
    pub has_systemd: bool,
    /// The controllers of this user's systemd manager; empty if it is not running.
    pub manager_controllers: Vec<String>,
    /// The cgroups from the root to the own one that do not enable a controller for their children, with
    /// those that they enable.
    pub ancestors: Vec<(PathBuf, Vec<String>)>,
    /// The mount of cgroup v2, if it shows the cgroup of a container.
    pub container: Option<NamespaceRoot>,
}

/// The root of a cgroup namespace, which is mounted in a container: a mount of cgroup v2 that is not the root of the
/// hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamespaceRoot {
    /// Where it is mounted.
    pub mount: PathBuf,
    /// Not even root in the container can write there.
    pub is_read_only: bool,
    /// Processes are in it, and not below it.
    pub has_processes: bool,
}

impl NamespaceRoot {
    fn find(mount: &Path) -> Option<Self> {
        if is_hierarchy_root(mount) {
            return None;
        }
        let flags = statvfs(mount).map(|about| about.flags());
        Some(NamespaceRoot {
            mount: mount.to_owned(),
            is_read_only: flags.is_ok_and(|flags| flags.contains(FsFlags::ST_RDONLY))
                || (geteuid().is_root() && access(mount, AccessFlags::W_OK).is_err()),
            has_processes: has_processes(mount),
        })
    }

    /// The remedy that gives `uid` these controllers; `None` where it is that of a host, as in a container with a systemd of
    /// its own.
    fn remedy(&self, uid: u32, controllers: &[&str]) -> Option<String> {
        let mount = self.mount.display();
        if self.is_read_only {
            let remedy = "start the container with a cgroup that can be written: `podman run --security-opt \
                          unmask=/sys/fs/cgroup …`, or with Docker 28 `docker run --security-opt writable-cgroups=true …`";
            return Some(remedy.to_owned());
        }
        if !self.has_processes {
            return None;
        }
        let away = format!(
            "mkdir -p {mount}/init && while read p; do echo $p >{mount}/init/cgroup.procs; done <{mount}/cgroup.procs"
        );
        Some(match uid {
            0 => format!("as root in the container: `{away}`; or start saggar as its only process"),
            _ => {
                let own = own_cgroup_remedy(mount, uid, controllers);
                format!("as root in the container: `{away}`; then {own}")
            }
        })
    }
}

/// How a cgroup of its own is made for saggar, without systemd.
fn own_cgroup_remedy(mount: impl Display, uid: u32, controllers: &[&str]) -> String {
    let names: Vec<String> = controllers.iter().map(|name| format!("+{name}")).collect();
    format!(
        "start saggar alone in a cgroup of its own, which root makes: `mkdir {mount}/saggar && echo {} \
         >{mount}/cgroup.subtree_control && cd {mount}/saggar && chown {uid} . cgroup.procs cgroup.subtree_control \
         cgroup.threads && echo PID >cgroup.procs`, PID being the shell that then runs `exec saggar …`",
        names.join(" ")
    )
}

impl DelegationContext {
    /// Collects the facts for this process in `own_cgroup`.
    pub(crate) fn of_this_process(own_cgroup: &Path) -> Self {
        let uid = geteuid().as_raw();
        let manager = format!("/sys/fs/cgroup/user.slice/user-{uid}.slice/user@{uid}.service");
        let cgroups = || own_cgroup.ancestors().take_while(|path| path.join("cgroup.controllers").exists());
        let mut above: Vec<_> = cgroups()
            .skip(1)
            .map(|path| (path.to_owned(), read_words(path, "cgroup.subtree_control")))
            .collect();
        above.reverse();
        DelegationContext {
            uid,
            has_systemd: Path::new("/run/systemd/system").is_dir(),
            manager_controllers: read_words(Path::new(&manager), "cgroup.controllers"),
            ancestors: above,
            container: cgroups().last().and_then(NamespaceRoot::find),
        }
    }
}

/// The remedy that gives this user `controllers`. Text in backquotes can be run unchanged, except for the
/// program's own arguments.
pub(crate) fn delegation_remedy(context: &DelegationContext, controllers: &[&str]) -> String {
    if let Some(remedy) = context.container.as_ref().and_then(|one| one.remedy(context.uid, controllers)) {
        return remedy;
    }
    let (known, others): (Vec<&str>, Vec<&str>) =
        controllers.iter().partition(|name| SYSTEMD_CONTROLLERS.contains(name));
    let mut remedy = String::new();
    if !others.is_empty() {
        // systemd does not touch controllers that it does not know: those that root enables stay enabled.
        let others: Vec<String> = others.iter().map(|name| format!("+{name}")).collect();
        let others = others.join(" ");
        let lacking = context
            .ancestors
            .iter()
            .filter(|(_, on)| others.split(' ').any(|name| !on.iter().any(|one| *one == name[1..])));
        let files: Vec<String> =
            lacking.map(|(path, _)| path.join("cgroup.subtree_control").display().to_string()).collect();
        let files = if files.is_empty() {
            "cgroup.subtree_control of each cgroup above".into()
        } else {
            files.join(" ")
        };
        let _ = write!(
            remedy,
            "as root: `for f in {files}; do echo {others} >$f; done`, since systemd does not give it; then "
        );
    }
    match (context.has_systemd, context.uid) {
        (true, 0) => remedy.push_str("start saggar by `systemd-run --scope -p Delegate=yes saggar …`"),
        // saggar asks the user's manager itself for a scope.
        (true, uid) if context.manager_controllers.is_empty() => {
            let _ = write!(
                remedy,
                "as root: `loginctl enable-linger {uid}`, so that a systemd of this user runs"
            );
        }
        (true, _) => {
            let manager_lacks =
                known.iter().any(|name| !context.manager_controllers.iter().any(|one| one == name));
            if manager_lacks {
                let all = SYSTEMD_CONTROLLERS.join(" ");
                let _ = write!(
                    remedy,
                    "as root: `mkdir -p /etc/systemd/system/user@.service.d && printf \
                     '[Service]\\nDelegate={all}\\n' >/etc/systemd/system/user@.service.d/delegate.conf && systemctl \
                     daemon-reload`; then log in again"
                );
            } else {
                remedy.push_str("start saggar by `systemd-run --user --scope -p Delegate=yes saggar …`");
            }
        }
        (false, uid) => remedy.push_str(&own_cgroup_remedy("/sys/fs/cgroup", uid, controllers)),
    }
    remedy
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(uid: u32, systemd: bool, manager: &[&str]) -> DelegationContext {
        let above =
            vec![("/sys/fs/cgroup".into(), vec!["cpu".to_owned()]), ("/sys/fs/cgroup/a".into(), vec![])];
        DelegationContext {
            uid,
            has_systemd: systemd,
            manager_controllers: manager.iter().map(|one| (*one).to_owned()).collect(),
            ancestors: above,
            container: None,
        }
    }

    #[test]
    fn remedy_in_a_container_depends_on_its_cgroup() {
        let remedy = |uid, is_read_only, has_processes| {
            let mount = "/sys/fs/cgroup".into();
            let container = Some(NamespaceRoot { mount, is_read_only, has_processes });
            delegation_remedy(&DelegationContext { container, ..site(uid, true, &[]) }, &["memory", "pids"])
        };
        insta::assert_snapshot!(remedy(0, true, true), @"start the container with a cgroup that can be written: `podman run --security-opt unmask=/sys/fs/cgroup …`, or with Docker 28 `docker run --security-opt writable-cgroups=true …`");
        insta::assert_snapshot!(remedy(0, false, true), @"as root in the container: `mkdir -p /sys/fs/cgroup/init && while read p; do echo $p >/sys/fs/cgroup/init/cgroup.procs; done </sys/fs/cgroup/cgroup.procs`; or start saggar as its only process");
        insta::assert_snapshot!(remedy(1000, false, true), @"as root in the container: `mkdir -p /sys/fs/cgroup/init && while read p; do echo $p >/sys/fs/cgroup/init/cgroup.procs; done </sys/fs/cgroup/cgroup.procs`; then start saggar alone in a cgroup of its own, which root makes: `mkdir /sys/fs/cgroup/saggar && echo +memory +pids >/sys/fs/cgroup/cgroup.subtree_control && cd /sys/fs/cgroup/saggar && chown 1000 . cgroup.procs cgroup.subtree_control cgroup.threads && echo PID >cgroup.procs`, PID being the shell that then runs `exec saggar …`");
        insta::assert_snapshot!(remedy(1000, false, false), @"as root: `loginctl enable-linger 1000`, so that a systemd of this user runs");
    }

    #[test]
    fn a_cure_is_a_command_for_who_asks() {
        let given = ["cpu", "memory", "pids"];
        insta::assert_snapshot!(delegation_remedy(&site(0, true, &[]), &["io"]), @"start saggar by `systemd-run --scope -p Delegate=yes saggar …`");
        insta::assert_snapshot!(delegation_remedy(&site(1000, true, &given), &["memory", "cpu"]), @"start saggar by `systemd-run --user --scope -p Delegate=yes saggar …`");
        insta::assert_snapshot!(delegation_remedy(&site(1000, true, &given), &["io"]), @r"as root: `mkdir -p /etc/systemd/system/user@.service.d && printf '[Service]\nDelegate=cpu cpuset io memory pids\n' >/etc/systemd/system/user@.service.d/delegate.conf && systemctl daemon-reload`; then log in again");
        insta::assert_snapshot!(delegation_remedy(&site(1000, true, &[]), &["memory"]), @"as root: `loginctl enable-linger 1000`, so that a systemd of this user runs");
        insta::assert_snapshot!(delegation_remedy(&site(0, true, &[]), &["hugetlb"]), @"as root: `for f in /sys/fs/cgroup/cgroup.subtree_control /sys/fs/cgroup/a/cgroup.subtree_control; do echo +hugetlb >$f; done`, since systemd does not give it; then start saggar by `systemd-run --scope -p Delegate=yes saggar …`");
        insta::assert_snapshot!(delegation_remedy(&site(1000, false, &[]), &["memory", "io"]), @"start saggar alone in a cgroup of its own, which root makes: `mkdir /sys/fs/cgroup/saggar && echo +memory +io >/sys/fs/cgroup/cgroup.subtree_control && cd /sys/fs/cgroup/saggar && chown 1000 . cgroup.procs cgroup.subtree_control cgroup.threads && echo PID >cgroup.procs`, PID being the shell that then runs `exec saggar …`");
    }
}
