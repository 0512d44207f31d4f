//! Tables for the paper's figures: times against the ideal, distributions, shares of throughput,
//! effects of faults, the cost of order, state per host.

use crate::figures_app::{app_rows, collective_rows};
use crate::figures_away::away_rows;
use crate::figures_copa::{
    dropped_over_host, goodput_over_host, grid, lost_percent, sharing_rows, transport_rows,
};
use crate::figures_goal::{fluid_rows, goal_rows};
use crate::figures_host::{endpoint_rows, kernel_rows};
use crate::figures_load::slowdown_rows;
use crate::figures_mixed::group_rows;
use crate::figures_phase::{congestion_rows, control_rows, phase_rows, torn_rows};
use crate::figures_rival::{count_tables, victim_rows};
use crate::figures_trace::{state_rows, trace_rows};
use crate::limits::limit_rows;
use crate::pauses::{deadlock_rows, pause_rows};
use crate::report::columns;
use crate::result::RunResult;
use crate::spec::FaultSpec;
use crate::stats::Quantiles;
use srd_fabric::{MS, Ps};

/// Quantiles in a table of a distribution.
const CDF_POINTS: [f64; 12] =
    [0.0, 1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 100.0];
/// Retransmission timeout of the paper's hosts; longer times contain at least one timeout.
const TIMEOUT_PS: Ps = 50 * MS;
/// Share of the fault-free run's goodput below which goodput counts as a dip.
const DIP_BELOW: f64 = 31.0 / 32.0;

/// All tables of the results, each with a headline; empty if there are none. `cost`: with memory,
/// which differs from run to run.
pub fn figures(results: &[RunResult], cost: bool) -> String {
    let cases: Vec<&[RunResult]> =
        results.chunk_by(|a, b| a.spec.case == b.spec.case && a.spec.name == b.spec.name).collect();
    let name = results.first().map_or("", |r| r.spec.name.as_str());
    let mut out = String::new();
    let mut add = |title: &str, rows: Vec<Vec<String>>| {
        if rows.len() > 1 {
            out += &format!("\n{title}\n{}", columns(&rows));
        }
    };
    add(
        "congestion: flows on the busiest link of a flow's way; max: of all flows, mean over \
         placements with its standard error, least and most; mean: over flows and placements",
        congestion_rows(&cases),
    );
    add(
        "the whole phase, in units of the largest flow's payload at line rate: means over runs; +- \
         is the standard error of completion, least and most are its extremes",
        phase_rows(&cases),
    );
    add(
        "distributed rates: control packets with answers, and the time from a flow's start to its \
         first rate and to the last change of it (mean and largest of all flows)",
        control_rows(&cases),
    );
    add(
        "circuits over links that failed; what was on a wire or waited for it is lost, and its \
         flow undone",
        torn_rows(&cases),
    );
    app_tables(&cases, &mut add);
    add(
        "slowdown: FCT over (bytes x 1.03 / line rate + 10 us), of flows that start in the \
         measured window; resent/lost: packets sent again per packet that the network or a socket \
         lost",
        slowdown_rows(&cases),
    );
    add(
        "against the fluid optimum: max-min fair rates over all links with ideal spraying, all \
         headers and a base round trip included; flows: each over its own time in it",
        fluid_rows(&cases),
    );
    add(
        "goals; what is not met says by how much; the worst of all seeds, of medians their median",
        goal_rows(&cases),
    );
    add(
        "hosts as models of real ones: packets per receive call and per segmented send, those that \
         a socket had no room for, time stolen from turns, longest wait in a socket, share of the \
         time that the busiest process was in its turns",
        kernel_rows(&cases),
    );
    add(
        "against the ideal (payload alone over the slower end, shared equally); last hop: largest \
         backlog before a receiver",
        ideal_rows(&cases),
    );
    add(
        "hosts with a ring between card and memory: packets dropped at switches and at endpoints; \
         idle: of what a host could write between its first packet and its last",
        endpoint_rows(&cases),
    );
    add(
        "limits of flows at their sender's card: flows of the card that has most; on the wire: \
         mean rate of the only flow, with headers; expected: flows x limit, or the line; waits for \
         tokens",
        limit_rows(&cases),
    );
    rival_tables(&cases, &mut add);
    add(
        "COPA's transport: data packets sent; of these lost at endpoints and at switches, refused \
         because they came early, sent again; duplicates; drops and goodput over what hosts could \
         have written",
        transport_rows(&cases),
    );
    add(
        "data packets lost at endpoints, % of sent",
        grid(&cases, |c| format!("{:.2}", lost_percent(c))),
    );
    add("dropped over host bandwidth, %", grid(&cases, |c| format!("{:.2}", dropped_over_host(c))));
    add("goodput over host bandwidth", grid(&cases, |c| format!("{:.4}", goodput_over_host(c))));
    add(
        "flows of several hosts; healthy: least of those to hosts that are not slow, against the \
         same run without slow ones",
        sharing_rows(&cases),
    );
    if name == "fig3" {
        add("distribution: at most this many us", cdf_rows(&cases));
    }
    add("throughput of single flows, Gb/s", share_rows(&cases));
    add("after the fault, against the same run without it", dip_rows(&cases));
    add("order: what packets would wait for earlier ones of their flow", order_rows(&cases));
    trace_tables(&cases, name, cost, &mut add);
    out
}

/// Tables of parallel programs.
fn app_tables(cases: &[&[RunResult]], add: &mut impl FnMut(&str, Vec<Vec<String>>)) {
    add(
        "parallel programs: length of a step, from the end of the one before to the end of its \
         last rank; waiting: share of the processors' time; efficiency: T1 / (N T_N), speedup: T1 \
         / T_N; within 10 points of a published figure is consistent",
        app_rows(cases),
    );
    add(
        "collective operations: time of one, and bus bandwidth: 2 (N - 1) / N of the buffer \
         (allreduce) or (N - 1) / N (all-to-all) over the time",
        collective_rows(cases),
    );
}

/// Tables of what the network saw of packets, and of the state of hosts.
fn trace_tables(
    cases: &[&[RunResult]],
    name: &str,
    cost: bool,
    add: &mut impl FnMut(&str, Vec<Vec<String>>),
) {
    add(
        "what the network saw of data packets: early: before an earlier one of their flow; wait of \
         early packets until all earlier ones have arrived (any: the receiver hands them on at \
         once); paths of an only flow; repair: from a loss until the lost part has arrived; under \
         way: from the sender's card to the receiver; queue: largest backlog before a receiver",
        trace_rows(cases),
    );
    if name == "scale" || name == "table" {
        add(
            "state of the host that has most, counted at the end of the run; bytes: of contexts or \
             ends of connections in this implementation, with their queues",
            state_rows(cases, cost),
        );
    }
}

/// Tables of lossless Ethernet and of the rivals.
fn rival_tables(cases: &[&[RunResult]], add: &mut impl FnMut(&str, Vec<Vec<String>>)) {
    add(
        "pauses of links (priority flow control), first seed: share of the time of all links of a \
         tier, and of the link paused longest; held: of one input",
        pause_rows(cases),
    );
    for rows in count_tables(cases) {
        add("counters of the rival's hosts, all seeds", rows);
    }
    add(
        "flows beside an incast, each over its own floor, which is its time alone",
        victim_rows(cases),
    );
    add("runs that a deadlock ended", deadlock_rows(cases));
    add(
        "hosts whose processors are away: times over the floor until the transport is done and \
         until the application sees it, time of a whole round, timeouts, and packets sent again \
         although they had arrived",
        away_rows(cases),
    );
    add(
        "groups of flows in one network: times over their own floors, which know no other group, \
         and rates of payload after the first tenth of the run, all seeds",
        group_rows(cases),
    );
}

pub(crate) fn head(cells: &[&str]) -> Vec<Vec<String>> {
    vec![cells.iter().map(|c| (*c).to_string()).collect()]
}

pub(crate) fn name_of(case: &[RunResult]) -> String {
    let spec = &case[0].spec;
    if spec.case.is_empty() { spec.name.clone() } else { spec.case.clone() }
}

/// Completion times of a case, each with the ideal of its flow.
fn times(case: &[RunResult]) -> impl Iterator<Item = (Ps, Ps)> {
    case.iter().flat_map(|r| {
        let pairs = r.fct_ps.iter().flat_map(|round| round.iter().zip(&r.ideal_ps));
        pairs.filter_map(|(fct, ideal)| Some(((*fct)?, *ideal)))
    })
}

fn ideal_rows(cases: &[&[RunResult]]) -> Vec<Vec<String>> {
    let mut rows = head(&[
        "case",
        "ideal us",
        "med/ideal",
        "mean/ideal",
        "p99/ideal",
        "max/ideal",
        "over 3x %",
        "over 50 ms %",
        "unfinished",
        "timeouts",
        "tail probes",
        "drops",
        "last hop KB",
    ]);
    let timed = |c: &&&[RunResult]| !c[0].spec.workload.endless && !c[0].fct_ps.is_empty();
    for case in cases.iter().filter(timed) {
        let ratios: Vec<f64> = times(case).map(|(fct, ideal)| fct as f64 / ideal as f64).collect();
        let n = ratios.len().max(1) as f64;
        let over = ratios.iter().filter(|r| **r > 3.0).count() as f64;
        let late = times(case).filter(|(fct, _)| *fct > TIMEOUT_PS).count() as f64;
        let q = Quantiles::of(ratios);
        let sum = |f: &dyn Fn(&RunResult) -> u64| case.iter().map(f).sum::<u64>().to_string();
        let ideal = case[0].ideal_ps.iter().max().copied().unwrap_or(0);
        rows.push(vec![
            name_of(case),
            format!("{:.1}", ideal as f64 / 1e6),
            format!("{:.3}", q.median),
            format!("{:.3}", q.mean),
            format!("{:.3}", q.p99),
            format!("{:.3}", q.max),
            format!("{:.1}", 100.0 * over / n),
            format!("{:.1}", 100.0 * late / n),
            sum(&|r| r.unfinished() as u64),
            sum(&|r| r.tally.timeouts),
            sum(&|r| r.tally.tail_probes),
            sum(&|r| r.drops.total()),
            case.iter().map(|r| r.last_hop_bytes_max / 1000).max().unwrap_or(0).to_string(),
        ]);
    }
    rows
}

fn cdf_rows(cases: &[&[RunResult]]) -> Vec<Vec<String>> {
    let mut rows = vec![vec!["of all flows".to_string()]];
    let mut sorted = Vec::new();
    for case in cases {
        rows[0].push(name_of(case));
        let mut fcts: Vec<Ps> = times(case).map(|(fct, _)| fct).collect();
        fcts.sort_unstable();
        sorted.push(fcts);
    }
    for point in CDF_POINTS {
        let mut row = vec![format!("{point} %")];
        for fcts in &sorted {
            let at = ((fcts.len() as f64 * point / 100.0).ceil() as usize).clamp(1, fcts.len());
            row.push(format!("{:.0}", fcts[at - 1] as f64 / 1e6));
        }
        rows.push(row);
    }
    rows
}

/// Jain's index: 1 = all equal, 1/n = one has everything.
pub(crate) fn jain(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|v| v * v).sum();
    if squares == 0.0 { 1.0 } else { sum * sum / (values.len() as f64 * squares) }
}

/// Throughput of each flow in Gb/s, `[interval][flow]`, for complete intervals after the first.
fn intervals(r: &RunResult) -> Vec<Vec<f64>> {
    let len = r.flow_goodput.iter().map(Vec::len).max().unwrap_or(0);
    let ns = r.spec.measure.goodput_us as f64 * 1e3;
    let at = |f: &Vec<u64>, i: usize| f.get(i).copied().unwrap_or(0) as f64 * 8.0 / ns;
    (1..len.saturating_sub(1)).map(|i| r.flow_goodput.iter().map(|f| at(f, i)).collect()).collect()
}

fn share_rows(cases: &[&[RunResult]]) -> Vec<Vec<String>> {
    let mut rows = head(&[
        "case",
        "intervals",
        "all flows",
        "fair share",
        "least interval",
        "most",
        "slowest flow's mean",
        "fastest flow's",
        "Jain least",
        "median",
        "of means",
    ]);
    for case in cases.iter().filter(|c| c[0].spec.workload.endless && c[0].spec.measure.flows) {
        let grid = intervals(&case[0]);
        let (Some(first), n) = (grid.first(), grid.len()) else { continue };
        let flows = first.len();
        let mean = |f: usize| grid.iter().map(|row| row[f]).sum::<f64>() / n as f64;
        let means = Quantiles::of((0..flows).map(mean).collect());
        let all = Quantiles::of(grid.iter().flatten().copied().collect());
        let fair = Quantiles::of(grid.iter().map(|row| jain(row)).collect());
        let total = means.mean * flows as f64;
        let mut row = vec![name_of(case), n.to_string(), format!("{total:.1}")];
        let cells = [total / flows as f64, all.min, all.max, means.min, means.max];
        row.extend(cells.map(|v| format!("{v:.3}")));
        let of_means = jain(&(0..flows).map(mean).collect::<Vec<_>>());
        row.extend([fair.min, fair.median, of_means].map(|v| format!("{v:.4}")));
        rows.push(row);
    }
    rows
}

/// Time of the first fault after the start, in us.
fn fault_us(r: &RunResult) -> Option<u64> {
    r.spec.fault.iter().map(FaultSpec::at_us).filter(|at| *at > 0).min()
}

fn dip_rows(cases: &[&[RunResult]]) -> Vec<Vec<String>> {
    let mut rows = head(&[
        "case",
        "least goodput %",
        "us below 97 %",
        "bytes missing KB",
        "worst FCT us",
        "without fault",
        "more us",
        "more base RTTs",
    ]);
    for case in cases {
        let r = &case[0];
        let Some(at) = fault_us(r).filter(|_| r.spec.measure.goodput_us > 0) else { continue };
        // The labels agree except for the fault's.
        let same = |c: &&&[RunResult]| {
            let (a, b) = (&c[0].spec, &r.spec);
            a.fault.is_empty()
                && a.labels.len() == b.labels.len()
                && a.labels.iter().zip(&b.labels).filter(|(a, b)| a != b).count() == 1
                && a.transport == b.transport
                && a.tcp.rehash_on_rto == b.tcp.rehash_on_rto
        };
        let Some(well) = cases.iter().find(same).map(|c| &c[0]) else { continue };
        rows.push(dip_row(r, well, at));
    }
    rows
}

fn dip_row(r: &RunResult, well: &RunResult, at_us: u64) -> Vec<String> {
    let width = r.spec.measure.goodput_us;
    let worst = |r: &RunResult| r.fct_ps.iter().flatten().flatten().max().copied().unwrap_or(0);
    let first = (at_us / width) as usize;
    // Only the first nine tenths of the fault-free run, whose flows end at different times.
    let end = (well.end_ps / 1_000_000 * 9 / 10 / width) as usize;
    let share = |i: usize| {
        let now = r.goodput.get(i).copied().unwrap_or(0) as f64;
        now / well.goodput.get(i).copied().unwrap_or(0).max(1) as f64
    };
    let shares: Vec<f64> = (first..end.max(first)).map(share).collect();
    let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
    let below = shares.iter().filter(|s| **s < DIP_BELOW).count() as u64 * width;
    let sum = |r: &RunResult| r.goodput.iter().take(end).skip(first).sum::<u64>();
    let missing = sum(well).saturating_sub(sum(r)) / 1000;
    let more = worst(r).saturating_sub(worst(well));
    // Consecutive rounds of the two runs drift apart, so bytes per interval cannot be compared.
    let rounds = r.spec.workload.rounds > 1;
    let cell = |text: String| if rounds { "-".to_string() } else { text };
    vec![
        r.spec.case.clone(),
        cell(format!("{:.1}", 100.0 * least)),
        cell(below.to_string()),
        cell(missing.to_string()),
        format!("{:.1}", worst(r) as f64 / 1e6),
        format!("{:.1}", worst(well) as f64 / 1e6),
        format!("{:.1}", more as f64 / 1e6),
        format!("{:.1}", more as f64 / r.base_rtt_ps.max(1) as f64),
    ]
}

fn order_rows(cases: &[&[RunResult]]) -> Vec<Vec<String>> {
    let mut rows = head(&[
        "case",
        "packets",
        "early %",
        "mean wait us",
        "p99 us",
        "max us",
        "held back KB",
        "dropped early",
    ]);
    for case in cases {
        let Some(o) = &case[0].order else { continue };
        rows.push(vec![
            name_of(case),
            o.packets.to_string(),
            format!("{:.2}", 100.0 * o.early as f64 / o.packets.max(1) as f64),
            format!("{:.2}", o.wait_us_mean),
            format!("{:.2}", o.wait_us_p99),
            format!("{:.2}", o.wait_us_max),
            (o.held_bytes_max / 1000).to_string(),
            o.dropped.to_string(),
        ]);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_of_known_shares() {
        assert_eq!(jain(&[2.0; 7]), 1.0);
        assert_eq!(jain(&[1.0, 0.0, 0.0, 0.0]), 0.25);
        assert_eq!(jain(&[]), 1.0);
        assert!((jain(&[1.0, 3.0]) - 0.8).abs() < 1e-12);
    }
}
