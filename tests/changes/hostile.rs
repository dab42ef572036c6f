//! What an agent, or whoever wrote an archive, did on purpose.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;

use tar::{EntryType, Header};

use super::{ID, Work, on_each};

/// An archive whose first member is what it should be.
struct Archive {
    tar: Vec<u8>,
}

impl Archive {
    fn new() -> Self {
        let label = br#"{"version":1,"session":"s","place":"copy","agentSession":null}"#;
        let mut archive = Archive { tar: Vec::new() };
        archive.member(EntryType::Regular, "saggar.json", "", 0o600, label);
        archive.member(EntryType::Directory, "workspace", "", 0o755, b"");
        archive
    }

    /// A member exactly as it is said: the builder of the crate would refuse half of them.
    fn member(&mut self, kind: EntryType, name: &str, link: &str, mode: u32, content: &[u8]) -> &mut Self {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(content.len() as u64);
        header.set_mtime(1);
        let bytes = header.as_mut_bytes();
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        bytes[157..157 + link.len()].copy_from_slice(link.as_bytes());
        header.set_device_major(0).unwrap();
        header.set_device_minor(0).unwrap();
        self.header(header, content)
    }

    fn header(&mut self, mut header: Header, content: &[u8]) -> &mut Self {
        header.set_cksum();
        self.tar.extend(header.as_bytes());
        self.tar.extend(content);
        self.tar.resize(self.tar.len().next_multiple_of(512), 0);
        self
    }

    fn file(&mut self, name: &str, content: &[u8]) -> &mut Self {
        self.member(EntryType::Regular, name, "", 0o644, content)
    }

    fn end(&mut self) -> Vec<u8> {
        self.tar.resize(self.tar.len() + 1024, 0);
        let mut frame = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        frame.include_checksum(true).unwrap();
        frame.write_all(&self.tar).unwrap();
        frame.finish().unwrap()
    }
}

fn device() -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Block);
    header.set_path("workspace/sda").unwrap();
    header.set_size(0);
    header.set_mode(0o666);
    header.set_mtime(0);
    header.set_device_major(8).unwrap();
    header.set_device_minor(0).unwrap();
    header
}

as_each_caller! {
    /// SECURITY, "workspace copy and restore". Each is refused with the name of the member, and leaves nothing.
    fn hostile_archives_are_refused_with_the_members_name(caller) {
        let work = Work::new(caller, false);
        work.begin("echo x > new");
        let outside = work.place.make_dir("outside", 0o777);
        let target = work.place.make_file("outside/file", "untouched");
        let (out, to) = (outside.to_str().unwrap(), target.to_str().unwrap());
        let file = work.place.join("hostile.tar.zst");
        let pax = |record: &str| format!("{} {record}\n", record.len() + 4);
        let long = "workspace/".to_owned() + &"d/".repeat(3000);
        use EntryType as E;
        let mut number = 0;
        let mut refused = |bytes: Vec<u8>, words: &[&str]| {
            number += 1;
            fs::write(&file, bytes).unwrap();
            caller.own(&file);
            let ended = work.run(&["restore", ID, file.to_str().unwrap()]);
            assert_eq!(ended.code(), 125, "{number}: {ended:?}");
            for word in words {
                assert!(ended.stderr.contains(word), "{number}: no {word:?} in {}", ended.stderr);
            }
            assert!(!work.session().join("restore.new").exists(), "{number}");
            assert_eq!(fs::read_to_string(&target).unwrap(), "untouched", "{number}");
            assert_eq!(fs::read_dir(&outside).unwrap().count(), 1, "{number}");
        };
        let a = Archive::new;
        refused(a().file("../outside/x", b"x").end(), &["../outside/x", "leads out"]);
        refused(a().file("workspace/../../x", b"x").end(), &["leads out"]);
        refused(a().file(&format!("{out}/x"), b"x").end(), &["absolute"]);
        refused(a().file("elsewhere/x", b"x").end(), &["elsewhere/x", "none of the trees"]);
        refused(a().member(E::Symlink, "workspace/l", out, 0o777, b"").file("workspace/l/x", b"x").end(), &["workspace/l/x", "directory above"]);
        refused(a().member(E::Symlink, "workspace/l", to, 0o777, b"").file("workspace/l", b"x").end(), &["workspace/l", "twice"]);
        refused(a().member(E::Link, "workspace/l", to, 0o644, b"").end(), &["workspace/l", "target", "absolute"]);
        refused(a().member(E::Link, "workspace/l", "../../agent/kept", 0o644, b"").end(), &["leads out"]);
        refused(a().member(E::Symlink, "workspace/s", to, 0o777, b"").member(E::Link, "workspace/l", "workspace/s", 0o644, b"").end(), &["workspace/l", "no file of the snapshot"]);
        refused(a().member(E::Link, "workspace/l", "workspace/missing", 0o644, b"").end(), &["workspace/l"]);
        refused(a().header(device(), b"").end(), &["workspace/sda", "neither a file"]);
        refused(a().member(E::Char, "workspace/null", "", 0o666, b"").end(), &["workspace/null", "device"]);
        refused(a().member(E::Fifo, "workspace/pipe", "", 0o666, b"").end(), &["workspace/pipe"]);
        refused(a().member(E::Regular, "workspace/su", "", 0o4755, b"x").end(), &["workspace/su", "set-id"]);
        refused(a().member(E::Directory, "workspace/sg", "", 0o2755, b"").end(), &["workspace/sg", "set-id"]);
        refused(a().file("workspace/x", b"1").file("workspace/x", b"2").end(), &["workspace/x", "twice"]);
        refused(a().file("workspace/x", b"1").member(E::Directory, "workspace/x", "", 0o755, b"").end(), &["twice"]);
        refused(a().file("workspace/a/b", b"1").end(), &["workspace/a/b", "directory above"]);
        refused(a().file("saggar.json", b"{}").end(), &["first member, and no other"]);
        refused(a().member(E::XGlobalHeader, "g", "", 0o644, pax("path=x").as_bytes()).end(), &["g"]);
        refused(a().member(E::XHeader, "p", "", 0o644, pax("size=99999").as_bytes()).file("workspace/x", b"").end(), &["size"]);
        refused(a().member(E::XHeader, "p", "", 0o644, pax("GNU.sparse.major=1").as_bytes()).file("workspace/x", b"").end(), &["GNU.sparse.major"]);
        refused(a().member(E::XHeader, "p", "", 0o644, pax("path=../outside/x").as_bytes()).file("workspace/x", b"x").end(), &["leads out"]);
        refused(a().member(E::XHeader, "p", "", 0o644, b"9999 path=x\n").file("workspace/x", b"x").end(), &["damaged"]);
        refused(a().member(E::XHeader, "p", "", 0o644, pax("path=workspace/q").as_bytes()).end(), &["no member"]);
        refused(a().member(E::GNULongName, "././@LongLink", "", 0o644, long.as_bytes()).file("workspace/x", b"x").end(), &["too long"]);
        refused(a().member(E::GNULongName, "././@LongLink", "", 0o644, &vec![b'a'; 100_000]).file("workspace/x", b"x").end(), &["too long"]);
        refused(a().member(E::GNUSparse, "workspace/sp", "", 0o644, b"").end(), &["workspace/sp"]);
        refused(a().member(E::Directory, "workspace/d", "", 0o755, b"content").end(), &["workspace/d", "no file"]);
        let mut large = Header::new_gnu();
        large.set_path("workspace/bomb").unwrap();
        large.set_entry_type(E::Regular);
        large.set_size(1 << 50);
        large.set_mode(0o644);
        large.set_mtime(0);
        refused(a().header(large, b"").end(), &["workspace/bomb", "more than"]);
        let mut whole = a().file("workspace/x", &[7; 5000]).end();
        refused(whole[..whole.len() - 9].to_vec(), &["read a snapshot"]);
        let at = whole.len() / 2;
        whole[at] ^= 0x55;
        refused(whole, &["read a snapshot"]);
        let cut = a().file("workspace/x", &[7; 5000]).tar.clone();
        refused(zstd::encode_all(&cut[..cut.len() - 700], 1).unwrap(), &["workspace/x", "too early"]);
        refused(zstd::encode_all(&cut[..], 1).unwrap(), &["too early"]);
        refused(cut, &["read a snapshot"]);
        let mut more = a().file("workspace/x", b"x").tar.clone();
        more.resize(more.len() + 1024, 0);
        more.extend(b"more");
        refused(zstd::encode_all(&more[..], 1).unwrap(), &["after"]);
        refused(Vec::new(), &["read a snapshot"]);
        refused(zstd::encode_all(&[0; 1024][..], 1).unwrap(), &["empty"]);
        // A bomb: gigabytes of zeros after the end, in a few kilobytes.
        let mut bomb = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        bomb.write_all(&a().file("workspace/x", b"x").tar).unwrap();
        for _ in 0..64 {
            bomb.write_all(&vec![0; 1 << 20]).unwrap();
        }
        refused(bomb.finish().unwrap(), &["after"]);
        // What is fine is fine.
        fs::write(&file, a().file("workspace/x", b"x").end()).unwrap();
        work.run(&["restore", ID, file.to_str().unwrap()]).success();
        assert_eq!(fs::read_to_string(work.left().join("x")).unwrap(), "x");
    }

    /// A tree that is deep, wide, odd and full of ways out is shown, and what must not be taken over is not.
    fn hostile_trees_are_bounded_and_never_followed(caller) {
        on_each(caller, |work| {
            let secret = work.place.make_file("secret", "s3cret");
            work.begin("i=0; while [ $i -lt 300 ]; do mkdir d; cd d; i=$((i+1)); done; cd $ASH_WORKSPACE_DIR; echo x > near; mkdir w; cd w; seq 3000 | xargs touch; cd ..; ln -s / root; ln near hard; mkdir shut; echo x > shut/x; chmod 0 shut");
            let up = work.left().join("up");
            symlink(secret.parent().unwrap(), &up).unwrap();
            work.own(&up);
            let lines = work.diff();
            assert!(lines.iter().any(|line| line.starts_with("A d/d/d/") && line.contains("[refused: it is deeper than 128")), "overlay: {}", work.overlay);
            assert!(lines.iter().any(|line| line.starts_with("A root -> / [link: ")));
            assert!(!lines.iter().any(|line| line.contains("secret") && !line.starts_with("A up -> ")));
            // The look at the end of a session opens what programs have closed, in a copy.
            if !caller.is_root() && work.overlay {
                assert!(lines.iter().any(|line| line.starts_with("A shut/ [refused: it cannot be opened")), "{lines:?}");
            }
            let json = work.run(&["diff", "--json", ID]).success();
            assert!(!json.contains("s3cret"));
            let patch = work.run(&["diff", "--patch", ID]).success();
            assert!(!patch.contains("s3cret"));
            work.run(&["apply", ID]).refused(&["deeper than"]);
            work.run(&["apply", ID, "near", "hard", "w"]).success();
            work.has("near", "x\n");
            let snapshot = work.run(&["snapshot", ID]);
            assert!(snapshot.stderr.contains("deeper than 128"), "{snapshot:?}");
            work.run(&["discard", ID]).success();
            assert!(work.diff().is_empty(), "overlay: {}", work.overlay);
            assert_eq!(fs::read_to_string(&secret).unwrap(), "s3cret");
        });
    }
}

/// A snapshot is written to a name that somebody else has put a link under: the name is replaced, the link not
/// followed.
#[test]
fn a_link_under_the_name_of_a_snapshot_is_not_followed() {
    let caller = crate::support::caller::Caller::current();
    let work = Work::new(caller, false);
    work.begin("true");
    let target = work.place.make_file("target", "untouched");
    let output = work.place.join("s.tar.zst");
    for name in ["s.tar.zst", "s.tar.zst.partial"] {
        symlink(&target, work.place.join(name)).unwrap();
    }
    work.run(&["snapshot", "--output", output.to_str().unwrap(), ID]).success();
    assert_eq!(fs::read_to_string(&target).unwrap(), "untouched");
    assert!(output.symlink_metadata().unwrap().is_file());
    drop(File::open(Path::new(&output)).unwrap());
}
