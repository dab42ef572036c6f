//! Unix sockets of the host that programs in the sandbox may connect to: which of them allow an escape from
//! any sandbox.

use std::path::Path;

/// The longest path of a socket, in bytes (unix(7): `sun_path` holds 108, with its NUL).
pub const MAX_SOCKET_PATH: usize = 107;

/// The access beyond the sandbox that a client gets through the socket at this host path, if it is known to
/// give any. `ssh_auth_socket` is the caller's SSH_AUTH_SOCK; `saggar_directories` hold the sockets of
/// saggar itself.
pub fn escape_risk(
    path: &Path,
    ssh_auth_socket: Option<&Path>,
    saggar_directories: &[&Path],
) -> Option<&'static str> {
    const ENGINE: &str = "it starts containers, and so is root of this host";
    const SYSTEMD: &str = "it starts services outside of every sandbox";
    const BUS: &str = "services of this host take orders there, systemd among them";
    const SCREEN: &str = "it can read the keyboard and the screen of the user's session";
    const KEYS: &str = "it signs with the keys of their owner";
    let text = path.to_string_lossy();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let below = |parts: &[&str]| parts.iter().any(|part| text.contains(part));
    let named = |names: &[&str]| names.iter().any(|known| name == *known);
    let begins = |starts: &[&str]| starts.iter().any(|start| name.starts_with(start));
    if saggar_directories.iter().any(|directory| path.starts_with(directory)) {
        return Some("it commands sandboxes of saggar itself");
    }
    if ssh_auth_socket == Some(path)
        || below(&["/ssh-", "/keyring/"])
        || begins(&["S.gpg-agent", "S.scdaemon"])
    {
        return Some(KEYS);
    }
    if begins(&["docker", "podman", "containerd", "crio", "cri-dockerd", "buildkitd", "dockershim"])
        || below(&["/containerd/", "/podman/", "/docker/", "/crio/", "/buildkit/"])
    {
        return Some(ENGINE);
    }
    if below(&["/lxd/", "/incus/", "/libvirt/"]) || named(&["snapd.socket"]) {
        return Some("it starts machines and containers, and so is root of this host");
    }
    // The journal accepts log messages only.
    if below(&["/systemd/", "/udev/"]) && !below(&["/systemd/journal/"]) {
        return Some(SYSTEMD);
    }
    if named(&["system_bus_socket", "bus"]) || below(&["/dbus/", "/dbus-", "/at-spi/"]) {
        return Some(BUS);
    }
    if below(&["/.X11-unix/", "/.ICE-unix/", "/pulse/"]) || begins(&["wayland-", "pipewire-"]) {
        return Some(SCREEN);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leads_out_is_known_by_its_place() {
        let ssh = Some(Path::new("/home/me/.agent"));
        let own = [Path::new("/run/saggar")];
        let out = |path: &str| escape_risk(Path::new(path), ssh, &own);
        for path in [
            "/run/docker.sock",
            "/run/user/1000/docker.sock",
            "/run/podman/podman.sock",
            "/run/user/1000/podman/podman.sock",
            "/run/containerd/containerd.sock",
            "/run/containerd/containerd.sock.ttrpc",
            "/run/k3s/containerd/containerd.sock",
            "/run/crio/crio.sock",
            "/run/buildkit/buildkitd.sock",
            "/var/lib/lxd/unix.socket",
            "/run/libvirt/libvirt-sock",
            "/run/snapd.socket",
            "/run/systemd/private",
            "/run/user/1000/systemd/private",
            "/run/dbus/system_bus_socket",
            "/run/user/1000/bus",
            "/tmp/dbus-abc",
            "/tmp/.X11-unix/X0",
            "/run/user/1000/wayland-0",
            "/run/user/1000/pulse/native",
            "/tmp/ssh-XXXX/agent.17",
            "/run/user/1000/keyring/ssh",
            "/run/user/1000/gnupg/S.gpg-agent",
            "/home/me/.agent",
            "/run/saggar/abc/control.sock",
        ] {
            assert!(out(path).is_some(), "{path}");
        }
        for path in [
            "/run/user/1000/foo.sock",
            "/run/postgresql/.s.PGSQL.5432",
            "/run/systemd/journal/socket",
            "/run/saggarish/a.sock",
        ] {
            assert_eq!(out(path), None, "{path}");
        }
    }
}
