//! Maps of a user namespace (config-linux.md, User namespace mappings) as an ordinary user asks for them: its own id
//! by itself, ranges of /etc/subuid and /etc/subgid by newuidmap(1) and newgidmap(1).

use super::bundle::Bench;
use crate::support::caller::Caller;
use nix::unistd::User;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::MetadataExt;

/// An account with a range, `first` and how many.
fn account() -> Result<(Caller, User, u32, u32), String> {
    let caller = Caller::ordinary()?;
    let user = User::from_uid(caller.uid()).ok().flatten().ok_or("this user has no account")?;
    let range = |file: &str| {
        let text = fs::read_to_string(file).ok()?;
        let line =
            text.lines().find_map(|line| line.strip_prefix(&format!("{}:", user.name)).map(str::to_owned))?;
        let (first, count) = line.split_once(':')?;
        Some((first.parse::<u32>().ok()?, count.parse::<u32>().ok()?))
    };
    match (range("/etc/subuid"), range("/etc/subgid")) {
        (Some(uids), Some(gids)) if uids == gids => Ok((caller, user.clone(), uids.0, uids.1)),
        _ => Err(format!("{} has no range of its own in /etc/subuid and /etc/subgid", user.name)),
    }
}

/// Root inside is the caller; the other ids begin at `first`.
fn mapped(config: &mut Value, caller: Caller, first: u32, count: u32) {
    let id = caller.uid().as_raw();
    let map = json!([
        { "containerID": 0, "hostID": id, "size": 1 },
        { "containerID": 1, "hostID": first, "size": count },
    ]);
    config["linux"]["uidMappings"] = map.clone();
    config["linux"]["gidMappings"] = map;
}

#[test]
fn a_user_maps_its_ranges() {
    let (caller, _, first, count) = match account() {
        Ok(account) => account,
        Err(why) => skip!("{why}"),
    };
    let bench = Bench::new(caller);
    let script =
        "cat /proc/self/uid_map /proc/self/gid_map; id -G; touch /tmp/of-7; busybox chown 7:8 /tmp/of-7";
    bench.configure(|config| {
        mapped(config, caller, first, count);
        config["process"]["args"] = json!(["/bin/busybox", "sh", "-c", script]);
        config["process"]["user"]["additionalGids"] = json!([5]);
        config["process"]["capabilities"] = json!({
            "bounding": ["CAP_CHOWN"], "permitted": ["CAP_CHOWN"], "effective": ["CAP_CHOWN"],
        });
    });
    let own = caller.uid().as_raw().to_string();
    let (first_text, count_text) = (first.to_string(), count.to_string());
    let map = ["0", &own, "1", "1", &first_text, &count_text];
    let said = bench.run(&bench.id()).ok();
    let words: Vec<&str> = said.stdout.split_whitespace().collect();
    assert_eq!(words, [&map[..], &map, &["0", "5"]].concat(), "{said:?}");
    let file = bench.bundle().join("rootfs/tmp/of-7");
    let made = fs::metadata(&file).unwrap();
    assert_eq!((made.uid(), made.gid()), (first + 6, first + 7));

    // create, start, exec and delete, as orchestrators do it.
    bench.configure(|config| {
        mapped(config, caller, first, count);
        config["process"]["user"] = json!({ "uid": 9, "gid": 9 });
    });
    let id = bench.start();
    let said = bench.say(&["exec", "--user", "11:12", &id, "/bin/id"]).ok();
    assert_eq!(said.stdout.trim(), "uid=11 gid=12");
    let status = fs::metadata(format!("/proc/{}", bench.pid(&id))).unwrap();
    assert_eq!(status.uid(), first + 8);
}

#[test]
fn a_range_that_is_not_the_users_is_refused_and_its_own_is_named() {
    let (caller, user, first, count) = match account() {
        Ok(account) => account,
        Err(why) => skip!("{why}"),
    };
    let bench = Bench::new(caller);
    bench.configure(|config| mapped(config, caller, first, count + 1));
    let id = bench.id();
    let said = bench.create(&id).fails("newgidmap: gid range");
    let named = format!("/etc/subgid gives user {} {first}-{}, and its own id", user.name, first + count - 1);
    assert!(said.stderr.contains(&named), "{said:?}");
    assert!(!said.stderr.contains("newgidmap: newgidmap"), "{said:?}");
    bench.is_clean(&id);
}

#[test]
fn user_without_a_subordinate_id_range_gets_an_error() {
    let caller = match Caller::root() {
        // Nobody's own files are looked at, and no account of a Debian system has a range but those of people.
        Ok(_) => Caller::named("nobody"),
        Err(why) => skip!("{why}"),
    };
    let bench = Bench::new(caller);
    bench.configure(|config| mapped(config, caller, 100_000, 65536));
    let id = bench.id();
    let said = bench.create(&id).fails("newgidmap: ");
    assert!(said.stderr.contains("user nobody has no range in /etc/subgid"), "{said:?}");
    assert!(said.stderr.contains("usermod --add-subuids 100000-165535"), "{said:?}");
    bench.is_clean(&id);
}
