//! Many containers at once.

use super::bundle::Bench;
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
        assert!(status.success(), "{what}: {}", std::fs::read_to_string(err.path()).unwrap());
    }
}
