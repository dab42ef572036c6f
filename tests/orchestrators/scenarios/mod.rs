//! What users do, by topic. Podman and Docker have one command line; ctr and Buildah have their own files.

mod buildah;
mod containerd;
mod cri;
mod exec;
mod isolation;
mod lifecycle;
mod limits;
mod run;
mod signals;

use crate::callers::{Engine, IMAGE, Scenario, fresh_name};

macro_rules! scenarios {
    ($($module:ident: $($name:ident)+;)+) => { &[$($((stringify!($name), $module::$name),)+)+] };
}

/// Podman's and Docker's.
pub(crate) const DOCKER: &[(&str, Scenario)] = scenarios! {
    run: exit_status streams stdin environment working_directory arguments missing_program
        program_that_is_not_executable terminal user twenty_at_once logs;
    exec: exec exec_stdin exec_terminal exec_as_user exec_of_missing_program exec_detached exec_twenty_at_once;
    signals: stop_is_handled stop_ends_in_kill kill_with_a_signal death_by_signal pause;
    limits: memory pids cpu cpuset out_of_memory update rlimits oom_score;
    isolation: capabilities no_new_privileges seccomp_profile seccomp_default seccomp_off read_only tmpfs volumes owners
        no_network host_network host_pids pids_of_another_container network_of_another_container devices sysctl
        covered_paths privileged shared_memory hostname_of_the_host sandbox_inside;
    lifecycle: remove_running remove_created start_again restart restart_policy top copy healthcheck build entrypoint events;
};

/// Podman as root: the same.
pub(crate) const PODMAN: &[(&str, Scenario)] = DOCKER;

/// Podman as an ordinary user: the same, and its ids.
pub(crate) const PODMAN_ROOTLESS: &[(&str, Scenario)] = DOCKER;

/// Buildah's, as root and as an ordinary user.
pub(crate) const BUILDAH: &[(&str, Scenario)] = scenarios! {
    buildah: exit_status streams stdin environment missing_program terminal user capabilities volumes no_network
        host_network seccomp_off build twenty_at_once leaves_no_container;
};

/// ctr's.
pub(crate) const CONTAINERD: &[(&str, Scenario)] = scenarios! {
    containerd: exit_status streams stdin environment missing_program terminal exec exec_terminal exec_detached
        kill_with_a_signal pause list_processes memory metrics remove_running read_only capabilities privileged
        seccomp host_network pids_of_another_container mounts twenty_at_once many_one_after_another;
};

/// A kubelet's.
pub(crate) const CRI: &[(&str, Scenario)] = scenarios! {
    cri: exit_status logs exec_sync missing_program stop memory update agent_pod server_pods;
};

/// A container in the background; gone when dropped.
struct Background<'a> {
    engine: &'a dyn Engine,
    name: String,
}

impl<'a> Background<'a> {
    /// Runs `program` with these options.
    #[track_caller]
    fn run(engine: &'a dyn Engine, options: &[&str], program: &[&str]) -> Self {
        let name = fresh_name();
        let begun = Background { engine, name: name.clone() };
        let arguments = [&["run", "--detach", "--name", name.as_str()], options, &[IMAGE], program].concat();
        engine.run(&arguments).exits(0);
        begun
    }

    /// One that waits for its end, and ends at once when it is told to.
    #[track_caller]
    fn waiting(engine: &'a dyn Engine, options: &[&str]) -> Self {
        Background::run(engine, options, &["sh", "-c", WAIT])
    }

    /// What a program in it says.
    #[track_caller]
    fn exec(&self, program: &[&str]) -> String {
        self.engine.run(&[&["exec", self.name.as_str()], program].concat()).says()
    }

    /// A field of `inspect`.
    #[track_caller]
    fn inspect(&self, field: &str) -> String {
        self.engine.run(&["inspect", "--format", &format!("{{{{{field}}}}}"), &self.name]).says()
    }

    /// Waits for its end; its exit status.
    #[track_caller]
    fn wait(&self) -> String {
        self.engine.run(&["wait", &self.name]).says()
    }

    /// Its output so far.
    #[track_caller]
    fn logs(&self) -> String {
        self.engine.run(&["logs", &self.name]).says()
    }

    /// Waits until it has printed this: it does so in its own time.
    #[track_caller]
    fn expect(&self, text: &str) {
        eventually(&format!("{text} in the logs of {}", self.name), || {
            let said = self.engine.run(&["logs", &self.name]);
            if said.stdout.contains(text) { Ok(()) } else { Err(said.to_string()) }
        });
    }
}

impl Drop for Background<'_> {
    fn drop(&mut self) {
        self.engine.run(&["rm", "--force", &self.name]);
    }
}

/// Says `up` and waits; SIGTERM ends it with 7, SIGUSR1 is answered.
const WAIT: &str =
    "trap 'exit 7' TERM; trap 'echo usr1' USR1; echo up; while :; do sleep 1000 & wait $!; done";

/// What a program in a new container says; the container is gone then.
#[track_caller]
fn says(engine: &dyn Engine, options: &[&str], program: &[&str]) -> String {
    engine.run(&[&["run", "--rm"], options, &[IMAGE], program].concat()).says()
}

/// As `says`, for a line of shell.
#[track_caller]
fn shell(engine: &dyn Engine, options: &[&str], line: &str) -> String {
    says(engine, options, &["sh", "-c", line])
}

/// Asks until it holds: for what a caller does in its own time, and tells nobody.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, mut holds: impl FnMut() -> Result<T, String>) -> T {
    let deadline = crate::deadline::Deadline::after(crate::output::patience());
    loop {
        match holds() {
            Ok(value) => return value,
            Err(why) => assert!(!deadline.remaining().is_zero(), "never came: {what}: {why}"),
        }
        // No event tells of it.
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

/// A line of `/proc/self/status`, inside.
#[track_caller]
fn status(engine: &dyn Engine, options: &[&str], field: &str) -> String {
    shell(engine, options, &format!("sed -n 's/^{field}:[[:space:]]*//p' /proc/self/status"))
}
