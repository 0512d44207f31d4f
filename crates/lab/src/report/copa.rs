//! The two figures of COPA's slides: drops and goodput over the host's bandwidth, against the size
//! of the ring in bandwidth-delay products.

use super::cases;
use super::charts::{Chart, axis, color, layout, plot};
use crate::figures_copa::{dropped_over_host, goodput_over_host};
use crate::result::RunResult;
use plotly::Scatter;
use plotly::common::{Line, Mode};

/// Two charts for each rate of the host, if several sizes of rings were run.
pub fn figures(results: &[RunResult]) -> Vec<Chart> {
    let all: Vec<&[RunResult]> =
        cases(results).into_iter().filter(|c| c[0].copa().is_some() && one_ring(&c[0])).collect();
    let mut sizes: Vec<u64> = all.iter().map(|c| ring_bytes(&c[0])).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut drains: Vec<f64> = all.iter().filter_map(|c| drain(&c[0])).collect();
    drains.sort_unstable_by(f64::total_cmp);
    drains.dedup();
    if sizes.len() < 2 {
        return Vec::new();
    }
    drains.into_iter().flat_map(|d| figures_of(&all, d)).collect()
}

/// Whether the run has one flow into one ring with a constant drain rate.
fn one_ring(r: &RunResult) -> bool {
    r.flows.len() == 1 && r.rings.len() == 1 && r.spec.fault.is_empty()
}

fn ring_bytes(r: &RunResult) -> u64 {
    r.spec.host.as_ref().map_or(0, |h| h.ring_bytes)
}

fn drain(r: &RunResult) -> Option<f64> {
    r.spec.host.as_ref()?.drain_gbps
}

fn figures_of(all: &[&[RunResult]], gbps: f64) -> [Chart; 2] {
    let mine: Vec<&&[RunResult]> = all.iter().filter(|c| drain(&c[0]) == Some(gbps)).collect();
    let share = gbps / mine[0][0].spec.network.link_gbps;
    let chart = |title: &str, note: &str, y: &str, value: fn(&[RunResult]) -> f64| {
        let mut p = plot(layout(axis("ring, bandwidth-delay products", false), axis(y, false)));
        let mut names: Vec<&str> = mine.iter().map(|c| policy(&c[0])).collect();
        names.dedup();
        for (i, name) in names.into_iter().enumerate() {
            let of = mine.iter().filter(|c| policy(&c[0]) == name);
            let mut points: Vec<(f64, f64)> = of.map(|c| (bdps(&c[0]), value(c))).collect();
            points.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
            let (x, y): (Vec<f64>, Vec<f64>) = points.into_iter().unzip();
            let line = Line::new().color(color(i));
            p.add_trace(Scatter::new(x, y).mode(Mode::LinesMarkers).line(line).name(name));
        }
        Chart {
            title: format!("{title}, host at {:.0} % of its link", 100.0 * share),
            note: note.into(),
            plot: p,
        }
    };
    [
        chart(
            "Drops over host bandwidth",
            "Bytes that did not fit into the ring over those that the host could have written from \
             its first packet to its last byte. Go-back-n shows few: packets refused because an \
             earlier one is missing are not dropped by the ring.",
            "dropped / host, %",
            dropped_over_host,
        ),
        chart(
            "Goodput over host bandwidth",
            "Bytes written, each packet counted once, over those that the host could have written.",
            "goodput / host",
            goodput_over_host,
        ),
    ]
}

/// Size of the ring in bandwidth-delay products (link rate times base round trip).
fn bdps(r: &RunResult) -> f64 {
    let bdp = r.spec.network.link_gbps * r.base_rtt_ps as f64 / 8e3;
    (1e3 * ring_bytes(r) as f64 / bdp).round() / 1e3
}

fn policy(r: &RunResult) -> &str {
    r.spec.labels.first().map_or(&r.spec.case, |l| l)
}
