//! The frame of the messages between a child and its parent: four native words on a seqpacket socketpair, with
//! descriptors beside them. No allocation, no parsing that could fail half-way.

/// Bytes of one message.
pub const LEN: usize = 16;

/// A message: which one it is, and what it carries.
pub(super) fn pack(kind: u32, a: u32, b: u32, c: u32) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    for (slot, word) in bytes.chunks_exact_mut(4).zip([kind, a, b, c]) {
        slot.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

/// The words of a message; `None` for anything of another length.
pub(super) fn unpack(bytes: &[u8]) -> Option<[u32; 4]> {
    let bytes: &[u8; LEN] = bytes.try_into().ok()?;
    let mut words = [0; 4];
    for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = u32::from_ne_bytes(chunk.try_into().ok()?);
    }
    Some(words)
}
