//! MPI incast, as in figure 2 of the SRD paper: ranks on four hosts send to the ranks of a fifth
//! one after a barrier, by `MPI_Send` of an unmodified Open MPI.

mod launch;
mod plot;
mod results;

use super::{
    BenchArgs, contender::Contender, fabric_build, fabric_of, fct::ideal_ms, kernel::KernelCounts,
    supported, table,
};
use crate::{
    error::{NetError, Result},
    fabric::Fabric,
    say,
    spec::FabricSpec,
};
pub use launch::Over;
use launch::{Launcher, Ranks};
use plot::Series;
use results::Record;
use std::{fs, path::Path, time::Duration};
use table::Busy;

/// Default contenders.
const CONTENDERS: [&str; 3] = ["srd", "cubic", "cubic-50ms"];
/// Hosts with senders.
const HOSTS: u32 = 4;
/// Message sizes of the paper's figure.
const SIZES: [u64; 5] = [8 << 10, 64 << 10, 512 << 10, 2 << 20, 8 << 20];
/// Largest message: the program counts bytes in an `int`.
const SIZE_MAX: u64 = 1 << 30;
/// Jobs of each contender, and rounds of each size in a job, unless given.
const JOBS: (u32, u32) = (3, 5);
/// Memory of a rank without its messages, in bytes: 140 MB with SRD and libfabric's buffers.
const RANK_BYTES: u64 = 150_000_000;
/// Time limits of a job: a constant for its start and for each round, and a factor of the ideal
/// time.
const START_LIMIT: Duration = Duration::from_secs(60);
const ROUND_LIMIT: Duration = Duration::from_secs(3);
const IDEALS_LIMIT: f64 = 10.0;

/// The measurement's parameters.
struct Plan {
    ranks: Ranks,
    sizes: Vec<u64>,
    jobs: u32,
    rounds: u32,
    bits_per_sec: u64,
}

impl Plan {
    fn new(args: &BenchArgs) -> Result<Self> {
        let senders = args.ranks.unwrap_or(if args.quick { 8 } else { 48 });
        let sizes = match (args.sizes.is_empty(), args.quick) {
            (false, _) => args.sizes.clone(),
            (true, true) => vec![64 << 10],
            (true, false) => SIZES.to_vec(),
        };
        if let Some(bad) = sizes.iter().find(|s| !(1..=SIZE_MAX).contains(*s)) {
            return Err(NetError::usage(format!(
                "--sizes: a message of {bad} bytes; write 1 to {SIZE_MAX} bytes, as 8Ki,2Mi"
            )));
        }
        let (jobs, rounds) = if args.quick { (1, 2) } else { JOBS };
        let plan = Self {
            ranks: Ranks { hosts: HOSTS, senders, receivers: (senders / HOSTS).max(1) },
            sizes,
            jobs: args.draws.unwrap_or(jobs),
            rounds: args.rounds.unwrap_or(rounds),
            bits_per_sec: args.rate.unwrap_or(1_000_000_000),
        };
        let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        plan.memory_check(available_bytes(&text))?;
        Ok(plan)
    }

    fn ideal_ms(&self, bytes: u64) -> f64 {
        ideal_ms(self.ranks.senders, bytes, self.bits_per_sec)
    }

    /// Checks that all ranks fit into `available` bytes of memory, if that is known.
    fn memory_check(&self, available: Option<u64>) -> Result {
        let largest = self.sizes.iter().copied().max().unwrap_or(0);
        let ranks = u64::from(self.ranks.senders + self.ranks.receivers);
        let needed = 2 * u64::from(self.ranks.senders) * largest + ranks * RANK_BYTES;
        match available {
            Some(available) if needed > available => Err(NetError::new(format!(
                "{ranks} ranks with messages of {} need {:.1} GB of memory, and {:.1} GB are \
                 available: use smaller --sizes or fewer --ranks",
                results::size_text(largest),
                needed as f64 / 1e9,
                available as f64 / 1e9
            ))),
            _ => Ok(()),
        }
    }

    fn limit(&self) -> Duration {
        let ideal: f64 = self.sizes.iter().map(|s| self.ideal_ms(*s)).sum();
        let rounds = self.rounds + 1;
        START_LIMIT
            + ROUND_LIMIT * rounds * self.sizes.len() as u32
            + Duration::from_secs_f64(ideal / 1e3 * IDEALS_LIMIT * f64::from(rounds))
    }

    fn program_args(&self) -> Vec<String> {
        let sizes = self.sizes.iter().map(u64::to_string);
        std::iter::once(self.rounds.to_string()).chain(sizes).collect()
    }
}

/// Memory that programs can still use, from `/proc/meminfo`.
fn available_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

/// Measures MPI incast over the contenders in turns.
///
/// # Errors
/// Open MPI or the drop-in libraries are missing, or no job succeeds.
pub fn incast(args: &BenchArgs) -> Result {
    let plan = Plan::new(args)?;
    let named = args.contenders(&CONTENDERS)?;
    for contender in &named {
        contender.mpi()?;
    }
    if named.iter().any(Contender::is_srd) {
        launch::libraries_find()?;
    }
    let launcher = Launcher::new()?;
    let spec = FabricSpec {
        spines: 4,
        leaves: 2,
        hosts: HOSTS as u8,
        // Open MPI would accept a rank's connections from any of a host's addresses.
        extra: 0,
        host_bits_per_sec: plan.bits_per_sec,
        uplink_bits_per_sec: plan.bits_per_sec,
        ..fabric_of(args)
    };
    let mut fabric = fabric_build(&spec)?;
    let list = supported(&fabric, named)?;
    say(&format!(
        "\nMPI incast: {} ranks on {HOSTS} hosts send to {} ranks of one host after a barrier; \
         {} jobs of each contender in turns, {} rounds of each size in a job",
        plan.ranks.senders, plan.ranks.receivers, plan.jobs, plan.rounds
    ))?;
    let mut records: Vec<Record> = list.iter().map(|_| Record::default()).collect();
    let busy = Busy::start();
    for job in 0..plan.jobs {
        fabric.reseed(args.seed + job)?;
        for (contender, record) in list.iter().zip(&mut records) {
            if let Err(e) = one(&plan, &launcher, &fabric, contender, job, record) {
                record.gave_up.push(e.to_string());
            }
        }
    }
    show(&plan, &list, &records, &busy)?;
    if let Some(folder) = &args.out {
        write(&plan, &list, &records, folder)?;
    }
    // A table without one of its contenders is no comparison.
    match list.iter().zip(&records).find(|(_, r)| r.flows.is_empty()) {
        Some((c, _)) => Err(NetError::new(format!("no job over {} succeeded", c.name()))),
        None => Ok(()),
    }
}

/// Runs one job.
fn one(
    plan: &Plan,
    launcher: &Launcher,
    fabric: &Fabric,
    contender: &Contender,
    job: u32,
    record: &mut Record,
) -> Result {
    let over = contender.mpi()?;
    if let Over::Tcp(tcp) = over {
        tcp.apply(fabric)?;
    }
    let flows = plan.ranks.flows();
    let before = KernelCounts::read(fabric, &flows)?;
    let said = launcher.run(fabric, over, plan.ranks, &plan.program_args(), plan.limit())?;
    record.kernel.add(&KernelCounts::read(fabric, &flows)?.since(&before));
    if let Some((packets, again)) = results::srd_packets(&said.err) {
        record.packets = (record.packets.0 + packets, record.packets.1 + again);
    }
    let senders = plan.ranks.senders;
    let times = match &said.failed {
        None => results::parse(&said.out, &plan.sizes, plan.rounds, senders)?,
        Some(_) => results::parse_partial(&said.out, senders),
    };
    record.flows.extend(times.into_iter().map(|f| (job, f)));
    said.failed.map_or(Ok(()), |why| Err(NetError::new(why)))
}

fn show(plan: &Plan, list: &[Contender], records: &[Record], busy: &Busy) -> Result {
    let mut rows = Vec::new();
    for bytes in &plan.sizes {
        let ideal = plan.ideal_ms(*bytes);
        let row = |(c, r): (&Contender, &Record)| results::row(c.name(), r, *bytes, ideal);
        rows.extend(list.iter().zip(records).filter_map(row));
    }
    say(
        "max: the longest time of a message, from MPI_Send to its arrival, in a round; whole: from",
    )?;
    say("the first start of a round to its last arrival; ideal: line rate, TCP's headers")?;
    table::print(&results::HEAD, &rows)?;
    for (c, r) in list.iter().zip(records) {
        if let Some(why) = r.gave_up.first() {
            say(&format!(
                "{}: {} jobs failed, of which the rounds before count: {why}",
                c.name(),
                r.gave_up.len()
            ))?;
        }
        let (again, k) = (r.again_percent(c.is_srd()), &r.kernel);
        let again = again.map_or_else(|| "unknown share".to_owned(), |p| format!("{p:.2} %"));
        let (timeouts, drops) = if c.is_srd() {
            (String::new(), k.udp_socket_drops)
        } else {
            (format!(", {} timeouts", k.tcp_timeouts), k.tcp_socket_drops)
        };
        say(&format!(
            "{}: {again} sent again{timeouts}, {drops} packets lost in sockets, in whole jobs",
            c.name()
        ))?;
    }
    say(&busy.text())
}

/// Writes all times as CSV, and the longest ones as a plot.
fn write(plan: &Plan, list: &[Contender], records: &[Record], folder: &Path) -> Result {
    fs::create_dir_all(folder)
        .map_err(|e| NetError::system(&format!("cannot create {}", folder.display()), e))?;
    let all: Vec<_> = list.iter().zip(records).map(|(c, r)| (c.name(), r)).collect();
    let csv = results::csv(&all, plan.ranks.senders, plan.bits_per_sec);
    let title = format!(
        "MPI_Send of {} ranks on {HOSTS} hosts to one host at {}: longest and median worst time",
        plan.ranks.senders,
        crate::units::rate_text(plan.bits_per_sec)
    );
    let files =
        [("mpi-incast.csv", csv), ("mpi-incast.svg", plot::svg(&title, &series(plan, &all)))];
    for (name, text) in files {
        let path = folder.join(name);
        fs::write(&path, text)
            .map_err(|e| NetError::system(&format!("cannot write {}", path.display()), e))?;
        say(&format!("written: {}", path.display()))?;
    }
    Ok(())
}

/// The lines of the plot: the ideal, and for each contender the worst time of all rounds and the
/// median of the rounds' worst times.
fn series(plan: &Plan, all: &[(&str, &Record)]) -> Vec<Series> {
    let mut sizes = plan.sizes.clone();
    sizes.sort_unstable();
    sizes.dedup();
    let ideal = sizes.iter().map(|s| (*s, plan.ideal_ms(*s))).collect();
    let mut out = vec![Series { name: "ideal".into(), points: ideal, color: None, dashed: false }];
    for (i, (name, record)) in all.iter().enumerate() {
        let of = |share: f64| {
            let point = |bytes: &u64| {
                let mut worst: Vec<f64> =
                    record.rounds(*bytes).iter().map(|r| r.worst_ms).collect();
                (!worst.is_empty()).then(|| (*bytes, table::percentile(&mut worst, share)))
            };
            sizes.iter().filter_map(point).collect::<Vec<_>>()
        };
        for (word, share, dashed) in [("", 1.0, false), (" median", 0.5, true)] {
            let name = format!("{name}{word}");
            out.push(Series { name, points: of(share), color: Some(i), dashed });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(senders: u32, sizes: &[u64]) -> Plan {
        Plan {
            ranks: Ranks { hosts: HOSTS, senders, receivers: senders / HOSTS },
            sizes: sizes.to_vec(),
            jobs: 1,
            rounds: 2,
            bits_per_sec: 200_000_000,
        }
    }

    #[test]
    fn ranks_that_do_not_fit_into_memory_are_refused() {
        let plan = plan(48, &[8 << 20, 8 << 10]);
        // 60 ranks, and 96 messages of 8 MiB.
        let needed = 60 * RANK_BYTES + 96 * (8 << 20);
        assert!(plan.memory_check(Some(needed)).is_ok() && plan.memory_check(None).is_ok());
        let why = plan.memory_check(Some(needed - 1)).unwrap_err().to_string();
        assert!(why.contains("8 MiB") && why.contains("--ranks"), "{why}");
        assert_eq!(available_bytes("MemFree: 1 kB\nMemAvailable:   20 kB\n"), Some(20_480));
        assert_eq!(available_bytes("MemFree: 1 kB\n"), None);
    }

    #[test]
    fn the_time_limit_grows_with_the_bytes() {
        let (small, large) = (plan(48, &[8 << 10]), plan(48, &[8 << 20]));
        // 48 messages of 8 MiB need 16 s at 200 Mb/s.
        assert!((large.ideal_ms(8 << 20) / 1e3 - 16.2).abs() < 0.1);
        assert!(large.limit() > small.limit() + Duration::from_secs(3 * 16 * 9));
        assert_eq!(small.program_args(), ["2", "8192"]);
    }

    #[test]
    fn the_plot_has_the_ideal_and_two_lines_per_contender() {
        let flow = |round, end_ns| {
            let f = results::FlowTime { bytes: 8192, round, sender: 0, start_ns: 1, end_ns };
            (0, f)
        };
        let record = Record {
            flows: vec![flow(1, 2_000_001), flow(2, 4_000_001), flow(3, 9_000_001)],
            ..Record::default()
        };
        let lines = series(&plan(4, &[8192]), &[("srd", &record)]);
        let names: Vec<&str> = lines.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["ideal", "srd", "srd median"]);
        assert_eq!(lines[1].points, [(8192, 9.0)]);
        assert_eq!(lines[2].points, [(8192, 4.0)]);
    }
}
