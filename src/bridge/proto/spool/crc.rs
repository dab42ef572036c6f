//! CRC-32 as in IEEE 802.3, eight bytes at a time. It is computed over every stored event.

/// The reflected polynomial.
const POLYNOMIAL: u32 = 0xedb8_8320;

static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0u32; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        // The value is below 256, so the cast loses nothing.
        #[expect(clippy::cast_possible_truncation, reason = "it is below 256")]
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[table - 1][byte];
            tables[table][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

/// The checksum of `bytes`.
pub fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let [a, b, c, d, e, f, g, h] = *word;
        let [a, b, c, d] = (u32::from_le_bytes([a, b, c, d]) ^ crc).to_le_bytes();
        let byte = |table: usize, byte: u8| TABLES[table][usize::from(byte)];
        crc = byte(7, a) ^ byte(6, b) ^ byte(5, c) ^ byte(4, d);
        crc ^= byte(3, e) ^ byte(2, f) ^ byte(1, g) ^ byte(0, h);
    }
    for byte in rest {
        let [low, ..] = (crc ^ u32::from(*byte)).to_le_bytes();
        crc = (crc >> 8) ^ TABLES[0][usize::from(low)];
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_catalogue_comes_out() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
    }

    #[test]
    fn eight_at_a_time_is_as_one_at_a_time() {
        let bytes: Vec<u8> = (0..=255u8).cycle().take(1000).collect();
        for length in 0..bytes.len() {
            let slow = bytes[..length].iter().fold(u32::MAX, |crc, byte| {
                (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
                    if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 }
                })
            });
            assert_eq!(crc32(&bytes[..length]), !slow, "{length}");
        }
    }
}
