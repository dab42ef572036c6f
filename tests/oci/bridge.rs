//! `org.saggar.bridge`: an agent's bridge beside a container (DECISIONS 12).

use super::bundle::{Bench, cgroups_named, end_of};
use crate::control::client::ControlClient;
use crate::processes::account::Account;
use crate::support::bridge_client::{BridgeClient, Outcome, SESSION};
use crate::support::caller::Caller;
use crate::support::deadline::Deadline;
use crate::support::place::copy_program;
use crate::support::process::{Process, Watch, any_with_argument};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::BufRead;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// A container with a bridge whose program is the demo agent: saggar's own binary, in the root of the bundle.
pub(crate) fn demo(bench: &Bench) {
    demo_with(bench, |_| {});
}

pub(crate) fn demo_with(bench: &Bench, change: impl FnOnce(&mut Value)) {
    let bin = bench.bundle().join("rootfs/bin/saggar");
    copy_program(crate::support::binary::saggar(), &bin);
    bench.configure(|config| {
        config["process"]["args"] = json!(["/bin/saggar", "__demo-agent"]);
        bridged(config);
        // What the binary is linked with.
        for dir in ["/lib", "/lib64"] {
            config["mounts"].as_array_mut().unwrap().push(json!({
                "destination": dir, "type": "bind", "source": dir, "options": ["rbind", "ro"],
            }));
        }
        change(config);
    });
}

/// The turn ended with the agent, and `how` is told where it can be known: before Linux 6.15 whoever reaps the agent
/// leaves nothing to see.
#[track_caller]
fn ended(outcome: &Outcome, how: &str) {
    let said = outcome.end["error"].as_str().unwrap_or_default();
    let told = said.contains(how) || (!pidfds_keep_the_exit() && said == "the agent has ended");
    assert!(outcome.end["ev"] == "error" && told, "{outcome:?}");
}

/// PIDFD_INFO_EXIT.
fn pidfds_keep_the_exit() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map(|number| number.parse().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6), Some(15))
}

fn bridged(config: &mut Value) {
    config["annotations"] = json!({ "org.saggar.bridge": "true", "org.saggar.adapter": "demo" });
}

/// A container with a bridge whose program is a script of the shell.
fn script(bench: &Bench, script: &str) {
    bench.configure(|config| {
        config["process"]["args"] = json!(["/bin/sh", "-c", script]);
        bridged(config);
    });
}

pub(crate) fn socket(bench: &Bench, id: &str) -> PathBuf {
    bench.state_dir(id).join("bridge.sock")
}

/// Supervisor and guard of a container.
pub(crate) fn beside(bench: &Bench, id: &str) -> [Watch; 2] {
    let record: Value =
        serde_json::from_slice(&fs::read(bench.state_dir(id).join("state.json")).unwrap()).unwrap();
    ["supervisor", "guard"].map(|name| {
        let pid = record["bridge"][name]["pid"].as_u64().unwrap_or_else(|| panic!("no {name} in {record}"));
        Watch::of(u32::try_from(pid).unwrap()).unwrap_or_else(|| panic!("the {name} is gone"))
    })
}

/// The keeper of a container whose program runs.
pub(crate) fn keeper(bench: &Bench, id: &str) -> Watch {
    let found =
        Account::children(beside(bench, id)[0].pid()).into_iter().find(|child| child.name == "saggar:keeper");
    Watch::of(found.expect("there is a keeper").pid).expect("the keeper lives")
}

pub(crate) fn both_gone(beside: &[Watch; 2]) {
    beside[0].wait_gone("the supervisor");
    beside[1].wait_gone("the guard");
}

/// `create` with its standard output in a file, as a shim has it in a pipe.
fn create_into(bench: &Bench, id: &str, out: &Path) {
    let mut command = bench.command(&["create", "--bundle", &bench.bundle().to_string_lossy(), id]);
    command.stdout(File::create(out).unwrap()).stderr(std::process::Stdio::null());
    assert!(end_of(command.spawn().unwrap(), "create").success());
}

/// The directory that the operator has configured for sockets.
pub(super) fn configured(bench: &Bench) -> PathBuf {
    let directory = bench.place.make_dir("agents", 0o700);
    let (config, own) =
        (bench.place.make_dir("home/.config", 0o700), bench.place.make_dir("home/.config/saggar", 0o700));
    assert!(own.starts_with(config));
    bench.place.make_file("home/.config/saggar/config.toml", &format!("bridge.directory = {directory:?}\n"));
    directory
}

pub(super) fn refused(bench: &Bench, text: &str) {
    let id = bench.id();
    bench.create(&id).fails(text);
    bench.is_clean(&id);
}

/// The text of a control file of the container that this process is in, of either version.
fn control_file(pid: &Value, controller: &str, file: &str) -> String {
    let own = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let of = |line: &str| {
        let (head, path) = line.rsplit_once(':').unwrap();
        let v1 = head.split([':', ',']).any(|word| word == controller);
        let mount = if v1 { format!("/sys/fs/cgroup/{controller}") } else { "/sys/fs/cgroup".to_owned() };
        fs::read_to_string(format!("{mount}{path}/{file}")).ok()
    };
    let text = own.lines().find_map(of).unwrap_or_else(|| panic!("no {file} of {own}"));
    text.trim().to_owned()
}

/// What `saggar update` does, all or none.
fn updates(client: &mut ControlClient, pid: &Value) {
    let unified = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    let memory = if unified { "memory.max" } else { "memory.limit_in_bytes" };
    let read = || (control_file(pid, "pids", "pids.max"), control_file(pid, "memory", memory));
    let resources = json!({ "resources": { "pids": { "limit": 77 }, "memory": { "limit": 512 << 20 } } });
    assert_eq!(client.call("update", &resources), json!({ "generation": 2 }));
    let now = ("77".to_owned(), (512 << 20).to_string());
    assert_eq!(read(), now);
    assert_eq!(client.get("state")["generation"], 2);
    // Memory is written, and then there is no such processor.
    let wrong = json!({ "resources": { "memory": { "limit": 600 << 20 }, "cpu": { "cpus": "4000" } } });
    let (name, said) = client.refused("update", &wrong);
    assert_eq!(name, "unsupported", "{said}");
    assert!(said.contains("linux.resources.cpu.cpus cannot hold: write \"4000\" to "), "{said}");
    assert_eq!(read(), now);
    let devices =
        json!({ "resources": { "pids": { "limit": 5 }, "devices": [{ "allow": true, "access": "rwm" }] } });
    assert_eq!(client.refused("update", &devices).0, "unsupported");
    assert_eq!(read(), now);
    let (name, said) = client.refused("update", &json!({ "resources": { "pids": 3 } }));
    assert_eq!(name, "params", "{said}");
    assert_eq!(client.get("state")["generation"], 2);
}

as_each_caller! {
    /// saggar-control(7): the container as `state` tells it, commands in it, pause and the end; none is left.
    fn a_container_has_a_control_socket_too(caller) {
        let bench = Bench::new(caller);
        demo(&bench);
        let id = bench.start();
        let mut server = BridgeClient::connect(&socket(&bench, &id));
        let mut client = ControlClient::connect(&bench.state_dir(&id).join("control.sock"));
        let (told, state) = (client.get("state"), bench.state(&id));
        for field in ["id", "pid", "status", "bundle"] {
            assert_eq!(told[field], state[field], "{told}");
        }
        let ended = client.call("exec", &json!({ "command": "echo in; exit 3" }));
        assert_eq!((&ended["exitCode"], &ended["stdout"]), (&json!(3), &json!("in\n")), "{ended}");
        let cancelled = client.ask("exec", &json!({ "command": "sleep 1000" }));
        assert_eq!(client.call("exec.cancel", &json!({ "id": cancelled })), json!({}));
        assert_eq!(client.answer(cancelled)["error"]["data"]["name"], "state");
        let late = client.call("exec", &json!({ "command": "sleep 1000", "timeout": 300 }));
        assert_eq!(late["exitCode"], 124, "{late}");
        client.get("events.subscribe");
        if bench.has_cgroup(&id) {
            client.get("pause");
            assert_eq!(client.event()["event"], "paused");
            bench.status_is(&id, "paused");
            assert_eq!(client.refused("exec", &json!({ "command": "true" })).0, "state");
            assert!(!server.turn("hello").is_done());
            client.get("resume");
            bench.status_is(&id, "running");
            // Whoever lets it go on, the bridge goes on too.
            client.get("pause");
            bench.say(&["resume", &id]).ok();
            assert!(server.turn("hello").is_done());
            assert!(client.get("stats").is_object());
            updates(&mut client, &state["pid"]);
        } else {
            let (name, said) = client.refused("update", &json!({ "resources": { "pids": { "limit": 77 } } }));
            assert_eq!(name, "unsupported", "{said}");
        }
        assert_eq!(client.refused("update", &json!({ "limits": { "pids": 77 } })).0, "params");
        for method in ["snapshot", "files.list"] {
            assert_eq!(client.refused(method, &json!({})).0, "unsupported", "{method}");
        }
        assert!(server.turn("hello").is_done());
        let beside = beside(&bench, &id);
        client.get("shutdown");
        both_gone(&beside);
        bench.wait_stopped(&id);
        bench.say(&["delete", &id]).ok();
        bench.is_clean(&id);
    }

    /// The socket listens when create returns; ready is said when the program runs.
    fn a_turn_goes_over_the_bridge_of_a_container(caller) {
        let bench = Bench::new(caller);
        demo(&bench);
        let id = bench.id();
        bench.create(&id).ok();
        let mut client = BridgeClient::connect_only(&socket(&bench, &id));
        bench.say(&["start", &id]).ok();
        assert_eq!(client.event(), json!({"ev": "ready"}));
        let outcome = client.turn("hello");
        assert!(outcome.is_done(), "{outcome:?}");
        assert_eq!(outcome.of_type("result").count(), 1, "{outcome:?}");
        let beside = beside(&bench, &id);
        bench.say(&["kill", &id, "KILL"]).ok();
        client.expect_close();
        both_gone(&beside);
        bench.say(&["delete", &id]).ok();
        bench.is_clean(&id);
    }

    fn a_permission_is_asked_for_and_given(caller) {
        let bench = Bench::new(caller);
        demo(&bench);
        let id = bench.start();
        let mut client = BridgeClient::connect(&socket(&bench, &id));
        client.query("ask: echo allowed > /tmp/asked");
        let asked = client.events_until(|event| event["data"]["type"] == "control_request").pop().unwrap();
        assert!(!bench.bundle().join("rootfs/tmp/asked").exists());
        client.send(&json!({
            "type": "control_response",
            "response": { "request_id": asked["data"]["request_id"], "subtype": "success",
                "response": { "behavior": "allow", "updatedInput": asked["data"]["request"]["input"] } },
        }));
        let outcome = client.outcome();
        assert!(outcome.is_done(), "{outcome:?}");
        assert_eq!(fs::read_to_string(bench.bundle().join("rootfs/tmp/asked")).unwrap(), "allowed\n");
    }

    /// In the container's namespaces, as its user, in its cgroup; at the timeout the whole tree goes.
    fn a_command_of_the_bridge_runs_in_the_container(caller) {
        let bench = Bench::new(caller);
        demo(&bench);
        let id = bench.start();
        let pid = bench.pid(&id);
        let mut client = BridgeClient::connect(&socket(&bench, &id));
        let result = client.exec("echo out; echo err >&2; exit 7", 30_000);
        assert_eq!((&result["exitCode"], &result["stdout"], &result["stderr"]), (&7.into(), &"out\n".into(), &"err\n".into()));
        let script = "for n in user mnt pid net ipc uts; do busybox readlink /proc/self/ns/$n; done";
        let inside = client.exec(script, 30_000);
        for (found, name) in inside["stdout"].as_str().unwrap().lines().zip(["user", "mnt", "pid", "net", "ipc", "uts"]) {
            assert_eq!(Path::new(found), fs::read_link(format!("/proc/{pid}/ns/{name}")).unwrap());
        }
        assert_eq!(inside["stdout"].as_str().unwrap().lines().count(), 6);
        let cgroups = client.exec("cat /proc/self/cgroup", 30_000);
        assert_eq!(cgroups["stdout"], fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap());
        let result = client.exec("echo begun; sleep 100 & (sleep 100 &); sleep 100", 300);
        assert_eq!((&result["exitCode"], &result["stdout"]), (&124.into(), &"begun\n".into()));
        // Only the agent is left, and whoever looks.
        let left = client.exec("for p in /proc/[0-9]*; do cat $p/cmdline; done", 30_000);
        assert!(!left["stdout"].as_str().unwrap().contains("sleep\u{0}100"), "{left}");
    }

    fn an_interrupt_ends_the_turn_and_the_next_goes_on(caller) {
        let bench = Bench::new(caller);
        demo(&bench);
        let id = bench.start();
        let mut client = BridgeClient::connect(&socket(&bench, &id));
        for _ in 0..20 {
            client.query("count: 100000");
            client.event();
            client.send(&json!({"cmd": "interrupt"}));
            assert_eq!(client.outcome().end, json!({"ev": "done", "sessionId": SESSION}));
        }
        assert!(client.turn("hi").is_done());
    }

    /// Also the last without a newline, and of a program that is over at once.
    fn lines_that_are_not_json_reach_the_standard_output_of_the_container(caller) {
        let bench = Bench::new(caller);
        script(&bench, "echo one; echo '{\"ev\":\"ready\"}'; printf '  two  \\n\\n\\377\\nlast'");
        let (id, out) = (bench.id(), bench.place.join("out"));
        create_into(&bench, &id, &out);
        let beside = beside(&bench, &id);
        bench.say(&["start", &id]).ok();
        both_gone(&beside);
        assert_eq!(fs::read(&out).unwrap(), b"one\n  two  \n\n\xff\nlast\n");
        bench.status_is(&id, "stopped");
    }

    /// A server that waits hears how the program ended.
    fn exit_of_the_program_is_reported_and_ends_the_bridge(caller) {
        let bench = Bench::new(caller);
        demo(&bench);
        let id = bench.start();
        let beside = beside(&bench, &id);
        let mut client = BridgeClient::connect(&socket(&bench, &id));
        client.query("run: sleep 1000");
        client.event();
        bench.say(&["kill", &id, "KILL"]).ok();
        let outcome = client.outcome();
        ended(&outcome, "SIGKILL");
        client.expect_close();
        both_gone(&beside);
        assert!(!socket(&bench, &id).exists());
        bench.status_is(&id, "stopped");
    }

    fn agent_crash_in_a_container_is_reported_with_its_exit_code(caller) {
        let bench = Bench::new(caller);
        demo(&bench);
        let id = bench.start();
        let mut client = BridgeClient::connect(&socket(&bench, &id));
        let outcome = client.turn("crash");
        ended(&outcome, "exited with code");
        client.expect_close();
    }

    fn shutdown_ends_the_container(caller) {
        let bench = Bench::new(caller);
        demo(&bench);
        let id = bench.start();
        let (beside, init) = (beside(&bench, &id), Watch::of(bench.pid(&id)).unwrap());
        let mut client = BridgeClient::connect(&socket(&bench, &id));
        client.send(&json!({"cmd": "shutdown", "id": "end"}));
        assert_eq!(client.event()["id"], "end");
        client.expect_close();
        init.wait_gone("the init");
        both_gone(&beside);
    }

    /// In each status, by each of the two: the container ends, and delete leaves nothing.
    fn killed_supervisor_or_guard_ends_the_container(caller) {
        let bench = Bench::new(caller);
        demo(&bench);
        for which in 0..2 {
            for started in [false, true] {
                let id = bench.id();
                bench.create(&id).ok();
                if started {
                    bench.say(&["start", &id]).ok();
                }
                let (beside, init) = (beside(&bench, &id), Watch::of(bench.pid(&id)).unwrap());
                beside[which].signal(Signal::SIGKILL);
                init.wait_gone("the init");
                both_gone(&beside);
                assert!(!socket(&bench, &id).exists(), "{which} {started}");
                bench.status_is(&id, "stopped");
                bench.say(&["delete", &id]).ok();
                bench.is_clean(&id);
            }
        }
    }

    fn delete_with_force_works_in_every_status(caller) {
        let bench = Bench::new(caller);
        demo(&bench);
        for status in ["created", "running", "stopped"] {
            let id = bench.id();
            bench.create(&id).ok();
            let beside = beside(&bench, &id);
            if status != "created" {
                bench.say(&["start", &id]).ok();
            }
            if status == "stopped" {
                bench.say(&["kill", &id, "KILL"]).ok();
                both_gone(&beside);
            }
            bench.status_is(&id, status);
            bench.say(&["delete", "--force", &id]).ok();
            both_gone(&beside);
            bench.is_clean(&id);
        }
    }

    /// One that answers nothing: stopped by a signal, in a turn, with a server that does not read.
    fn delete_does_not_wait_for_a_supervisor_that_hangs(caller) {
        let bench = Bench::new(caller);
        demo(&bench);
        let id = bench.start();
        let beside = beside(&bench, &id);
        beside[0].signal(Signal::SIGSTOP);
        bench.say(&["delete", "--force", &id]).ok();
        both_gone(&beside);
        bench.is_clean(&id);
    }

    fn two_containers_have_a_bridge_each(caller) {
        let bench = Bench::new(caller);
        demo(&bench);
        let ids = [bench.start(), bench.start()];
        let mut clients = ids.each_ref().map(|id| BridgeClient::connect(&socket(&bench, id)));
        for client in &mut clients {
            client.query("hello");
        }
        for client in &mut clients {
            assert!(client.outcome().is_done());
        }
        bench.say(&["delete", "--force", &ids[0]]).ok();
        bench.is_clean(&ids[0]);
        assert!(clients[1].turn("still there").is_done());
    }

    fn socket_can_have_a_name_in_the_directory_of_the_operator(caller) {
        let bench = Bench::new(caller);
        let path = configured(&bench).join("b.sock");
        demo_with(&bench, |config| config["annotations"]["org.saggar.bridge"] = json!("b.sock"));
        let id = bench.start();
        assert!(BridgeClient::connect(&path).turn("hello").is_done());
        // Its path is the same name.
        let config = fs::read(bench.bundle().join("config.json")).unwrap();
        let mut config: Value = serde_json::from_slice(&config).unwrap();
        config["annotations"]["org.saggar.bridge"] = json!(path);
        bench.write_config(config.to_string().as_bytes());
        // The second is refused, and the first goes on.
        refused(&bench, "a running program listens on it");
        assert!(BridgeClient::connect(&path).turn("hello").is_done());
        let beside = beside(&bench, &id);
        beside[0].signal(Signal::SIGKILL);
        both_gone(&beside);
        bench.say(&["delete", "--force", &id]).ok();
        assert!(!path.exists(), "the socket is left");
    }

    /// A create that fails after the bridge stands leaves none of it.
    fn a_create_that_fails_leaves_no_bridge(caller) {
        let bench = Bench::new(caller);
        let path = configured(&bench).join("b.sock");
        demo_with(&bench, |config| {
            config["annotations"]["org.saggar.bridge"] = json!("b.sock");
            config["mounts"].as_array_mut().unwrap().push(json!({
                "destination": "/tmp", "type": "bind", "source": "/does/not/exist", "options": ["bind"],
            }));
        });
        refused(&bench, "/does/not/exist");
        assert!(!path.exists());
    }

    fn container_that_cannot_have_a_bridge_is_refused_by_annotation_name(caller) {
        let bench = Bench::new(caller);
        let refuse = |change: &dyn Fn(&mut Value), text: &str| {
            demo_with(&bench, |config| change(config));
            refused(&bench, text);
        };
        refuse(&|config| config["process"]["terminal"] = json!(true), "annotations[\"org.saggar.bridge\"]: process.terminal");
        refuse(&|config| config["annotations"]["org.saggar.bridge"] = json!("yes"), "annotations[\"org.saggar.bridge\"]");
        refuse(&|config| config["annotations"]["org.saggar.adapter"] = json!("x"), "annotations[\"org.saggar.adapter\"]");
        // Its programs would pass for those of the host.
        if caller.is_root() {
            let host = |config: &mut Value| {
                config["linux"]["namespaces"].as_array_mut().unwrap().retain(|one| one["type"] != "pid" && one["type"] != "user");
                config["linux"].as_object_mut().unwrap().retain(|key, _| key != "uidMappings" && key != "gidMappings");
                config["mounts"].as_array_mut().unwrap().retain(|mount| mount["type"] != "proc");
            };
            refuse(&host, "pid and user namespaces of the host");
        }
    }

    /// A pod's author names no path of the host, and what is there stays: a dead socket too.
    fn socket_elsewhere_is_refused_by_its_name(caller) {
        let bench = Bench::new(caller);
        let elsewhere = bench.place.make_dir("elsewhere", 0o700);
        let dead = elsewhere.join("dead.sock");
        drop(UnixListener::bind(&dead).unwrap());
        bench.give(&dead);
        let inode = || fs::symlink_metadata(&dead).unwrap().ino();
        let before = inode();
        let refuse = |value: &str| {
            demo_with(&bench, |config| config["annotations"]["org.saggar.bridge"] = json!(value));
            refused(&bench, "annotations[\"org.saggar.bridge\"]");
            assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);
            assert_eq!(inode(), before, "{value}");
        };
        let (dead, new) = (dead.to_str().unwrap(), elsewhere.join("new.sock"));
        // No directory is configured.
        for value in [dead, new.to_str().unwrap(), "name"] {
            refuse(value);
        }
        let directory = configured(&bench);
        let path = |rest: &str| format!("{}{rest}", directory.display());
        for value in [
            dead, new.to_str().unwrap(), "../elsewhere/new.sock", "a/b", ".hidden", "..", "", &path(""), &path("/"),
            &path("/../elsewhere/new.sock"), &path("x/y"), &"x".repeat(65),
        ] {
            refuse(value);
        }
        // A link in the place of the directory, and a directory that others can write.
        fs::remove_dir(&directory).unwrap();
        symlink(&elsewhere, &directory).unwrap();
        refuse("new.sock");
        fs::remove_file(&directory).unwrap();
        bench.place.make_dir("agents", 0o700);
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
        refuse("new.sock");
    }

    fn programs_of_a_container_are_refused_at_sockets(caller) {
        let bench = Bench::new(caller);
        if !Path::new("/usr/bin/python3").exists() {
            return;
        }
        let directory = configured(&bench);
        demo_with(&bench, |config| {
            config["annotations"]["org.saggar.bridge"] = json!("b.sock");
            for dir in ["/usr".to_owned(), directory.to_str().unwrap().to_owned()] {
                config["mounts"].as_array_mut().unwrap().push(json!({
                    "destination": dir, "type": "bind", "source": dir, "options": ["rbind"],
                }));
            }
        });
        let id = bench.start();
        let mut client = BridgeClient::connect(&directory.join("b.sock"));
        let call = format!(
            "/usr/bin/python3 -c 'import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect(\"{}\")\n\
             try:\n print(\"answered\" if s.recv(1) else \"refused\")\n\
             except ConnectionResetError:\n print(\"refused\")'",
            directory.join("b.sock").display(),
        );
        assert_eq!(client.exec(&call, 30_000)["stdout"], "refused\n");
        bench.say(&["delete", "--force", &id]).ok();
    }

    /// Neither false nor a name of ours that nobody knows makes a bridge.
    fn other_annotations_make_no_bridge(caller) {
        let bench = Bench::new(caller);
        bench.configure(|config| {
            config["annotations"] = json!({ "org.saggar.bridge": "false", "org.saggar.other": "x" });
        });
        let id = bench.start();
        assert!(!socket(&bench, &id).exists());
        assert_eq!(bench.state(&id)["annotations"]["org.saggar.bridge"], "false");
    }

    /// An orchestrator waits for the end of its pipes: nothing of them is held beyond the program's own streams.
    fn the_supervisor_holds_nothing_of_its_caller(caller) {
        let bench = Bench::new(caller);
        demo(&bench);
        let id = bench.id();
        let (read, write) = nix::unistd::pipe().unwrap();
        let mut command = bench.command(&["create", "--bundle", &bench.bundle().to_string_lossy(), &id]);
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        // Both ends are inherited, as those of a caller that forgot to close them.
        assert!(end_of(command.spawn().unwrap(), "create").success());
        bench.say(&["start", &id]).ok();
        drop(write);
        let mut stream = File::from(read);
        Deadline::usual().readable(&stream).unwrap();
        assert_eq!(std::io::Read::read(&mut stream, &mut [0; 1]).unwrap(), 0);
        if !nix::unistd::geteuid().is_root() {
            skip!("this test needs to be started as root: only root may look at a supervisor's descriptors");
        }
        for watch in beside(&bench, &id) {
            let links = fs::read_dir(format!("/proc/{}/fd", watch.pid())).unwrap().flatten();
            let open: Vec<_> = links.filter_map(|link| fs::read_link(link.path()).ok()).collect();
            let null = open.iter().filter(|path| **path == Path::new("/dev/null")).count();
            assert!(null >= 3, "{open:?}");
        }
    }

    /// SIGKILL of create at any moment; delete --force removes what there is.
    fn a_create_that_is_killed_leaves_nothing_that_delete_cannot_remove(caller) {
        let bench = Bench::new(caller);
        demo(&bench);
        for round in 0..30u64 {
            let id = bench.id();
            let mut command = bench.command(&["create", "--bundle", &bench.bundle().to_string_lossy(), &id]);
            command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
            let mut child = command.spawn().unwrap();
            // The moment is what this test is about; nothing is waited for.
            std::thread::sleep(std::time::Duration::from_millis(round * 3));
            let _ = child.kill();
            child.wait().unwrap();
            let known: Option<Value> = fs::read(bench.state_dir(&id).join("state.json"))
                .ok().and_then(|text| serde_json::from_slice(&text).ok());
            bench.say(&["delete", "--force", &id]).ok();
            bench.is_clean(&id);
            assert!(!supervised(&id), "{known:?}");
        }
    }
}

/// A command whose start hangs, here since its container is frozen, holds nobody else up: neither the other lines of
/// its connection nor other connections, and its time runs out all the same.
#[test]
fn a_command_that_cannot_start_does_not_stop_the_bridge() {
    let Ok(caller) = Caller::root() else { skip!("this test needs to be started as root") };
    let bench = Bench::new(caller);
    demo(&bench);
    let id = bench.start();
    let mut client = BridgeClient::connect(&socket(&bench, &id));
    bench.say(&["pause", &id]).ok();
    client.send(&json!({"cmd": "exec", "command": "echo late", "timeout": 30_000, "id": "late"}));
    client.send(&json!({"cmd": "exec", "command": "echo never", "timeout": 3000, "id": "never"}));
    for number in 0..3 {
        client.send(&json!({"cmd": "nothing", "id": number}));
        let answer = client.events_until(|event| event["id"] == number).pop().unwrap();
        assert_eq!(answer["ev"], "error", "{answer}");
    }
    BridgeClient::connect(&socket(&bench, &id));
    // Both are on their way; the one whose time is over is killed. What cgroup v1 has frozen dies of it when it is thawed.
    let init = u64::from(bench.pid(&id));
    let deadline = Deadline::usual();
    for count in [2, 1] {
        while waiting_beside(init, &bench.say(&["ps", "--format", "json", &id]).ok().json()) != count {
            assert!(!deadline.remaining().is_zero(), "not {count} commands that were not killed");
        }
    }
    bench.say(&["resume", &id]).ok();
    let mut heard = Vec::new();
    while ["late", "never"]
        .iter()
        .any(|id| !heard.iter().any(|event: &Value| event["ev"] == "done" && event["id"] == *id))
    {
        heard.push(client.event());
    }
    let result =
        |id: &str| heard.iter().find(|event| event["ev"] == "exec_result" && event["id"] == id).unwrap();
    assert_eq!((&result("late")["exitCode"], &result("late")["stdout"]), (&json!(0), &json!("late\n")));
    assert_eq!(result("never")["exitCode"], 124);
}

/// How many of these processes, beside the init, have no SIGKILL waiting for them.
fn waiting_beside(init: u64, pids: &Value) -> usize {
    let pids = pids.as_array().unwrap().iter().filter_map(Value::as_u64).filter(|pid| *pid != init);
    let killed = |pid: u64| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
        pending
            .is_none_or(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() & 1 << (libc::SIGKILL - 1) != 0)
    };
    pids.filter(|pid| !killed(*pid)).count()
}

/// As conmon calls us: it waits for the end of its pipes, and reaps who is left.
#[test]
fn podman_runs_an_agent_with_a_bridge() {
    let caller = match Caller::root() {
        Ok(caller) => caller,
        Err(why) => skip!("{why}"),
    };
    if !Path::new("/usr/bin/podman").exists() {
        skip!("podman is not installed");
    }
    let bench = Bench::new(caller);
    demo(&bench);
    let (storage, state) = (bench.place.make_dir("podman", 0o700), bench.place.join("oci"));
    // Not --runtime-flag: Podman's clean-up after the end of a container calls the runtime without these.
    let script = format!("#!/bin/sh\nexec {:?} --root {state:?} \"$@\"\n", crate::support::binary::saggar());
    let runtime = bench.place.make_file("runtime", &script);
    fs::set_permissions(&runtime, fs::Permissions::from_mode(0o755)).unwrap();
    let command = |args: &[&str]| {
        let mut command = std::process::Command::new("/usr/bin/podman");
        command.arg("--root").arg(storage.join("root")).arg("--runroot").arg(storage.join("run"));
        command.args(["--cgroup-manager", "cgroupfs", "--runtime"]).arg(&runtime).args(args);
        command
    };
    let podman = |args: &[&str]| bench.finish(command(args));
    let cgroups_of = |id: &str| -> Vec<PathBuf> {
        let all = cgroups_named("libpod_parent").into_iter().flat_map(|parent| fs::read_dir(parent).unwrap());
        all.flatten().map(|entry| entry.path()).filter(|path| path.to_string_lossy().contains(id)).collect()
    };
    let leaves_nothing = |id: &str| {
        let deadline = Deadline::usual();
        // conmon cleans up when it has seen the end.
        while !cgroups_of(id).is_empty() || fs::read_dir(&state).unwrap().next().is_some() {
            assert!(!deadline.remaining().is_zero(), "{:?} are left", cgroups_of(id));
            deadline.pause();
        }
    };
    let rootfs = bench.bundle().join("rootfs").to_string_lossy().into_owned();
    podman(&[
        "run",
        "-d",
        "--name",
        "agent",
        "--network",
        "none",
        "--annotation",
        "org.saggar.bridge=true",
        "--annotation",
        "org.saggar.adapter=demo",
        "-v",
        "/lib:/lib:ro",
        "-v",
        "/lib64:/lib64:ro",
        "--rootfs",
        &rootfs,
        "/bin/saggar",
        "__demo-agent",
    ])
    .ok();
    let container = fs::read_dir(&state).unwrap().next().unwrap().unwrap().path();
    let path = container.join("bridge.sock");
    let mut client = BridgeClient::connect(&path);
    assert!(client.turn("hello").is_done());
    assert_eq!(client.exec("echo hi", 30_000)["stdout"], "hi\n");
    podman(&["rm", "--force", "--time", "0", "agent"]).ok();
    client.expect_close();
    assert!(!path.exists());
    leaves_nothing(&container.file_name().unwrap().to_string_lossy());
    let made = podman(&[
        "create",
        "--rm",
        "--network",
        "none",
        "--annotation",
        "org.saggar.bridge=true",
        "--rootfs",
        &rootfs,
        "/bin/sh",
        "-c",
        "echo plain; until test -e /go; do :; done; exit 3",
    ])
    .ok();
    let id = made.stdout.trim_end();
    // conmon drops what comes after the program has ended, so the program ends when its output is there.
    let mut attached = Process::start(&bench.place, command(&["start", "--attach", id]));
    let mut line = String::new();
    std::io::BufReader::new(attached.take_stdout()).read_line(&mut line).unwrap();
    fs::write(bench.bundle().join("rootfs/go"), "").unwrap();
    assert_eq!((attached.wait().code(), line.as_str()), (Some(3), "plain\n"), "{}", attached.stderr());
    leaves_nothing(id);
    // Its storage is a mount of its own.
    let _ = nix::mount::umount2(&storage.join("root/overlay"), nix::mount::MntFlags::MNT_DETACH);
}

/// Whether a supervisor or a guard of this container runs.
fn supervised(id: &str) -> bool {
    let deadline = Deadline::usual();
    while any_with_argument(id) {
        if deadline.remaining().is_zero() {
            return true;
        }
        deadline.pause();
    }
    false
}
