//! Many containers at once.

use std::fs;
use std::path::PathBuf;

use saggar::cgroup::CgroupLayout;
use serde_json::json;

use super::bundle::Bench;
use crate::races::stepped::stepped;
use crate::support::caller::Caller;
use crate::support::process::Watch;
use crate::support::rounds;

as_each_caller! {
    fn cycles_side_by_side_all_succeed_and_leave_nothing(caller) {
        let bench = Bench::new(caller);
        let ids: Vec<String> = (0..rounds(32, 200)).map(|_| bench.id()).collect();
        for some in ids.chunks(32) {
            let bundle = bench.bundle();
            let bundle = bundle.to_str().unwrap();
            all(&bench, some, |id| vec!["create".into(), "--bundle".into(), bundle.into(), id.into()]);
            all(&bench, some, |id| vec!["start".into(), id.into()]);
            let watches: Vec<_> = some.iter().map(|id| Watch::of(bench.pid(id)).unwrap()).collect();
            all(&bench, some, |id| vec!["kill".into(), id.into(), "KILL".into()]);
            watches.iter().for_each(|watch| watch.wait_gone("a container"));
            all(&bench, some, |id| vec!["delete".into(), id.into()]);
            some.iter().for_each(|id| bench.is_clean(id));
        }
    }
}

/// One command for each id, all at once.
fn all(bench: &Bench, ids: &[String], args: impl Fn(&str) -> Vec<String>) {
    let children: Vec<_> = ids
        .iter()
        .map(|id| {
            let args = args(id);
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let err = tempfile::Builder::new().tempfile_in(bench.place.path()).unwrap();
            let mut command = bench.command(&args);
            command.stdout(std::process::Stdio::null()).stderr(err.reopen().unwrap());
            (command.spawn().unwrap(), err, args.join(" "))
        })
        .collect();
    for (child, err, what) in children {
        let status = super::bundle::end_of(child, &what);
        assert!(status.success(), "{what}: {}", fs::read_to_string(err.path()).unwrap());
    }
}

/// The cgroup above is there when the place is chosen and goes after it, three times in each hierarchy, as the end of
/// another container takes it along.
#[test]
fn a_cgroup_is_made_though_the_one_above_goes() {
    let Ok(caller) = Caller::root() else { skip!("this test needs to be started as root") };
    let bench = Bench::new(caller);
    let id = bench.id();
    let (above, name) = (format!("above-{id}"), format!("above-{id}/{id}"));
    let hierarchies: Vec<PathBuf> = CgroupLayout::discover()
        .unwrap()
        .hierarchies
        .iter()
        .map(|one| one.mount_point.join(&above))
        .collect();
    hierarchies.iter().for_each(|path| fs::create_dir(path).unwrap());
    bench.configure(|config| {
        config["linux"]["cgroupsPath"] = format!("/{name}").into();
        config["process"]["args"] = json!(["/bin/true"]);
    });
    let verb = bench.command(&["run", "--bundle", bench.bundle().to_str().unwrap(), &id]);
    let (mut gone, output) = (vec![0; hierarchies.len()], bench.place.join("output"));
    let status = stepped(&bench.place, &verb, &output, |_| {
        let is_chosen = bench.state_dir(&id).exists();
        for (path, gone) in hierarchies.iter().zip(&mut gone).filter(|(_, gone)| is_chosen && **gone < 3) {
            *gone += u32::from(fs::remove_dir(path).is_ok());
        }
    });
    let said = fs::read_to_string(&output).unwrap();
    assert_eq!(status, Some(0), "{said}");
    assert!(gone.iter().all(|gone| *gone == 3), "{gone:?}");
    let left: Vec<_> = hierarchies.iter().filter(|path| path.exists()).collect();
    assert!(left.is_empty(), "{left:?}");
}
