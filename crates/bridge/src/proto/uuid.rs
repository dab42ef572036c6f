//! Random uuids (RFC 9562, version 4).

/// Generates a random uuid in the usual text form.
pub fn uuid_v4() -> String {
    let mut bytes = [0u8; 16];
    // The kernel cannot fail here after boot. If it did, the fixed uuid would be taken for a repetition wherever that
    // matters, which fails closed.
    let _ = saggar_sys::random::fill(&mut bytes);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = saggar_sys::text::hex(&bytes);
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
