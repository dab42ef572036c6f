//! Labels of security modules, on a kernel that has AppArmor and no SELinux, as Debian's.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;

use crate::bundle::Bench;
use crate::in_guest_of;
use crate::support::caller::Caller;

/// A profile that is loaded, and removed when dropped.
struct Profile(String);

impl Profile {
    /// One that allows everything but to write `forbidden`.
    fn load(forbidden: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let profile = Profile(format!("saggar-test-{}-{number}", std::process::id()));
        profile.parser("--replace", forbidden);
        profile
    }

    fn parser(&self, action: &str, forbidden: &str) {
        let text = format!(
            "profile {} flags=(attach_disconnected) {{ file, capability, signal, ptrace, network, unix, mount, umount, \
             deny {forbidden} w, }}\n",
            self.0
        );
        let mut child = Command::new("/usr/sbin/apparmor_parser")
            .args([action, "--skip-cache"])
            .stdin(Stdio::piped())
            .spawn()
            .expect("the package apparmor");
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let loaded = child.wait().unwrap().success();
        assert!(loaded || std::thread::panicking(), "apparmor_parser {action}");
    }
}

impl Drop for Profile {
    fn drop(&mut self) {
        self.parser("--remove", "/none");
    }
}

/// Only root loads profiles; both callers use them.
fn profiles() -> Result<[Profile; 2], &'static str> {
    in_guest_of("unified");
    Caller::root()?;
    Ok([Profile::load("/tmp/one"), Profile::load("/tmp/two")])
}

fn confine(bench: &Bench, profile: &str) {
    bench.configure(|config| config["process"]["apparmorProfile"] = json!(profile));
}

const SHOW: &str = "cat /proc/self/attr/apparmor/current";

as_each_caller! {
    /// config.md, process.apparmorProfile.
    fn the_program_and_those_that_join_have_the_profile(caller) {
        let [one, two] = match profiles() {
            Ok(profiles) => profiles,
            Err(why) => skip!("{why}"),
        };
        let bench = Bench::new(caller);
        confine(&bench, &one.0);
        let id = bench.start();
        let current = fs::read_to_string(format!("/proc/{}/attr/apparmor/current", bench.pid(&id))).unwrap();
        assert_eq!(current.trim(), format!("{} (enforce)", one.0));
        let exec = |options: &[&str], line: &str| {
            bench.say(&[&["exec"], options, &[id.as_str(), "/bin/sh", "-c", line]].concat())
        };
        assert_eq!(exec(&[], SHOW).ok().stdout.trim(), format!("{} (enforce)", one.0));
        assert_eq!(exec(&["--apparmor", &two.0], SHOW).ok().stdout.trim(), format!("{} (enforce)", two.0));
        // It is in force.
        exec(&[], "echo >/tmp/two").ok();
        let said = exec(&[], "echo >/tmp/one");
        assert!(!said.status.success() && said.stderr.contains("ermission denied"), "{said:?}");
        exec(&["--apparmor", &two.0], "echo >/tmp/one").ok();
    }

    fn a_profile_that_is_not_loaded_is_refused_with_the_cure(caller) {
        in_guest_of("unified");
        let bench = Bench::new(caller);
        confine(&bench, "saggar-test-nobody-loaded");
        let id = bench.id();
        let said = bench.create(&id).fails("saggar-test-nobody-loaded");
        assert!(said.stderr.contains("apparmor_parser"), "{said:?}");
        bench.is_clean(&id);
        confine(&bench, "");
        let id = bench.start();
        let said = bench.say(&["exec", "--apparmor", "saggar-test-nobody-loaded", &id, "/bin/true"]);
        said.fails("saggar-test-nobody-loaded");
        bench.status_is(&id, "running");
    }

    fn a_label_of_selinux_is_refused_where_there_is_none(caller) {
        in_guest_of("unified");
        let bench = Bench::new(caller);
        bench.configure(|config| {
            config["process"]["selinuxLabel"] = json!("system_u:system_r:container_t:s0");
        });
        let id = bench.id();
        bench.create(&id).fails("process.selinuxLabel is given, and SELinux is not enabled on this host");
        bench.is_clean(&id);
    }
}
