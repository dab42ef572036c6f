//! Why a sandbox cannot have a controller of cgroup v2 here, and what exactly to do about it: for `doctor`, and
//! for the error of a limit that is refused.
//!
//! Only looked at when a limit does not hold; nothing is changed. What systemd gives to whom is in
//! systemd.resource-control(5), "Delegate=", and in its user@.service.

use super::cgroups::{Layout, Version, is_root, ours, words};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The controllers that systemd knows, and so can give; in the order of its `Delegate=`.
const OF_SYSTEMD: [&str; 5] = ["cpu", "cpuset", "io", "memory", "pids"];

/// How a host gets all its controllers into cgroup v2.
pub const UNIFY: &str = "add systemd.unified_cgroup_hierarchy=1 cgroup_no_v1=all to GRUB_CMDLINE_LINUX in \
                         /etc/default/grub, run update-grub, and boot";

/// What keeps a controller from us, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lack {
    /// Why, as the end of a sentence.
    pub why: String,
    /// What to do.
    pub cure: String,
}

/// Why no cgroup below `own`, our own of version 2, has `controller`; without one there is no version 2. The cure
/// is for all of `needed`.
pub fn lack(own: Option<&Path>, controller: &str, needed: &[&str]) -> Lack {
    let layout = Layout::discover().unwrap_or_default();
    let old = if controller == "io" { "blkio" } else { controller };
    let old = layout.home(old).filter(|home| home.version == Version::V1);
    if let Some(old) = old {
        let why = format!("cgroup v1 has the {controller} controller of this host ({})", old.mount.display());
        return Lack { why, cure: UNIFY.to_owned() };
    }
    let Some(own) = own else {
        return Lack { why: "this host has no cgroup v2 hierarchy".into(), cure: UNIFY.into() };
    };
    let has = |path: &Path| words(path, "cgroup.controllers").iter().any(|one| one == controller);
    let root = layout.unified().map(|unified| unified.mount.clone());
    if root.as_deref().is_some_and(|root| !has(root)) {
        let why = format!("this kernel gives no {controller} controller in cgroup v2");
        let cure = format!(
            "boot with cgroup_enable={controller} where the kernel has it switched off, or leave the limit out"
        );
        return Lack { why, cure };
    }
    let shown = own.display();
    let why = if !has(own) {
        format!("the {controller} controller was not delegated to {shown}")
    } else if let Err(errno) = nix::unistd::access(own, nix::unistd::AccessFlags::W_OK) {
        format!("no cgroup can be made in {shown}: {}", errno.desc())
    } else if !is_root(own) && ours(own).is_none() {
        format!("other processes are in {shown}, which then cannot give the {controller} controller away")
    } else {
        format!("{shown} does not give the {controller} controller away")
    };
    Lack { why, cure: cure(&Site::of_this_process(own), needed) }
}

/// What a cure depends on, as data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// Our own user id.
    pub uid: u32,
    /// Whether systemd is pid 1.
    pub systemd: bool,
    /// The controllers of this user's manager; none where it does not run.
    pub manager: Vec<String>,
    /// The cgroups from the root to ours that lack a controller for their children, with those they have.
    pub above: Vec<(PathBuf, Vec<String>)>,
}

impl Site {
    /// As it is for this process in `own`.
    pub fn of_this_process(own: &Path) -> Self {
        let uid = nix::unistd::geteuid().as_raw();
        let manager = format!("/sys/fs/cgroup/user.slice/user-{uid}.slice/user@{uid}.service");
        let mut above: Vec<_> = own
            .ancestors()
            .skip(1)
            .take_while(|path| path.join("cgroup.controllers").exists())
            .map(|path| (path.to_owned(), words(path, "cgroup.subtree_control")))
            .collect();
        above.reverse();
        Site {
            uid,
            systemd: Path::new("/run/systemd/system").is_dir(),
            manager: words(Path::new(&manager), "cgroup.controllers"),
            above,
        }
    }
}

/// How this user gets `controllers`. What stands between backquotes can be run as it stands, but for the
/// program's own arguments.
pub fn cure(site: &Site, controllers: &[&str]) -> String {
    let (known, others): (Vec<&str>, Vec<&str>) =
        controllers.iter().partition(|name| OF_SYSTEMD.contains(name));
    let mut cure = String::new();
    if !others.is_empty() {
        // systemd leaves those alone that it does not know: what root switches on stays on.
        let others: Vec<String> = others.iter().map(|name| format!("+{name}")).collect();
        let others = others.join(" ");
        let lacking = site
            .above
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
            cure,
            "as root: `for f in {files}; do echo {others} >$f; done`, since systemd does not give it; then "
        );
    }
    match (site.systemd, site.uid) {
        (true, 0) => cure.push_str("start saggar by `systemd-run --scope -p Delegate=yes saggar …`"),
        (true, _) => {
            let manager_lacks = known.iter().any(|name| !site.manager.iter().any(|one| one == name));
            if manager_lacks {
                let all = OF_SYSTEMD.join(" ");
                let _ = write!(
                    cure,
                    "as root: `mkdir -p /etc/systemd/system/user@.service.d && printf \
                     '[Service]\\nDelegate={all}\\n' >/etc/systemd/system/user@.service.d/delegate.conf && systemctl \
                     daemon-reload`; log in again; then "
                );
            }
            cure.push_str("start saggar by `systemd-run --user --scope -p Delegate=yes saggar …`");
        }
        (false, _) => {
            let names: Vec<String> = controllers.iter().map(|name| format!("+{name}")).collect();
            let _ = write!(
                cure,
                "start saggar alone in a cgroup of its own, which root makes: `mkdir /sys/fs/cgroup/saggar && echo \
                 {} >/sys/fs/cgroup/cgroup.subtree_control && cd /sys/fs/cgroup/saggar && chown {} . cgroup.procs \
                 cgroup.subtree_control cgroup.threads && echo PID >cgroup.procs`, PID being the shell that goes on \
                 with `exec saggar …`",
                names.join(" "),
                site.uid
            );
        }
    }
    cure
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(uid: u32, systemd: bool, manager: &[&str]) -> Site {
        let above =
            vec![("/sys/fs/cgroup".into(), vec!["cpu".to_owned()]), ("/sys/fs/cgroup/a".into(), vec![])];
        Site { uid, systemd, manager: manager.iter().map(|one| (*one).to_owned()).collect(), above }
    }

    #[test]
    fn a_cure_is_a_command_for_who_asks() {
        let given = ["cpu", "memory", "pids"];
        insta::assert_snapshot!(cure(&site(0, true, &[]), &["io"]), @"start saggar by `systemd-run --scope -p Delegate=yes saggar …`");
        insta::assert_snapshot!(cure(&site(1000, true, &given), &["memory", "cpu"]), @"start saggar by `systemd-run --user --scope -p Delegate=yes saggar …`");
        insta::assert_snapshot!(cure(&site(1000, true, &given), &["io"]), @r"as root: `mkdir -p /etc/systemd/system/user@.service.d && printf '[Service]\nDelegate=cpu cpuset io memory pids\n' >/etc/systemd/system/user@.service.d/delegate.conf && systemctl daemon-reload`; log in again; then start saggar by `systemd-run --user --scope -p Delegate=yes saggar …`");
        insta::assert_snapshot!(cure(&site(0, true, &[]), &["hugetlb"]), @"as root: `for f in /sys/fs/cgroup/cgroup.subtree_control /sys/fs/cgroup/a/cgroup.subtree_control; do echo +hugetlb >$f; done`, since systemd does not give it; then start saggar by `systemd-run --scope -p Delegate=yes saggar …`");
        insta::assert_snapshot!(cure(&site(1000, false, &[]), &["memory", "io"]), @"start saggar alone in a cgroup of its own, which root makes: `mkdir /sys/fs/cgroup/saggar && echo +memory +io >/sys/fs/cgroup/cgroup.subtree_control && cd /sys/fs/cgroup/saggar && chown 1000 . cgroup.procs cgroup.subtree_control cgroup.threads && echo PID >cgroup.procs`, PID being the shell that goes on with `exec saggar …`");
    }
}
