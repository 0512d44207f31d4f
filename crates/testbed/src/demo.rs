//! The demonstration: SRD and TCP transfers side by side while a spine fails.

use crate::{
    bench::{
        FlowSpec, Outcome,
        block::{BUCKET_NS, now_ns},
        contender::{Contender, Load, Side},
        table::{self, Busy},
    },
    error::{NetError, Result},
    fabric::Fabric,
    fault::{self, Fault, Place},
    ns::privileges_take,
    say,
    spec::{FabricSpec, Node},
};
use clap::Args;
use std::{thread, time::Duration};

/// Flows per contender.
const FLOWS: u64 = 8;
/// Time at which the spine fails.
const DIES: Duration = Duration::from_millis(1000);
/// Buckets per column of the plot: 50 ms.
const COLUMN_BUCKETS: usize = 5;
/// Shortest failure, a column of the plot, and longest one.
const DEAD_LEAST: Duration = Duration::from_nanos(BUCKET_NS * COLUMN_BUCKETS as u64);
const DEAD_MOST: Duration = Duration::from_secs(10);
/// Height of the plot in lines.
const LINES: usize = 4;

/// Options of `demo`.
#[derive(Clone, Debug, Args)]
pub struct DemoArgs {
    /// Duration of the spine's failure
    #[arg(long = "for", value_name = "TIME", default_value = "1.5s",
          value_parser = crate::units::duration)]
    pub dead: Duration,
    /// Contenders, each on separate hosts (names as in `bench`)
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "srd,cubic")]
    pub with: Vec<String>,
    /// Seed of the ECMP hashes
    #[arg(long, default_value_t = 1)]
    pub seed: u32,
}

impl DemoArgs {
    /// Refuses a failure that the plot cannot show.
    ///
    /// # Errors
    /// It is too short or too long.
    pub fn validate(&self) -> Result {
        if self.dead < DEAD_LEAST || self.dead > DEAD_MOST {
            return Err(NetError::usage("--for must be from 50ms (a column of the plot) to 10s"));
        }
        Ok(())
    }
}

/// Runs the demonstration.
///
/// # Errors
/// The fabric cannot be built, or a transfer fails.
pub fn run(args: &DemoArgs) -> Result {
    args.validate()?;
    let list: Vec<Contender> =
        args.with.iter().map(|n| Contender::parse(n)).collect::<Result<_>>()?;
    privileges_take()?;
    let hosts = u8::try_from(list.len()).map_err(|_| NetError::usage("too many names"))?;
    let spec = FabricSpec { hosts, seed: args.seed, extra: 7, ..FabricSpec::default() };
    let (fabric, notes) = Fabric::build(&spec)?;
    for n in notes {
        crate::note(&format!("srd net: note: {n}"));
    }
    for contender in &list {
        contender
            .probe(&fabric)
            .map_err(|e| NetError::new(format!("{} cannot take part: {e}", contender.name())))?;
    }
    say(&format!("{} network namespaces: {}", spec.nodes().len(), spec.describe()))?;
    let mut sides = Vec::new();
    for (h, contender) in (0u8..).zip(&list) {
        let flows = vec![FlowSpec { from: (0, h), to: (1, h) }; FLOWS as usize];
        sides.push(contender.start(&fabric, &flows)?);
    }
    let busy = Busy::start();
    let load = Load {
        bytes: 0,
        time: DIES + args.dead + Duration::from_millis(1500),
        bits_per_sec: spec.host_bits_per_sec / (2 * FLOWS),
        block_bytes: 8900,
        limit: Duration::from_secs(20),
    };
    let before = uplinks(&fabric)?;
    let warm = Load { time: Duration::from_millis(300), ..load };
    together(&mut sides, &warm, Side::start_ns())?;
    let loads: Vec<u64> = uplinks(&fabric)?.iter().zip(before).map(|(a, b)| a - b).collect();
    let spine = (0..spec.spines).max_by_key(|s| loads[usize::from(*s)]).unwrap_or(0);
    say(&format!(
        "each moves 100 Mb/s in {FLOWS} flows from leaf 0 to leaf 1; s{spine} drops every \
         packet from {:.1} s to {:.1} s",
        DIES.as_secs_f64(),
        (DIES + args.dead).as_secs_f64()
    ))?;
    let start_ns = Side::start_ns();
    let outcomes = thread::scope(|s| {
        let breaker = s.spawn(|| -> Result {
            thread::sleep(Duration::from_nanos(start_ns.saturating_sub(now_ns())) + DIES);
            fault::fail(&fabric, Place::Spine(spine), Fault::Blackhole)?;
            thread::sleep(args.dead);
            fault::heal(&fabric, Place::Spine(spine), Fault::Blackhole)
        });
        let outcomes = together(&mut sides, &load, start_ns);
        breaker.join().map_err(|_| NetError::new("a thread ended early"))??;
        outcomes
    })?;
    for (contender, out) in list.iter().zip(&outcomes) {
        plot(contender.name(), out, &load, args.dead)?;
    }
    let mut rows = Vec::new();
    for (contender, out) in list.iter().zip(&outcomes) {
        let (from, to) = (DIES.as_millis() as u64, (DIES + args.dead).as_millis() as u64);
        rows.push(vec![
            contender.name().to_owned(),
            format!("{:.0}", out.bits_per_sec(from, to) / 1e6),
            format!("{:.0} ms", out.late_ms()),
            format!("{} of {FLOWS}", slow_flows(out)),
            out.lost.to_string(),
            out.duplicated.to_string(),
        ]);
    }
    say("")?;
    let head =
        ["", "Mb/s while it was down", "latest block", "flows late by 100 ms", "lost", "twice"];
    table::print(&head, &rows)?;
    say(&busy.text())?;
    if outcomes.iter().any(Outcome::is_wrong) {
        return Err(NetError::new("a block was lost, duplicated or damaged, or failed"));
    }
    Ok(())
}

fn slow_flows(out: &Outcome) -> usize {
    out.flows.iter().filter(|f| f.late_ns > 100_000_000).count()
}

fn uplinks(fabric: &Fabric) -> Result<Vec<u64>> {
    let counters = fabric.counters(Node::Leaf(0))?;
    let sent = |s| counters.get(&format!("up{s}")).map_or(0, |c| c.tx_bytes);
    Ok((0..fabric.spec().spines).map(sent).collect())
}

/// Runs all contenders at the same time.
fn together(sides: &mut [Side], load: &Load, start_ns: u64) -> Result<Vec<Outcome>> {
    thread::scope(|s| {
        let running: Vec<_> =
            sides.iter_mut().map(|side| s.spawn(|| side.run(load, start_ns))).collect();
        running
            .into_iter()
            .map(|r| r.join().map_err(|_| NetError::new("a thread ended early"))?)
            .collect()
    })
}

/// Prints throughput over time: one column per 50 ms, in eighths of a line.
fn plot(name: &str, out: &Outcome, load: &Load, dead: Duration) -> Result {
    let column_ns = BUCKET_NS * COLUMN_BUCKETS as u64;
    let columns = (load.time.as_nanos() as u64 / column_ns) as usize;
    let ms = column_ns / 1_000_000;
    let rates: Vec<f64> =
        (0..columns as u64).map(|c| out.bits_per_sec(c * ms, (c + 1) * ms) / 1e6).collect();
    // The offered rate is two thirds of the height, because delayed data arrives faster afterwards.
    let top = load.bits_per_sec as f64 * FLOWS as f64 * 1.5 / 1e6;
    say("")?;
    for line in (0..LINES).rev() {
        let cell = |rate: &f64| {
            let eighths = (rate / top * (LINES * 8) as f64).round() as i64 - line as i64 * 8;
            [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'][eighths.clamp(0, 8) as usize]
        };
        let label = if line == LINES - 1 { name } else { "" };
        let text: String = rates.iter().map(cell).collect();
        say(format!("{label:<14} {text}").trim_end())?;
    }
    let at = |t: Duration| (t.as_nanos() as u64 / column_ns) as usize;
    let axis: String = (0..columns)
        .map(|c| if (at(DIES)..at(DIES + dead)).contains(&c) { '━' } else { '─' })
        .collect();
    say(&format!("{:>11} Mb {axis}", ""))?;
    let label = "spine down";
    say(&format!("{:>14} {:>at$}{label}", "", "", at = at(DIES)))
}
