//! The text format of Prometheus, version 0.0.4: families of samples, each under its HELP and its TYPE line.

use std::fmt::Write;

/// The type of a family.
#[derive(Debug, Clone, Copy)]
pub(super) enum MetricType {
    /// Can go up and down.
    Gauge,
    /// Goes up, or restarts from zero.
    Counter,
}

/// Builds a page of metrics.
#[derive(Debug, Default)]
pub(super) struct MetricsPage {
    page: String,
    /// The family of the samples that follow.
    family: &'static str,
}

impl MetricsPage {
    /// Begins a family. The name of a counter ends in `_total`.
    pub(super) fn family(&mut self, name: &'static str, kind: MetricType, help: &str) {
        self.family = name;
        let kind = match kind {
            MetricType::Gauge => "gauge",
            MetricType::Counter => "counter",
        };
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = write!(self.page, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// Adds a sample to the family. Label names are fixed; label values can be any text.
    pub(super) fn sample(&mut self, labels: &[(&str, &str)], value: u64) {
        let label = |(name, value): &(&str, &str)| format!("{name}=\"{}\"", escaped(value));
        let labels = labels.iter().map(label).collect::<Vec<_>>().join(",");
        let labels = if labels.is_empty() { labels } else { format!("{{{labels}}}") };
        let _ = writeln!(self.page, "{}{labels} {value}", self.family);
    }

    /// The page.
    pub(super) fn finish(self) -> String {
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
        let mut text = MetricsPage::default();
        text.family("x_total", MetricType::Counter, "a\\b\nc \"d\"");
        text.sample(&[("one", "a\"b\\c\nd"), ("two", "ü")], 7);
        text.sample(&[], 0);
        let page = "# HELP x_total a\\\\b\\nc \"d\"\n# TYPE x_total counter\nx_total{one=\"a\\\"b\\\\c\\nd\",two=\"ü\"} 7\nx_total 0\n";
        assert_eq!(text.finish(), page);
    }
}
