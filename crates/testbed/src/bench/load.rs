//! Throughput: balance over uplinks, and goodput with losses, with a slow link, and beside TCP.

use super::{
    BenchArgs, FlowSpec, Outcome,
    contender::{Contender, Load, Side},
    fabric_build, fabric_of,
    protocol::Counted,
    supported,
    table::{self, Busy},
};
use crate::{
    error::{NetError, Result},
    fabric::Fabric,
    fault::{self, Fault, Place},
    say,
    spec::{FabricSpec, Node},
};
use std::{thread, time::Duration};

/// Default contenders.
const CONTENDERS: [&str; 6] = ["srd", "srd-one-path", "cubic", "bbr", "mptcp", "cubic-v6"];

/// Time at the start of a run that is not counted, while rates converge.
const WARM: Duration = Duration::from_millis(500);

fn default_contenders(args: &BenchArgs) -> &'static [&'static str] {
    if args.quick { &CONTENDERS[..3] } else { &CONTENDERS }
}

fn full(args: &BenchArgs) -> Load {
    Load {
        bytes: 0,
        time: WARM + Duration::from_millis(if args.quick { 700 } else { 1500 }),
        bits_per_sec: 0,
        block_bytes: u32::from(args.mtu) - 100,
        limit: Duration::from_secs(20),
    }
}

/// Goodput in Mb/s after the warm-up.
fn goodput(out: &Outcome, load: &Load) -> f64 {
    out.bits_per_sec(WARM.as_millis() as u64, load.time.as_millis() as u64) / 1e6
}

/// Bytes that a leaf has sent, per uplink.
fn uplinks(fabric: &Fabric, leaf: u8) -> Result<Vec<u64>> {
    let counters = fabric.counters(Node::Leaf(leaf))?;
    let sent = |s| counters.get(&format!("up{s}")).map_or(0, |c| c.tx_bytes);
    Ok((0..fabric.spec().spines).map(sent).collect())
}

#[derive(Default)]
struct Record {
    /// Values, by column.
    figures: Vec<Vec<f64>>,
    wrong: [u64; 4],
    gave_up: Vec<String>,
    counted: Option<Counted>,
}

impl Record {
    fn add(&mut self, column: usize, value: f64) {
        if column >= self.figures.len() {
            self.figures.resize(column + 1, Vec::new());
        }
        self.figures[column].push(value);
    }

    fn count(&mut self, out: &Outcome) {
        let wrong = [out.lost, out.duplicated, out.damaged, out.failed];
        for (sum, n) in self.wrong.iter_mut().zip(wrong) {
            *sum += n;
        }
    }

    fn counted(&mut self, side: &mut Side) -> Result {
        if let Some(c) = side.counters()? {
            self.counted.get_or_insert_default().add(&c);
        }
        Ok(())
    }

    fn column(&self, column: usize) -> &[f64] {
        self.figures.get(column).map_or(&[], |c| &c[..])
    }
}

/// Runs all draws; in each draw, the contenders take turns.
fn draws(
    args: &BenchArgs,
    fabric: &mut Fabric,
    list: &[Contender],
    one: impl Fn(&Fabric, &Contender, &mut Record) -> Result,
) -> Result<Vec<Record>> {
    let mut records: Vec<Record> = list.iter().map(|_| Record::default()).collect();
    for draw in 0..args.draws() {
        fabric.reseed(args.seed + draw)?;
        for (contender, record) in list.iter().zip(&mut records) {
            if let Err(e) = one(fabric, contender, record) {
                record.gave_up.push(e.to_string());
                fault::heal_all(fabric)?;
            }
        }
    }
    Ok(records)
}

fn show(
    list: &[Contender],
    records: &[Record],
    head: &[&str],
    cells: impl Fn(&Record) -> Vec<String>,
    busy: &Busy,
) -> Result {
    let mut columns = head.to_vec();
    columns.extend(["runs", "lost/dup/bad/fail"]);
    let row = |(c, r): (&Contender, &Record)| {
        let mut row = vec![c.name().to_owned()];
        row.extend(cells(r));
        row.push(r.column(0).len().to_string());
        row.push(r.wrong.map(|n| n.to_string()).join("/"));
        row
    };
    let rows: Vec<_> = list.iter().zip(records).map(row).collect();
    table::print(&columns, &rows)?;
    for (c, r) in list.iter().zip(records) {
        if let Some(why) = r.gave_up.first() {
            say(&format!("{}: {} draws given up: {why}", c.name(), r.gave_up.len()))?;
        }
        if let Some(counted) = &r.counted {
            say(&format!("{}: {}", c.name(), counted.text()))?;
        }
    }
    say(&busy.text())
}

/// Balance of one transfer over the uplinks.
pub fn shares(args: &BenchArgs) -> Result {
    let spec =
        FabricSpec { spines: 8, hosts: 1, uplink_bits_per_sec: 100_000_000, ..fabric_of(args) };
    let mut fabric = fabric_build(&spec)?;
    let list = supported(&fabric, args.contenders(default_contenders(args))?)?;
    let flows = vec![FlowSpec { from: (0, 0), to: (1, 0) }; 4];
    let load = full(args);
    let busy = Busy::start();
    say("\none host to one host, 4 flows, 8 uplinks of half the host's rate")?;
    let records = draws(args, &mut fabric, &list, |fabric, contender, record| {
        let mut side = contender.start(fabric, &flows)?;
        side.run(&Load { time: Duration::from_millis(100), ..load }, Side::start_ns())?;
        let before = uplinks(fabric, 0)?;
        let out = side.run(&load, Side::start_ns())?;
        let sent: Vec<f64> =
            uplinks(fabric, 0)?.iter().zip(before).map(|(a, b)| (a - b) as f64).collect();
        record.add(0, goodput(&out, &load));
        record.add(1, table::max(&sent) / table::mean(&sent).max(1.0));
        // A share below a hundredth of the mean is only acknowledgments and chance.
        let used = sent.iter().filter(|b| **b > table::mean(&sent) / 100.0).count();
        record.add(2, used as f64);
        record.count(&out);
        record.counted(&mut side)
    })?;
    let head = ["", "Mb/s", "least", "busiest/mean uplink", "worst draw", "uplinks used", "least"];
    let least = |v: &[f64]| v.iter().copied().fold(f64::INFINITY, f64::min);
    let cells = |r: &Record| {
        vec![
            format!("{:.0}", table::mean(r.column(0))),
            format!("{:.0}", least(r.column(0))),
            format!("{:.2}", table::mean(r.column(1))),
            format!("{:.2}", table::max(r.column(1))),
            format!("{:.1}", table::mean(r.column(2))),
            format!("{:.0}", least(r.column(2))),
        ]
    };
    show(&list, &records, &head, cells, &busy)
}

/// One percent loss on every spine.
pub fn loss(args: &BenchArgs) -> Result {
    let spec = FabricSpec { hosts: 1, ..fabric_of(args) };
    let mut fabric = fabric_build(&spec)?;
    let list = supported(&fabric, args.contenders(default_contenders(args))?)?;
    let flows = vec![FlowSpec { from: (0, 0), to: (1, 0) }; 4];
    let load = full(args);
    let busy = Busy::start();
    say("\none host to one host at 200 Mb/s, 4 flows; then every spine loses 1 % each way")?;
    let records = draws(args, &mut fabric, &list, |fabric, contender, record| {
        let mut side = contender.start(fabric, &flows)?;
        let clean = side.run(&load, Side::start_ns())?;
        for s in 0..fabric.spec().spines {
            fault::fail(fabric, Place::Spine(s), Fault::Loss(10_000))?;
        }
        let lossy = side.run(&load, Side::start_ns())?;
        fault::heal_all(fabric)?;
        record.add(0, goodput(&clean, &load));
        record.add(1, goodput(&lossy, &load));
        record.add(2, goodput(&lossy, &load) / goodput(&clean, &load).max(0.1));
        record.count(&clean);
        record.count(&lossy);
        record.counted(&mut side)
    })?;
    let head = ["", "Mb/s clean", "Mb/s with 1 % loss", "share kept", "worst draw"];
    show(&list, &records, &head, ratio_cells, &busy)
}

fn ratio_cells(r: &Record) -> Vec<String> {
    let least = r.column(2).iter().copied().fold(f64::INFINITY, f64::min);
    vec![
        format!("{:.1}", table::mean(r.column(0))),
        format!("{:.1}", table::mean(r.column(1))),
        format!("{:.0}%", table::mean(r.column(2)) * 100.0),
        format!("{:.0}%", least * 100.0),
    ]
}

/// One uplink at a quarter of the rate of the others.
pub fn slowpath(args: &BenchArgs) -> Result {
    let spec = FabricSpec { hosts: 2, uplink_bits_per_sec: 100_000_000, ..fabric_of(args) };
    let mut fabric = fabric_build(&spec)?;
    let list = supported(&fabric, args.contenders(default_contenders(args))?)?;
    let flows: Vec<FlowSpec> =
        (0..8).map(|i| FlowSpec { from: (0, i % 2), to: (1, i % 2) }).collect();
    let load = full(args);
    // Share of payload in a packet's wire time.
    let payload = (f64::from(args.mtu) - 100.0) / (f64::from(args.mtu) + 14.0);
    let busy = Busy::start();
    say("\ntwo hosts to two hosts (400 Mb/s) over uplinks of 4 x 100, then 3 x 100 + 25 Mb/s")?;
    let records = draws(args, &mut fabric, &list, |fabric, contender, record| {
        let mut side = contender.start(fabric, &flows)?;
        let even = side.run(&load, Side::start_ns())?;
        let place = Place::Link { leaf: 0, spine: 0 };
        fault::fail(fabric, place, Fault::Rate(25_000_000))?;
        let slow = side.run(&load, Side::start_ns())?;
        fault::heal(fabric, place, Fault::Rate(0))?;
        record.add(0, goodput(&even, &load));
        record.add(1, goodput(&slow, &load));
        record.add(2, goodput(&slow, &load) / (325.0 * payload));
        record.count(&even);
        record.count(&slow);
        record.counted(&mut side)
    })?;
    let head = ["", "Mb/s even", "Mb/s with the slow link", "of what links carry", "worst draw"];
    show(&list, &records, &head, ratio_cells, &busy)
}

/// A contender that competes with the heavy flows.
struct Competitor<'a> {
    name: String,
    contender: Option<&'a Contender>,
}

/// Goodput beside heavy TCP flows on the same links.
pub fn coexist(args: &BenchArgs) -> Result {
    let spec = FabricSpec { hosts: 3, uplink_bits_per_sec: 100_000_000, ..fabric_of(args) };
    let mut fabric = fabric_build(&spec)?;
    let list = supported(&fabric, args.contenders(&["srd", "cubic", "mptcp"])?)?;
    let heavy = Contender::parse("cubic")?;
    // Two heavy connections, and one competing pair of hosts.
    let heavies: Vec<FlowSpec> = (0..2).map(|i| FlowSpec { from: (0, i), to: (1, i) }).collect();
    let flows = vec![FlowSpec { from: (0, 2), to: (1, 2) }; 2];
    let load = full(args);
    let mut rows: Vec<Competitor<'_>> = vec![Competitor { name: "nobody".into(), contender: None }];
    let beside = |c| Competitor { name: Contender::name(c).to_owned(), contender: Some(c) };
    rows.extend(list.iter().map(beside));
    let mut records: Vec<Record> = rows.iter().map(|_| Record::default()).collect();
    let busy = Busy::start();
    say("\n2 heavy cubic connections and one pair of hosts (200 Mb/s), on 4 uplinks of 100 Mb/s")?;
    for draw in 0..args.draws() {
        fabric.reseed(args.seed + draw)?;
        for (row, record) in rows.iter().zip(&mut records) {
            if let Err(e) = together(&fabric, &heavy, &heavies, row, &flows, &load, record) {
                record.gave_up.push(e.to_string());
            }
        }
    }
    let mut table_rows = Vec::new();
    for (row, r) in rows.iter().zip(&records) {
        if let Some(why) = r.gave_up.first() {
            say(&format!("beside {}: {} draws given up: {why}", row.name, r.gave_up.len()))?;
        }
        if let Some(counted) = &r.counted {
            say(&format!("{}: {}", row.name, counted.text()))?;
        }
        table_rows.push(vec![
            row.name.clone(),
            format!("{:.1}", table::mean(r.column(0))),
            format!("{:.1}", table::mean(r.column(1))),
            format!("{:.0}%", table::mean(r.column(2)) * 100.0),
            r.column(0).len().to_string(),
            r.wrong.map(|n| n.to_string()).join("/"),
        ]);
    }
    let head = [
        "beside the heavy flows:",
        "contender Mb/s",
        "heavy Mb/s",
        "busiest/all uplinks",
        "runs",
        "lost/dup/bad/fail",
    ];
    table::print(&head, &table_rows)?;
    say(&busy.text())
}

fn together(
    fabric: &Fabric,
    heavy: &Contender,
    heavies: &[FlowSpec],
    row: &Competitor<'_>,
    flows: &[FlowSpec],
    load: &Load,
    record: &mut Record,
) -> Result {
    let mut heavy = heavy.start(fabric, heavies)?;
    let mut other = row.contender.map(|c| c.start(fabric, flows)).transpose()?;
    let before = uplinks(fabric, 0)?;
    let start_ns = Side::start_ns();
    let (heavy_out, other_out) = thread::scope(|s| {
        let first = s.spawn(|| heavy.run(load, start_ns));
        let second = other.as_mut().map(|o| o.run(load, start_ns)).transpose();
        let first = first.join().map_err(|_| NetError::new("a thread ended early"))?;
        Ok::<_, NetError>((first?, second?))
    })?;
    let sent = uplinks(fabric, 0)?;
    let sent: Vec<f64> = sent.iter().zip(before).map(|(a, b)| (a - b) as f64).collect();
    record.add(0, other_out.as_ref().map_or(0.0, |o| goodput(o, load)));
    record.add(1, goodput(&heavy_out, load));
    record.add(2, table::max(&sent) / sent.iter().sum::<f64>().max(1.0));
    for out in [Some(&heavy_out), other_out.as_ref()].into_iter().flatten() {
        record.count(out);
    }
    other.as_mut().map_or(Ok(()), |side| record.counted(side))
}
