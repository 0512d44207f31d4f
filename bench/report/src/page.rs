//! The generated page.

use crate::{
    Result, checksum,
    figures::{Figures, Spread},
    goals::{self, Goal},
    measure::Measured,
    rows::{self, Driver, PEERS, Row, SIZES, Wait},
};
use std::fmt::Write;

/// File with the instruction counts of the core.
pub const TABLE: &str = "bench/instructions/table.csv";

/// Longest line of text in columns.
const COLUMNS: usize = 100;

/// The whole page.
pub fn page(m: &Measured) -> Result<String> {
    let mut out = String::new();
    head(&mut out, m)?;
    goals_table(&mut out, &goals::goals(m))?;
    streams(&mut out, m)?;
    out += &checksum::part(m)?;
    out.push('\n');
    pings(&mut out, m)?;
    rates(&mut out, m)?;
    core(&mut out, m)?;
    Ok(wrapped(&out))
}

/// Breaks lines of text at 100 columns; tables are not changed.
pub fn wrapped(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        if line.starts_with('|') || line.len() <= COLUMNS {
            out += line;
            out.push('\n');
            continue;
        }
        let item = line.starts_with("- ") || line.starts_with("  ");
        let mut column = 0;
        for word in line.split_whitespace() {
            if column > 0 && column + 1 + word.chars().count() > COLUMNS {
                out += if item { "\n  " } else { "\n" };
                column = if item { 2 } else { 0 };
            } else if column > 0 {
                out.push(' ');
                column += 1;
            } else if line.starts_with("  ") {
                out += "  ";
                column = 2;
            }
            out += word;
            column += word.chars().count();
        }
        out.push('\n');
    }
    out
}

/// Replaces the section between `marks` in the page by `part`.
pub fn replace(page: &str, part: &str, marks: [&str; 2]) -> Option<String> {
    let (before, rest) = page.split_once(marks[0])?;
    let (_, after) = rest.split_once(marks[1])?;
    Some(format!("{before}{part}{}", after.strip_prefix('\n').unwrap_or(after)))
}

/// As [`replace`]; a page that has no such section gets it before the first of those that begin
/// with `followers`.
pub fn put(page: &str, part: &str, marks: [&str; 2], followers: &[&str]) -> String {
    let next = || followers.iter().filter_map(|mark| page.find(mark)).min();
    replace(page, part, marks).unwrap_or_else(|| match next() {
        Some(at) => format!("{}{part}\n{}", &page[..at], &page[at..]),
        None => format!("{page}\n{part}"),
    })
}

/// The commit that is measured, which `cargo xtask report-age` looks for in the page.
pub fn commit() -> String {
    let line = ["rev-parse", "--short=12", "HEAD"];
    let out = std::process::Command::new("git").args(line).output();
    let said = out.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned());
    said.ok().filter(|s| !s.is_empty()).unwrap_or_else(|| "unknown".into())
}

pub fn file(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn cpu_model() -> String {
    let text = file("/proc/cpuinfo");
    let line = text.lines().find_map(|l| l.strip_prefix("model name"));
    line.map_or_else(|| "unknown".into(), |l| l.trim_start_matches([' ', '\t', ':']).to_owned())
}

fn head(out: &mut String, m: &Measured) -> Result<()> {
    let processors = std::thread::available_parallelism()?;
    let load = Spread::of(m.loads.iter().copied());
    let priority = if m.raised {
        "both ends in sessions of their own at raised priority (nice and autogroup -15), all \
         contenders alike"
    } else {
        "normal priority"
    };
    write!(
        out,
        "# Performance

<!-- Written by `cargo xtask report`; change bench/report instead of this file. -->

Made by one command, `cargo xtask report --runs {runs} --seconds {seconds}`, which builds and
measures everything below, of commit `{commit}`. Each figure is the **median of {runs} runs**,
with the least and the most in brackets; the rows run in turn (first row, second row, …, first row
again), and a ratio is the median of the ratios within one round. One row alone, with all counters
of both ends:
`cargo xtask report --row NAME`, with the names in the tables.

Conditions (\"offgro\"):

- two network namespaces joined by a veth pair with an MTU of 9000; on both ends TSO, GSO and
  tx-udp-segmentation are off, so that separate packets cross the link, and GRO is on, as in a \
  NIC. Checked in this run: {link};
- {processors} processors, {model}; Linux {kernel};
- the driving end is pinned to the first processor, the serving end to the second; {priority};
- the machine is shared: load average {load} during the runs;
  absolute figures vary with it, ratios within one round hardly do;
- CPU time is that of the processes with all their threads, including system calls. Work of the
  kernel's own threads is not included, for any contender;
- raw UDP is `crates/datapath/examples/raw`: connected sockets and bare system calls, with the same
  64 source ports as SRD and segmented sends of 8 packets (7 at 8900 bytes). SRD sends up to {burst}
  packets of 1400 bytes on one path with one call, as does `raw-burst-1400`. Raw UDP sends one
  buffer again and again, which stays in the cache.
  TCP is iperf3 with cubic, one connection, the same payload per packet.

",
        burst = rows::burst_of(1400),
        commit = commit(),
        runs = m.plan.runs,
        seconds = m.plan.seconds,
        link = m.link,
        model = cpu_model(),
        kernel = file("/proc/sys/kernel/osrelease"),
        load = shown(load, 1),
    )?;
    Ok(())
}

/// `median (least – most)`.
pub fn shown(s: Spread, digits: usize) -> String {
    if s.median.is_nan() {
        return "–".into();
    }
    format!("{:.digits$} ({:.digits$} – {:.digits$})", s.median, s.least, s.most)
}

fn goals_table(out: &mut String, goals: &[Goal]) -> Result<()> {
    writeln!(out, "## Goals\n\n| Figure | Goal | Reached | |\n|-|-|-|-|")?;
    for g in goals {
        let sign = if g.at_least { "≥" } else { "≤" };
        let digits = if g.target >= 100.0 { 0 } else { 2 };
        let met = if g.met() { "met" } else { "**missed**" };
        let (what, target) = (g.what, g.target);
        writeln!(out, "| {what} | {sign} {target} | {} | {met} |", shown(g.reached, digits))?;
    }
    let missed: Vec<_> = goals.iter().filter(|g| !g.met()).collect();
    if !missed.is_empty() {
        writeln!(out, "\nWhy goals are missed, as profiles show (perf, callgrind):\n")?;
        let mut told: Vec<&str> = Vec::new();
        for g in missed {
            let cause = if told.contains(&g.cause) { "As above." } else { g.cause };
            told.push(g.cause);
            writeln!(out, "- **{}: {:.2}.** {cause}", g.what, g.reached.median)?;
        }
    }
    out.push('\n');
    Ok(())
}

fn streams(out: &mut String, m: &Measured) -> Result<()> {
    writeln!(
        out,
        "## Unidirectional throughput

Sprayed over 64 paths. Both ends use 256 KiB of buffers in turn; 1,024 sends, or 8 writes of 256
KiB, are outstanding. Gb are payload; CPU time is that of both ends.
\"Thread\" is a device driven by its own thread, the other SRD rows are driven by the caller.
"
    )?;
    for size in SIZES {
        writeln!(
            out,
            "### {size} bytes per packet\n\n| Row | Gb per CPU-s | / raw | / raw, same burst | \
             / TCP | Gb/s | ns per packet, sender + receiver | packets per send call | resent ‰ |\n\
             |-|-|-|-|-|-|-|-|-|"
        )?;
        let burst = Some(Row::RawBurst { size }).filter(|row| rows::all().contains(row));
        let (raw, tcp) = (Row::RawStream { size }, Row::TcpStream { size });
        let send = |driver| Row::SrdSend { size, driver };
        let rest = [send(Driver::Caller), Row::SrdWrite { size }, send(Driver::Thread), tcp];
        for row in [raw].into_iter().chain(burst).chain(rest) {
            let per_cpu = |f: &Figures| f.gbit_per_cpu;
            let ns = [0, 1].map(|end| m.spread(row, |f| f.ns_per_packet[end]).median);
            writeln!(
                out,
                "| `{}` | {} | {:.2} | {:.2} | {:.2} | {} | {} | {} | {} |",
                row.name(),
                shown(m.spread(row, per_cpu), 2),
                m.ratio(row, raw, per_cpu).median,
                m.ratio(row, burst.unwrap_or(raw), per_cpu).median,
                m.ratio(row, tcp, per_cpu).median,
                shown(m.spread(row, |f| f.gbit), 1),
                if ns[0].is_nan() { "–".into() } else { format!("{:.0} + {:.0}", ns[0], ns[1]) },
                plain(m.spread(row, |f| f.packets_per_call).median, 1),
                plain(m.spread(row, |f| f.retransmitted_permille).median, 2),
            )?;
        }
        out.push('\n');
    }
    Ok(())
}

fn plain(value: f64, digits: usize) -> String {
    if value.is_nan() { "–".into() } else { format!("{value:.digits$}") }
}

fn pings(out: &mut String, m: &Measured) -> Result<()> {
    writeln!(
        out,
        "## Ping-pong of 64 bytes

Round trips in µs, one message at a time. Spinning ends poll for packets without sleeping; blocking
ones sleep in the kernel. TCP has Nagle's delay off.

| Row | p50 | / raw | p99 |
|-|-|-|-|"
    )?;
    for wait in Wait::BOTH {
        let raw = Row::RawPing(wait);
        for row in [raw, Row::SrdPing(wait), Row::TcpPing(wait)] {
            writeln!(
                out,
                "| `{}` | {} | {:.2} | {} |",
                row.name(),
                shown(m.spread(row, |f| f.rtt_us[0]), 2),
                m.ratio(row, raw, |f| f.rtt_us[0]).median,
                shown(m.spread(row, |f| f.rtt_us[1]), 1),
            )?;
        }
    }
    out.push('\n');
    Ok(())
}

fn rates(out: &mut String, m: &Measured) -> Result<()> {
    writeln!(
        out,
        "## Messages of 64 bytes, and peers

| Row | messages per s | per CPU-s of the sender | resent ‰ |
|-|-|-|-|"
    )?;
    let many = Row::SrdRate { peers: PEERS };
    for row in [Row::RawRate, Row::SrdRate { peers: 1 }, Row::RawSingle, many] {
        writeln!(
            out,
            "| `{}` | {} | {} | {} |",
            row.name(),
            shown(m.spread(row, |f| f.messages), 0),
            shown(m.spread(row, |f| f.messages_per_cpu), 0),
            shown(m.spread(row, |f| f.retransmitted_permille), 2),
        )?;
    }
    let peers =
        |name: &str| Spread::of(m.peers.iter().map(|p| p[name].as_f64().unwrap_or(f64::NAN)));
    let bytes = |name: &str, side: usize| {
        Spread::of(m.peers.iter().map(|p| p[name][side].as_f64().unwrap_or(f64::NAN))).median
    };
    writeln!(
        out,
        "
`raw-single` is raw UDP with one packet per system call, as packets to many peers need: no two of
them can be segments of one message, since each has its own destination. The {PEERS} peers are as
many engines, at 250 slots of 4 addresses, in one process on one CPU whose only thread gives each a
turn after the other, with 1,024 messages outstanding. That process is the slower end, because the
state of 1,000 engines does not fit its caches: the sender sleeps between answers. They come a
millisecond or more after the message, so that lone packets are copied (CC-11), most of them at
first, while each peer still has its credit for eight copies.

The core alone, both ends in one process in virtual time without sockets
(`target/release/peers`), does {one} messages per CPU-second of both ends with one peer, and {all}
with {PEERS} in turn, where every message is a burst of one with an acknowledgment of its own.

| Memory per peer, bytes | requester | responder |
|-|-|-|
| idle | {:.0} | {:.0} |
| active (a message has just ended) | {:.0} | {:.0} |
| idle after all {PEERS} were active at once | {:.0} | {:.0} |
| one that takes what it can: refused work in a whole window, reads, no answers | {:.0} | {:.0} |
| the most that any can take, by the default configuration | {max:.0} | {max:.0} |

Counted by the allocator: all that an engine holds with
{PEERS} peers less what it holds without any, per peer. The last row includes memory that pools keep
for reuse.
",
        bytes("bytes_idle", 0),
        bytes("bytes_idle", 1),
        bytes("bytes_active", 0),
        bytes("bytes_active", 1),
        bytes("bytes_rested", 0),
        bytes("bytes_rested", 1),
        bytes("bytes_hostile", 0),
        bytes("bytes_hostile", 1),
        max = peers("bytes_max").median,
        one = shown(peers("messages_per_cpu_second_one"), 0),
        all = shown(peers("messages_per_cpu_second_many"), 0),
    )?;
    Ok(())
}

/// What keeps the instruction counts above their goals, found by profiles.
const INSTRUCTIONS_CAUSE: &str = "\
Goals per message are 800 instructions to send, 650 to receive and 420 for the acknowledgment, \
and 1400 and 1450 per segment of a write and a read. What holds the others above them has no \
single place: of a send, a third is the post (checks, the entry of the request, its queues), a \
twentieth each the structure that the datapath gets and the scoreboard with its list; of a \
reception, a sixth is the decision with its completion, a twelfth the receive that is posted \
again, a fourteenth the replay check with what the header tells. The acknowledgment's goal is \
met since the scoreboard keeps no list per path (458 before). `device-hop` and `device-send`, with \
device, engine and sockets but without the kernel, have goals of 7,000 and 2,000 and miss them: of \
such a send, the core takes 1,300, the checksum 280, posting 280, and handing over to the sockets \
500.";

fn core(out: &mut String, m: &Measured) -> Result<()> {
    writeln!(
        out,
        "## The core alone

Two engines connected in memory, without sockets and payload; `cargo xtask bench-core`. A data
packet counts once, with its sending, reception, acknowledgment and completion.

| Operation | million packets per CPU-s |
|-|-|"
    )?;
    for (name, _) in m.core.first().into_iter().flatten() {
        let rounds = m.core.iter().flatten().filter(|(n, _)| n == name);
        writeln!(out, "| {name} | {} |", shown(Spread::of(rounds.map(|(_, r)| r / 1e6)), 2))?;
    }
    writeln!(
        out,
        "\nInstructions per operation, counted by callgrind (`cargo xtask bench-instructions` \
         compares them\nwith [{TABLE}](../{TABLE})):\n\n| Operation | Instructions |\n|-|-|"
    )?;
    for line in file(TABLE).lines().skip(1) {
        let (name, count) = line.split_once(',').ok_or_else(|| format!("{TABLE}: `{line}`"))?;
        writeln!(out, "| {name} | {count} |")?;
    }
    writeln!(out, "\n{INSTRUCTIONS_CAUSE}")?;
    let names = rows::all().iter().map(|r| format!("`{}`", r.name())).collect::<Vec<_>>();
    writeln!(out, "\nAll rows: {}.", names.join(", "))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_broken_between_words() {
        let words = "word ".repeat(50);
        let text = wrapped(&format!("- {words}\n| {words} |\n{words}\nshort\n"));
        let lines: Vec<_> = text.lines().collect();
        assert!(lines.iter().all(|l| l.starts_with('|') || l.len() <= COLUMNS), "{text}");
        assert_eq!(lines.iter().filter(|l| l.starts_with("  word")).count(), 2);
        assert_eq!(text.matches("word").count(), 150);
        assert!(lines.contains(&"short"));
    }
}
