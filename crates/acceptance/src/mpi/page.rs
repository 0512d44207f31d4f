//! The tables of `mpi-figures` in `docs/performance.md`.

use super::{Figures, Key, Measured, Round, stage::Transport};
use crate::Result;
use std::{fmt::Write as _, path::Path};

const DOCUMENT: &str = "docs/performance.md";
const BEGIN: &str = "<!-- made by `cargo xtask mpi-figures` -->";
const END: &str = "<!-- end of what mpi-figures makes -->";
/// The text below the table, based on profiles.
const STANDS_IN_THE_WAY: &str = "\n\
     Half a round trip of 8 B, by time stamps in an instrumented build (means of 100,000 round \
     trips, 22 November 2026, this kind of machine, busy): the send system call, including \
     delivery into the peer's socket, takes 1.8 µs; the receive system call 0.9; MPI and \
     libfabric's `efa` provider, from the completion to the next post, 1.0; libibverbs and the \
     engine 0.5 before the packet leaves and 0.6 after it has arrived. Half a \
     round trip of raw UDP (`raw-ping-spin` above, 1.9) plus the provider is a floor of about 2.9 \
     µs: 0.79 times the latency of Open MPI's own TCP. The goal of 0.95 leaves 0.6 µs for what \
     libibverbs and the engine do in 1.1.\n\nFlows of \
     8 KiB and of 8 B: the provider rings the doorbell after every request. Where the program was \
     seen to poll soon after it posts, the second and further posts wait for that poll, or until \
     they fill a burst or 8 µs have passed, and leave with one system call \
     ([rules](../ARCHITECTURE.md#posts-that-wait)). TCP merges what is in its queue, too, and a \
     TCP receiver copies once: here the kernel copies out of the packet, the engine to the posted \
     buffer, and the provider to the program's. When each post was a system call of its own, the \
     kernel had 55 % of one rank's time in a flow of 8 KiB each way, libibverbs 22 %, libc \
     (mostly the provider's copy) 12 %, libfabric 7 %.\n";
/// Percentiles of the samples.
const PLACES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];
/// The figures in the table, and their message sizes.
const SHOWN: [(&str, &[u64]); 8] = [
    ("latency-p50", &[8, 1024, 8192, 65536, 1 << 20]),
    ("latency-p99", &[8, 65536]),
    ("bandwidth", &[8192, 65536, 1 << 20, 4 << 20]),
    ("bi-bandwidth", &[8192, 65536, 1 << 20, 4 << 20]),
    ("message-rate", &[8]),
    ("allreduce-p50", &[8, 8192, 1 << 20]),
    ("allreduce-p99", &[8]),
    ("allreduce-p99.9", &[8]),
];

/// Smallest, median and largest value.
struct Spread {
    least: f64,
    median: f64,
    most: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut all: Vec<f64> = values.filter(|v| v.is_finite()).collect();
        all.sort_by(f64::total_cmp);
        let (least, most) = (*all.first()?, *all.last()?);
        let half = all.len() / 2;
        let even = all.len().is_multiple_of(2);
        let median = if even { f64::midpoint(all[half - 1], all[half]) } else { all[half] };
        Some(Self { least, median, most })
    }

    fn text(&self) -> String {
        format!("{} ({} – {})", short(self.median), short(self.least), short(self.most))
    }

    fn ratio(&self) -> String {
        format!("{:.2} ({:.2} – {:.2})", self.median, self.least, self.most)
    }
}

/// A value with three significant digits.
fn short(v: f64) -> String {
    match v.abs() {
        a if a >= 100.0 => format!("{v:.0}"),
        a if a >= 10.0 => format!("{v:.1}"),
        _ => format!("{v:.2}"),
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 20 => format!("{} MiB", b >> 20),
        b if b >= 1 << 10 => format!("{} KiB", b >> 10),
        b => format!("{b} B"),
    }
}

fn value(figures: &Figures, key: &Key) -> f64 {
    figures.get(key).map_or(f64::NAN, |v| v.0)
}

/// Ratio of SRD to another contender, one per round.
fn ratios(rounds: &[Round], key: &Key, other: Transport) -> Option<Spread> {
    let at = Transport::ALL.iter().position(|o| *o == other)?;
    Spread::of(rounds.iter().map(|r| value(&r[0], key) / value(&r[at], key)))
}

/// The whole section.
pub fn text(m: &Measured, rounds: u32, seconds: &str) -> String {
    let mut out = head(m, rounds, seconds);
    goals(&mut out, m);
    out.push_str(
        "\n### Two hosts with a link between them\n\nA veth pair with an MTU of 9000 and no rate \
         limit: the CPUs are the bottleneck.\n\n",
    );
    table(&mut out, &m.link);
    out.push_str(STANDS_IN_THE_WAY);
    out.push_str(
        "\n### A fabric with two spines\n\nHosts send 400 Mb/s, each spine carries 200 Mb/s: a \
         TCP connection uses one path, SRD both.\n\n",
    );
    table(&mut out, &m.fabric);
    tails(&mut out, m);
    wrapped(&out)
}

fn head(m: &Measured, rounds: u32, seconds: &str) -> String {
    format!(
        "## MPI between two ranks\n\nMade by `cargo xtask mpi-figures --rounds {rounds} --seconds \
         {seconds}`: the system's Open MPI with `cm` and libfabric's `efa` provider on the drop-in \
         libraries (SRD), with its own TCP (`ob1`, `btl tcp`), and with libfabric's `tcp` provider \
         (`cm`). One program, [mpi_figures.c](../bindings/ibverbs/tests/programs/mpi_figures.c), \
         uses them in turn, with the rank of each host on a CPU of its own at raised priority; \
         all of them spin. Figures are medians of {rounds} rounds with the least and the \
         most in brackets; a ratio is the median of the ratios within one round. Latency is half a \
         round trip.\n\nLoad of the machine: {} before, {} after; other load lengthens all \
         tails.\n",
        m.load[0], m.load[1]
    )
}

/// Breaks lines of text at 100 columns; tables are not changed.
fn wrapped(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        if line.starts_with('|') {
            out += line;
        } else {
            let mut column = 0;
            for word in line.split(' ') {
                let long = column > 0 && column + 1 + word.chars().count() > 100;
                out += if long {
                    "\n"
                } else if column > 0 {
                    " "
                } else {
                    ""
                };
                column = if long { 0 } else { column + usize::from(column > 0) };
                out += word;
                column += word.chars().count();
            }
        }
        out.push('\n');
    }
    out
}

fn goals(out: &mut String, m: &Measured) {
    let key = |name: &str, bytes| (name.to_owned(), bytes);
    let tail = |at: usize| {
        let of = |draw: &[Vec<f64>; 3]| place(&draw[0], 0.999) / place(&draw[at], 0.999);
        Spread::of(m.tails.iter().map(of))
    };
    let all_tails = |at: usize| {
        let of = |at| place(&all_rounds(m, at), 0.999);
        Spread::of(std::iter::once(of(0) / of(at)))
    };
    let link = |name: &str, bytes| {
        let of = |over| ratios(&m.link, &key(name, bytes), over);
        [of(Transport::TcpBtl), of(Transport::TcpOfi)]
    };
    let rows = [
        ("latency of 8 B, link", "≤ 0.95", false, 0.95, link("latency-p50", 8)),
        ("p99 of it", "≤ 1.0", false, 1.0, link("latency-p99", 8)),
        ("latency of 8 KiB, link", "≤ 1.0", false, 1.0, link("latency-p50", 8192)),
        ("latency of 64 KiB, link", "≤ 0.95", false, 0.95, link("latency-p50", 65536)),
        ("messages of 8 B per second, link", "≥ 1.1", true, 1.1, link("message-rate", 8)),
        ("bandwidth of 8 KiB, link", "≥ 1.1", true, 1.1, link("bandwidth", 8192)),
        ("the same both ways, link", "≥ 1.0", true, 1.0, link("bi-bandwidth", 8192)),
        ("bandwidth of 1 MiB, link", "≥ 1.2", true, 1.2, link("bandwidth", 1 << 20)),
        ("bandwidth of 1 MiB, fabric", "≥ 1.2", true, 1.2, {
            let of = |over| ratios(&m.fabric, &key("bandwidth", 1 << 20), over);
            [of(Transport::TcpBtl), of(Transport::TcpOfi)]
        }),
        (
            "p99.9 of an allreduce of 8 B beside an elephant, all rounds together",
            "≤ 0.2",
            false,
            0.2,
            [all_tails(1), all_tails(2)],
        ),
        ("the same within one round", "≤ 0.2", false, 0.2, [tail(1), tail(2)]),
    ];
    out.push_str("\n| SRD / TCP | Goal | Open MPI's own TCP | | libfabric's TCP | |\n");
    out.push_str("|-|-|-|-|-|-|\n");
    for (what, goal, more, bound, both) in rows {
        let _ = write!(out, "| {what} | {goal} |");
        for one in both {
            let Some(s) = one else {
                out.push_str(" – | |");
                continue;
            };
            let met = if more { s.median >= bound } else { s.median <= bound };
            let word = if met { "met" } else { "**missed**" };
            let _ = write!(out, " {} | {word} |", s.ratio());
        }
        out.push('\n');
    }
}

fn table(out: &mut String, rounds: &[Round]) {
    let names = Transport::ALL.map(Transport::name);
    let _ = writeln!(
        out,
        "| | | {} | {} | {} | SRD / Open MPI's | SRD / libfabric's |\n|-|-|-|-|-|-|-|",
        names[0], names[1], names[2]
    );
    for (name, sizes) in SHOWN {
        for &bytes in sizes {
            let key = (name.to_owned(), bytes);
            let Some((_, unit)) = rounds.iter().find_map(|r| r[0].get(&key)) else { continue };
            let _ = write!(out, "| {}, {unit} | {} |", name.replace("-p", ", p"), size(bytes));
            for at in 0..3 {
                let spread = Spread::of(rounds.iter().map(|r| value(&r[at], &key)));
                let _ = write!(out, " {} |", spread.map_or("–".into(), |s| s.text()));
            }
            for other in [Transport::TcpBtl, Transport::TcpOfi] {
                let ratio = ratios(rounds, &key, other);
                let _ = write!(out, " {} |", ratio.map_or("–".into(), |s| s.ratio()));
            }
            out.push('\n');
        }
    }
}

/// The sample at quantile `share`.
fn place(samples: &[f64], share: f64) -> f64 {
    let mut all = samples.to_vec();
    all.sort_by(f64::total_cmp);
    let at = (all.len() as f64 * share) as usize;
    all.get(at.min(all.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

/// The small reductions of one contender in all rounds.
fn all_rounds(m: &Measured, at: usize) -> Vec<f64> {
    m.tails.iter().flat_map(|draw| draw[at].iter().copied()).collect()
}

fn tails(out: &mut String, m: &Measured) {
    let [_, count, pause] = super::TAIL;
    let _ = write!(
        out,
        "\n### Small allreduces beside an elephant\n\nA connection of iperf3 (cubic) between two \
         other hosts fills one of the two spines; the ranks reduce 8 B {count} times with pauses \
         of {pause} µs, with new connections in each round, so that TCP shares the elephant's \
         path in some rounds and not in others. Times in µs.\n\n| | one round: p50 | p90 | p99 | \
         p99.9 | all rounds together: p99 | p99.9 |\n|-|-|-|-|-|-|-|\n",
    );
    for (at, over) in Transport::ALL.iter().enumerate() {
        let _ = write!(out, "| {} |", over.name());
        for (_, share) in PLACES {
            let spread = Spread::of(m.tails.iter().map(|draw| place(&draw[at], share)));
            let _ = write!(out, " {} |", spread.map_or("–".into(), |s| s.text()));
        }
        let all = all_rounds(m, at);
        let _ = writeln!(out, " {} | {} |", short(place(&all, 0.99)), short(place(&all, 0.999)));
    }
}

/// Writes the section to the document, replacing the previous one.
///
/// # Errors
/// The document cannot be read or written.
pub fn write(root: &Path, section: &str) -> Result {
    let path = root.join(DOCUMENT);
    let old = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    std::fs::write(&path, replaced(&old, section)).map_err(|e| format!("{DOCUMENT}: {e}"))?;
    println!("{DOCUMENT} written");
    Ok(())
}

fn replaced(old: &str, section: &str) -> String {
    let new = format!("{BEGIN}\n\n{}\n\n{END}", section.trim());
    let found = old.split_once(BEGIN).and_then(|(head, rest)| {
        let (_, foot) = rest.split_once(END)?;
        Some((head, foot))
    });
    match found {
        Some((head, foot)) => format!("{head}{new}{foot}"),
        None => format!("{}\n\n{new}\n", old.trim_end()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_replaces_the_previous_one() {
        let first = replaced("# P\n\ntext\n", "a");
        assert_eq!(first, format!("# P\n\ntext\n\n{BEGIN}\n\na\n\n{END}\n"));
        assert_eq!(replaced(&first, "b"), first.replace("\na\n", "\nb\n"));
    }

    #[test]
    fn ratios_are_within_rounds() {
        let round = |srd: f64, tcp: f64| -> Round {
            let one = |v| Figures::from([(("x".to_owned(), 8), (v, "us".to_owned()))]);
            [one(srd), one(tcp), one(1.0)]
        };
        let rounds = [round(1.0, 2.0), round(30.0, 10.0), round(1.0, 1.0)];
        let s = ratios(&rounds, &("x".to_owned(), 8), Transport::TcpBtl).unwrap();
        assert_eq!((s.least, s.median, s.most), (0.5, 1.0, 3.0));
        assert!(ratios(&rounds, &("y".to_owned(), 8), Transport::TcpBtl).is_none());
    }

    #[test]
    fn lines_are_at_most_100_columns() {
        let text = wrapped(&format!("{}\n| {} |\n", "word ".repeat(60).trim(), "x ".repeat(80)));
        assert!(text.lines().all(|l| l.starts_with('|') || l.chars().count() <= 100), "{text}");
        assert_eq!(text.matches("word").count(), 60);
    }

    #[test]
    fn quantiles_of_samples() {
        let all: Vec<f64> = (0..1000).rev().map(f64::from).collect();
        assert_eq!((place(&all, 0.5), place(&all, 0.999)), (500.0, 999.0));
        assert!(place(&[], 0.5).is_nan());
    }

    fn measured(srd: f64, tcp: f64) -> Measured {
        let one = |us: f64| {
            let key = |name: &str, bytes| (name.to_owned(), bytes);
            let bandwidth = (key("bandwidth", 1 << 20), (us, "MB/s".to_owned()));
            Figures::from([(key("latency-p50", 8), (us, "µs".to_owned())), bandwidth])
        };
        let round = || -> Round { [one(srd), one(tcp), one(tcp)] };
        let tails = vec![[vec![srd; 10], vec![tcp; 10], vec![tcp; 10]]];
        let (link, fabric) = (vec![round(), round()], vec![round()]);
        Measured { link, fabric, tails, load: ["1".to_owned(), "2".to_owned()] }
    }

    /// The row of the goals that begins with these words.
    fn goal(m: &Measured, begin: &str) -> String {
        let mut out = String::new();
        goals(&mut out, m);
        let row = out.lines().find(|l| l.starts_with(&format!("| {begin}")));
        row.unwrap_or_else(|| panic!("no row `{begin}`: {out}")).to_owned()
    }

    #[test]
    fn a_goal_is_met_on_its_own_side_of_the_bound() {
        let (half, twice) = (measured(1.0, 2.0), measured(2.0, 1.0));
        let latency = goal(&half, "latency of 8 B");
        assert!(latency.contains("| 0.50 (0.50 – 0.50) | met |"), "{latency}");
        assert!(goal(&twice, "latency of 8 B").contains("**missed**"));
        assert!(goal(&twice, "bandwidth of 1 MiB, link").matches("| met |").count() == 2);
        assert!(goal(&half, "bandwidth of 1 MiB, link").matches("**missed**").count() == 2);
        assert!(goal(&measured(1.0, 5.0), "p99.9 of an allreduce").contains("| met |"));
        assert!(goal(&measured(1.0, 4.9), "p99.9 of an allreduce").contains("**missed**"));
        let exactly = goal(&measured(7.0, 10.0), "latency of 8 B");
        assert!(exactly.contains("| met |"), "the bound itself: {exactly}");
    }

    #[test]
    fn what_was_not_measured_is_a_dash_and_no_goal_that_is_met() {
        let m = Measured::default();
        for row in ["latency of 8 B", "bandwidth of 1 MiB, link", "the same within one round"] {
            let text = goal(&m, row);
            assert!(text.contains(" – | |") && !text.contains("met"), "{text}");
        }
    }

    #[test]
    fn the_table_has_a_row_for_each_figure_that_was_measured() {
        let mut out = String::new();
        table(&mut out, &measured(1.0, 4.0).link);
        let rows: Vec<&str> = out.lines().collect();
        assert_eq!(rows.len(), 2 + 2, "{out}");
        assert!(rows[2].starts_with("| latency, p50, µs | 8 B | 1.00 (1.00 – 1.00) | 4.00"));
        assert!(rows[3].starts_with("| bandwidth, MB/s | 1 MiB |"), "{}", rows[3]);
        assert!(rows.iter().all(|r| r.matches('|').count() == 8), "{out}");
    }

    #[test]
    fn numbers_have_three_digits_and_sizes_a_unit() {
        let shown: Vec<String> = [0.123, 9.876, 12.34, 123.4, 1234.5].map(short).into();
        assert_eq!(shown, ["0.12", "9.88", "12.3", "123", "1234"]);
        let sizes: Vec<String> = [8, 1023, 1024, 65_536, 1 << 20, 4 << 20].map(size).into();
        assert_eq!(sizes, ["8 B", "1023 B", "1 KiB", "64 KiB", "1 MiB", "4 MiB"]);
    }

    #[test]
    fn a_spread_leaves_out_what_is_no_number() {
        let s = Spread::of([3.0, f64::NAN, 1.0, f64::INFINITY, 2.0, 10.0].into_iter()).unwrap();
        assert_eq!((s.least, s.median, s.most), (1.0, 2.5, 10.0), "even: between the middle two");
        assert!(Spread::of([f64::NAN].into_iter()).is_none());
    }
}
