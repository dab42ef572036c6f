//! An empty ext4 file system, as blocks of a file that is nothing but holes otherwise (Documentation/filesystems/ext4).
//!
//! It has exactly as many free blocks as it is asked for, and as many inodes (in a large one a few less), so that its
//! size is the limit: what the file system itself needs (descriptors, tables of inodes, a journal, what the kernel
//! sets aside) comes on top.
//!
//! ```text
//! group 0   superblock, descriptors, bitmaps, inodes, root, lost+found, journal, free
//! group n   copies of the first two where n is 1 or a power of 3, 5 or 7, bitmaps, inodes, free
//! ```
//! A block of zeros is never written: bitmaps have few ones, and tables of inodes none.

/// Bytes of a block.
pub(super) const BLOCK: u64 = 4096;
/// Blocks of a group, and the most inodes of one: a bitmap is one block.
const GROUP: u64 = 8 * BLOCK;
/// Bytes of an inode.
const INODE: u64 = 256;
const INODES_IN_BLOCK: u64 = BLOCK / INODE;
/// Bytes of a descriptor of a group.
const DESCRIPTOR: u64 = 32;
/// The least that a journal may have (JBD2_MIN_JOURNAL_BLOCKS).
const JOURNAL: u64 = 1024;
/// Ten inodes are the file system's own; after them comes lost+found.
const OWN_INODES: u64 = 10;
/// Block numbers have 32 bits.
const MOST_BLOCKS: u64 = 1 << 31;

const ROOT: u64 = 2;
const JOURNAL_INODE: u64 = 8;

/// Where everything is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    groups: u64,
    blocks: u64,
    /// Blocks that nobody but root gets, so that others get what was asked for.
    reserved: u64,
    inodes_in_group: u64,
    /// The first inode that is not the file system's own: lost+found.
    first_inode: u64,
    free_inodes: u64,
}

/// A block that is not zeros: its number, and what is in it.
pub(super) type Written = (u64, Vec<u8>);

impl Layout {
    /// Of a file system with so many bytes, in whole blocks, and inodes for its user; `None` when there is none of
    /// that size.
    pub(super) fn new(bytes: u64, inodes: u64) -> Option<Self> {
        let data = bytes / BLOCK;
        let mut groups = 1;
        loop {
            let (inodes_in_group, free_inodes) = inodes_for(inodes, groups)?;
            let first_inode = inodes_in_group * groups - free_inodes;
            let mut it = Layout { groups, blocks: 0, reserved: 0, inodes_in_group, first_inode, free_inodes };
            let own: u64 = (0..groups).map(|group| it.own_blocks(group)).sum();
            let all = own + data;
            it.blocks = all + (all / 49).min(4096);
            let aside = it.aside();
            let last = it.blocks.saturating_sub((groups - 1) * GROUP);
            let least = it.own_blocks(groups - 1) + 1;
            if last < least {
                it.blocks += least - last;
                it.reserved = least - last - (it.aside() - aside);
            }
            if it.blocks <= groups * GROUP {
                return (it.blocks <= MOST_BLOCKS).then_some(it);
            }
            groups = it.blocks.div_ceil(GROUP).max(groups + 1);
            if groups > MOST_BLOCKS / GROUP {
                return None;
            }
        }
    }

    /// Bytes of the whole.
    pub(super) fn size(&self) -> u64 {
        self.blocks * BLOCK
    }

    /// What the kernel sets aside (ext4_calculate_resv_clusters in fs/ext4/super.c).
    fn aside(&self) -> u64 {
        (self.blocks / 50).min(4096)
    }

    fn descriptor_blocks(&self) -> u64 {
        (self.groups * DESCRIPTOR).div_ceil(BLOCK)
    }

    fn table_blocks(&self) -> u64 {
        self.inodes_in_group / INODES_IN_BLOCK
    }

    /// Where the bitmaps of a group are.
    fn bitmaps(&self, group: u64) -> u64 {
        group * GROUP + if has_copy(group) { 1 + self.descriptor_blocks() } else { 0 }
    }

    /// Where the first group's blocks of files are: the root, lost+found, the journal.
    fn files(&self) -> u64 {
        self.bitmaps(0) + 2 + self.table_blocks()
    }

    /// How many blocks at the begin of a group are in use.
    fn own_blocks(&self, group: u64) -> u64 {
        let files = if group == 0 { 2 + JOURNAL } else { 0 };
        self.bitmaps(group) - group * GROUP + 2 + self.table_blocks() + files
    }

    fn group_blocks(&self, group: u64) -> u64 {
        (self.blocks - group * GROUP).min(GROUP)
    }

    fn free_blocks(&self, group: u64) -> u64 {
        self.group_blocks(group) - self.own_blocks(group)
    }

    /// Whether these are the superblock's numbers: what [`Layout::superblock`] wrote and no kernel changes.
    pub(super) fn is_of(&self, superblock: &[u8]) -> bool {
        let ours = self.superblock(0, [0; 16]);
        let fixed = [0x00..0x0c, 0x14..0x2c, 0x38..0x3a, 0x4c..0x50, 0x54..0x5a];
        superblock.len() == ours.len() && fixed.into_iter().all(|at| superblock[at.clone()] == ours[at])
    }

    /// All blocks that are not zeros, of an empty file system with this name for itself.
    pub(super) fn format(&self, uuid: [u8; 16], now: u32) -> impl Iterator<Item = Written> + '_ {
        let descriptors = self.descriptors();
        let groups = (0..self.groups).flat_map(move |group| {
            let mut written = Vec::new();
            if has_copy(group) {
                let mut block = block();
                let at = if group == 0 { 1024 } else { 0 };
                let mut superblock = self.superblock(group, uuid);
                put(&mut superblock, 0x30, u64::from(now), 4);
                put(&mut superblock, 0x40, u64::from(now), 4);
                put(&mut superblock, 0x108, u64::from(now), 4);
                block[at..at + superblock.len()].copy_from_slice(&superblock);
                written.push((group * GROUP, block));
                for (number, chunk) in (group * GROUP + 1..).zip(descriptors.chunks(4096)) {
                    let mut block = chunk.to_vec();
                    block.resize(4096, 0);
                    written.push((number, block));
                }
            }
            let bitmaps = self.bitmaps(group);
            written.push((bitmaps, bitmap(self.own_blocks(group), self.group_blocks(group))));
            let inodes = if group == 0 { self.first_inode } else { 0 };
            written.push((bitmaps + 1, bitmap(inodes, self.inodes_in_group)));
            written
        });
        groups.chain(self.files_of_its_own(uuid, now))
    }

    /// The superblock of a group, without times.
    fn superblock(&self, group: u64, uuid: [u8; 16]) -> Vec<u8> {
        let mut to = vec![0; 1024];
        let free: u64 = (0..self.groups).map(|group| self.free_blocks(group)).sum();
        for (at, value, bytes) in [
            (0x00, self.inodes_in_group * self.groups, 4),
            (0x04, self.blocks, 4),
            (0x08, self.reserved, 4),
            (0x0c, free, 4),
            (0x10, self.free_inodes, 4),
            (0x18, 2, 4),
            (0x1c, 2, 4),
            (0x20, GROUP, 4),
            (0x24, GROUP, 4),
            (0x28, self.inodes_in_group, 4),
            // Never "checked too long ago".
            (0x36, 0xffff, 2),
            (0x38, 0xef53, 2),
            // Clean; read-only after an error.
            (0x3a, 1, 2),
            (0x3c, 2, 2),
            (0x4c, 1, 4),
            (0x54, self.first_inode, 4),
            (0x58, INODE, 2),
            (0x5a, group, 2),
            // has_journal ext_attr dir_index; filetype extents; sparse_super large_file dir_nlink extra_isize.
            (0x5c, 0x2c, 4),
            (0x60, 0x42, 4),
            (0x64, 0x63, 4),
            (0xe0, JOURNAL_INODE, 4),
            // Half MD4 over signed characters.
            (0xfc, 1, 1),
            (0x160, 1, 4),
            // user_xattr acl
            (0x100, 0xc, 4),
            (0x15c, 32, 2),
            (0x15e, 32, 2),
        ] {
            put(&mut to, at, value, bytes);
        }
        to[0x68..0x78].copy_from_slice(&uuid);
        // The seed of the hashes of names: nothing that others know.
        to[0xec..0xfc].iter_mut().zip(uuid.iter().rev()).for_each(|(to, from)| *to = !from);
        to
    }

    fn descriptors(&self) -> Vec<u8> {
        let one = |group: u64| {
            let mut to = vec![0; 32];
            let bitmaps = self.bitmaps(group);
            let (used, directories) = if group == 0 { (self.first_inode, 2) } else { (0, 0) };
            for (at, value, bytes) in [
                (0, bitmaps, 4),
                (4, bitmaps + 1, 4),
                (8, bitmaps + 2, 4),
                (12, self.free_blocks(group), 2),
                (14, self.inodes_in_group - used, 2),
                (16, directories, 2),
            ] {
                put(&mut to, at, value, bytes);
            }
            to
        };
        (0..self.groups).flat_map(one).collect()
    }

    /// The root, lost+found and the journal, with their inodes.
    fn files_of_its_own(&self, uuid: [u8; 16], now: u32) -> Vec<Written> {
        let (table, at) = (self.bitmaps(0) + 2, self.files());
        let found = self.first_inode;
        let mut inodes: Vec<Written> = Vec::new();
        for (number, mode, links, first, count) in [
            (ROOT, 0o40_700, 3, at, 1),
            (found, 0o40_700, 2, at + 1, 1),
            (JOURNAL_INODE, 0o100_600, 1, at + 2, JOURNAL),
        ] {
            let (block_at, place) =
                (table + (number - 1) / INODES_IN_BLOCK, (number - 1) % INODES_IN_BLOCK * INODE);
            let block = match inodes.iter().position(|(at, _)| *at == block_at) {
                Some(index) => &mut inodes[index].1,
                None => {
                    inodes.push((block_at, block()));
                    let last = inodes.len() - 1;
                    &mut inodes[last].1
                }
            };
            for (at, value, bytes) in [
                (0x00, mode, 2),
                (0x04, count * BLOCK, 4),
                (0x08, u64::from(now), 4),
                (0x0c, u64::from(now), 4),
                (0x10, u64::from(now), 4),
                (0x1a, links, 2),
                (0x1c, count * (BLOCK / 512), 4),
                // Mapped by extents, here by one.
                (0x20, 0x8_0000, 4),
                (0x28, 0xf30a, 2),
                (0x2a, 1, 2),
                (0x2c, 4, 2),
                (0x38, count, 2),
                (0x3c, first, 4),
                (0x80, 32, 2),
            ] {
                put(block, usize::try_from(place).unwrap_or(0) + at, value, bytes);
            }
        }
        let root = directory(&[(ROOT, "."), (ROOT, ".."), (found, "lost+found")]);
        let lost = directory(&[(found, "."), (ROOT, "..")]);
        inodes.extend([(at, root), (at + 1, lost), (at + 2, journal(uuid))]);
        inodes
    }
}

/// How many inodes each group has, in whole blocks, and how many of all are free.
fn inodes_for(inodes: u64, groups: u64) -> Option<(u64, u64)> {
    // Those that are too many are called the file system's own, which are the first ones and all in the first group.
    let wanted = (inodes.saturating_add(OWN_INODES + 1)).min(groups * GROUP);
    let above = wanted.div_ceil(groups).next_multiple_of(INODES_IN_BLOCK);
    let own = above * groups - (wanted - OWN_INODES - 1);
    if own <= above {
        return (wanted > OWN_INODES + 2).then_some((above, wanted - OWN_INODES - 1));
    }
    // In many groups with few each it is some less than was asked for, and never more.
    let below = wanted / groups / INODES_IN_BLOCK * INODES_IN_BLOCK;
    (below > 0).then(|| (below, below * groups - OWN_INODES - 1))
}

/// Where the superblock and the descriptors are kept (sparse_super).
fn has_copy(group: u64) -> bool {
    let is_power = |base: u64| std::iter::successors(Some(base), |n| Some(n * base)).find(|n| *n >= group);
    group <= 1 || [3, 5, 7].into_iter().any(|base| is_power(base) == Some(group))
}

fn block() -> Vec<u8> {
    vec![0; 4096]
}

/// Little-endian, as everything here but the journal.
fn put(to: &mut [u8], at: usize, value: u64, bytes: usize) {
    to[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
}

/// The first `used` bits are ones, and so are those for which there is nothing.
fn bitmap(used: u64, there: u64) -> Vec<u8> {
    let mut block = block();
    for (byte, first) in block.iter_mut().zip((0..).step_by(8)) {
        for bit in 0..8 {
            if first + bit < used || first + bit >= there {
                *byte |= 1 << bit;
            }
        }
    }
    block
}

/// A directory of these directories.
fn directory(entries: &[(u64, &str)]) -> Vec<u8> {
    let mut block = block();
    let mut at = 0;
    for (index, (inode, name)) in entries.iter().enumerate() {
        let is_last = index + 1 == entries.len();
        let length = if is_last { block.len() - at } else { (8 + name.len()).next_multiple_of(4) };
        put(&mut block, at, *inode, 4);
        put(&mut block, at + 4, u64::try_from(length).unwrap_or(0), 2);
        put(&mut block, at + 6, u64::try_from(name.len()).unwrap_or(0), 1);
        put(&mut block, at + 7, 2, 1);
        block[at + 8..at + 8 + name.len()].copy_from_slice(name.as_bytes());
        at += length;
    }
    block
}

/// The superblock of an empty journal, big-endian (`struct journal_superblock_s` in linux/jbd2.h).
fn journal(uuid: [u8; 16]) -> Vec<u8> {
    let mut block = block();
    let words: [(usize, u32); 7] =
        [(0, 0xc03b_3998), (4, 4), (12, 4096), (16, 1024), (20, 1), (24, 1), (0x40, 1)];
    for (at, word) in words {
        block[at..at + 4].copy_from_slice(&word.to_be_bytes());
    }
    block[0x30..0x40].copy_from_slice(&uuid);
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;
    use std::process::Command;

    /// What e2fsck has to say of it; empty when it finds nothing wrong.
    fn checked(layout: &Layout) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(layout.size()).unwrap();
        for (number, block) in layout.format([7; 16], 1_700_000_000) {
            assert_eq!(block.len(), 4096);
            file.as_file().write_all_at(&block, number * BLOCK).unwrap();
        }
        let output = Command::new("e2fsck").args(["-fn"]).arg(file.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() { String::new() } else { said }
    }

    #[test]
    fn every_size_is_a_sound_file_system_of_exactly_that_size() {
        if Command::new("e2fsck").arg("-V").output().is_err() {
            return;
        }
        // The last ones are around the sizes where one more group begins.
        let around = (120_000..120_003).map(|blocks| (blocks * BLOCK, 4096));
        let edge = (31_000..31_400).step_by(57).map(|blocks| (blocks * BLOCK, 1000));
        let sizes =
            [(1 << 20, 500), (8 << 20, 500), (8 << 20, 40_000), (1 << 30, 262_144), (100 << 30, 262_144)];
        for (bytes, inodes) in sizes.into_iter().chain(around).chain(edge) {
            let layout = Layout::new(bytes, inodes).unwrap();
            assert_eq!(checked(&layout), "", "{bytes} {inodes}: {layout:?}");
            let free: u64 = (0..layout.groups).map(|group| layout.free_blocks(group)).sum();
            assert_eq!((free - layout.reserved - layout.aside()) * BLOCK, bytes, "{layout:?}");
            let most = inodes.min(GROUP * layout.groups - OWN_INODES - 1);
            assert!(
                layout.free_inodes <= most && most - layout.free_inodes < 16 * layout.groups,
                "{layout:?}"
            );
            assert!(layout.groups > 12 || layout.free_inodes == most, "{layout:?}");
            assert!(layout.is_of(&layout.superblock(0, [1; 16])));
            let other = Layout::new(bytes + (1 << 20), inodes).unwrap();
            assert!(!other.is_of(&layout.superblock(0, [1; 16])));
        }
    }

    #[test]
    fn what_cannot_be_is_none() {
        // Too few inodes for so many groups, and more blocks than there are numbers.
        assert_eq!(Layout::new(100 << 30, 500), None);
        assert_eq!(Layout::new(1 << 60, 1 << 20), None);
        assert_eq!(Layout::new(8 << 20, 0), None);
    }
}
