//! The one image: busybox, and the few files that programs expect. Nothing is downloaded.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

const BUSYBOX: &str = "/bin/busybox";

/// A directory with a root file system at `DIR/rootfs`.
pub(crate) fn rootfs(dir: &Path) -> PathBuf {
    let root = dir.join("rootfs");
    for place in ["bin", "dev", "etc", "home", "proc", "root", "sys", "tmp", "var/tmp"] {
        fs::create_dir_all(root.join(place)).unwrap();
    }
    for shared in ["tmp", "var/tmp"] {
        fs::set_permissions(root.join(shared), fs::Permissions::from_mode(0o1777)).unwrap();
    }
    fs::copy(BUSYBOX, root.join("bin/busybox")).expect("the package busybox-static");
    let names = Command::new(BUSYBOX).arg("--list").output().unwrap().stdout;
    for name in String::from_utf8(names).unwrap().lines().filter(|name| *name != "busybox") {
        symlink("busybox", root.join("bin").join(name)).unwrap();
    }
    let write = |name: &str, text: &str| fs::write(root.join(name), text).unwrap();
    write("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nguest:x:1000:1000:guest:/home:/bin/sh\n");
    write("etc/group", "root:x:0:\nguest:x:1000:\nother:x:1001:guest\n");
    write("etc/not-executable", "#!/bin/sh\n");
    root
}

/// The root file system as a tar file, for `import`.
pub(crate) fn layer(dir: &Path) -> PathBuf {
    rootfs(dir);
    pack_layer(dir)
}

fn pack_layer(dir: &Path) -> PathBuf {
    let root = dir.join("rootfs");
    let layer = dir.join("layer.tar");
    let archive = ["--owner=0", "--group=0", "--sort=name", "-cf"];
    let status = Command::new("tar").arg("-C").arg(&root).args(archive).arg(&layer).arg(".").status();
    assert!(status.unwrap().success(), "tar cannot pack {}", root.display());
    layer
}

/// An image archive as the image specification has it (oci-archive), named `name`, that runs a shell.
pub(crate) fn archive(dir: &Path, name: &str) -> PathBuf {
    pack(dir, layer(dir), name, &["sh"])
}

/// The same with one more program in `/bin`; the image runs `command`.
pub(crate) fn archive_with_program(
    dir: &Path,
    name: &str,
    (program, script): (&str, &str),
    command: &[&str],
) -> PathBuf {
    let path = rootfs(dir).join("bin").join(program);
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    pack(dir, pack_layer(dir), name, command)
}

fn pack(dir: &Path, layer: PathBuf, name: &str, command: &[&str]) -> PathBuf {
    let layout = dir.join("layout");
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    let layer = blob(&blobs, "application/vnd.oci.image.layer.v1.tar", &fs::read(layer).unwrap());
    let config = json!({
        "architecture": "amd64", "os": "linux",
        "config": {"Env": ["PATH=/bin"], "Cmd": command},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    });
    let config = blob(&blobs, "application/vnd.oci.image.config.v1+json", config.to_string().as_bytes());
    let manifest = json!({"schemaVersion": 2, "config": config, "layers": [layer],
        "mediaType": "application/vnd.oci.image.manifest.v1+json"});
    let mut manifest =
        blob(&blobs, "application/vnd.oci.image.manifest.v1+json", manifest.to_string().as_bytes());
    manifest["annotations"] =
        json!({"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name});
    fs::write(layout.join("index.json"), json!({"schemaVersion": 2, "manifests": [manifest]}).to_string())
        .unwrap();
    fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    let archive = dir.join("image.tar");
    let status = Command::new("tar").arg("-C").arg(&layout).arg("-cf").arg(&archive).arg(".").status();
    assert!(status.unwrap().success(), "tar cannot pack {}", layout.display());
    archive
}

/// Writes a blob under its digest, and returns its descriptor.
fn blob(blobs: &Path, media: &str, bytes: &[u8]) -> Value {
    let file = blobs.join("new");
    fs::write(&file, bytes).unwrap();
    let sum = Command::new("sha256sum").arg(&file).output().unwrap().stdout;
    let digest = String::from_utf8(sum).unwrap().split_whitespace().next().unwrap().to_owned();
    fs::rename(&file, blobs.join(&digest)).unwrap();
    json!({"mediaType": media, "digest": format!("sha256:{digest}"), "size": bytes.len()})
}
