//! Formatting of tables.

/// Formats lines with aligned columns.
pub(super) fn aligned<const CELLS: usize>(lines: impl Iterator<Item = [String; CELLS]>) -> String {
    let lines: Vec<[String; CELLS]> =
        lines.map(|cells| cells.map(|cell| crate::text::one_line(&cell).into_owned())).collect();
    let widths: Vec<usize> =
        (0..CELLS).map(|at| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for line in &lines {
        let padded = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        text.push_str(padded.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// The cell of an unknown value.
pub(super) fn dash() -> String {
    "-".to_owned()
}

/// Formats a size with three or four digits, in powers of 1024.
pub(super) fn bytes(count: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.iter().find(|(unit, _)| count >= *unit) {
        None => format!("{count}B"),
        Some((unit, name)) if count / unit < 10 => {
            format!("{}.{}{name}", count / unit, count % unit * 10 / unit)
        }
        Some((unit, name)) => format!("{}{name}", count / unit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_few_digits() {
        let shown = [0, 1023, 1024, 1536, 10 << 20, 2047 << 20].map(bytes);
        assert_eq!(shown, ["0B", "1023B", "1.0KiB", "1.5KiB", "10MiB", "1.9GiB"]);
    }
}
