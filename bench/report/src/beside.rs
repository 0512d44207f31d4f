//! SRD beside other transports and the libraries that people would use instead: a section of the
//! page that is generated alone. All contenders run in turn in the same round, between the same two
//! namespaces.

use crate::{
    KEPT_FROM, Result,
    figures::{Figures, Spread},
    measure::{Plan, load},
    net::{self, FAR_IP, NEAR_IP, Net},
    page::{self, shown},
    pair::{self, LIFE_SECONDS, Ready, Server},
    rows::{Driver, Programs, Row, Wait, burst_of},
    sealed,
};
use std::fmt::Write;

/// First and last line of the section.
pub const BEGIN: &str = "<!-- made by `cargo xtask report --peers` -->";
const END: &str = "<!-- end of what report --peers makes -->";
/// Sizes of messages that go to and fro, in bytes.
const SIZES: [u32; 4] = [64, 8 << 10, 64 << 10, 1 << 20];
/// Bytes that go to and fro at each size, about, and the bounds of how many messages these are.
const PING_BYTES: u32 = 256 << 20;
const PINGS: [u32; 2] = [400, 20_000];
/// Payload of one packet of the streams: what a link with jumbo frames carries.
const PACKET: u32 = 8900;
/// Bytes of one message of UCX's stream, as of one SRD write.
const MESSAGE: u32 = 256 << 10;
/// Messages of UCX's stream: some seconds of it.
const MESSAGES: u32 = 20_000;
/// UDP and TCP ports of the programs' control connections.
const PORT: &str = "18991";

/// Script that mounts `/sys` anew and becomes the command that follows.
const SYSFS: &str = "mount -t sysfs sysfs /sys && exec \"$@\"";

/// Programs and the Debian packages that have them.
const TOOLS: [(&str, &str); 2] = [("fi_pingpong", "libfabric-bin"), ("ucx_perftest", "ucx-utils")];

/// One message at a time by a program of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ping {
    /// libfabric's `fi_pingpong` with this provider.
    Libfabric { provider: &'static str, srd: bool },
    /// UCX's `ucx_perftest` over TCP.
    Ucx,
}

/// In the order of one round; the first is what the others are compared with.
const PINGS_OF: [(&str, Ping); 4] = [
    ("libfabric `efa` over SRD", Ping::Libfabric { provider: "efa", srd: true }),
    ("libfabric `tcp;ofi_rxm`", Ping::Libfabric { provider: "tcp;ofi_rxm", srd: false }),
    ("libfabric `udp;ofi_rxd`", Ping::Libfabric { provider: "udp;ofi_rxd", srd: false }),
    ("UCX `tcp`", Ping::Ucx),
];

/// Rows of the streams that the page has otherwise, too.
const STREAMS: [(&str, Row); 5] = [
    ("SRD, writes", Row::SrdWrite { size: PACKET }),
    ("SRD, sends", Row::SrdSend { size: PACKET, driver: Driver::Caller }),
    ("raw UDP", Row::RawStream { size: PACKET }),
    ("kernel TCP, cubic", Row::TcpStream { size: PACKET }),
    ("QUIC (quinn), which always encrypts", Row::QuicStream { size: PACKET }),
];

/// Round trips of 64 B by programs that do nothing else.
const BARE: [(&str, Row); 3] = [
    ("SRD, verbs", Row::SrdPing(Wait::Spin)),
    ("raw UDP", Row::RawPing(Wait::Spin)),
    ("kernel TCP", Row::TcpPing(Wait::Spin)),
];

/// All results: each vector has one entry per round.
#[derive(Default)]
struct Measured {
    loads: Vec<f64>,
    /// Round trips in µs, per contender of [`PINGS_OF`] and size.
    pings: Vec<Vec<[f64; SIZES.len()]>>,
    /// Per row of [`BARE`].
    bare: Vec<Vec<Figures>>,
    /// Per row of [`STREAMS`].
    streams: Vec<Vec<Figures>>,
    /// Gigabits per second, and per CPU-second of both ends, of UCX's stream.
    ucx: Vec<[f64; 2]>,
}

/// Measures, and returns the section with its first and last line.
pub fn part(plan: Plan) -> Result<String> {
    net::tools_find(&TOOLS)?;
    let net = Net::build()?;
    let programs = Programs::find()?;
    let mut m = Measured::default();
    for round in 1..=plan.runs {
        eprintln!("round {round} of {}", plan.runs);
        m.loads.push(load()?);
        let ping = |(_, ping): &(_, Ping)| pings(&net, &programs, *ping);
        m.pings.push(PINGS_OF.iter().map(ping).collect::<Result<_>>()?);
        let row = |(_, row): &(_, Row)| {
            row.run(&net, &programs, plan.seconds).and_then(|told| Figures::of(*row, &told))
        };
        m.bare.push(BARE.iter().map(row).collect::<Result<_>>()?);
        m.streams.push(STREAMS.iter().map(row).collect::<Result<_>>()?);
        m.ucx.push(ucx_stream(&net)?);
    }
    section(plan, &m)
}

/// Messages that go to and fro at this size.
fn count(size: u32) -> u32 {
    (PING_BYTES / size).clamp(PINGS[0], PINGS[1])
}

/// Round trips in µs at each size.
fn pings(net: &Net, p: &Programs, ping: Ping) -> Result<[f64; SIZES.len()]> {
    let mut out = [0.0; SIZES.len()];
    for (out, size) in out.iter_mut().zip(SIZES) {
        let [serve, drive] = commands(p, ping, size);
        let server = Server::start(net, &serve, Ready::Wait(500))?;
        let said = pair::drive(net, &drive)?;
        server.finish()?;
        let half = match ping {
            Ping::Libfabric { .. } => libfabric_us(&said),
            Ping::Ucx => ucx_figures(&said).map(|[latency, _]| latency),
        };
        *out = 2.0 * half.ok_or_else(|| format!("{drive:?} printed no time: {said}"))?;
    }
    Ok(out)
}

/// Command lines of both ends.
fn commands(p: &Programs, ping: Ping, size: u32) -> [Vec<String>; 2] {
    let iterations = count(size);
    let line = |device: &str, to: &str| match ping {
        Ping::Libfabric { provider, srd } => {
            let tool = p.own.with_file_name("srd");
            // Built by `cargo xtask report`.
            let verbs = p.own.with_file_name("../verbs");
            let lead = if srd {
                format!(
                    "env -u SRD_REPORT_INSIDE {} run --quiet --interface {device} \
                     --verbs-dir {} -- ",
                    tool.display(),
                    verbs.display()
                )
            } else {
                String::new()
            };
            let test = format!("-p {provider} -e rdm -I {iterations} -S {size}");
            format!("{lead}fi_pingpong {test} {to}")
        }
        Ping::Ucx => ucx(device, to, &format!("tag_lat -s {size} -n {iterations}")),
    };
    [("srd-far", ""), ("srd-near", FAR_IP)].map(|(device, to)| timed(&line(device, to)))
}

/// A command with a time limit, in a view of `/sys` that has the interfaces of its namespace: UCX
/// looks for them there.
fn timed(line: &str) -> Vec<String> {
    let mut words: Vec<_> = ["unshare", "--mount", "--", "sh", "-c", SYSFS, "sh"].into();
    words.extend(["timeout", LIFE_SECONDS]);
    words.extend(line.split_whitespace());
    words.into_iter().map(String::from).collect()
}

/// An end of a test of UCX over TCP by this interface.
fn ucx(device: &str, to: &str, test: &str) -> String {
    let variables = format!("UCX_TLS=tcp UCX_NET_DEVICES={device}");
    format!("env {variables} ucx_perftest -t {test} -w 100 -p {PORT} -f -v {to}")
}

/// The time of one transfer in µs: the seventh column of the row below the heading.
fn libfabric_us(said: &str) -> Option<f64> {
    let row = said.lines().skip_while(|line| !line.starts_with("bytes")).nth(1)?;
    row.split_whitespace().nth(6)?.parse().ok()
}

/// Median latency in µs, and megabytes per second, of the last line of numbers.
fn ucx_figures(said: &str) -> Option<[f64; 2]> {
    let numbers = |line: &str| -> Option<Vec<f64>> {
        line.split(',').map(|w| w.trim().parse().ok()).collect()
    };
    let row = said.lines().rev().filter_map(numbers).find(|row| row.len() >= 6)?;
    // Iterations; latency: percentile, average, overall; bandwidth: average, overall; messages.
    Some([*row.get(1)?, *row.get(5)?])
}

/// CPU time in seconds of the programs that this one has waited for.
fn children_cpu_seconds() -> Result<f64> {
    /// Ticks per second of these times, on all of Linux's usual processors.
    const TICKS: f64 = 100.0;
    let text = std::fs::read_to_string("/proc/self/stat")?;
    // The name, in brackets, may have spaces; user and system time of children follow it as the
    // 14th and 15th word.
    let after = text.rsplit_once(") ").ok_or("/proc/self/stat has no name")?.1;
    let ticks = |n: usize| after.split(' ').nth(n).and_then(|w| w.parse::<f64>().ok());
    let both = ticks(13).zip(ticks(14)).ok_or("/proc/self/stat has no times")?;
    Ok((both.0 + both.1) / TICKS)
}

fn ucx_stream(net: &Net) -> Result<[f64; 2]> {
    let line = |device: &str, to: &str| {
        timed(&ucx(device, to, &format!("tag_bw -s {MESSAGE} -n {MESSAGES}")))
    };
    let before = children_cpu_seconds()?;
    let server = Server::start(net, &line("srd-far", ""), Ready::Wait(500))?;
    let said = pair::drive(net, &line("srd-near", FAR_IP))?;
    server.finish()?;
    let cpu = children_cpu_seconds()? - before;
    let [_, megabytes] = ucx_figures(&said).ok_or_else(|| format!("UCX printed {said}"))?;
    // UCX counts in units of 2^20 bytes.
    let gbit = megabytes * f64::from(1 << 20) * 8.0 / 1e9;
    let all = f64::from(MESSAGES) * f64::from(MESSAGE) * 8.0 / 1e9;
    Ok([gbit, all / cpu])
}

/// Spread of one figure over the rounds, and of its ratio to another one's.
fn with_ratio<T>(rounds: &[T], a: impl Fn(&T) -> f64, b: impl Fn(&T) -> f64) -> [String; 2] {
    [
        shown(Spread::of(rounds.iter().map(&a)), 2),
        shown(Spread::of(rounds.iter().map(|r| a(r) / b(r))), 2),
    ]
}

fn section(plan: Plan, m: &Measured) -> Result<String> {
    let mut out = String::new();
    let load = shown(Spread::of(m.loads.iter().copied()), 1);
    writeln!(
        out,
        "{BEGIN}

## Beside other transports

Everything in turn, {} rounds of `cargo xtask report --peers --runs {} --seconds {}`, load average \
{load}; under the conditions above ({NEAR_IP} and {FAR_IP}, each end on a processor of its own, \
MTU 9000). Medians (least to most); ratios are within one round. Commit {}.

Round trips in µs of the same program, `fi_pingpong -e rdm` of libfabric, over its providers, and \
of `ucx_perftest -t tag_lat`; all poll. The first row is SRD as programs for EFA see it, by the \
drop-in libraries.

| | {} |\n|-|{}",
        plan.runs,
        plan.runs,
        plan.seconds,
        page::commit(),
        SIZES.map(|s| format!("{s} B | beside SRD")).join(" | "),
        "-|-|".repeat(SIZES.len()),
    )?;
    for (n, (name, _)) in PINGS_OF.iter().enumerate() {
        let cell = |k: usize| with_ratio(&m.pings, |r| r[n][k], |r| r[0][k]).join(" | ");
        let cells: Vec<_> = (0..SIZES.len()).map(cell).collect();
        writeln!(out, "| {name} | {} |", cells.join(" | "))?;
    }
    writeln!(
        out,
        "\nRound trips of 64 B by programs that do nothing else:\n\n\
         | | p50 in µs | beside SRD | p99 in µs | beside SRD |\n|-|-|-|-|-|"
    )?;
    for (n, (name, _)) in BARE.iter().enumerate() {
        let cell =
            |k: usize| with_ratio(&m.bare, |r| r[n].rtt_us[k], |r| r[0].rtt_us[k]).join(" | ");
        writeln!(out, "| {name} | {} | {} |", cell(0), cell(1))?;
    }
    writeln!(
        out,
        "\nStreams: packets of {PACKET} B (raw UDP: {} in one call), writes and messages of \
         256 KiB; the CPU time is that of both ends. UCX's is that of its whole processes, which \
         have other work at their beginning and end.\n\n\
         | | Gb/s | beside SRD | Gb per CPU-s | beside SRD |\n|-|-|-|-|-|",
        burst_of(PACKET)
    )?;
    for (n, (name, _)) in STREAMS.iter().enumerate() {
        let speed = with_ratio(&m.streams, |r| r[n].gbit, |r| r[0].gbit);
        let cpu = with_ratio(&m.streams, |r| r[n].gbit_per_cpu, |r| r[0].gbit_per_cpu);
        writeln!(out, "| {name} | {} | {} |", speed.join(" | "), cpu.join(" | "))?;
    }
    let rounds: Vec<_> = m.ucx.iter().zip(&m.streams).collect();
    let speed = with_ratio(&rounds, |r| r.0[0], |r| r.1[0].gbit);
    let cpu = with_ratio(&rounds, |r| r.0[1], |r| r.1[0].gbit_per_cpu);
    writeln!(out, "| UCX `tcp`, tagged messages | {} | {} |", speed.join(" | "), cpu.join(" | "))?;
    writeln!(
        out,
        "\nNot here: UCX `ud` and `rc` need a device for InfiniBand or RoCE, which software for \
         TCP and UDP does not stand in for; Open MPI's TCP is in a section of its own.\n\n{END}"
    )?;
    Ok(page::wrapped(&out))
}

/// Replaces this section in the page, or puts it before those that other commands make.
pub fn put(page: &str, part: &str) -> String {
    page::put(page, part, [BEGIN, END], &[sealed::BEGIN, KEPT_FROM])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_fi_pingpong_are_read() {
        let said = "bytes   #sent  #ack   total     time     MB/sec    usec/xfer   Mxfers/sec\n\
                    64      20k     =20k     2.4m        0.35s      7.24       8.84       0.11\n";
        assert_eq!(libfabric_us(said), Some(8.84));
        assert_eq!(libfabric_us("no table\n"), None);
    }

    #[test]
    fn figures_of_ucx_perftest_are_read() {
        let said = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,\
                    overall_mr\n20000,8.512,8.9,9.1,6.9,7.0,112000,113000\n";
        assert_eq!(ucx_figures(said), Some([8.512, 7.0]));
        assert_eq!(ucx_figures("x,y\n"), None);
    }

    #[test]
    fn small_messages_are_many_and_large_ones_some() {
        assert_eq!(SIZES.map(count), [20_000, 20_000, 4_096, 400]);
    }

    #[test]
    fn time_of_children_does_not_fall() {
        let before = children_cpu_seconds().unwrap();
        std::process::Command::new("true").status().unwrap();
        assert!(children_cpu_seconds().unwrap() >= before);
    }
}
