//! Sorts the rules of one call into the order in which they are tried.
//!
//! A profile does not define which rule wins when rules with different actions match the same call. Users know the
//! behaviour of libseccomp, so this is its order: arguments from the last to the first; for one argument `==`, `!=` and
//! masks before `<` and `<=`, those before `>` and `>=`; for one operator the greater value first, but the smaller one
//! with `<` and `<=`. Words of 32 bits are compared, on a 64-bit ABI the high one before the low one; rules whose first
//! words are equal stay together, and all others keep the profile's order. Of two rules of which one begins with all
//! checks of the other, only the shorter one is kept.

use super::checks::{ArgCheck, half};
use oci_spec::runtime::LinuxSeccompOperator as Operator;

/// A rule of one call.
#[derive(Debug, Clone)]
pub(super) struct CallRule {
    /// SECCOMP_RET_* with its data.
    pub(super) action: u32,
    /// Checks that must all hold; sorted by argument, at most one for each.
    pub(super) checks: Vec<ArgCheck>,
    /// Its index in `linux.seccomp.syscalls`.
    pub(super) entry: usize,
}

/// Two rules that conflict.
#[derive(Debug, Clone, Copy)]
pub(super) enum RuleConflict {
    /// The second rule never decides: the first one matches whenever the second does.
    Unreachable(usize, usize),
    /// The rules have different actions for the same arguments.
    Contradiction(usize, usize),
}

/// Returns `rules` in the order in which they are tried, without those that never decide; and the conflicts.
pub(super) fn order(rules: &[CallRule], wide: bool) -> (Vec<&CallRule>, Vec<RuleConflict>) {
    let mut root = Level::default();
    let clashes =
        rules.iter().filter_map(|rule| insert(&mut root, rule, &words(&rule.checks, wide))).collect();
    let mut ordered = Vec::new();
    flatten(&root, &mut ordered);
    (ordered, clashes)
}

/// A comparison of one 32-bit word, as libseccomp has it in its tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ComparedWord {
    /// Argument and half of it; the greater one sorts first.
    place: u32,
    /// The kind of the check; the greater one sorts first.
    kind: u32,
    /// The value to compare with; mask and comparison distinguish words with the same value.
    value: u32,
    mask: u32,
    comparison: Comparison,
    /// Whether the check continues if the comparison is true.
    holds: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    Masked,
    Greater,
    AtLeast,
}

impl ComparedWord {
    /// Whether both are the same instruction; where the check continues may differ.
    fn same(&self, other: &ComparedWord) -> bool {
        (self.place, self.comparison, self.value, self.mask)
            == (other.place, other.comparison, other.value, other.mask)
    }

    /// Whether this word is tried after `other`.
    fn after(&self, other: &ComparedWord) -> bool {
        // `<` and `<=`.
        let rank = |word: &ComparedWord| if word.kind == 2 { !word.value } else { word.value };
        (self.place, self.kind, rank(self)) < (other.place, other.kind, rank(other))
    }
}

fn words(checks: &[ArgCheck], wide: bool) -> Vec<ComparedWord> {
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
            ComparedWord { place, kind, value: half(check.value, high) & mask, mask, comparison, holds }
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

/// Alternative comparisons, in the order in which they are tried.
type Level<'a> = Vec<OrderNode<'a>>;

#[derive(Debug)]
struct OrderNode<'a> {
    word: ComparedWord,
    /// What follows when the comparison is false, and when it is true.
    sides: [OrderSide<'a>; 2],
}

#[derive(Debug, Default)]
struct OrderSide<'a> {
    /// The rule that ends with this comparison.
    end: Option<&'a CallRule>,
    level: Level<'a>,
}

fn insert<'a>(level: &mut Level<'a>, rule: &'a CallRule, words: &[ComparedWord]) -> Option<RuleConflict> {
    let (word, rest) = words.split_first()?;
    let mut at = 0;
    while at < level.len() && !level[at].word.same(word) && !level[at].word.after(word) {
        at += 1;
    }
    if level.get(at).is_none_or(|node| !node.word.same(word)) {
        level.insert(at, OrderNode { word: *word, sides: Default::default() });
    }
    let side = &mut level[at].sides[usize::from(word.holds)];
    match side.end {
        Some(other) if other.action == rule.action => None,
        Some(other) if rest.is_empty() => Some(RuleConflict::Contradiction(other.entry, rule.entry)),
        Some(other) => Some(RuleConflict::Unreachable(other.entry, rule.entry)),
        None if rest.is_empty() => {
            let mut longer = Vec::new();
            flatten(&side.level, &mut longer);
            side.level.clear();
            side.end = Some(rule);
            let other = longer.iter().find(|other| other.action != rule.action)?;
            Some(RuleConflict::Contradiction(other.entry, rule.entry))
        }
        None => insert(&mut side.level, rule, rest),
    }
}

fn flatten<'a>(level: &Level<'a>, rules: &mut Vec<&'a CallRule>) {
    for side in level.iter().flat_map(|node| node.sides.iter().rev()) {
        rules.extend(side.end);
        flatten(&side.level, rules);
    }
}
