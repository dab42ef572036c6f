//! Descriptors that a service manager passes to the runtime, for the program of a container (sd_listen_fds(3)).

use std::env;
use std::ffi::OsString;

/// The descriptors from 3 on that are passed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PassedDescriptors {
    pub(super) count: u32,
    names: Option<String>,
}

impl PassedDescriptors {
    /// Those of the environment of this process.
    pub(super) fn of_this_process() -> Self {
        PassedDescriptors::read(|name| env::var(name).ok(), std::process::id())
    }

    /// `LISTEN_PID` names the process that they are for. Podman sets it to 1, for the program of the container.
    fn read(variable: impl Fn(&str) -> Option<String>, own: u32) -> Self {
        let receiver = variable("LISTEN_PID").map(|pid| pid.parse::<u32>());
        if receiver.is_some_and(|pid| pid != Ok(1) && pid != Ok(own)) {
            return PassedDescriptors::default();
        }
        let count = variable("LISTEN_FDS").and_then(|count| count.parse().ok()).unwrap_or(0);
        PassedDescriptors { count, names: variable("LISTEN_FDNAMES").filter(|_| count > 0) }
    }

    /// Adds the variables by which the first program of a container finds them, as runc and crun do.
    pub(super) fn announce(&self, environment: &mut Vec<(OsString, OsString)>) {
        if self.count == 0 {
            return;
        }
        let variables = [
            ("LISTEN_FDS", Some(self.count.to_string())),
            ("LISTEN_PID", Some("1".to_owned())),
            ("LISTEN_FDNAMES", self.names.clone()),
        ];
        for (name, value) in variables {
            environment.retain(|(one, _)| one != name);
            environment.extend(value.map(|value| (name.into(), value.into())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> PassedDescriptors {
        let variable =
            |name: &str| variables.iter().find(|(is, _)| *is == name).map(|(_, value)| (*value).to_owned());
        PassedDescriptors::read(variable, 42)
    }

    #[test]
    fn descriptors_of_another_process_are_not_passed() {
        for (pid, count) in [("42", 2), ("1", 2), ("41", 0), ("", 0), ("x", 0)] {
            assert_eq!(read(&[("LISTEN_PID", pid), ("LISTEN_FDS", "2")]).count, count, "{pid:?}");
        }
        assert_eq!(read(&[("LISTEN_FDS", "2")]).count, 2);
        assert_eq!(read(&[("LISTEN_FDS", "-1")]).count, 0);
    }

    #[test]
    fn program_finds_its_descriptors() {
        let own = |variables: &[(&str, &str)]| -> Vec<(OsString, OsString)> {
            variables.iter().map(|(name, value)| (name.into(), value.into())).collect()
        };
        let mut environment = own(&[("A", "1"), ("LISTEN_PID", "7"), ("LISTEN_FDNAMES", "old")]);
        read(&[("LISTEN_FDS", "1"), ("LISTEN_FDNAMES", "web")]).announce(&mut environment);
        let expected = [("A", "1"), ("LISTEN_FDS", "1"), ("LISTEN_PID", "1"), ("LISTEN_FDNAMES", "web")];
        assert_eq!(environment, own(&expected));
        let before = environment.clone();
        read(&[]).announce(&mut environment);
        assert_eq!(environment, before);
    }
}
