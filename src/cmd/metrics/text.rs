//! The text format of Prometheus, version 0.0.4: families of samples, each under its HELP and its TYPE line.

use std::fmt::Write;

/// What a family is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Type {
    /// It goes up and down.
    Gauge,
    /// It goes up, or begins anew.
    Counter,
}

/// A page in the making.
#[derive(Debug, Default)]
pub(super) struct Text {
    page: String,
    /// The family of the samples that come.
    family: &'static str,
}

impl Text {
    /// Begins a family. The name of a counter ends in `_total`.
    pub(super) fn family(&mut self, name: &'static str, kind: Type, help: &str) {
        self.family = name;
        let kind = match kind {
            Type::Gauge => "gauge",
            Type::Counter => "counter",
        };
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = write!(self.page, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// A sample of the family; the names of labels are fixed, their values can be any text.
    pub(super) fn sample(&mut self, labels: &[(&str, &str)], value: u64) {
        let label = |(name, value): &(&str, &str)| format!("{name}=\"{}\"", escaped(value));
        let labels = labels.iter().map(label).collect::<Vec<_>>().join(",");
        let labels = if labels.is_empty() { labels } else { format!("{{{labels}}}") };
        let _ = writeln!(self.page, "{}{labels} {value}", self.family);
    }

    /// The page.
    pub(super) fn done(self) -> String {
        self.page
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_break_a_line_is_escaped() {
        let mut text = Text::default();
        text.family("x_total", Type::Counter, "a\\b\nc \"d\"");
        text.sample(&[("one", "a\"b\\c\nd"), ("two", "ü")], 7);
        text.sample(&[], 0);
        let page = "# HELP x_total a\\\\b\\nc \"d\"\n# TYPE x_total counter\nx_total{one=\"a\\\"b\\\\c\\nd\",two=\"ü\"} 7\nx_total 0\n";
        assert_eq!(text.done(), page);
    }
}
