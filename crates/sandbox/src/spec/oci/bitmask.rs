//! Lists of CPUs and memory nodes, such as `0-3,7`.

use super::field_path::FieldPath;
use saggar_sys::error::Result;

const MAX_BYTES: usize = 65536;

/// Parses a list to a bit mask of 64-bit words. `limit` is the number of bits allowed.
pub(super) fn parse_bitmask(list: &str, limit: u32, field: FieldPath<'_>) -> Result<Vec<u64>> {
    let malformed = || field.invalid(format_args!("must be a list such as 0-3,7, is {list:?}"));
    let number = |text: &str| -> Result<u32> {
        let text = text.trim();
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(malformed());
        }
        let number = text.parse().ok().filter(|number| *number < limit);
        number.ok_or_else(|| field.invalid(format_args!("holds {text}; the highest number is {}", limit - 1)))
    };
    // A list that names each number once is not longer; the bound limits the parsing time.
    if list.len() > MAX_BYTES {
        return Err(field.invalid(format_args!("has {} characters; {MAX_BYTES} are enough", list.len())));
    }
    let mut words: Vec<u64> = Vec::new();
    for part in list.split(',') {
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(part)?, number(part)?),
        };
        if last < first {
            return Err(field.invalid(format_args!("holds the range {part}, which ends before it begins")));
        }
        for bit in first..=last {
            let word = (bit / 64) as usize;
            if words.len() <= word {
                words.resize(word + 1, 0);
            }
            words[word] |= 1 << (bit % 64);
        }
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(list: &str) -> Result<Vec<u64>, String> {
        parse_bitmask(list, 128, FieldPath::root("list")).map_err(|error| error.to_string())
    }

    #[test]
    fn numbers_and_ranges_become_bits() {
        assert_eq!(parsed("0-3,7"), Ok(vec![0b1000_1111]));
        assert_eq!(parsed("64"), Ok(vec![0, 1]));
        assert_eq!(parsed("0-127"), Ok(vec![u64::MAX, u64::MAX]));
        assert_eq!(parsed(" 1, 2 - 3 "), Ok(vec![0b1110]));
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for list in
            ["", ",", "0,", "a", "-1", "1-", "0x1", "+1", "1--2", "1-2-3", "3-1", "128", "0-4294967295"]
        {
            assert!(parsed(list).unwrap_err().starts_with("list "), "{list}");
        }
    }
}
