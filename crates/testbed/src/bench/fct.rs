//! Flow completion times: incast, and many flows over half-loaded uplinks.

use super::{
    BenchArgs, FlowSpec,
    contender::{Contender, Load, Side},
    fabric_build, fabric_of,
    kernel::KernelCounts,
    protocol::Counted,
    supported,
    table::{self, Busy},
};
use crate::{error::Result, fabric::Fabric, say, spec::FabricSpec};
use std::time::Duration;

/// Default contenders.
const CONTENDERS: [&str; 11] = [
    "srd",
    "srd-processes",
    "srd-one-path",
    "cubic",
    "cubic-50ms",
    "bbr",
    "bbr-50ms",
    "reno",
    "reno-50ms",
    "mptcp",
    "cubic-v6",
];
/// Share of TCP payload in the wire time of a 9000-byte packet: 8948 of 9014 bytes.
const PAYLOAD_SHARE: f64 = 8948.0 / 9014.0;

/// Results of a contender.
#[derive(Default)]
struct Record {
    fct_ms: Vec<f64>,
    worst_of_run_ms: Vec<f64>,
    wrong: [u64; 4],
    counted: Counted,
    kernel: KernelCounts,
    gave_up: Vec<String>,
}

/// Four hosts with twelve senders each send to one host.
pub fn incast(args: &BenchArgs) -> Result {
    let rate = args.rate.unwrap_or(1_000_000_000);
    let spec = FabricSpec {
        spines: 4,
        leaves: 2,
        hosts: 4,
        host_bits_per_sec: rate,
        uplink_bits_per_sec: rate,
        ..fabric_of(args)
    };
    let mut fabric = fabric_build(&spec)?;
    let list = supported(
        &fabric,
        args.contenders(if args.quick { &CONTENDERS[..5] } else { &CONTENDERS })?,
    )?;
    let flows: Vec<FlowSpec> = (0..48).map(|i| FlowSpec { from: (0, i % 4), to: (1, 0) }).collect();
    let sizes: &[u64] = if args.quick { &[200_000] } else { &[64_000, 200_000, 2_000_000] };
    let own = args.bytes.map(|b| [b]);
    for bytes in own.as_ref().map_or(sizes, |o| &o[..]) {
        say(&format!("\nincast: 48 senders on 4 hosts to one host, {} kB each", bytes / 1000))?;
        let ideal = ideal_ms(48, *bytes, rate);
        measure(args, &mut fabric, &list, &flows, *bytes, ideal)?;
    }
    Ok(())
}

/// Eight hosts send to eight hosts.
pub fn fig6(args: &BenchArgs) -> Result {
    let rate = args.rate.unwrap_or(200_000_000);
    let spec = FabricSpec {
        spines: 16,
        leaves: 2,
        hosts: 8,
        host_bits_per_sec: rate,
        uplink_bits_per_sec: rate,
        ..fabric_of(args)
    };
    let mut fabric = fabric_build(&spec)?;
    let list = supported(
        &fabric,
        args.contenders(if args.quick { &CONTENDERS[..5] } else { &CONTENDERS })?,
    )?;
    let flows: Vec<FlowSpec> =
        (0..128).map(|i| FlowSpec { from: (0, i % 8), to: (1, i % 8) }).collect();
    let bytes = args.bytes.unwrap_or(250_000);
    say(&format!(
        "\n8 hosts to 8 hosts, 16 flows of {} kB each pair, uplinks half loaded",
        bytes / 1000
    ))?;
    measure(args, &mut fabric, &list, &flows, bytes, ideal_ms(16, bytes, rate))
}

/// Time in ms that `flows` of `bytes` each need to cross one port of `bits_per_sec`, with TCP's
/// headers on packets of 9000 bytes.
pub(super) fn ideal_ms(flows: u32, bytes: u64, bits_per_sec: u64) -> f64 {
    f64::from(flows) * bytes as f64 * 8e3 / bits_per_sec as f64 / PAYLOAD_SHARE
}

fn measure(
    args: &BenchArgs,
    fabric: &mut Fabric,
    list: &[Contender],
    flows: &[FlowSpec],
    bytes: u64,
    ideal_ms: f64,
) -> Result {
    let mut records: Vec<Record> = list.iter().map(|_| Record::default()).collect();
    let busy = Busy::start();
    let load = Load {
        bytes,
        time: Duration::ZERO,
        bits_per_sec: 0,
        block_bytes: u32::from(args.mtu) - 100,
        limit: Duration::from_secs(40),
    };
    for draw in 0..args.draws() {
        fabric.reseed(args.seed + draw)?;
        for (contender, record) in list.iter().zip(&mut records) {
            if let Err(e) = one(args, fabric, contender, flows, &load, record) {
                record.gave_up.push(e.to_string());
            }
        }
    }
    show(list, &mut records, ideal_ms, &busy)
}

fn one(
    args: &BenchArgs,
    fabric: &Fabric,
    contender: &Contender,
    flows: &[FlowSpec],
    load: &Load,
    record: &mut Record,
) -> Result {
    let mut side = contender.start(fabric, flows)?;
    // A first run opens the connections before the measurement.
    side.run(&Load { bytes: load.bytes.min(100_000), ..*load }, Side::start_ns())?;
    let before = side.counters()?.unwrap_or_default();
    let kernel = KernelCounts::read(fabric, flows)?;
    for _ in 0..args.rounds() {
        let out = side.run(load, Side::start_ns())?;
        let times = out.fct_ms();
        record.worst_of_run_ms.push(table::max(&times));
        record.fct_ms.extend(times);
        let wrong = [out.lost, out.duplicated, out.damaged, out.failed];
        for (sum, n) in record.wrong.iter_mut().zip(wrong) {
            *sum += n;
        }
    }
    if let Some(after) = side.counters()? {
        record.counted.add(&after.since(&before));
    }
    record.kernel.add(&KernelCounts::read(fabric, flows)?.since(&kernel));
    Ok(())
}

fn show(list: &[Contender], records: &mut [Record], ideal_ms: f64, busy: &Busy) -> Result {
    let mut rows = Vec::new();
    let mut notes = Vec::new();
    for (contender, r) in list.iter().zip(records) {
        if let Some(why) = r.gave_up.first() {
            notes.push(format!("{}: {} draws given up: {why}", contender.name(), r.gave_up.len()));
        }
        if r.fct_ms.is_empty() {
            continue;
        }
        let most = table::max(&r.fct_ms);
        let (again, dropped) = if contender.is_srd() {
            let c = &r.counted;
            notes.push(format!("{}: {}", contender.name(), c.text()));
            (c.retransmitted as f64 * 100.0 / c.tx_packets.max(1) as f64, r.kernel.udp_socket_drops)
        } else {
            let k = &r.kernel;
            notes.push(format!("{}: {} timeouts", contender.name(), k.tcp_timeouts));
            (k.tcp_again_percent(), k.tcp_socket_drops)
        };
        let ratios: Vec<f64> = r.worst_of_run_ms.iter().map(|ms| ms / ideal_ms).collect();
        rows.push(vec![
            contender.name().to_owned(),
            format!("{:.1}", table::percentile(&mut r.fct_ms, 0.5)),
            format!("{:.1}", table::percentile(&mut r.fct_ms, 0.99)),
            format!("{most:.1}"),
            table::quartiles(&ratios),
            format!("{:.2}", table::mean(&ratios)),
            format!("{:.2}", most / ideal_ms),
            format!("{}", r.worst_of_run_ms.len()),
            r.wrong.map(|n| n.to_string()).join("/"),
            format!("{again:.2}%"),
            dropped.to_string(),
        ]);
    }
    say(&format!("ideal {ideal_ms:.1} ms (line rate, TCP's headers)"))?;
    let head = [
        "",
        "p50 ms",
        "p99 ms",
        "max ms",
        "quartiles max/ideal",
        "mean max/ideal",
        "max/ideal",
        "runs",
        "lost/dup/bad/fail",
        "sent again",
        "lost in sockets",
    ];
    table::print(&head, &rows)?;
    for n in notes {
        say(&n)?;
    }
    say(&busy.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ideal_is_the_time_on_one_port() {
        // 48 flows of 200 kB at 1 Gb/s: 76.8 ms of payload, and 0.7 % of headers.
        assert!((ideal_ms(48, 200_000, 1_000_000_000) - 77.37).abs() < 0.01);
        assert!((ideal_ms(16, 250_000, 200_000_000) - 161.18).abs() < 0.01);
    }
}
