//! Creates an empty ext4 file system as blocks of a sparse file (Documentation/filesystems/ext4).
//!
//! It has exactly the requested number of free blocks, and the requested number of inodes (slightly fewer in a large
//! one), so that its size is the limit. The space for the file system itself (descriptors, inode tables, a journal, the
//! kernel's reserve) is added to that.
//!
//! ```text
//! group 0   superblock, descriptors, bitmaps, inodes, root, lost+found, journal, free
//! group n   copies of the first two where n is 1 or a power of 3, 5 or 7, bitmaps, inodes, free
//! ```
//! Blocks of zeros are never written: bitmaps have few ones, and inode tables none.

/// Bytes of a block.
pub(super) const BLOCK_SIZE: u64 = 4096;
/// Blocks of a group, and most inodes of a group: a bitmap is one block.
const BLOCKS_PER_GROUP: u64 = 8 * BLOCK_SIZE;
/// Bytes of an inode.
const INODE_SIZE: u64 = 256;
const INODES_PER_BLOCK: u64 = BLOCK_SIZE / INODE_SIZE;
/// Bytes of a group descriptor.
const DESCRIPTOR_SIZE: u64 = 32;
/// Least blocks of a journal (JBD2_MIN_JOURNAL_BLOCKS).
const MIN_JOURNAL_BLOCKS: u64 = 1024;
/// Inodes reserved by the file system; lost+found is the next one.
const RESERVED_INODES: u64 = 10;
/// Most blocks; block numbers have 32 bits.
const MAX_BLOCKS: u64 = 1 << 31;

const ROOT: u64 = 2;
const JOURNAL_INODE: u64 = 8;

/// The layout of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ext4Layout {
    groups: u64,
    blocks: u64,
    /// Blocks reserved for root, so that other users get the requested number.
    reserved: u64,
    inodes_in_group: u64,
    /// The first unreserved inode: lost+found.
    first_inode: u64,
    free_inodes: u64,
}

/// The number and the content of a block that is not zeros.
pub(super) type BlockContent = (u64, Vec<u8>);

impl Ext4Layout {
    /// The layout of a file system with this many bytes, in whole blocks, and inodes for its user; `None` if that size
    /// is not possible.
    pub(super) fn new(bytes: u64, inodes: u64) -> Option<Self> {
        let data = bytes / BLOCK_SIZE;
        let mut groups = 1;
        loop {
            let (inodes_in_group, free_inodes) = inodes_for(inodes, groups)?;
            let first_inode = inodes_in_group * groups - free_inodes;
            let mut it =
                Ext4Layout { groups, blocks: 0, reserved: 0, inodes_in_group, first_inode, free_inodes };
            let own: u64 = (0..groups).map(|group| it.used_blocks(group)).sum();
            let all = own + data;
            it.blocks = all + (all / 49).min(4096);
            let aside = it.kernel_reserved();
            let last = it.blocks.saturating_sub((groups - 1) * BLOCKS_PER_GROUP);
            let least = it.used_blocks(groups - 1) + 1;
            if last < least {
                it.blocks += least - last;
                it.reserved = least - last - (it.kernel_reserved() - aside);
            }
            if it.blocks <= groups * BLOCKS_PER_GROUP {
                return (it.blocks <= MAX_BLOCKS).then_some(it);
            }
            groups = it.blocks.div_ceil(BLOCKS_PER_GROUP).max(groups + 1);
            if groups > MAX_BLOCKS / BLOCKS_PER_GROUP {
                return None;
            }
        }
    }

    /// Total size in bytes.
    pub(super) fn size(&self) -> u64 {
        self.blocks * BLOCK_SIZE
    }

    /// Blocks that the kernel reserves (ext4_calculate_resv_clusters in fs/ext4/super.c).
    fn kernel_reserved(&self) -> u64 {
        (self.blocks / 50).min(4096)
    }

    fn descriptor_blocks(&self) -> u64 {
        (self.groups * DESCRIPTOR_SIZE).div_ceil(BLOCK_SIZE)
    }

    fn table_blocks(&self) -> u64 {
        self.inodes_in_group / INODES_PER_BLOCK
    }

    /// First bitmap block of a group.
    fn bitmaps_start(&self, group: u64) -> u64 {
        group * BLOCKS_PER_GROUP + if has_copy(group) { 1 + self.descriptor_blocks() } else { 0 }
    }

    /// First block of the files in group 0: the root directory, lost+found, the journal.
    fn files_start(&self) -> u64 {
        self.bitmaps_start(0) + 2 + self.table_blocks()
    }

    /// Number of used blocks at the start of a group.
    fn used_blocks(&self, group: u64) -> u64 {
        let files = if group == 0 { 2 + MIN_JOURNAL_BLOCKS } else { 0 };
        self.bitmaps_start(group) - group * BLOCKS_PER_GROUP + 2 + self.table_blocks() + files
    }

    fn group_blocks(&self, group: u64) -> u64 {
        (self.blocks - group * BLOCKS_PER_GROUP).min(BLOCKS_PER_GROUP)
    }

    fn free_blocks(&self, group: u64) -> u64 {
        self.group_blocks(group) - self.used_blocks(group)
    }

    /// Whether a superblock has these sizes: the fields that [`Ext4Layout::superblock`] writes and no kernel changes.
    pub(super) fn matches(&self, superblock: &[u8]) -> bool {
        let ours = self.superblock(0, [0; 16]);
        let fixed = [0x00..0x0c, 0x14..0x2c, 0x38..0x3a, 0x4c..0x50, 0x54..0x5a];
        superblock.len() == ours.len() && fixed.into_iter().all(|at| superblock[at.clone()] == ours[at])
    }

    /// All blocks that are not zeros, of an empty file system with this UUID.
    pub(super) fn format(&self, uuid: [u8; 16], now: u32) -> impl Iterator<Item = BlockContent> + '_ {
        let descriptors = self.descriptors();
        let groups = (0..self.groups).flat_map(move |group| {
            let mut written = Vec::new();
            if has_copy(group) {
                let mut block = block();
                let at = if group == 0 { 1024 } else { 0 };
                let mut superblock = self.superblock(group, uuid);
                put_le(&mut superblock, 0x30, u64::from(now), 4);
                put_le(&mut superblock, 0x40, u64::from(now), 4);
                put_le(&mut superblock, 0x108, u64::from(now), 4);
                block[at..at + superblock.len()].copy_from_slice(&superblock);
                written.push((group * BLOCKS_PER_GROUP, block));
                for (number, chunk) in (group * BLOCKS_PER_GROUP + 1..).zip(descriptors.chunks(4096)) {
                    let mut block = chunk.to_vec();
                    block.resize(4096, 0);
                    written.push((number, block));
                }
            }
            let bitmaps = self.bitmaps_start(group);
            written.push((bitmaps, bitmap(self.used_blocks(group), self.group_blocks(group))));
            let inodes = if group == 0 { self.first_inode } else { 0 };
            written.push((bitmaps + 1, bitmap(inodes, self.inodes_in_group)));
            written
        });
        groups.chain(self.reserved_files(uuid, now))
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
            (0x20, BLOCKS_PER_GROUP, 4),
            (0x24, BLOCKS_PER_GROUP, 4),
            (0x28, self.inodes_in_group, 4),
            // Maximum number of mounts before a check: none.
            (0x36, 0xffff, 2),
            (0x38, 0xef53, 2),
            // State: clean. On an error: remount read-only.
            (0x3a, 1, 2),
            (0x3c, 2, 2),
            (0x4c, 1, 4),
            (0x54, self.first_inode, 4),
            (0x58, INODE_SIZE, 2),
            (0x5a, group, 2),
            // has_journal ext_attr dir_index; filetype extents; sparse_super large_file dir_nlink extra_isize.
            (0x5c, 0x2c, 4),
            (0x60, 0x42, 4),
            (0x64, 0x63, 4),
            (0xe0, JOURNAL_INODE, 4),
            // Hash of directory indexes: half MD4 with signed characters.
            (0xfc, 1, 1),
            (0x160, 1, 4),
            // user_xattr acl
            (0x100, 0xc, 4),
            (0x15c, 32, 2),
            (0x15e, 32, 2),
        ] {
            put_le(&mut to, at, value, bytes);
        }
        to[0x68..0x78].copy_from_slice(&uuid);
        // The seed of the name hashes, which the sandbox cannot know.
        to[0xec..0xfc].iter_mut().zip(uuid.iter().rev()).for_each(|(to, from)| *to = !from);
        to
    }

    fn descriptors(&self) -> Vec<u8> {
        let one = |group: u64| {
            let mut to = vec![0; 32];
            let bitmaps = self.bitmaps_start(group);
            let (used, directories) = if group == 0 { (self.first_inode, 2) } else { (0, 0) };
            for (at, value, bytes) in [
                (0, bitmaps, 4),
                (4, bitmaps + 1, 4),
                (8, bitmaps + 2, 4),
                (12, self.free_blocks(group), 2),
                (14, self.inodes_in_group - used, 2),
                (16, directories, 2),
            ] {
                put_le(&mut to, at, value, bytes);
            }
            to
        };
        (0..self.groups).flat_map(one).collect()
    }

    /// The root directory, lost+found and the journal, with their inodes.
    fn reserved_files(&self, uuid: [u8; 16], now: u32) -> Vec<BlockContent> {
        let (table, at) = (self.bitmaps_start(0) + 2, self.files_start());
        let found = self.first_inode;
        let mut inodes: Vec<BlockContent> = Vec::new();
        for (number, mode, links, first, count) in [
            (ROOT, 0o40_700, 3, at, 1),
            (found, 0o40_700, 2, at + 1, 1),
            (JOURNAL_INODE, 0o100_600, 1, at + 2, MIN_JOURNAL_BLOCKS),
        ] {
            let (block_at, place) =
                (table + (number - 1) / INODES_PER_BLOCK, (number - 1) % INODES_PER_BLOCK * INODE_SIZE);
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
                (0x04, count * BLOCK_SIZE, 4),
                (0x08, u64::from(now), 4),
                (0x0c, u64::from(now), 4),
                (0x10, u64::from(now), 4),
                (0x1a, links, 2),
                (0x1c, count * (BLOCK_SIZE / 512), 4),
                // Mapped by extents, here by a single one.
                (0x20, 0x8_0000, 4),
                (0x28, 0xf30a, 2),
                (0x2a, 1, 2),
                (0x2c, 4, 2),
                (0x38, count, 2),
                (0x3c, first, 4),
                (0x80, 32, 2),
            ] {
                put_le(block, usize::try_from(place).unwrap_or(0) + at, value, bytes);
            }
        }
        let root = directory(&[(ROOT, "."), (ROOT, ".."), (found, "lost+found")]);
        let lost = directory(&[(found, "."), (ROOT, "..")]);
        inodes.extend([(at, root), (at + 1, lost), (at + 2, journal(uuid))]);
        inodes
    }
}

/// The number of inodes per group, in whole blocks, and the number of free inodes.
fn inodes_for(inodes: u64, groups: u64) -> Option<(u64, u64)> {
    // Surplus inodes are marked as reserved by the file system; these are the first ones and all in group 0.
    let wanted = (inodes.saturating_add(RESERVED_INODES + 1)).min(groups * BLOCKS_PER_GROUP);
    let above = wanted.div_ceil(groups).next_multiple_of(INODES_PER_BLOCK);
    let own = above * groups - (wanted - RESERVED_INODES - 1);
    if own <= above {
        return (wanted > RESERVED_INODES + 2).then_some((above, wanted - RESERVED_INODES - 1));
    }
    // With many groups of few inodes the number is slightly lower than requested, and never higher.
    let below = wanted / groups / INODES_PER_BLOCK * INODES_PER_BLOCK;
    (below > 0).then(|| (below, below * groups - RESERVED_INODES - 1))
}

/// Whether a group has a copy of superblock and descriptors (sparse_super).
fn has_copy(group: u64) -> bool {
    let is_power = |base: u64| std::iter::successors(Some(base), |n| Some(n * base)).find(|n| *n >= group);
    group <= 1 || [3, 5, 7].into_iter().any(|base| is_power(base) == Some(group))
}

fn block() -> Vec<u8> {
    vec![0; 4096]
}

/// Writes a little-endian value; only the journal is big-endian.
fn put_le(to: &mut [u8], at: usize, value: u64, bytes: usize) {
    to[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
}

/// A bitmap whose first `used` bits are ones, and also all bits beyond `there`.
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

/// A directory with these entries.
fn directory(entries: &[(u64, &str)]) -> Vec<u8> {
    let mut block = block();
    let mut at = 0;
    for (index, (inode, name)) in entries.iter().enumerate() {
        let is_last = index + 1 == entries.len();
        let length = if is_last { block.len() - at } else { (8 + name.len()).next_multiple_of(4) };
        put_le(&mut block, at, *inode, 4);
        put_le(&mut block, at + 4, u64::try_from(length).unwrap_or(0), 2);
        put_le(&mut block, at + 6, u64::try_from(name.len()).unwrap_or(0), 1);
        put_le(&mut block, at + 7, 2, 1);
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

    /// The output of e2fsck; empty if it finds no error.
    fn checked(layout: &Ext4Layout) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(layout.size()).unwrap();
        for (number, block) in layout.format([7; 16], 1_700_000_000) {
            assert_eq!(block.len(), 4096);
            file.as_file().write_all_at(&block, number * BLOCK_SIZE).unwrap();
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
        // The last sizes are those around which the number of groups increases.
        let around = (120_000..120_003).map(|blocks| (blocks * BLOCK_SIZE, 4096));
        let edge = (31_000..31_400).step_by(57).map(|blocks| (blocks * BLOCK_SIZE, 1000));
        let sizes =
            [(1 << 20, 500), (8 << 20, 500), (8 << 20, 40_000), (1 << 30, 262_144), (100 << 30, 262_144)];
        for (bytes, inodes) in sizes.into_iter().chain(around).chain(edge) {
            let layout = Ext4Layout::new(bytes, inodes).unwrap();
            assert_eq!(checked(&layout), "", "{bytes} {inodes}: {layout:?}");
            let free: u64 = (0..layout.groups).map(|group| layout.free_blocks(group)).sum();
            assert_eq!((free - layout.reserved - layout.kernel_reserved()) * BLOCK_SIZE, bytes, "{layout:?}");
            let most = inodes.min(BLOCKS_PER_GROUP * layout.groups - RESERVED_INODES - 1);
            assert!(
                layout.free_inodes <= most && most - layout.free_inodes < 16 * layout.groups,
                "{layout:?}"
            );
            assert!(layout.groups > 12 || layout.free_inodes == most, "{layout:?}");
            assert!(layout.matches(&layout.superblock(0, [1; 16])));
            let other = Ext4Layout::new(bytes + (1 << 20), inodes).unwrap();
            assert!(!other.matches(&layout.superblock(0, [1; 16])));
        }
    }

    #[test]
    fn what_cannot_be_is_none() {
        // Too few inodes for this many groups, and more blocks than block numbers.
        assert_eq!(Ext4Layout::new(100 << 30, 500), None);
        assert_eq!(Ext4Layout::new(1 << 60, 1 << 20), None);
        assert_eq!(Ext4Layout::new(8 << 20, 0), None);
    }
}
