//! The nearest known word to an unknown one.

use strsim::osa_distance;

/// Longer words, in bytes, are not compared: they are not misspellings of a known word, and the comparison
/// is quadratic.
const MAX_WORD_BYTES: usize = 64;

/// The candidate that `word` most likely misspells: at most a third of it differs.
pub(super) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.is_empty() || word.len() > MAX_WORD_BYTES {
        return None;
    }
    let allowed = (word.chars().count() / 3).max(1);
    candidates
        .into_iter()
        // Optimal string alignment: a swap of two adjacent characters is one edit.
        .map(|candidate| (osa_distance(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_the_pen_find_their_word_and_strangers_do_not() {
        let known = ["memory", "cpus", "pids", "limits.memory"];
        assert_eq!(nearest("memroy", known), Some("memory"));
        assert_eq!(nearest("memor", known), Some("memory"));
        assert_eq!(nearest("limits.memmory", known), Some("limits.memory"));
        assert_eq!(nearest("cpu", known), Some("cpus"));
        assert_eq!(nearest("pisd", known), Some("pids"), "a swap is one edit");
        assert_eq!(nearest("zebra", known), None);
        assert_eq!(nearest("", known), None);
        assert_eq!(nearest(&"m".repeat(1 << 20), known), None);
    }
}
