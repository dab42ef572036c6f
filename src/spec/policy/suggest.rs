//! The nearest known word to an unknown one.

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
        .map(|candidate| (edit_distance(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// The edit distance. A swap of two adjacent characters is one edit (optimal string alignment).
fn edit_distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut row = vec![i + 1];
        for j in 0..b.len() {
            let mut cost = (above[j] + usize::from(a[i] != b[j])).min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                cost = cost.min(before[j - 1] + 1);
            }
            row.push(cost);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
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
        assert_eq!(nearest("zebra", known), None);
        assert_eq!(nearest("", known), None);
        assert_eq!(nearest(&"m".repeat(1 << 20), known), None);
    }

    #[test]
    fn a_swap_of_neighbours_is_one_edit() {
        assert_eq!(edit_distance("ab", "ba"), 1);
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(edit_distance("", "abc"), 3);
    }
}
