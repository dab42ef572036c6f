//! The order in which the rules of one call are tried.
//!
//! A profile does not say what holds when rules with different actions match the same call. Users know what
//! libseccomp makes of it, so this is its order: arguments from the last to the first; for one argument `==`,
//! `!=` and masks before `<` and `<=`, those before `>` and `>=`; for one operator the greater value first,
//! but the smaller one with `<` and `<=`. Words of 32 bits are what counts, on a 64-bit ABI the high one before the
//! low one; rules whose first words are equal stay together, and what is left is in the profile's order. Of two
//! rules of which one begins with all checks of the other, the shorter one is enough.

use super::checks::{Check, half};
use oci_spec::runtime::LinuxSeccompOperator as Operator;

/// A rule of one call.
#[derive(Debug, Clone)]
pub(super) struct Rule {
    /// SECCOMP_RET_* with its data.
    pub(super) action: u32,
    /// All must hold; sorted by argument, one for each at most.
    pub(super) checks: Vec<Check>,
    /// Its place in `linux.seccomp.syscalls`.
    pub(super) entry: usize,
}

/// Two rules that do not go together.
#[derive(Debug, Clone, Copy)]
pub(super) enum Clash {
    /// The second one never decides: the first one matches whenever it does.
    Unreachable(usize, usize),
    /// They want different actions for the same arguments.
    Contradiction(usize, usize),
}

/// `rules` in the order in which they are tried, without those that never decide; and the entries that clash.
pub(super) fn order(rules: &[Rule], wide: bool) -> (Vec<&Rule>, Vec<Clash>) {
    let mut root = Level::default();
    let clashes =
        rules.iter().filter_map(|rule| insert(&mut root, rule, &words(&rule.checks, wide))).collect();
    let mut ordered = Vec::new();
    flatten(&root, &mut ordered);
    (ordered, clashes)
}

/// A comparison of a word, as libseccomp has it in its tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Word {
    /// Argument and half of it, the greater one first.
    place: u32,
    /// The kind of the check, the greater one first.
    kind: u32,
    /// What is compared: the value, then what makes two words of one value differ.
    value: u32,
    mask: u32,
    comparison: Comparison,
    /// Whether the check goes on where the comparison holds.
    holds: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    Masked,
    Greater,
    AtLeast,
}

impl Word {
    /// Whether they are the same instruction; they may differ in where the check goes on.
    fn same(&self, other: &Word) -> bool {
        (self.place, self.comparison, self.value, self.mask)
            == (other.place, other.comparison, other.value, other.mask)
    }

    /// Whether this one is tried after `other`.
    fn after(&self, other: &Word) -> bool {
        // `<` and `<=`.
        let rank = |word: &Word| if word.kind == 2 { !word.value } else { word.value };
        (self.place, self.kind, rank(self)) < (other.place, other.kind, rank(other))
    }
}

fn words(checks: &[Check], wide: bool) -> Vec<Word> {
    use Comparison::{AtLeast, Equal, Greater, Masked};
    let mut words = Vec::new();
    for check in checks {
        let (kind, comparison, holds) = match check.operator {
            Operator::ScmpCmpEq => (3, Equal, true),
            Operator::ScmpCmpNe => (3, Equal, false),
            Operator::ScmpCmpMaskedEq => (3, Masked, true),
            Operator::ScmpCmpLt => (2, AtLeast, false),
            Operator::ScmpCmpLe => (2, Greater, false),
            Operator::ScmpCmpGt => (1, Greater, true),
            Operator::ScmpCmpGe => (1, AtLeast, true),
        };
        let word = |high, comparison, holds| {
            let mask = half(check.mask, high);
            let place = 2 * check.arg + u32::from(high);
            Word { place, kind, value: half(check.value, high) & mask, mask, comparison, holds }
        };
        if wide && kind == 3 {
            words.push(word(true, comparison, true));
        } else if wide {
            words.extend([word(true, Greater, false), word(true, Equal, true)]);
        }
        words.push(word(false, comparison, holds));
    }
    words
}

/// Comparisons of which one is tried after the other.
type Level<'a> = Vec<Node<'a>>;

#[derive(Debug)]
struct Node<'a> {
    word: Word,
    /// What comes when the comparison does not hold, and when it does.
    sides: [Side<'a>; 2],
}

#[derive(Debug, Default)]
struct Side<'a> {
    /// The rule whose last check is this one.
    end: Option<&'a Rule>,
    level: Level<'a>,
}

fn insert<'a>(level: &mut Level<'a>, rule: &'a Rule, words: &[Word]) -> Option<Clash> {
    let (word, rest) = words.split_first()?;
    let mut at = 0;
    while at < level.len() && !level[at].word.same(word) && !level[at].word.after(word) {
        at += 1;
    }
    if level.get(at).is_none_or(|node| !node.word.same(word)) {
        level.insert(at, Node { word: *word, sides: Default::default() });
    }
    let side = &mut level[at].sides[usize::from(word.holds)];
    match side.end {
        Some(other) if other.action == rule.action => None,
        Some(other) if rest.is_empty() => Some(Clash::Contradiction(other.entry, rule.entry)),
        Some(other) => Some(Clash::Unreachable(other.entry, rule.entry)),
        None if rest.is_empty() => {
            let mut longer = Vec::new();
            flatten(&side.level, &mut longer);
            side.level.clear();
            side.end = Some(rule);
            let other = longer.iter().find(|other| other.action != rule.action)?;
            Some(Clash::Contradiction(other.entry, rule.entry))
        }
        None => insert(&mut side.level, rule, rest),
    }
}

fn flatten<'a>(level: &Level<'a>, rules: &mut Vec<&'a Rule>) {
    for side in level.iter().flat_map(|node| node.sides.iter().rev()) {
        rules.extend(side.end);
        flatten(&side.level, rules);
    }
}
