//! A receiver that is slower than its port: packets that its socket drops, times that packets wait
//! there, and round-trip times of a third host.

use super::{
    BenchArgs, FlowSpec, Outcome,
    contender::{Contender, Load, Side, SlowHost},
    fabric_build, fabric_of,
    kernel::KernelCounts,
    protocol::{Counted, Watched},
    supported,
    table::{self, Busy},
    times::Times,
};
use crate::{
    error::{NetError, Result},
    fabric::Fabric,
    say,
    spec::FabricSpec,
    units::rate_text,
};
use std::time::Duration;

/// Default contenders.
const CONTENDERS: [&str; 5] = ["srd", "srd-off", "srd-stop-go", "srd-budget", "cubic"];
/// Time at the start of a run that does not count for rates and times; drops in it do count.
const WARM: Duration = Duration::from_millis(500);
/// Default rate of the ports in bits per second.
const RATE: u64 = 1_000_000_000;
/// Least rate of the receiver in bits per second: a slower one would take minutes to empty its
/// sockets.
const DRAIN_LEAST: u64 = 10_000_000;
/// Most bits that the sockets of both ends may hold together at the end of a run.
const HELD_BITS: u64 = 12 * 8 * 10_000_000;

/// Rate of the ports, and rate at which the receiver takes data, in bits per second.
fn rates(args: &BenchArgs) -> (u64, u64) {
    let rate = args.rate.unwrap_or(RATE);
    (rate, args.drain.unwrap_or(rate / 5))
}

/// Refuses a receiver that is not slower than its port, or so slow that a run would not end.
///
/// # Errors
/// The rate of the receiver is out of range; the text says what to write.
pub fn drain_check(args: &BenchArgs) -> Result {
    let (rate, drain) = rates(args);
    if (DRAIN_LEAST..=rate).contains(&drain) {
        return Ok(());
    }
    Err(NetError::usage(format!(
        "--drain: the receiver cannot take {} on a port of {}; write a rate from {} to that of the \
         port, as --drain {}M",
        rate_text(drain),
        rate_text(rate),
        rate_text(DRAIN_LEAST),
        (rate / 5).max(DRAIN_LEAST) / 1_000_000
    )))
}

/// Results of a contender.
#[derive(Default)]
struct Record {
    mbits: Vec<f64>,
    watched: Watched,
    wrong: [u64; 4],
    counted: Counted,
    kernel: KernelCounts,
    gave_up: Vec<String>,
}

impl Record {
    fn count(&mut self, out: &Outcome, load: &Load) {
        let (from, to) = (WARM.as_millis() as u64, load.time.as_millis() as u64);
        self.mbits.push(out.bits_per_sec(from, to) / 1e6);
        let wrong = [out.lost, out.duplicated, out.damaged, out.failed];
        for (sum, n) in self.wrong.iter_mut().zip(wrong) {
            *sum += n;
        }
    }
}

/// Runs the measurement: sending hosts with one flow each, to a host that is slower than its port.
pub fn slowhost(args: &BenchArgs) -> Result {
    let (rate, drain) = rates(args);
    let counts: &[u8] = match (args.senders.is_empty(), args.quick) {
        (false, _) => &args.senders,
        (true, true) => &[4],
        (true, false) => &[1, 4, 12],
    };
    let most = counts.iter().copied().max().unwrap_or(1);
    let spec = FabricSpec {
        spines: 4,
        leaves: 2,
        // The receiver and the third host are the first two of the other leaf.
        hosts: most.max(2),
        host_bits_per_sec: rate,
        uplink_bits_per_sec: rate,
        ..fabric_of(args)
    };
    let mut fabric = fabric_build(&spec)?;
    let list = supported(&fabric, args.contenders(&CONTENDERS)?)?;
    let slow = SlowHost { bits_per_sec: drain, ping: FlowSpec { from: (1, 1), to: (1, 0) } };
    for senders in counts {
        let what = if *senders == 1 { "host" } else { "hosts" };
        say(&format!(
            "\n{senders} {what} to one that takes {} of its port of {}, 8 B from a third",
            rate_text(drain),
            rate_text(rate)
        ))?;
        let flows: Vec<FlowSpec> =
            (0..*senders).map(|h| FlowSpec { from: (0, h), to: (1, 0) }).collect();
        measure(args, &mut fabric, &list, &flows, slow)?;
    }
    Ok(())
}

fn measure(
    args: &BenchArgs,
    fabric: &mut Fabric,
    list: &[Contender],
    flows: &[FlowSpec],
    slow: SlowHost,
) -> Result {
    let mut records: Vec<Record> = list.iter().map(|_| Record::default()).collect();
    let busy = Busy::start();
    let held = Duration::from_secs(HELD_BITS / slow.bits_per_sec);
    let load = Load {
        bytes: 0,
        time: WARM + Duration::from_millis(if args.quick { 700 } else { 2500 }),
        bits_per_sec: 0,
        block_bytes: u32::from(args.mtu) - 100,
        limit: Duration::from_secs(20) + held,
    };
    for draw in 0..args.draws() {
        fabric.reseed(args.seed + draw)?;
        for (contender, record) in list.iter().zip(&mut records) {
            if let Err(e) = one(args, fabric, contender, flows, slow, &load, record) {
                record.gave_up.push(e.to_string());
            }
        }
    }
    show(list, &records, slow, &busy)
}

fn one(
    args: &BenchArgs,
    fabric: &Fabric,
    contender: &Contender,
    flows: &[FlowSpec],
    slow: SlowHost,
    load: &Load,
    record: &mut Record,
) -> Result {
    let mut side = contender.start_slow(fabric, flows, slow)?;
    // A first run opens the connections before the measurement.
    side.run(&Load { bytes: 10_000, ..*load }, Side::start_ns())?;
    let before = side.counters()?.unwrap_or_default();
    let kernel = KernelCounts::read(fabric, flows)?;
    for _ in 0..args.rounds() {
        let start_ns = Side::start_ns();
        let at = |time: Duration| start_ns + time.as_nanos() as u64;
        side.watch(at(WARM), at(load.time))?;
        let out = side.run(load, start_ns)?;
        record.count(&out, load);
        record.watched.add(&side.times()?);
    }
    if let Some(after) = side.counters()? {
        record.counted.add(&after.since(&before));
    }
    record.kernel.add(&KernelCounts::read(fabric, flows)?.since(&kernel));
    Ok(())
}

fn show(list: &[Contender], records: &[Record], slow: SlowHost, busy: &Busy) -> Result {
    let mut rows = Vec::new();
    let mut notes = Vec::new();
    for (contender, r) in list.iter().zip(records) {
        if let Some(why) = r.gave_up.first() {
            notes.push(format!("{}: {} draws given up: {why}", contender.name(), r.gave_up.len()));
        }
        if r.mbits.is_empty() {
            continue;
        }
        let (again, dropped) = if contender.is_srd() {
            let c = &r.counted;
            notes.push(format!("{}: {}", contender.name(), c.text()));
            (c.retransmitted as f64 * 100.0 / c.tx_packets.max(1) as f64, r.kernel.udp_socket_drops)
        } else {
            let k = &r.kernel;
            notes.push(format!("{}: {} timeouts", contender.name(), k.tcp_timeouts));
            (k.tcp_again_percent(), k.tcp_socket_drops)
        };
        let ms = |times: &Times, share| {
            times.percentile_ms(share).map_or_else(|| "-".to_owned(), |ms| format!("{ms:.2}"))
        };
        let least = r.mbits.iter().copied().fold(f64::INFINITY, f64::min);
        let drain = slow.bits_per_sec as f64 / 1e6;
        rows.push(vec![
            contender.name().to_owned(),
            dropped.to_string(),
            format!("{again:.2}%"),
            format!("{:.1}", table::mean(&r.mbits)),
            format!("{:.1}%", table::mean(&r.mbits) * 100.0 / drain),
            format!("{:.1}%", least * 100.0 / drain),
            ms(&r.watched.waits, 0.5),
            ms(&r.watched.waits, 0.99),
            ms(&r.watched.round_trips, 0.5),
            ms(&r.watched.round_trips, 0.99),
            r.mbits.len().to_string(),
            r.wrong.map(|n| n.to_string()).join("/"),
        ]);
    }
    let head = [
        "",
        "lost in sockets",
        "sent again",
        "Mb/s",
        "of the drain",
        "least",
        "in the socket p50 ms",
        "p99",
        "8 B there and back p50 ms",
        "p99",
        "runs",
        "lost/dup/bad/fail",
    ];
    table::print(&head, &rows)?;
    say(
        "in the socket: SRD from the kernel's arrival stamp to the read, of each packet; TCP from \
         when the bytes were seen waiting, to 1 ms, of each read",
    )?;
    for n in notes {
        say(&n)?;
    }
    say(&busy.text())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Scenario;
    use clap::Parser;

    #[derive(Parser)]
    struct Tool {
        #[command(flatten)]
        bench: BenchArgs,
    }

    fn parse(line: &str) -> std::result::Result<BenchArgs, String> {
        let words = std::iter::once("bench").chain(line.split_whitespace());
        Tool::try_parse_from(words).map(|t| t.bench).map_err(|e| e.to_string())
    }

    #[test]
    fn a_drain_has_a_unit_and_is_at_most_the_port() {
        for (line, want) in [
            ("slowhost", (1_000_000_000, 200_000_000)),
            ("slowhost --drain 200M", (1_000_000_000, 200_000_000)),
            ("slowhost --rate 100M", (100_000_000, 20_000_000)),
            ("slowhost --rate 100M --drain 100Mbit/s", (100_000_000, 100_000_000)),
        ] {
            let args = parse(line).unwrap();
            assert_eq!(args.scenario, Scenario::Slowhost);
            assert_eq!((args.validate(), rates(&args)), (Ok(()), want), "{line}");
        }
        for line in ["--drain 200", "--drain 0", "--drain 0M", "--drain fast", "--drain 200X"] {
            assert!(parse(&format!("slowhost {line}")).is_err(), "{line}");
        }
        for line in ["--drain 2G", "--drain 1M", "--rate 100M --drain 200M", "--rate 20M"] {
            let error = parse(&format!("slowhost {line}")).unwrap().validate().unwrap_err();
            let why = error.to_string();
            assert!(error.is_usage() && why.contains("write a rate from 10 Mb/s"), "{line}: {why}");
        }
        assert!(parse("slowhost --senders 0").is_err() && parse("slowhost --senders 33").is_err());
    }
}
