//! Steady flows during a fault: how late blocks arrive.

use super::{
    BenchArgs, FlowSpec, Outcome,
    contender::{Contender, Load, Side},
    fabric_build, fabric_of,
    protocol::Counted,
    supported,
    table::{self, Busy},
};
use crate::{
    error::Result,
    fabric::Fabric,
    fault::{self, Fault, Place},
    say,
    spec::FabricSpec,
};
use std::{thread, time::Duration};

/// Default contenders.
const CONTENDERS: [&str; 8] =
    ["srd", "srd-one-path", "cubic", "bbr", "cubic-50ms", "mptcp", "cubic-v6", "cubic-v6-50ms"];

/// Time in the run at which the fault begins.
const FAULT_AT: Duration = Duration::from_millis(300);

/// A fault with its duration and repetitions.
#[derive(Clone, Copy)]
struct Course {
    place: Place,
    fault: Fault,
    lasting: Duration,
    /// Number of repetitions; pauses between them are as long as the fault.
    times: u32,
}

/// Results of a contender.
#[derive(Default)]
struct Record {
    quiet_ms: Vec<f64>,
    late_ms: Vec<f64>,
    during_mbit: Vec<f64>,
    wrong: [u64; 4],
    gave_up: Vec<String>,
    counted: Option<Counted>,
}

fn spec_of(args: &BenchArgs, linkdown_aware: bool) -> FabricSpec {
    FabricSpec { hosts: 2, linkdown_aware, ..fabric_of(args) }
}

/// One of four spines drops all packets.
pub fn blackhole(args: &BenchArgs) -> Result {
    let mut fabric = fabric_build(&spec_of(args, false))?;
    let list = supported(
        &fabric,
        args.contenders(if args.quick { &CONTENDERS[..3] } else { &CONTENDERS })?,
    )?;
    for seconds in if args.quick { &[1][..] } else { &[1, 3] } {
        say(&format!("\none of 4 spines is a black hole for {seconds} s"))?;
        let course = Course {
            place: Place::Spine(0),
            fault: Fault::Blackhole,
            lasting: Duration::from_secs(*seconds),
            times: 1,
        };
        measure(args, &mut fabric, &list, course)?;
    }
    Ok(())
}

/// One of four spines goes down, which its neighbours see as loss of carrier.
pub fn linkdown(args: &BenchArgs) -> Result {
    for aware in [false, true] {
        let mut fabric = fabric_build(&spec_of(args, aware))?;
        let list = supported(
            &fabric,
            args.contenders(if args.quick { &CONTENDERS[..3] } else { &CONTENDERS })?,
        )?;
        say(&format!(
            "\none of 4 spines goes down for 1 s, ignore_routes_with_linkdown={}",
            u8::from(aware)
        ))?;
        let course = Course {
            place: Place::Spine(0),
            fault: Fault::LinkDown,
            lasting: Duration::from_secs(1),
            times: 1,
        };
        measure(args, &mut fabric, &list, course)?;
    }
    Ok(())
}

/// One link repeatedly goes down and up.
pub fn flap(args: &BenchArgs) -> Result {
    let mut fabric = fabric_build(&spec_of(args, true))?;
    let list = supported(
        &fabric,
        args.contenders(if args.quick { &CONTENDERS[..3] } else { &CONTENDERS })?,
    )?;
    say("\na link of 4 goes down and up again five times, 200 ms each")?;
    let course = Course {
        place: Place::Link { leaf: 0, spine: 0 },
        fault: Fault::LinkDown,
        lasting: Duration::from_millis(200),
        times: 5,
    };
    measure(args, &mut fabric, &list, course)
}

fn measure(args: &BenchArgs, fabric: &mut Fabric, list: &[Contender], course: Course) -> Result {
    // Two pairs at half of the hosts' rate, so that three of four spines are enough.
    let flows: Vec<FlowSpec> =
        (0..16).map(|i| FlowSpec { from: (0, i % 2), to: (1, i % 2) }).collect();
    let busy = Busy::start();
    let mut records: Vec<Record> = list.iter().map(|_| Record::default()).collect();
    for draw in 0..args.draws() {
        fabric.reseed(args.seed + draw)?;
        for (contender, record) in list.iter().zip(&mut records) {
            let done = one(args, fabric, contender, &flows, course, record);
            if let Err(e) = done {
                record.gave_up.push(e.to_string());
                fault::heal_all(fabric)?;
            }
        }
    }
    show(list, &mut records, &busy)
}

fn one(
    args: &BenchArgs,
    fabric: &Fabric,
    contender: &Contender,
    flows: &[FlowSpec],
    course: Course,
    record: &mut Record,
) -> Result {
    let mut side = contender.start(fabric, flows)?;
    let length = course.lasting * (2 * course.times - 1);
    let load = Load {
        bytes: 0,
        time: FAULT_AT + length + Duration::from_millis(700),
        bits_per_sec: fabric.spec().host_bits_per_sec / 16,
        block_bytes: u32::from(args.mtu) - 100,
        limit: Duration::from_secs(20),
    };
    let quiet = Load { time: Duration::from_millis(1000), ..load };
    side.run(&Load { time: Duration::from_millis(200), ..load }, Side::start_ns())?;
    for _ in 0..args.rounds().div_ceil(3) {
        let out = side.run(&quiet, Side::start_ns())?;
        record.quiet_ms.push(out.late_ms());
        record.count(&out);
        let start_ns = Side::start_ns();
        let out = thread::scope(|s| {
            let breaker = s.spawn(|| course.run(fabric, start_ns));
            let out = side.run(&load, start_ns);
            let broke = breaker.join();
            broke.map_err(|_| crate::NetError::new("a thread ended early"))??;
            out
        })?;
        record.late_ms.push(out.late_ms());
        let from = FAULT_AT.as_millis() as u64;
        let to = from + length.as_millis() as u64;
        record.during_mbit.push(out.bits_per_sec(from, to) / 1e6);
        record.count(&out);
    }
    if let Some(counted) = side.counters()? {
        record.counted.get_or_insert_default().add(&counted);
    }
    Ok(())
}

impl Record {
    fn count(&mut self, out: &Outcome) {
        let wrong = [out.lost, out.duplicated, out.damaged, out.failed];
        for (sum, n) in self.wrong.iter_mut().zip(wrong) {
            *sum += n;
        }
    }
}

impl Course {
    /// Injects and removes the fault at its times.
    fn run(self, fabric: &Fabric, start_ns: u64) -> Result {
        let ahead = start_ns.saturating_sub(super::block::now_ns());
        thread::sleep(Duration::from_nanos(ahead) + FAULT_AT);
        for i in 0..self.times {
            if i > 0 {
                thread::sleep(self.lasting);
            }
            fault::fail(fabric, self.place, self.fault)?;
            thread::sleep(self.lasting);
            fault::heal(fabric, self.place, self.fault)?;
        }
        Ok(())
    }
}

fn show(list: &[Contender], records: &mut [Record], busy: &Busy) -> Result {
    let mut rows = Vec::new();
    let mut notes = Vec::new();
    for (contender, r) in list.iter().zip(records) {
        if let Some(why) = r.gave_up.first() {
            notes.push(format!("{}: {} draws given up: {why}", contender.name(), r.gave_up.len()));
        }
        if let Some(counted) = &r.counted {
            notes.push(format!("{}: {}", contender.name(), counted.text()));
        }
        let (quiet, late) = (table::max(&r.quiet_ms), table::max(&r.late_ms));
        let n = r.late_ms.len();
        rows.push(vec![
            contender.name().to_owned(),
            format!("{:.1}", table::percentile(&mut r.quiet_ms, 0.5)),
            format!("{quiet:.1}"),
            format!("{:.1}", table::percentile(&mut r.late_ms, 0.5)),
            format!("{late:.1}"),
            format!("{:.1}", late - quiet),
            format!("{:.0}", table::mean(&r.during_mbit)),
            n.to_string(),
            r.wrong.map(|n| n.to_string()).join("/"),
        ]);
    }
    let head = [
        "latest block, ms after due:",
        "quiet p50",
        "quiet max",
        "fault p50",
        "fault max",
        "above quiet",
        "Mb/s then",
        "runs",
        "lost/dup/bad/fail",
    ];
    table::print(&head, &rows)?;
    for n in notes {
        say(&n)?;
    }
    say(&busy.text())
}
