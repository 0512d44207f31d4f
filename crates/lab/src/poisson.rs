//! Open-loop arrivals: flows start at random times, independently of the ends of earlier ones, and
//! their completion times are reported as slowdown.

use crate::cdf::SizeCdf;
use crate::floor::Ways;
use crate::spec::PoissonSpec;
use crate::spec::poisson::FLOWS_MAX;
use crate::stats::Quantiles;
use crate::workload::{Flow, Flows};
use srd_fabric::{HostId, Ps, Rng, SEC, Topology, US};
use std::path::Path;

/// Stream kind of each sender's arrivals, sizes and receivers.
const STREAM_ARRIVALS: u64 = 0x9015;
/// Overhead of headers in the ideal time to which slowdown refers.
const HEADERS: f64 = 1.03;
/// Round trip of the ideal time. With [`HEADERS`] it is the ideal of published tables of such
/// workloads.
const RTT_PS: f64 = 10.0 * US as f64;
/// Size classes: each holds flows shorter than its bound and not in an earlier class.
pub const CLASSES: [(&str, u64); 4] =
    [("< 10 KB", 10_000), ("10-100 KB", 100_000), ("100 KB-1 MB", 1_000_000), ("> 1 MB", u64::MAX)];

/// Results of the measured flows of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OpenLoop {
    /// Size and slowdown of each measured flow that ended.
    pub slowdowns: Vec<(u64, f64)>,
    /// The same of the fluid optimum, in which flows share links fairly without queues; empty
    /// without `measure.fluid`.
    pub fluid: Vec<(u64, f64)>,
    /// Number of measured flows that did not end in time.
    pub undone: usize,
    /// Payload of flows that start in the window, as a share of the capacity of hosts' links.
    pub offered: f64,
}

/// Slowdowns of all sizes, then by [`CLASSES`], of (size, slowdown) pairs.
pub fn by_class(slowdowns: &[(u64, f64)]) -> Vec<(&'static str, usize, Quantiles)> {
    let of = |name, from: u64, to: u64| {
        let held = |(bytes, _): &&(u64, f64)| *bytes >= from && (*bytes < to || to == u64::MAX);
        let all: Vec<f64> = slowdowns.iter().filter(held).map(|(_, s)| *s).collect();
        (name, all.len(), Quantiles::of(all))
    };
    let mut out = vec![of("all", 0, u64::MAX)];
    let mut from = 0;
    for (name, to) in CLASSES {
        out.push(of(name, from, to));
        from = to;
    }
    out
}

/// Flow completion time over the ideal time of the flow alone.
pub fn slowdown(fct_ps: Ps, bytes: u64, line_bits_per_s: u64) -> f64 {
    let wire_ps = bytes as f64 * HEADERS * 8.0 * SEC as f64 / line_bits_per_s as f64;
    fct_ps as f64 / (wire_ps + RTT_PS)
}

/// The flows of a spec, which follow from the seed and the network's host links alone.
///
/// # Errors
/// The text names the field that does not suit.
pub fn flows(
    spec: &PoissonSpec,
    topo: &Topology,
    folder: &Path,
    seed: u64,
) -> Result<Flows, String> {
    spec.check()?;
    let cdf = SizeCdf::load(&spec.sizes, folder)
        .map_err(|e| format!("workload.poisson.sizes = \"{}\": {e}", spec.sizes))?;
    let hosts = hosts_of(spec, topo)?;
    let end = (2 * spec.warmup_us + spec.window_us) * US;
    let ways = Ways::new(topo);
    let mut out = Vec::new();
    let every = |bits: u64| cdf.bytes_mean() * 8.0 * SEC as f64 / (bits as f64 * spec.load);
    let expected: f64 = hosts
        .iter()
        .map(|h| end as f64 / every(topo.port(ways.uplink(HostId(*h))).bits_per_s))
        .sum();
    if expected > FLOWS_MAX {
        return Err(format!(
            "workload.poisson: some {expected:.0} flows are more than {FLOWS_MAX:.0}: give a \
             shorter window_us or larger sizes"
        ));
    }
    for (i, src) in hosts.iter().enumerate() {
        let mut rng = Rng::stream(seed, STREAM_ARRIVALS, i as u64);
        let every_ps = every(topo.port(ways.uplink(HostId(*src))).bits_per_s);
        let mut at = 0.0;
        loop {
            at += -ln(1.0 - rng.unit()) * every_ps;
            if at >= end as f64 {
                break;
            }
            let bytes = cdf.bytes_at(rng.unit());
            let other = rng.below(hosts.len() as u64 - 1) as usize;
            let dst = hosts[if other < i { other } else { other + 1 }];
            out.push(flow_of(*src, dst, bytes, at as Ps));
        }
    }
    out.sort_by_key(|f| (f.start_ps, f.src.0));
    if !out.iter().any(|f| f.start_ps.is_some_and(|at| spec.measures(at))) {
        return Err(format!(
            "workload.poisson: no flow starts in the measured window, which holds {:.2} on \
             average: give a longer window_us",
            expected * (spec.window_us * US) as f64 / end as f64
        ));
    }
    Ok(Flows { flows: out, ..Flows::default() })
}

const fn flow_of(src: u32, dst: u32, bytes: u64, at: Ps) -> Flow {
    Flow {
        src: HostId(src),
        dst: HostId(dst),
        bytes,
        start_ps: Some(at),
        on_sent: None,
        on_received: None,
    }
}

/// The hosts that take part.
fn hosts_of(spec: &PoissonSpec, topo: &Topology) -> Result<Vec<u32>, String> {
    let all = topo.hosts();
    let n = spec.hosts.unwrap_or(all);
    if n > all || n < 2 {
        return Err(format!(
            "workload.poisson.hosts = {n}: the network has {all}; give 2 to {all}, or leave it out"
        ));
    }
    let place = |i: u32| (u64::from(i) * u64::from(all) / u64::from(n)) as u32;
    Ok((0..n).map(place).collect())
}

/// Results of the measured flows.
pub fn outcome(
    spec: &PoissonSpec,
    topo: &Topology,
    flows: &[Flow],
    fct_ps: &[Option<Ps>],
    fluid_ps: Option<&[Ps]>,
) -> OpenLoop {
    let ways = Ways::new(topo);
    let line = |h: HostId| topo.port(ways.uplink(h)).bits_per_s;
    let mut out = OpenLoop::default();
    let mut bytes = 0.0;
    for (i, (f, fct)) in flows.iter().zip(fct_ps).enumerate() {
        if !f.start_ps.is_some_and(|at| spec.measures(at)) {
            continue;
        }
        bytes += f.bytes as f64;
        let slower = line(f.src).min(line(f.dst));
        if let Some(best) = fluid_ps {
            out.fluid.push((f.bytes, slowdown(best[i], f.bytes, slower)));
        }
        match fct {
            Some(fct) => {
                out.slowdowns.push((f.bytes, slowdown(*fct, f.bytes, slower)));
            }
            None => out.undone += 1,
        }
    }
    let hosts = hosts_of(spec, topo).unwrap_or_default();
    let bits: f64 = hosts.iter().map(|h| line(HostId(*h)) as f64).sum();
    out.offered = bytes * 8.0 / (bits * spec.window_us as f64 / 1e6);
    out
}

/// Natural logarithm for 0 < x <= 1, by additions and multiplications alone. Unlike a library's,
/// its results are the same on every machine.
fn ln(x: f64) -> f64 {
    // x = m * 2^e with m from 1 to 2; ln m = 2 artanh((m - 1) / (m + 1)), whose argument is below
    // 1/3, so 20 terms give full precision.
    let bits = x.to_bits();
    let e = (bits >> 52) as i32 - 1023;
    let m = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    let y = (m - 1.0) / (m + 1.0);
    let (mut sum, mut power) = (0.0, y);
    for k in 0..20 {
        sum += power / f64::from(2 * k + 1);
        power *= y * y;
    }
    2.0 * sum + f64::from(e) * std::f64::consts::LN_2
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_fabric::{FatTree, Port};

    fn topo() -> Topology {
        let port = Port::new(100_000_000_000, US);
        FatTree::k_ary(4, port, port.buffer(680_000)).build()
    }

    fn spec(load: f64) -> PoissonSpec {
        PoissonSpec {
            sizes: "web-search".into(),
            load,
            hosts: None,
            warmup_us: 1_000,
            window_us: 50_000,
        }
    }

    #[test]
    fn the_logarithm_is_the_librarys() {
        let mut rng = Rng::new(5);
        for _ in 0..10_000 {
            let x = 1.0 - rng.unit();
            assert!((ln(x) - x.ln()).abs() <= 1e-15 * (1.0 + x.ln().abs()), "{x}");
        }
        assert_eq!(ln(1.0), 0.0);
    }

    #[test]
    fn arrivals_bring_the_load_and_follow_from_the_seed() {
        let (topo, spec) = (topo(), spec(0.6));
        let of = |seed| flows(&spec, &topo, Path::new("."), seed).unwrap().flows;
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        let mut mean = 0.0;
        for seed in 1..=10 {
            let flows = of(seed);
            assert!(flows.iter().all(|f| f.src != f.dst), "seed {seed}");
            assert!(flows.is_sorted_by_key(|f| f.start_ps), "seed {seed}");
            let done = vec![None; flows.len()];
            mean += outcome(&spec, &topo, &flows, &done, None).offered / 10.0;
        }
        // 16 hosts, 52 ms, 10 seeds: some 35,000 flows. The standard deviation of sizes is twice
        // the mean, so 2 % are two standard errors.
        assert!((0.57..0.63).contains(&mean), "{mean}");
    }

    #[test]
    fn a_lone_flow_at_line_rate_has_slowdown_one() {
        assert_eq!(slowdown(10 * US, 0, 1), 1.0);
        // 1.03 MB at 100 Gb/s take 82.4 us.
        assert_eq!(slowdown(92_400_000, 1_000_000, 100_000_000_000), 1.0);
    }

    #[test]
    fn classes_have_their_bounds_below_them() {
        let sizes = [9_999, 10_000, 99_999, 100_000, 999_999, 1_000_000, u64::MAX];
        let run = OpenLoop {
            slowdowns: sizes.iter().map(|b| (*b, *b as f64)).collect(),
            ..OpenLoop::default()
        };
        let counts: Vec<_> = by_class(&[run.slowdowns.clone(), run.slowdowns].concat())
            .iter()
            .map(|(_, n, _)| *n)
            .collect();
        assert_eq!(counts, [14, 2, 4, 4, 4]);
    }

    #[test]
    fn what_does_not_fit_the_network_is_refused_by_name() {
        let topo = topo();
        let fails = |change: &dyn Fn(&mut PoissonSpec)| {
            let mut spec = spec(0.5);
            change(&mut spec);
            let got = flows(&spec, &topo, Path::new("."), 1).map(|f| f.flows.len());
            got.unwrap_err()
        };
        let e = fails(&|s| s.hosts = Some(17));
        assert!(e.contains("workload.poisson.hosts = 17: the network has 16"), "{e}");
        let e = fails(&|s| s.sizes = "nothing.cdf".into());
        assert!(e.contains("workload.poisson.sizes = \"nothing.cdf\""), "{e}");
        let e = fails(&|s| (s.window_us, s.load) = (10_000_000, 1.0));
        assert!(e.contains("shorter window_us"), "{e}");
        let e = fails(&|s| (s.window_us, s.load) = (1, 1e-9));
        assert!(e.contains("longer window_us"), "{e}");
    }
}
