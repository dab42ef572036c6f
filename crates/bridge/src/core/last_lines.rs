//! What a program wrote last, for the error that says how it ended.

use std::collections::VecDeque;
use std::fmt;

/// Maximum number of lines, and of characters of each.
const MAX_LINES: usize = 5;
const MAX_CHARS: usize = 200;

/// The last lines that are not blank.
#[derive(Debug, Default)]
pub struct LastLines(VecDeque<String>);

impl LastLines {
    /// Adds a line. Control characters become spaces, and the rest of a long line is dropped.
    pub fn push(&mut self, line: &str) {
        if line.trim().is_empty() {
            return;
        }
        if self.0.len() == MAX_LINES {
            self.0.pop_front();
        }
        let plain = |c: char| if c.is_control() { ' ' } else { c };
        self.0.push_back(line.trim_end().chars().map(plain).take(MAX_CHARS).collect());
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// As one line.
impl fmt::Display for LastLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("it wrote nothing");
        }
        f.write_str("its last lines: ")?;
        for (index, line) in self.0.iter().enumerate() {
            write!(f, "{}{line}", if index == 0 { "" } else { " | " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_one_line() {
        let mut lines = LastLines::default();
        assert_eq!(lines.to_string(), "it wrote nothing");
        let long = "x".repeat(1000);
        ["first", "", " ", "two\r", "three", "\x1b[31mfour", "five", &long]
            .iter()
            .for_each(|line| lines.push(line));
        let text = lines.to_string();
        assert!(text.starts_with("its last lines: two | three |  [31mfour | five | xxx"), "{text}");
        assert!(text.len() < 400 && !text.contains('\n'), "{text}");
    }
}
