//! Lines of the Prometheus text format: heads, samples, escapes.
//!
//! Called by: [`super::text`].
//! Invariant: a family without samples writes nothing, not even its head.

use std::fmt::Write as _;

use super::Histogram;

/// The labels of a sample.
type Labels<'a> = &'a [(&'a str, &'a str)];

/// The lines so far.
#[derive(Default)]
pub(super) struct Lines(String);

impl Lines {
    /// All of it.
    pub(super) fn into_string(self) -> String {
        self.0
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// The head of a gauge.
    pub(super) fn gauge(&mut self, name: &str, help: &str) {
        self.head(name, "gauge", help);
    }

    /// One sample.
    pub(super) fn sample(&mut self, name: &str, labels: Labels<'_>, value: f64) {
        self.0.push_str(name);
        for (at, (label, value)) in labels.iter().enumerate() {
            self.0.push(if at == 0 { '{' } else { ',' });
            let _ = write!(self.0, "{label}=\"");
            escape(&mut self.0, value);
            self.0.push('"');
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{close} {}", Number(value));
    }

    /// A gauge with one sample, if there is a value.
    pub(super) fn one_gauge(&mut self, name: &str, help: &str, value: Option<f64>) {
        if let Some(value) = value {
            self.gauge(name, help);
            self.sample(name, &[], value);
        }
    }

    /// A counter with one sample, if there is a value.
    pub(super) fn one_counter(&mut self, name: &str, help: &str, value: Option<u64>) {
        if let Some(value) = value {
            self.head(name, "counter", help);
            self.sample(name, &[], value as f64);
        }
    }

    /// A family with a sample a row; nothing if there are none.
    pub(super) fn rows(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        rows: impl Iterator<Item = (Vec<(&'static str, String)>, f64)>,
    ) {
        let mut rows = rows.peekable();
        if rows.peek().is_some() {
            self.head(name, kind, help);
        }
        for (labels, value) in rows {
            let labels: Vec<(&str, &str)> =
                labels.iter().map(|(label, value)| (*label, value.as_str())).collect();
            self.sample(name, &labels, value);
        }
    }

    /// A histogram, if there is one.
    pub(super) fn histogram(&mut self, name: &str, help: &str, histogram: Option<&Histogram>) {
        let Some(histogram) = histogram else { return };
        self.head(name, "histogram", help);
        let bucket = format!("{name}_bucket");
        for (bound, count) in histogram.cumulative() {
            self.sample(&bucket, &[("le", &bound.to_string())], count as f64);
        }
        let count = histogram.count() as f64;
        self.sample(&bucket, &[("le", "+Inf")], count);
        self.sample(&format!("{name}_sum"), &[], histogram.sum());
        self.sample(&format!("{name}_count"), &[], count);
    }
}

/// A label's value may hold any text but these three characters.
fn escape(out: &mut String, value: &str) {
    for character in value.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            other => out.push(other),
        }
    }
}

/// A number as Prometheus writes it.
struct Number(f64);

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            nan if nan.is_nan() => f.write_str("NaN"),
            f64::INFINITY => f.write_str("+Inf"),
            f64::NEG_INFINITY => f.write_str("-Inf"),
            value => write!(f, "{value}"),
        }
    }
}
