//! Tests with real processes: `kill -9`, SIGSTOP, restarts, small buffers, many processes and
//! peers, packet floods, lying peers, and the loss of one of two interfaces.

use crate::{
    bench::{
        FlowSpec, Outcome,
        block::now_ns,
        contender::{Load, Side},
        protocol::Run,
        srd_side::{SrdSetup, SrdSide},
    },
    error::{NetError, Result},
    fabric::Fabric,
    hostile,
    ns::privileges_take,
    say,
    spec::{FabricSpec, Node},
};
use clap::{Args, ValueEnum};
use rustix::process::Signal;
use std::{
    thread,
    time::{Duration, Instant},
};

/// Longest time until a send to a killed peer fails: the engine's five seconds, plus as much for a
/// busy machine.
const GIVE_UP: Duration = Duration::from_secs(12);
/// Time limit of a transfer of 64 processes that share two processors with other work.
const CROWD: Duration = Duration::from_secs(60);

/// Processes of the sending host in the check `deny-processes`.
const PROCESSES_DENIED: usize = 8;

/// A check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Check {
    /// Kill a receiver, then a sender, during a transfer; the other processes must continue
    Kill,
    /// Restart a killed process at the same address; peers must recognise a new incarnation
    Restart,
    /// Stop a receiver, then a sender, for two seconds
    Stop,
    /// Run 64 processes on one host
    Processes,
    /// Connect one process to 10,000 peers
    Peers,
    /// Use receive buffers of the usual default size (rmem_max 212992)
    Buffers,
    /// Use MTU 1500 and 9000, and a host with a smaller MTU than its peers
    Mtu,
    /// Reduce the MTU of a hop or an interface under traffic, and forge ICMP messages about the MTU
    Narrow,
    /// Flood the port of a transfer with junk packets, as fast as one processor sends them
    Flood,
    /// Run a peer that follows the wire format but lies, beside a transfer
    Liar,
    /// Kill 70 processes that hold all places for RDMA reads, then run a new job
    DeadReaders,
    /// Cut off one of two interfaces of a process during a transfer
    Rails,
    /// Use both interfaces of a host by one device, and cut off one after the other
    JoinedRails,
    /// Take the paths across a spine out of use during a transfer, by `srd paths deny`
    Deny,
    /// The same with eight processes at the sender, whose equal path numbers cross other spines
    DenyProcesses,
}

/// All checks.
const ALL: [Check; 15] = [
    Check::Kill,
    Check::Restart,
    Check::Stop,
    Check::Processes,
    Check::Peers,
    Check::Buffers,
    Check::Mtu,
    Check::Narrow,
    Check::Flood,
    Check::Liar,
    Check::DeadReaders,
    Check::Rails,
    Check::JoinedRails,
    Check::Deny,
    Check::DenyProcesses,
];

/// Options of `check`.
#[derive(Clone, Debug, Args)]
pub struct CheckArgs {
    /// Checks to run [default: all]
    #[arg(value_enum)]
    pub which: Vec<Check>,
    /// Number of peers in the check `peers`
    #[arg(long, default_value_t = 10_000,
          value_parser = clap::value_parser!(u32).range(1..=12_800))]
    pub peers: u32,
    /// Seed of the random lies in the check `liar`
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Share of its rate that a transfer must keep in the checks `flood` and `liar`, in percent
    #[arg(long, default_value_t = 50, value_name = "PERCENT",
          value_parser = clap::value_parser!(u8).range(..=100))]
    pub kept: u8,
    /// Share of the rate at which this machine can send junk to an idle device that the flood of
    /// the check `flood` must reach beside the transfer, in percent
    #[arg(long, default_value_t = 25, value_name = "PERCENT",
          value_parser = clap::value_parser!(u8).range(..=100))]
    pub junk: u8,
}

/// Runs the checks.
///
/// # Errors
/// A check has failed.
pub fn run(args: &CheckArgs) -> Result {
    privileges_take()?;
    let list = if args.which.is_empty() { &ALL[..] } else { &args.which[..] };
    let mut wrong = Vec::new();
    let (kept, junk) = (f64::from(args.kept) / 100.0, f64::from(args.junk) / 100.0);
    for check in list {
        let began = Instant::now();
        let done = match check {
            Check::Kill => kill(),
            Check::Restart => restart(),
            Check::Stop => stop(),
            Check::Processes => processes(),
            Check::Peers => crate::crowd::check(args.peers),
            Check::Buffers => buffers(),
            Check::Mtu => mtu(),
            Check::Narrow => crate::narrow::check(),
            Check::Flood => hostile::flood::check(kept, junk),
            Check::Liar => hostile::liar::check(args.seed, kept),
            Check::DeadReaders => hostile::readers::check(),
            Check::Rails => hostile::rails::check(),
            Check::JoinedRails => hostile::rails::joined(),
            Check::Deny => crate::service::check(1),
            Check::DenyProcesses => crate::service::check(PROCESSES_DENIED),
        };
        let name = check.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned());
        let seconds = began.elapsed().as_secs_f64();
        match done {
            Ok(text) => say(&format!("{name:<14} passed  {seconds:>5.1} s  {text}"))?,
            Err(e) => {
                say(&format!("{name:<14} FAILED  {seconds:>5.1} s  {e}"))?;
                wrong.push(name);
            }
        }
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(NetError::new(format!("failed checks: {}", wrong.join(", "))))
    }
}

/// The fabric of a check: two leaves with `hosts` hosts each.
pub(crate) fn fabric(mtu: u16, hosts: u8) -> Result<Fabric> {
    let spec = FabricSpec { mtu, hosts, ..FabricSpec::default() };
    Fabric::build(&spec).map(|(fabric, _)| fabric)
}

pub(crate) fn pair(n: usize) -> Vec<FlowSpec> {
    vec![FlowSpec { from: (0, 0), to: (1, 0) }; n]
}

/// A load of half a host's rate for `ms` milliseconds.
pub(crate) fn steady(flows: usize, ms: u64) -> Load {
    Load {
        bytes: 0,
        time: Duration::from_millis(ms),
        bits_per_sec: 100_000_000 / flows as u64,
        block_bytes: 8900,
        limit: GIVE_UP,
    }
}

fn of_bytes(bytes: u64) -> Load {
    Load { bytes, time: Duration::ZERO, bits_per_sec: 0, block_bytes: 8900, limit: CROWD }
}

pub(crate) fn order(side: &SrdSide, load: &Load, number: u32) -> Run {
    load.run(number, load.block_bytes.min(side.mtu), Side::start_ns())
}

pub(crate) fn run_one(side: &mut SrdSide, load: &Load, number: u32) -> Result<Outcome> {
    let run = order(side, load, number);
    side.run(run, Instant::now() + load.time + load.limit)
}

/// Requires that all blocks arrived once and undamaged. Returns their number.
pub(crate) fn all_arrived(out: &Outcome, what: &str) -> Result<u64> {
    let blocks: u64 = out.flows.iter().map(|f| f.blocks).sum();
    if out.is_wrong() || blocks == 0 {
        return Err(NetError::new(format!(
            "{what}: {blocks} blocks; {} lost, {} twice, {} damaged, {} failed ({})",
            out.lost, out.duplicated, out.damaged, out.failed, out.why
        )));
    }
    Ok(blocks)
}

/// Requires that an interrupted run delivered no block twice and none damaged.
fn no_duplicates(out: &Outcome, what: &str) -> Result {
    if out.duplicated + out.damaged > 0 {
        return Err(NetError::new(format!(
            "{what}: {} blocks twice, {} damaged",
            out.duplicated, out.damaged
        )));
    }
    Ok(())
}

fn kill() -> Result<String> {
    let fabric = fabric(9000, 2)?;
    let after = Duration::from_millis(150);
    // One host sends to two: when one of the receivers dies, the other must not be affected.
    let flows: Vec<FlowSpec> = (0..4).map(|i| FlowSpec { from: (0, 0), to: (1, i % 2) }).collect();
    let mut side = SrdSide::start(&fabric, SrdSetup::default(), &flows)?;
    all_arrived(&run_one(&mut side, &of_bytes(100_000), 1)?, "before")?;
    let victim = side.ends().1;
    let run = order(&side, &steady(4, 1500), 2);
    let began = now_ns();
    let out = side.run_killing(run, victim, after, GIVE_UP)?;
    no_duplicates(&out, "receiver killed")?;
    let waited = (now_ns() - began) as f64 / 1e9;
    if out.failed == 0 {
        return Err(NetError::new("no send failed though the receiver was killed"));
    }
    let others: u64 = out.flows.iter().map(|f| f.blocks).sum();
    let due = 2 * run.length().as_nanos() as u64 / run.pace_ns;
    if others < due * 9 / 10 {
        return Err(NetError::new(format!(
            "the other receiver got {others} of {due} blocks after its neighbour was killed"
        )));
    }
    let mut side = SrdSide::start(&fabric, SrdSetup::default(), &pair(2))?;
    all_arrived(&run_one(&mut side, &of_bytes(100_000), 1)?, "before")?;
    let victim = side.ends().0;
    let run = order(&side, &steady(2, 600), 2);
    let sender_gone = side.run_killing(run, victim, after, GIVE_UP)?;
    no_duplicates(&sender_gone, "sender killed")?;
    Ok(format!(
        "receiver killed: {} sends ended with \"{}\" within {waited:.1} s, its neighbour got \
         {others} blocks; sender killed: nothing twice",
        out.failed, out.why
    ))
}

fn restart() -> Result<String> {
    let fabric = fabric(9000, 2)?;
    let flows = pair(2);
    let mut side = SrdSide::start(&fabric, SrdSetup::default(), &flows)?;
    let mut number = 0;
    let (mut blocks, mut aborted) = (0, 0);
    for _ in 0..2 {
        for receiver in [true, false] {
            let victim = if receiver { side.ends().1 } else { side.ends().0 };
            number += 1;
            let run = order(&side, &steady(2, 400), number);
            let out = side.run_killing(run, victim, Duration::from_millis(100), GIVE_UP)?;
            no_duplicates(&out, "killed")?;
            side.restart(&fabric, victim, &flows)?;
            // A sender learns of the restart by the new process's first answer; messages in flight
            // then end with an error. Messages sent later must arrive.
            number += 1;
            let first = run_one(&mut side, &of_bytes(9000), number)?;
            no_duplicates(&first, "first after a restart")?;
            aborted += first.failed;
            number += 1;
            let out = run_one(&mut side, &of_bytes(500_000), number)?;
            blocks += all_arrived(&out, "after a restart")?;
        }
    }
    Ok(format!(
        "4 restarts at the same address: {aborted} messages to former lives ended with an error, \
         then {blocks} blocks each once"
    ))
}

fn stop() -> Result<String> {
    let fabric = fabric(9000, 2)?;
    let mut text = Vec::new();
    for receiver in [true, false] {
        let mut side = SrdSide::start(&fabric, SrdSetup::default(), &pair(2))?;
        all_arrived(&run_one(&mut side, &of_bytes(100_000), 1)?, "before")?;
        let before = side.counters()?;
        let load = steady(2, 3000);
        let run = order(&side, &load, 2);
        let victim = if receiver { side.ends().1 } else { side.ends().0 };
        let pid = side.pid(victim);
        let sleeper = thread::spawn(move || -> Result {
            thread::sleep(Duration::from_millis(400));
            rustix::process::kill_process(pid, Signal::STOP)?;
            thread::sleep(Duration::from_secs(2));
            rustix::process::kill_process(pid, Signal::CONT)?;
            Ok(())
        });
        let out = side.run(run, Instant::now() + load.time + load.limit)?;
        sleeper.join().map_err(|_| NetError::new("a thread ended early"))??;
        let blocks = all_arrived(&out, "stopped")?;
        let c = side.counters()?.since(&before);
        text.push(format!(
            "{} stopped 2 s: {blocks} blocks, {} paths retired, {} packets retransmitted",
            if receiver { "receiver" } else { "sender" },
            c.paths_retired,
            c.retransmitted
        ));
    }
    Ok(text.join("; "))
}

fn processes() -> Result<String> {
    let fabric = fabric(9000, 1)?;
    let setup = SrdSetup { processes: 64, ..SrdSetup::default() };
    let mut side = SrdSide::start(&fabric, setup, &pair(64))?;
    all_arrived(&run_one(&mut side, &of_bytes(20_000), 1)?, "first")?;
    let out = run_one(&mut side, &of_bytes(300_000), 2)?;
    let blocks = all_arrived(&out, "64 processes")?;
    let mut times = out.fct_ms();
    let slowest = times.iter().copied().fold(0.0, f64::max);
    let quickest = times.iter().copied().fold(f64::INFINITY, f64::min);
    times.clear();
    let c = side.counters()?;
    Ok(format!(
        "64 processes of one host to one: {blocks} blocks each once, done after {quickest:.0} to \
         {slowest:.0} ms (line rate: {:.0}); {} lost in socket buffers",
        64.0 * 300_000.0 * 8.0 / 200e6 * 1e3,
        c.socket_drops
    ))
}

fn buffers() -> Result<String> {
    let fabric = fabric(9000, 4)?;
    // Four hosts send at once to a socket that holds about twenty packets.
    let flows: Vec<FlowSpec> = (0..16).map(|i| FlowSpec { from: (0, i % 4), to: (1, 0) }).collect();
    let setup = SrdSetup { rcvbuf: Some(212_992), ..SrdSetup::default() };
    let mut side = SrdSide::start(&fabric, setup, &flows)?;
    let out = run_one(&mut side, &of_bytes(300_000), 1)?;
    let blocks = all_arrived(&out, "small buffers")?;
    let c = side.counters()?;
    let ms = out.fct_ms().into_iter().fold(0.0, f64::max);
    Ok(format!(
        "{blocks} blocks from 4 hosts into one buffer of 212992 bytes in {ms:.0} ms (line rate: \
         {:.0}); {} lost there, {} packets retransmitted",
        16.0 * 300_000.0 * 8.0 / 200e6 * 1e3,
        c.socket_drops,
        c.retransmitted
    ))
}

fn mtu() -> Result<String> {
    let mut text = Vec::new();
    for mtu in [1500, 9000] {
        let fabric = fabric(mtu, 1)?;
        let mut side = SrdSide::start(&fabric, SrdSetup::default(), &pair(4))?;
        let out = run_one(&mut side, &of_bytes(500_000), 1)?;
        all_arrived(&out, "transfer")?;
        let ms = out.fct_ms().into_iter().fold(0.0, f64::max);
        text.push(format!("MTU {mtu}: messages of {} bytes, {ms:.0} ms", side.mtu));
    }
    // The receiver's link has a smaller MTU than the sender's device uses: only smaller messages
    // pass.
    let fabric = fabric(9000, 1)?;
    for (node, dev) in [(Node::Host(1, 0), "e0"), (Node::Leaf(1), "dn0")] {
        let batch = format!("link set dev {dev} mtu 1500\n");
        fabric.ns(node)?.run("ip", &["-batch", "-"], &batch)?;
    }
    let mut side = SrdSide::start(&fabric, SrdSetup::default(), &pair(1))?;
    let began = Instant::now();
    all_arrived(&run_one(&mut side, &of_bytes(1000), 1)?, "1000 bytes from 9000 to 1500")?;
    let seconds = began.elapsed().as_secs_f64();
    // One message, regardless of what the processes have learned before.
    let load = of_bytes(8900);
    let run = load.run(2, load.block_bytes, Side::start_ns());
    let out = side.run(run, Instant::now() + load.limit)?;
    if out.failed != 1 || out.flows.iter().any(|f| f.blocks > 0) {
        return Err(NetError::new(format!(
            "a message longer than the path MTU was not refused: {} failed ({}), {} arrived",
            out.failed,
            out.why,
            out.flows.iter().map(|f| f.blocks).sum::<u64>()
        )));
    }
    text.push(format!(
        "from 9000 to 1500: 1000 bytes after {seconds:.1} s, 8900 refused (\"{}\")",
        out.why
    ));
    Ok(text.join("; "))
}
