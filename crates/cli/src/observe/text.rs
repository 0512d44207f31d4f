//! Prometheus' text format, version 0.0.4: what node_exporter's textfile collector and every
//! Prometheus read.

use std::fmt::Write as _;

/// Value of the HTTP header `Content-Type`.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, until whoever counts begins anew.
    Counter,
    /// Any value.
    Gauge,
}

/// A text under way. All samples of a metric stand together, below its head.
#[derive(Debug, Default)]
pub struct Text(String);

/// Labels of a sample.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

impl Text {
    /// Begins a metric.
    pub fn metric(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// A sample of the metric that was begun last.
    pub fn sample(&mut self, name: &str, labels: Labels<'_>, value: f64) {
        self.0.push_str(name);
        for (i, (label, value)) in labels.iter().enumerate() {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let open = if i == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{open}{label}=\"{value}\"");
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{close} {value}");
    }

    /// The whole text.
    pub fn finish(self) -> String {
        self.0
    }
}
