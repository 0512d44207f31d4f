//! The check `deny`: a spine is taken out of use for maintenance, as an operator does it, while
//! messages flow.
//!
//! `srd net paths --devices` says which paths cross the spine, `srd paths deny` at each of the two
//! hosts takes them out of use, and the counters of the spine's interfaces say when the last packet
//! of each host crossed it. With several processes at the sending host, a path is denied if it
//! crosses the spine in any of them, or on the way back to any of them, as an operator has to. The
//! same transfer without the order is what its messages are compared with.

use crate::{
    bench::{
        block::now_ns,
        contender::Load,
        srd_side::{SrdSetup, SrdSide},
    },
    check::{all_arrived, fabric, order, pair, run_one, steady},
    error::{NetError, Result},
    fabric::Fabric,
    paths,
    spec::Node,
};
use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Least flows of the transfer, which takes half the rate of a host.
const FLOWS: usize = 4;
/// Length of a transfer in ms.
const TRANSFER_MS: u64 = 1000;
/// When the order is given.
const ORDER_AFTER: Duration = Duration::from_millis(400);
/// Transfers without and with the order, in turns.
const ROUNDS: usize = 5;
/// How often the counters of the spine are read.
const LOOK: Duration = Duration::from_micros(500);
/// The goals: a denied spine carries nothing from this long after the command has ended, ...
const SILENT_MS: f64 = 10.0;
/// ... and messages are at most so much later than without the order.
const LATER_MS: f64 = 5.0;
/// The check fails beyond this many times the goals, because a machine whose processors are busy
/// delays the transfer without an order as much.
const ALLOWED: f64 = 10.0;

/// When the counters of a spine changed for the last time.
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    /// Packets from the leaf.
    packets: u64,
    /// When the last of them was seen, ns.
    at_ns: u64,
}

/// What came of a transfer with the order.
#[derive(Clone, Copy, Debug)]
struct Drained {
    /// From the end of the command until the last packet of that host was seen at the spine, ms; 0
    /// if it was before.
    silent_ms: f64,
    /// From the beginning of the command to its end, ms.
    command_ms: f64,
    late_ms: f64,
}

/// Runs the check.
///
/// # Errors
/// The spine carries packets for too long, messages are too late, or one is lost.
pub(crate) fn check(processes: usize) -> Result<String> {
    let fabric = fabric(9000, 1)?;
    let setup = SrdSetup { processes, ..SrdSetup::default() };
    let flows = FLOWS.max(processes);
    let mut side = SrdSide::start(&fabric, setup, &pair(flows))?;
    let load = steady(flows, TRANSFER_MS);
    let mut number = 1;
    all_arrived(&run_one(&mut side, &steady(flows, 300), number)?, "first")?;
    let spine = busiest(&fabric)?;
    let mut plain_ms = Vec::new();
    let mut drained = Vec::new();
    let mut denied = 0;
    let mut answered = false;
    for _ in 0..ROUNDS {
        number += 1;
        let before = from_leaves(&fabric, spine)?;
        let out = run_one(&mut side, &load, number)?;
        all_arrived(&out, "without an order")?;
        plain_ms.push(out.late_ms());
        let after = from_leaves(&fabric, spine)?;
        if before[0] == after[0] {
            return Err(NetError::new(format!("s{spine} carried nothing before it was denied")));
        }
        // Acknowledgments keep to few paths, and need not come back to a spine that they have left.
        answered |= before[1] != after[1];
        number += 1;
        let (paths, done) = drain(&fabric, &mut side, &load, number, (spine, processes))?;
        denied = paths;
        drained.push(done);
    }
    if !answered {
        return Err(NetError::new(format!("s{spine} carried no acknowledgment in any transfer")));
    }
    let most = |of: fn(&Drained) -> f64| drained.iter().map(of).fold(0.0, f64::max);
    let silent_ms = most(|d| d.silent_ms);
    plain_ms.sort_by(f64::total_cmp);
    let mut late_ms: Vec<f64> = drained.iter().map(|d| d.late_ms).collect();
    late_ms.sort_by(f64::total_cmp);
    let (plain, late) = (plain_ms[ROUNDS - 1], late_ms[ROUNDS - 1]);
    // One round may meet a moment in which the machine does something else; two do not.
    let second = late_ms[ROUNDS - 2];
    let text = format!(
        "{denied} of 64 paths across s{spine} denied: its last packet {silent_ms:.1} ms after the \
         command (goal {SILENT_MS}), which took {:.1}; latest message {:.1} ms, worst {late:.1}; \
         without the order {:.1}, worst {plain:.1} (goal {LATER_MS} more)",
        most(|d| d.command_ms),
        late_ms[ROUNDS / 2],
        plain_ms[ROUNDS / 2],
    );
    if silent_ms > ALLOWED * SILENT_MS || second > plain + ALLOWED * LATER_MS {
        return Err(NetError::new(text));
    }
    Ok(text)
}

/// The spine that got the most from the first leaf.
fn busiest(fabric: &Fabric) -> Result<u8> {
    let counters = fabric.counters(Node::Leaf(0))?;
    let sent = |s: &u8| counters.get(&format!("up{s}")).map_or(0, |c| c.tx_bytes);
    Ok((0..fabric.spec().spines).max_by_key(sent).unwrap_or(0))
}

/// Packets that a spine got from each of the two leaves.
fn from_leaves(fabric: &Fabric, spine: u8) -> Result<[u64; 2]> {
    let counters = fabric.counters(Node::Spine(spine))?;
    Ok([0, 1].map(|leaf| counters.get(&format!("d{leaf}")).map_or(0, |c| c.rx_packets)))
}

/// A transfer in the midst of which both hosts get the order. Returns the number of denied paths of
/// the sending host, and what came of it. In the end, the paths are in use again.
fn drain(
    fabric: &Fabric,
    side: &mut SrdSide,
    load: &Load,
    number: u32,
    (spine, processes): (u8, usize),
) -> Result<(usize, Drained)> {
    let ends = [((0, 0), (1, 0)), ((1, 0), (0, 0))];
    let mut lists = Vec::new();
    // The receivers of a host are one process. It answers each of the senders at a port of its own.
    let counts = [processes, 1];
    for (i, (from, to)) in ends.into_iter().enumerate() {
        // An order is about the number of a path, which crosses the spine in some process, or on
        // the way to some port.
        let mut all: BTreeSet<u8> = BTreeSet::new();
        for port in (srd::PORT_BASE_DEFAULT..).take(counts[1 - i]) {
            let found = paths::of_devices(fabric, from, to, port)?;
            if found.len() != counts[i] {
                let (is, not) = (found.len(), counts[i]);
                return Err(NetError::new(format!("{is} devices run on a host instead of {not}")));
            }
            all.extend(found.iter().flat_map(|device| device.across(spine)));
        }
        lists.push(all.iter().map(u8::to_string).collect::<Vec<_>>().join(","));
    }
    let program = std::env::current_exe()?.display().to_string();
    let command = |of: usize, words: &[&str]| -> Result<String> {
        let (from, to) = ends[of];
        let peer = fabric.spec().ip(to.0, to.1).to_string();
        let args = [&["paths"], words, &["--peer", &peer]].concat();
        fabric.ns(Node::Host(from.0, from.1))?.run(&program, &args, "")
    };
    let run = order(side, load, number);
    let start = Duration::from_nanos(run.start_ns.saturating_sub(now_ns()));
    let done = AtomicBool::new(false);
    let (out, ordered, last) = thread::scope(|s| -> Result<_> {
        let watch = s.spawn(|| watch(fabric, spine, &done));
        let operator = s.spawn(|| -> Result<Vec<(u64, u64)>> {
            thread::sleep(start + ORDER_AFTER);
            let deny = |i: usize| {
                let began = now_ns();
                command(i, &["deny", &lists[i]]).map(|_| (began, now_ns()))
            };
            (0..2).map(deny).collect()
        });
        let out = side.run(run, Instant::now() + load.time + load.limit);
        let ordered = operator.join().map_err(|_| NetError::new("a thread ended early"));
        done.store(true, Ordering::SeqCst);
        let last = watch.join().map_err(|_| NetError::new("a thread ended early"));
        Ok((out?, ordered??, last??))
    })?;
    for i in 0..2 {
        command(i, &["allow"])?;
    }
    all_arrived(&out, "with the order")?;
    let ms = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e6;
    let each = ordered.iter().zip(&last);
    let silent = each.map(|(&(_, ended), last)| ms(ended, last.at_ns)).fold(0.0, f64::max);
    let took = ordered.iter().map(|&(began, ended)| ms(began, ended)).fold(0.0, f64::max);
    let done = Drained { silent_ms: silent, command_ms: took, late_ms: out.late_ms() };
    Ok((lists[0].split(',').count(), done))
}

/// Reads the spine's counters until `done`: the last packet from each leaf.
fn watch(fabric: &Fabric, spine: u8, done: &AtomicBool) -> Result<[Last; 2]> {
    fabric.ns(Node::Spine(spine))?.inside(|| {
        let mut last = [Last::default(); 2];
        let mut ended = false;
        while !ended {
            // Once more after the end, so that nothing is missed.
            ended = done.load(Ordering::SeqCst);
            let counters = crate::fabric::counters_here()?;
            let now = now_ns();
            for (leaf, last) in last.iter_mut().enumerate() {
                let packets = counters.get(&format!("d{leaf}")).map_or(0, |c| c.rx_packets);
                if packets != last.packets {
                    *last = Last { packets, at_ns: now };
                }
            }
            thread::sleep(LOOK);
        }
        Ok(last)
    })
}
