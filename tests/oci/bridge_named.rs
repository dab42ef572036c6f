//! `org.saggar.spool`, and the control socket beside a named socket: what a server that sees only the operator's directory
//! has of a bridge.

use super::bridge::{beside, both_gone, configured, demo_with, keeper, refused};
use super::bundle::Bench;
use crate::control::client::ControlClient;
use crate::support::bridge_client::{BridgeClient, SESSION};
use crate::support::process::Watch;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// The files of the bridge `b` in the operator's directory.
struct Named {
    directory: PathBuf,
    socket: PathBuf,
    control: PathBuf,
    events: PathBuf,
}

impl Named {
    /// Configures the directory, and a demo agent with the bridge `b` whose events are stored.
    fn new(bench: &Bench) -> Self {
        let directory = configured(bench);
        let named = Named {
            socket: directory.join("b"),
            control: directory.join("b.control"),
            events: directory.join("b.events"),
            directory,
        };
        annotated(bench, &[("bridge", "b"), ("spool", "true")]);
        named
    }

    fn has_sockets(&self) -> bool {
        assert_eq!(self.socket.exists(), self.control.exists());
        self.socket.exists()
    }

    /// What `saggar session events --spool` prints.
    fn stored(&self, bench: &Bench, after: u64) -> Vec<Value> {
        let mut command = bench.place.saggar();
        command.args(["session", "events", "--after", &after.to_string(), "--spool"]).arg(&self.events);
        bench.finish(command).ok().stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn spool_owner(&self) -> u32 {
        fs::metadata(self.events.join("spool")).unwrap().uid()
    }
}

/// A demo agent with these annotations of saggar's.
fn annotated(bench: &Bench, annotations: &[(&str, &str)]) {
    demo_with(bench, |config| {
        config["annotations"] = json!({ "org.saggar.adapter": "demo" });
        for (name, value) in annotations {
            config["annotations"][format!("org.saggar.{name}")] = json!(value);
        }
    });
}

/// Asks for the events after this number, and reads them.
fn replay(client: &mut BridgeClient, after: u64) -> Vec<Value> {
    client.send(&json!({ "cmd": "replay", "after": after, "id": "r" }));
    let mut events = client.events_until(|event| event["id"] == "r");
    assert_eq!(events.pop().unwrap()["ev"], "done");
    events
}

fn numbers(events: &[Value]) -> Vec<u64> {
    events.iter().map(|event| event["seq"].as_u64().unwrap_or_else(|| panic!("{event}"))).collect()
}

/// Ends a container as its program does, and what is beside it.
fn end(bench: &Bench, id: &str) {
    let beside = beside(bench, id);
    bench.say(&["kill", id, "KILL"]).ok();
    both_gone(&beside);
}

as_each_caller! {
    /// To a server that comes back, and to one that comes when the container has ended or is deleted.
    fn stored_turn_is_replayed_and_outlives_the_container(caller) {
        let bench = Bench::new(caller);
        let named = Named::new(&bench);
        let id = bench.start();
        let mut client = BridgeClient::connect(&named.socket);
        assert!(client.turn("run: echo one").is_done());
        drop(client);
        let replayed = replay(&mut BridgeClient::connect(&named.socket), 0);
        assert_eq!(numbers(&replayed), (1..=replayed.len() as u64).collect::<Vec<_>>());
        assert_eq!(replayed.last().unwrap()["ev"], "done");
        // While the supervisor stores, only root may read what its own id has.
        assert_eq!(named.stored(&bench, 0), replayed);
        end(&bench, &id);
        assert_eq!(named.stored(&bench, 0), replayed);
        bench.say(&["delete", &id]).ok();
        bench.is_clean(&id);
        assert_eq!(named.stored(&bench, 0), replayed);
        assert_eq!(named.stored(&bench, 2), replayed[2..]);
        assert_eq!(named.stored(&bench, 1_000_000), Vec::<Value>::new());
        assert!(!named.has_sockets());
    }

    fn turn_continues_without_its_connection(caller) {
        let bench = Bench::new(caller);
        let named = Named::new(&bench);
        bench.start();
        let mut client = BridgeClient::connect(&named.socket);
        client.query("run: until test -e /tmp/go; do :; done; echo late");
        client.events_until(|event| event["data"]["type"] == "assistant");
        drop(client);
        // A command of its own is done after the connection has gone.
        let mut client = BridgeClient::connect(&named.socket);
        assert_eq!(client.exec("touch /tmp/go", 30_000)["exitCode"], 0);
        let mut told = replay(&mut client, 0);
        while !told.iter().any(|event| event["ev"] == "done" && event["sessionId"] != "") {
            told.push(client.event());
        }
        assert!(told.iter().any(|event| event.to_string().contains("late")), "{told:?}");
    }

    /// Also after a supervisor that was killed in a turn, and whatever id the supervisors have.
    fn numbers_continue_in_the_next_container_of_the_name(caller) {
        let bench = Bench::new(caller);
        let named = Named::new(&bench);
        let id = bench.start();
        let mut client = BridgeClient::connect(&named.socket);
        assert!(client.turn("hello").is_done());
        client.send(&json!({ "cmd": "query", "prompt": "run: sleep 1000", "sessionId": SESSION, "id": "cut" }));
        client.events_until(|event| event["data"]["type"] == "assistant");
        let beside = beside(&bench, &id);
        beside[0].signal(Signal::SIGKILL);
        both_gone(&beside);
        bench.wait_stopped(&id);
        bench.say(&["delete", &id]).ok();
        let first = named.stored(&bench, 0);
        if caller.is_root() {
            assert_ne!(named.spool_owner(), 0, "the supervisor has an id of its own");
            let spool = named.events.join("spool");
            let files: Vec<PathBuf> = fs::read_dir(&spool).unwrap().flatten().map(|entry| entry.path()).collect();
            for file in files.into_iter().chain([spool]) {
                std::os::unix::fs::chown(file, Some(54321), Some(54321)).unwrap();
            }
        }
        let next = bench.start();
        let mut client = BridgeClient::connect(&named.socket);
        let told = replay(&mut client, 0);
        assert_eq!(told[..first.len()], first);
        let cut = told.last().unwrap();
        assert_eq!((&cut["ev"], &cut["id"]), (&json!("error"), &json!("cut")), "{told:?}");
        assert!(client.turn("hello").is_done());
        end(&bench, &next);
        let all = named.stored(&bench, 0);
        assert_eq!(all[..told.len()], told);
        assert!(all.len() > told.len());
        assert_eq!(numbers(&all), (1..=all.len() as u64).collect::<Vec<_>>());
    }

    /// However the container ends, by whichever process that may still remove them.
    fn control_socket_is_beside_a_named_socket_and_goes_with_it(caller) {
        let bench = Bench::new(caller);
        let named = Named::new(&bench);
        annotated(&bench, &[("bridge", named.socket.to_str().unwrap())]);
        for how in ["program", "supervisor", "guard", "keeper", "unstarted supervisor", "unstarted guard", "delete", "delete alone"] {
            let id = bench.id();
            bench.create(&id).ok();
            if !how.starts_with("unstarted") {
                bench.say(&["start", &id]).ok();
                let state = ControlClient::connect(&named.control).get("state");
                assert_eq!(state["id"], json!(id), "{state}");
            }
            assert!(!bench.state_dir(&id).join("control.sock").exists());
            assert!(named.has_sockets(), "{how}");
            assert_eq!(fs::metadata(&named.control).unwrap().mode() & 0o7777, 0o600);
            let beside = beside(&bench, &id);
            match how {
                "program" => drop(bench.say(&["kill", &id, "KILL"]).ok()),
                "delete" => drop(bench.say(&["delete", "--force", &id]).ok()),
                // Then the guard alone may remove them.
                "keeper" => keeper(&bench, &id).signal(Signal::SIGKILL),
                "delete alone" => {
                    // The guard hangs and the keeper is killed, so that nobody else removes anything.
                    let (keeper, init) = (keeper(&bench, &id), Watch::of(bench.pid(&id)).unwrap());
                    beside[1].signal(Signal::SIGSTOP);
                    keeper.signal(Signal::SIGKILL);
                    beside[0].wait_gone("the supervisor");
                    init.wait_gone("the init");
                    assert!(named.has_sockets());
                    bench.say(&["delete", "--force", &id]).ok();
                }
                process => beside[usize::from(process.ends_with("guard"))].signal(Signal::SIGKILL),
            }
            both_gone(&beside);
            assert!(!named.has_sockets(), "{how}");
            bench.say(&["delete", "--force", &id]).ok();
            bench.is_clean(&id);
            assert_eq!(fs::read_dir(&named.directory).unwrap().count(), 0, "{how}");
        }
    }

    /// What the server puts there instead is not the bridge's to remove.
    fn file_in_the_place_of_the_control_socket_is_kept(caller) {
        let bench = Bench::new(caller);
        let named = Named::new(&bench);
        for force in [false, true] {
            let id = bench.start();
            fs::remove_file(&named.control).unwrap();
            fs::write(&named.control, "another's").unwrap();
            if !force {
                end(&bench, &id);
            }
            bench.say(&["delete", "--force", &id]).ok();
            assert!(!named.socket.exists());
            assert_eq!(fs::read_to_string(&named.control).unwrap(), "another's");
            fs::remove_file(&named.control).unwrap();
        }
    }

    fn annotation_for_stored_events_is_refused_by_its_name(caller) {
        let bench = Bench::new(caller);
        let named = Named::new(&bench);
        let long = "x".repeat(64);
        for (annotations, text) in [
            (&[("bridge", "b"), ("spool", "yes")][..], "annotations[\"org.saggar.spool\"]: \"yes\""),
            (&[("bridge", "b"), ("spool", "")], "annotations[\"org.saggar.spool\"]: \"\""),
            (&[("bridge", "true"), ("spool", "true")], "annotations[\"org.saggar.spool\"]: events are stored beside"),
            (&[("bridge", "false"), ("spool", "true")], "set org.saggar.bridge to a name"),
            (&[("spool", "true")], "annotations[\"org.saggar.spool\"]: events are stored beside"),
            (&[("spool", "1")], "annotations[\"org.saggar.spool\"]: \"1\""),
            (&[("bridge", "a.control")], "annotations[\"org.saggar.bridge\"]: \"a.control\" ends in .control"),
            (&[("bridge", "a.events")], "annotations[\"org.saggar.bridge\"]: \"a.events\" ends in .events"),
        ] {
            annotated(&bench, annotations);
            refused(&bench, text);
        }
        assert_eq!(fs::read_dir(&named.directory).unwrap().count(), 0);
        // The name fits into an address, and that of the control socket does not.
        let room = 107 - named.directory.to_str().unwrap().len() - 1 - long.len();
        let deep = named.directory.join("d".repeat(room.saturating_sub(1).max(1)));
        bench.place.configure_user(&format!("bridge.directory = {deep:?}\n"));
        annotated(&bench, &[("bridge", &long)]);
        refused(&bench, "annotations[\"org.saggar.bridge\"]: ");
        refused(&bench, ".control, its control socket, has ");
        // A pod passes the annotation to all of its containers.
        bench.place.configure_user(&format!("bridge.directory = {:?}\n", named.directory));
        annotated(&bench, &[("bridge", "b"), ("spool", "true"), ("container", "other")]);
        let config = fs::read(bench.bundle().join("config.json")).unwrap();
        let mut config: Value = serde_json::from_slice(&config).unwrap();
        config["annotations"]["io.kubernetes.cri.container-name"] = json!("agent");
        bench.write_config(config.to_string().as_bytes());
        let id = bench.start();
        bench.say(&["delete", "--force", &id]).ok();
        assert_eq!(fs::read_dir(&named.directory).unwrap().count(), 0);
        annotated(&bench, &[("bridge", "b"), ("spool", "false")]);
        bench.start();
        assert!(named.has_sockets() && !named.events.exists());
    }

    /// As a session's: the oldest go first, and are told as a gap.
    fn stored_events_are_bounded_by_the_configuration(caller) {
        let bench = Bench::new(caller);
        let named = Named::new(&bench);
        bench.place.configure_user(&format!("bridge.directory = {:?}\nbridge.spool = '1M'\n", named.directory));
        bench.start();
        let mut client = BridgeClient::connect(&named.socket);
        for _ in 0..8 {
            let result = client.exec("busybox head -c 300000 /dev/zero | busybox tr '\\0' x", 30_000);
            assert_eq!(result["stdout"].as_str().unwrap().len(), 300_000);
        }
        let files = fs::read_dir(named.events.join("spool")).unwrap().flatten();
        let size: u64 = files.map(|file| file.metadata().unwrap().len()).sum();
        assert!((600_000..=1 << 20).contains(&size), "{size}");
        let stored = named.stored(&bench, 0);
        assert_eq!((&stored[0]["ev"], &stored[0]["from"]), (&json!("gap"), &json!(1)), "{}", stored[0]);
        assert_eq!(stored.last().unwrap()["seq"], 16);
    }

    fn taken_control_socket_refuses_the_bridge(caller) {
        let bench = Bench::new(caller);
        let named = Named::new(&bench);
        let other = UnixListener::bind(&named.control).unwrap();
        bench.give(&named.control);
        refused(&bench, "b.control: a running program listens on it");
        assert!(named.control.exists() && !named.socket.exists() && !named.events.exists());
        drop(other);
        bench.start();
        assert!(named.has_sockets());
    }

    /// Neither touches what the other has, also if somebody has removed the socket meanwhile.
    fn second_container_of_the_name_does_not_touch_the_events(caller) {
        let bench = Bench::new(caller);
        let named = Named::new(&bench);
        bench.start();
        let mut client = BridgeClient::connect(&named.socket);
        assert!(client.turn("hello").is_done());
        let owner = named.spool_owner();
        refused(&bench, "a running program listens on it");
        assert!(client.turn("hello").is_done());
        for socket in [&named.socket, &named.control] {
            fs::remove_file(socket).unwrap();
        }
        refused(&bench, "another container stores events in ");
        assert!(!named.has_sockets());
        assert!(client.turn("hello").is_done());
        assert_eq!(named.spool_owner(), owner);
        let stored = named.stored(&bench, 0);
        assert_eq!(stored.iter().filter(|event| event["ev"] == "done").count(), 3);
        assert_eq!(numbers(&stored), (1..=stored.len() as u64).collect::<Vec<_>>());
    }

    /// No other user, and no program of the container.
    fn stored_events_are_private(caller) {
        let bench = Bench::new(caller);
        let named = Named::new(&bench);
        let id = bench.start();
        let mut client = BridgeClient::connect(&named.socket);
        assert!(client.turn("hello").is_done());
        let spool = named.events.join("spool");
        let mode = |path: &Path| fs::symlink_metadata(path).unwrap().mode() & 0o7777;
        assert_eq!((mode(&named.events), mode(&spool)), (0o700, 0o700));
        assert_eq!(fs::metadata(&named.events).unwrap().uid(), caller.uid().as_raw());
        let files: Vec<PathBuf> = fs::read_dir(&spool).unwrap().flatten().map(|entry| entry.path()).collect();
        assert!(files.iter().any(|file| file.extension().is_some_and(|end| end == "seg")), "{files:?}");
        for file in &files {
            assert_eq!(mode(file), 0o600, "{}", file.display());
            assert_eq!(fs::metadata(file).unwrap().uid(), named.spool_owner(), "{}", file.display());
        }
        for path in files.iter().chain([&spool, &named.events, &named.socket]) {
            let looked = client.exec(&format!("ls -d {}", path.display()), 30_000);
            assert_ne!(looked["exitCode"], 0, "{looked}");
        }
        end(&bench, &id);
        // A directory that others can write, or a link, is none to store in.
        bench.say(&["delete", &id]).ok();
        fs::set_permissions(&named.events, fs::Permissions::from_mode(0o777)).unwrap();
        refused(&bench, "others can write to it");
        let moved = named.directory.join("moved");
        fs::rename(&named.events, &moved).unwrap();
        symlink(&moved, &named.events).unwrap();
        refused(&bench, "open the directory of events ");
        assert!(!named.has_sockets());
    }
}
