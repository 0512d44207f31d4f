//! Transfers for minutes to hours under losses, flapping links, black holes, stops and restarts.

use crate::{
    bench::{
        FlowSpec, Outcome,
        contender::{Load, Side},
        protocol::Counted,
        srd_side::{SrdSetup, SrdSide},
        table::Busy,
    },
    error::{NetError, Result},
    fabric::Fabric,
    fault::{self, Fault, Place},
    ns::privileges_take,
    say,
    spec::FabricSpec,
    units,
};
use clap::Args;
use rustix::process::Signal;
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Duration of one run of the steady flows.
const RUN: Duration = Duration::from_secs(5);
/// Number of runs after which memory is compared, because pools and tables fill first. A soak that
/// has no more runs compares none.
const SETTLE_RUNS: u32 = 4;
/// Allowed growth of memory after that, because allocators keep some.
const GROWTH_BYTES: u64 = 2 << 20;

/// Options of `soak`.
#[derive(Clone, Debug, Args)]
pub struct SoakArgs {
    /// Duration of the soak
    #[arg(long = "for", value_name = "TIME", default_value = "30m",
          value_parser = units::duration)]
    pub time: Duration,
    /// Seed of the faults: the same seed gives the same faults in the same order
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Total rate of the steady flows, sent by two hosts
    #[arg(long, value_name = "RATE", default_value = "60M", value_parser = units::rate_bits)]
    pub rate: u64,
}

/// Sums over all runs.
#[derive(Default)]
struct Sum {
    runs: u32,
    blocks: u64,
    lost: u64,
    duplicated: u64,
    damaged: u64,
    failed: u64,
    late_ms: f64,
    faults: u32,
    kills: u32,
    after_restart: u64,
    /// Error of the first failed send.
    why: String,
}

/// Pseudorandom numbers (splitmix64): the seed determines the order of faults.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n
    }
}

/// Runs the soak.
///
/// # Errors
/// A block was lost, duplicated or damaged, or failed, or memory grew.
pub fn run(args: &SoakArgs) -> Result {
    privileges_take()?;
    let spec = FabricSpec { hosts: 3, linkdown_aware: true, ..FabricSpec::default() };
    let (fabric, notes) = Fabric::build(&spec)?;
    for n in notes {
        crate::note(&format!("srd net: note: {n}"));
    }
    say(&format!("fabric: {}", spec.describe()))?;
    // Two pairs of hosts, both directions.
    let ways = [((0, 0), (1, 0)), ((1, 0), (0, 0)), ((0, 1), (1, 1)), ((1, 1), (0, 1))];
    let flows: Vec<FlowSpec> =
        (0..8).map(|i| ways[i % 4]).map(|(from, to)| FlowSpec { from, to }).collect();
    let mut side = SrdSide::start(&fabric, SrdSetup::default(), &flows)?;
    let mut dice = Dice(args.seed);
    let mut sum = Sum::default();
    let mut memory = Vec::new();
    let (began, busy) = (Instant::now(), Busy::start());
    let mut said = Instant::now();
    while sum.runs == 0 || began.elapsed() < args.time {
        let out = one(&fabric, &mut side, args, &mut dice, &mut sum)?;
        sum.take(&out);
        let counted = side.counters()?;
        memory.push(counted.memory_bytes);
        if sum.lost + sum.duplicated + sum.damaged + sum.failed > 0 {
            side.explain();
            return sum.end(&memory, &counted, began.elapsed(), &busy);
        }
        if said.elapsed() > Duration::from_secs(60) {
            said = Instant::now();
            say(&format!(
                "{:>5.0} s: {} blocks, {} faults, {} processes killed, {:.1} MB",
                began.elapsed().as_secs_f64(),
                sum.blocks,
                sum.faults,
                sum.kills,
                counted.memory_bytes as f64 / 1e6
            ))?;
        }
    }
    let counted = side.counters()?;
    sum.end(&memory, &counted, began.elapsed(), &busy)
}

/// One run of the steady flows under faults, beside a process that is killed.
fn one(
    fabric: &Fabric,
    side: &mut SrdSide,
    args: &SoakArgs,
    dice: &mut Dice,
    sum: &mut Sum,
) -> Result<Outcome> {
    let load = Load {
        bytes: 0,
        time: RUN,
        bits_per_sec: args.rate / 8,
        block_bytes: 8900,
        limit: Duration::from_secs(30),
    };
    let faults = plan(dice, fabric.spec().spines);
    let receiver_dies = dice.below(2) == 0;
    let stopped = (dice.below(3) == 0).then(|| side.pid(side.ends().1));
    sum.runs += 1;
    let run = load.run(sum.runs, load.block_bytes.min(side.mtu), Side::start_ns());
    let over = AtomicBool::new(false);
    let (out, broken) = thread::scope(|s| {
        let breaker = s.spawn(|| break_and_repair(fabric, &faults, &over));
        if let Some(pid) = stopped {
            s.spawn(move || {
                thread::sleep(Duration::from_millis(1500));
                // Fails if the process has ended, which the run reports.
                let _ = rustix::process::kill_process(pid, Signal::STOP);
                thread::sleep(Duration::from_secs(1));
                let _ = rustix::process::kill_process(pid, Signal::CONT);
            });
        }
        let out = side.run(run, Instant::now() + load.time + load.limit);
        over.store(true, Ordering::Relaxed);
        (out, breaker.join())
    });
    sum.faults += broken.map_err(|_| NetError::new("a thread ended early"))??;
    let out = out?;
    victim(fabric, receiver_dies, sum)?;
    Ok(out)
}

/// Random places and faults; each fault lasts half a second.
fn plan(dice: &mut Dice, spines: u8) -> Vec<(Place, Fault)> {
    let mut out = Vec::new();
    for _ in 0..5 {
        let spine = dice.below(u64::from(spines)) as u8;
        let link = Place::Link { leaf: dice.below(2) as u8, spine };
        let all = Place::Spine(spine);
        out.push(match dice.below(6) {
            0 => (all, Fault::Blackhole),
            1 => (link, Fault::Blackhole),
            2 => (all, Fault::LinkDown),
            3 => (link, Fault::LinkDown),
            4 => (all, Fault::Loss(1_000 * (1 + dice.below(50) as u32))),
            _ => (link, Fault::Rate(50_000_000)),
        });
    }
    out
}

fn break_and_repair(fabric: &Fabric, faults: &[(Place, Fault)], over: &AtomicBool) -> Result<u32> {
    let mut count = 0;
    for (place, fault) in faults {
        if over.load(Ordering::Relaxed) {
            break;
        }
        thread::sleep(Duration::from_millis(300));
        fault::fail(fabric, *place, *fault)?;
        thread::sleep(Duration::from_millis(500));
        fault::heal(fabric, *place, *fault)?;
        count += 1;
    }
    Ok(count)
}

/// On separate hosts, kills a process during a transfer and starts it again.
fn victim(fabric: &Fabric, receiver: bool, sum: &mut Sum) -> Result {
    let flows = vec![FlowSpec { from: (0, 2), to: (1, 2) }; 2];
    let mut side = SrdSide::start(fabric, SrdSetup::default(), &flows)?;
    let steady = Load {
        bytes: 0,
        time: Duration::from_millis(300),
        bits_per_sec: 20_000_000,
        block_bytes: 8900.min(side.mtu),
        limit: Duration::from_secs(15),
    };
    let index = if receiver { side.ends().1 } else { side.ends().0 };
    let run = steady.run(1, steady.block_bytes, Side::start_ns());
    let out = side.run_killing(run, index, Duration::from_millis(100), steady.limit)?;
    sum.kills += 1;
    sum.duplicated += out.duplicated;
    sum.damaged += out.damaged;
    side.restart(fabric, index, &flows)?;
    // The first message may be sent to the killed process, and then fails.
    let first = Load { bytes: 8900, time: Duration::ZERO, bits_per_sec: 0, ..steady };
    let run = first.run(2, first.block_bytes, Side::start_ns());
    let out = side.run(run, Instant::now() + Duration::from_secs(15))?;
    sum.duplicated += out.duplicated;
    sum.damaged += out.damaged;
    let whole = Load { bytes: 200_000, time: Duration::ZERO, bits_per_sec: 0, ..steady };
    let run = whole.run(3, whole.block_bytes, Side::start_ns());
    let out = side.run(run, Instant::now() + Duration::from_secs(15))?;
    if out.lost + out.failed > 0 {
        side.explain();
    }
    sum.after_restart += out.flows.iter().map(|f| f.blocks).sum::<u64>();
    sum.wrong(
        &out,
        if receiver { "after a receiver's restart" } else { "after a sender's restart" },
    );
    Ok(())
}

impl Sum {
    fn take(&mut self, out: &Outcome) {
        self.blocks += out.flows.iter().map(|f| f.blocks).sum::<u64>();
        self.wrong(out, "in the steady flows");
        self.late_ms = self.late_ms.max(out.late_ms());
    }

    fn wrong(&mut self, out: &Outcome, place: &str) {
        self.lost += out.lost;
        self.duplicated += out.duplicated;
        self.damaged += out.damaged;
        self.failed += out.failed;
        if self.why.is_empty() && out.failed > 0 {
            self.why = format!(" ({place}: {})", out.why);
        }
    }

    fn end(&self, memory: &[u64], counted: &Counted, took: Duration, busy: &Busy) -> Result {
        let settled = memory.get(SETTLE_RUNS as usize).or(memory.last()).copied().unwrap_or(0);
        let last = memory.last().copied().unwrap_or(0);
        say(&format!(
            "{:.0} s, {} blocks of up to 8900 bytes: {} lost, {} twice, {} damaged, {} failed{}; \
             latest {:.0} ms after due",
            took.as_secs_f64(),
            self.blocks,
            self.lost,
            self.duplicated,
            self.damaged,
            self.failed,
            self.why,
            self.late_ms
        ))?;
        say(&format!(
            "{} faults; {} processes killed and restarted, {} blocks right after that; memory \
             {:.1} MB after {SETTLE_RUNS} runs, {:.1} MB at the end",
            self.faults,
            self.kills,
            self.after_restart,
            settled as f64 / 1e6,
            last as f64 / 1e6
        ))?;
        say(&counted.text())?;
        say(&busy.text())?;
        let wrong = self.lost + self.duplicated + self.damaged + self.failed;
        if wrong > 0 || self.blocks == 0 {
            return Err(NetError::new(
                "blocks were lost, duplicated or damaged, or failed (see above)",
            ));
        }
        if last > settled + GROWTH_BYTES {
            return Err(NetError::new("memory grew (see above)"));
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "soak_tests.rs"]
mod tests;
