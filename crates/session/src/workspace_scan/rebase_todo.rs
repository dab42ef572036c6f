//! The todo list of an interrupted rebase, cherry-pick or revert. `git rebase --continue` runs the `exec`
//! lines of the list, and `git-merge-NAME` for the strategy that the rebase was started with.

/// The commands of git's sequencer.c that run no program, and their abbreviations.
const HARMLESS_COMMANDS: &[(&str, &str)] = &[
    ("pick", "p"),
    ("revert", ""),
    ("edit", "e"),
    ("reword", "r"),
    ("fixup", "f"),
    ("squash", "s"),
    ("break", "b"),
    ("label", "l"),
    ("reset", "t"),
    ("merge", "m"),
    ("update-ref", "u"),
    ("noop", "noop"),
    ("drop", "d"),
];

/// Removes the lines of `text` that run a program or that git does not know, unless `before` contains them.
/// Returns the text and the number of removed lines.
pub(super) fn without_programs(text: &[u8], before: Option<&[u8]>) -> (Vec<u8>, usize) {
    let known: Vec<&[u8]> = before.unwrap_or_default().split(|byte| *byte == b'\n').collect();
    let (mut rest, mut gone) = (Vec::with_capacity(text.len()), 0);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let bare = line.strip_suffix(b"\n").unwrap_or(line);
        if is_harmless(bare) || known.contains(&bare) {
            rest.extend_from_slice(line);
        } else {
            gone += 1;
        }
    }
    (rest, gone)
}

fn is_harmless(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    let word = line.split(u8::is_ascii_whitespace).next().unwrap_or_default();
    let is = |name: &str| !name.is_empty() && name.as_bytes() == word;
    word.is_empty()
        || word.starts_with(b"#")
        || HARMLESS_COMMANDS.iter().any(|(long, short)| is(long) || is(short))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_start_programs_go() {
        let text = b"pick 1234 one\nexec make\n\tx touch y\nexec\tz\r\nx\n# exec no\n\nf -C 12\nexecute 3\nlabel onto\np 5";
        let (rest, gone) = without_programs(text, None);
        assert_eq!(String::from_utf8_lossy(&rest), "pick 1234 one\n# exec no\n\nf -C 12\nlabel onto\np 5");
        assert_eq!(gone, 5);
    }

    #[test]
    fn lines_that_were_there_stay() {
        let (rest, gone) = without_programs(b"exec make\nexec evil\n", Some(b"pick 1 x\nexec make\n"));
        assert_eq!((rest.as_slice(), gone), (&b"exec make\n"[..], 1));
    }
}
