//! The life of a container: made, started again, looked into, built from, removed.

use std::fs;
use std::time::SystemTime;

use super::{Background, eventually, says};
use crate::callers::{Engine, IMAGE, Kind, fresh_name};

pub(super) fn remove_running(engine: &dyn Engine) {
    let container = Background::waiting(engine, &[]);
    let pid = container.inspect(".State.Pid");
    assert_ne!(engine.run(&["rm", &container.name]).code(), 0, "it runs");
    engine.run(&["rm", "--force", &container.name]).exits(0);
    assert_ne!(engine.run(&["inspect", "--type", "container", &container.name]).code(), 0);
    eventually("the end of its process", || {
        // The pid may be another's by now, but not that of a program with these words.
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if line.contains("trap 'exit 7' TERM") { Err(line) } else { Ok(()) }
    });
}

pub(super) fn remove_created(engine: &dyn Engine) {
    let name = fresh_name();
    engine.run(&["create", "--name", &name, IMAGE, "true"]).exits(0);
    engine.run(&["rm", &name]).exits(0);
}

pub(super) fn start_again(engine: &dyn Engine) {
    let name = fresh_name();
    let line = "echo run >>/tmp/runs; cat /tmp/runs | wc -l; exit 4";
    engine.run(&["create", "--name", &name, IMAGE, "sh", "-c", line]).exits(0);
    for times in ["1", "2", "3"] {
        let said = engine.run(&["start", "--attach", &name]).exits(4);
        assert_eq!(said.stdout.trim(), times, "{said}");
    }
    engine.run(&["rm", &name]).exits(0);
}

pub(super) fn restart(engine: &dyn Engine) {
    let container = Background::waiting(engine, &[]);
    container.expect("up");
    let before = container.inspect(".State.Pid");
    engine.run(&["restart", "--time", "30", &container.name]).exits(0);
    let after = container.inspect(".State.Pid");
    assert!(after != before && after != "0", "{before} {after}");
    assert_eq!(container.inspect(".State.Status"), "running");
}

pub(super) fn restart_policy(engine: &dyn Engine) {
    let container =
        Background::run(engine, &["--restart", "on-failure:2"], &["sh", "-c", "echo once; exit 3"]);
    eventually("three runs", || {
        let (said, state) = (container.logs(), container.inspect(".State.Status"));
        let runs = said.matches("once").count();
        if runs == 3 && state == "exited" { Ok(()) } else { Err(format!("{runs} runs, {state}")) }
    });
    assert_eq!(container.inspect(".RestartCount"), "2");
}

pub(super) fn top(engine: &dyn Engine) {
    let container = Background::waiting(engine, &[]);
    let said = engine.run(&["top", &container.name]).says();
    assert!(said.contains("trap 'exit 7' TERM") || said.contains("sleep 1000"), "{said}");
    let said = engine.run(&["stats", "--no-stream", &container.name]).says();
    assert!(said.contains(&container.name), "{said}");
}

pub(super) fn copy(engine: &dyn Engine) {
    let container = Background::waiting(engine, &[]);
    let file = engine.dir().join("share/copied");
    fs::write(&file, "there and back").unwrap();
    let file = file.to_str().unwrap();
    engine.run(&["cp", file, &format!("{}:/tmp/in", container.name)]).exits(0);
    assert_eq!(container.exec(&["cat", "/tmp/in"]), "there and back");
    engine.run(&["cp", &format!("{}:/tmp/in", container.name), &format!("{file}-back")]).exits(0);
    assert_eq!(fs::read_to_string(format!("{file}-back")).unwrap(), "there and back");
}

pub(super) fn healthcheck(engine: &dyn Engine) {
    // Docker asks by itself; Podman's timers are systemd's, and it is told to ask.
    let interval = if engine.kind() == Kind::Docker { "1s" } else { "disable" };
    let options =
        ["--health-cmd", "test -e /tmp/well", "--health-interval", interval, "--health-retries", "1"];
    let container = Background::waiting(engine, &options);
    let check = || engine.run(&["healthcheck", "run", &container.name]);
    if engine.kind() == Kind::Podman {
        check().exits(1);
        container.exec(&["touch", "/tmp/well"]);
        check().exits(0);
        return;
    }
    for (state, then) in [("unhealthy", "touch"), ("healthy", "rm")] {
        eventually(state, || {
            let said = container.inspect(".State.Health.Status");
            if said == state { Ok(()) } else { Err(said) }
        });
        container.exec(&[then, "/tmp/well"]);
    }
}

pub(super) fn build(engine: &dyn Engine) {
    let context = engine.dir().join("share/context");
    fs::create_dir(&context).unwrap();
    fs::write(context.join("file"), "of the context\n").unwrap();
    let recipe = format!(
        "FROM {IMAGE}\nENV BUILT=yes PATH=/bin\nCOPY file /etc/file\n\
         RUN cat /etc/file >/etc/made && id -u >>/etc/made && mkdir /work && chown 1000 /work\n\
         USER 1000\nWORKDIR /work\nRUN id -u >uid\nCMD [\"sh\", \"-c\", \"cat /etc/made uid; echo $BUILT\"]\n"
    );
    fs::write(context.join("Dockerfile"), recipe).unwrap();
    let context = context.to_str().unwrap();
    let built = "localhost/built:latest";
    let mut arguments = vec!["build", "--network", "none", "--tag", built];
    if engine.kind() == Kind::Podman {
        arguments.extend(["--isolation", "oci"]);
    }
    arguments.push(context);
    engine.run(&arguments).exits(0);
    assert_eq!(engine.run(&["run", "--rm", built]).says(), "of the context\n0\n1000\nyes");
    // A step that fails fails the build, with its status.
    fs::write(format!("{context}/Dockerfile"), format!("FROM {IMAGE}\nRUN exit 9\n")).unwrap();
    let failed = engine.run(&arguments);
    assert_ne!(failed.code(), 0, "{failed}");
    failed.mentions("9");
    engine.run(&["rmi", "--force", built]).exits(0);
}

pub(super) fn entrypoint(engine: &dyn Engine) {
    // What `--init` asks of a runtime: a program of the host on a path that the image does not have.
    let bind = format!("{}/rootfs/bin/busybox:/dev/sh:ro", engine.dir().display());
    let options = ["--volume", &bind, "--entrypoint", "/dev/sh"];
    assert_eq!(says(engine, &options, &["-c", "readlink /proc/1/exe; exit"]), "/dev/sh");
}

pub(super) fn events(engine: &dyn Engine) {
    let name = fresh_name();
    engine.run(&["run", "--rm", "--name", &name, IMAGE, "true"]).exits(0);
    let filter = format!("container={name}");
    let said = if engine.kind() == Kind::Docker {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let (since, until) = ((now - 600).to_string(), (now + 1).to_string());
        engine.run(&["events", "--since", &since, "--until", &until, "--filter", &filter]).says()
    } else {
        engine.run(&["events", "--stream=false", "--filter", &filter]).says()
    };
    for event in ["create", "start", "die"] {
        assert!(said.contains(&format!(" {event} ")) || said.contains("died"), "no {event} in {said}");
    }
}
