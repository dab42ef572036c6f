//! A mount namespace of a test's own, for what the disk of the machine is not to have.

use std::path::Path;
use std::process::Command;

use super::caller::Caller;
use super::place::Place;

/// What starts a command in a mount namespace in which this caller may mount, and is itself.
pub(crate) fn own_mounts(caller: Caller) -> &'static [&'static str] {
    match caller.is_root() {
        true => &["/usr/bin/unshare", "--mount", "--"],
        false => &["/usr/bin/unshare", "--user", "--map-current-user", "--keep-caps", "--mount", "--"],
    }
}

/// A command of which `directory` is a file system of its own with room for so many KiB, of which `filler` takes all but
/// `free`. The script has the directory as `$0` and these arguments.
pub(crate) fn on_small_disk(
    (place, caller): (&Place, Caller),
    directory: &Path,
    free: u32,
    script: &str,
    arguments: &Command,
) -> Command {
    const SIZE: u32 = 1024;
    let before = own_mounts(caller);
    let mut command = place.command(before[0].as_ref());
    let script = format!(
        "mount -t tmpfs -o mode=700,size={SIZE}k none \"$0\" && head -c {}k /dev/zero >\"$0/filler\" || exit 99\n{script}",
        SIZE - free
    );
    command.args(&before[1..]).args(["/bin/sh", "-c", &script]).arg(directory);
    command.arg(arguments.get_program()).args(arguments.get_args());
    command
}
