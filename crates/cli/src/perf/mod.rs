//! `srd perf`: latency, bandwidth and message rate against a server.

mod lat;
mod report;
mod session;
mod stream;

use crate::{
    app::message::Operation,
    device::DeviceArgs,
    failure::{Failure, Result},
    host::HostName,
    output,
    signals::Stop,
    units,
};
use clap::ValueEnum;
use report::{Report, Row};
use session::{Plan, Session};
use std::time::Duration;

/// Default time per size.
const DURATION_DEFAULT: Duration = Duration::from_secs(2);
/// Largest RDMA operation of `--all` in bytes.
const ALL_BYTES_MAX: u32 = 8 << 20;

const EXAMPLES: &str = "Examples:
  srd perf lat 10.0.0.5                        64-byte ping-pong, spinning
  srd perf lat --poll block --duration 5 10.0.0.5
  srd perf bw 10.0.0.5                         messages of one MTU
  srd perf bw --op write --size 1M --json 10.0.0.5
  srd perf bw --op read --all 10.0.0.5         1 B to 8 MiB
  srd perf rate --qps 4 10.0.0.5               small messages per second
  srd perf bw --path-policy ecmp 10.0.0.5      one path, as a TCP connection has

The latency of sends and writes in lat is half of the round-trip time (RTT/2), as in perftest; that
of reads, and all latency in bw and rate, is the time from post to completion.

Exit codes: 0 measured, 1 the server cannot be reached or the run failed, 2 wrong usage, 130 ended
by Ctrl-C.";

/// Kind of measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Test {
    /// Latency of one operation at a time
    Lat,
    /// Bytes per second, with many operations in flight
    Bw,
    /// Small messages per second, with many in flight
    Rate,
}

/// The measured operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Op {
    /// Messages of at most one MTU
    Send,
    /// RDMA writes (in lat: with immediate data, so that the receiver is notified)
    Write,
    /// RDMA reads
    Read,
}

/// How both ends wait for completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Poll {
    /// Poll continuously: lowest latency, but one busy core at each end
    Spin,
    /// Sleep until a completion arrives
    Block,
}

/// Arguments of `srd perf`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct PerfArgs {
    /// What to measure
    #[arg(value_enum)]
    pub test: Test,
    /// Server: HOST, HOST:PORT or [IPV6]:PORT [default port: that of slot 0]
    #[arg(value_name = "HOST[:PORT]", value_parser = HostName::parse)]
    pub host: HostName,
    /// Operation to measure
    #[arg(long, value_enum, default_value = "send")]
    pub op: Op,
    /// Bytes per operation [default: 64; bw: one MTU up to 8 KiB for sends, else 64 KiB]
    #[arg(long, value_name = "BYTES", value_parser = units::message_bytes)]
    pub size: Option<u32>,
    /// Measure all powers of two: up to the MTU for sends, else up to 8 MiB
    #[arg(long, conflicts_with = "size")]
    pub all: bool,
    /// Time to measure each size, as 2s or 500ms [default: 2s]
    #[arg(long, value_name = "TIME", value_parser = units::duration, conflicts_with = "iters")]
    pub duration: Option<Duration>,
    /// Number of operations to measure for each size
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub iters: Option<u64>,
    /// Queue pairs at each end
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u8).range(1..=64))]
    pub qps: u8,
    /// Operations in flight per queue pair [default: 128 in bw, 512 in rate; always 1 in lat]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub window: Option<u32>,
    /// How both ends wait for completions [default: spin in lat, else block]
    #[arg(long, value_enum)]
    pub poll: Option<Poll>,
    /// Write the results as JSON
    #[arg(long)]
    pub json: bool,
    /// Options of the device.
    #[command(flatten)]
    pub device: DeviceArgs,
}

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// After this many operations.
    Iterations(u64),
    /// After this time.
    Time(Duration),
}

impl Limit {
    /// The limit of the warm-up run, which opens paths, fills caches and lets the rate settle.
    fn warm_up(self) -> Self {
        match self {
            Self::Iterations(n) => Self::Iterations((n / 10).clamp(1, 1000)),
            Self::Time(t) => Self::Time((t / 5).min(Duration::from_millis(200))),
        }
    }
}

impl PerfArgs {
    fn operation(&self) -> Operation {
        match self.op {
            Op::Send => Operation::Send,
            Op::Write => Operation::Write,
            Op::Read => Operation::Read,
        }
    }

    fn limit(&self) -> Limit {
        match self.iters {
            Some(n) => Limit::Iterations(n),
            None => Limit::Time(self.duration.unwrap_or(DURATION_DEFAULT)),
        }
    }

    /// Message sizes to measure on a device with this MTU.
    fn sizes(&self, mtu: u32) -> Result<Vec<u32>> {
        let send = self.op == Op::Send;
        let max = if send { mtu } else { ALL_BYTES_MAX };
        if self.all {
            let mut sizes: Vec<u32> =
                (0..32).map(|shift| 1 << shift).take_while(|s| *s <= max).collect();
            if sizes.last() != Some(&max) {
                sizes.push(max);
            }
            return Ok(sizes);
        }
        let size = self.size.unwrap_or(match (self.test, send) {
            (Test::Lat | Test::Rate, _) => 64.min(mtu),
            (Test::Bw, true) => mtu.min(8192),
            (Test::Bw, false) => 64 << 10,
        });
        if send && size > mtu {
            return Err(Failure::usage(format!(
                "a message has at most one MTU, here {mtu} bytes: use a smaller --size or \
                 --op write"
            )));
        }
        if size == 0 && !send {
            return Err(Failure::usage(
                "--size 0 is for sends; RDMA operations need at least one byte",
            ));
        }
        Ok(vec![size])
    }

    fn plan(&self, sizes: &[u32]) -> Plan {
        let window = match self.test {
            Test::Lat => 1,
            Test::Bw => self.window.unwrap_or(128),
            Test::Rate => self.window.unwrap_or(512),
        };
        let poll_default = if self.test == Test::Lat { Poll::Spin } else { Poll::Block };
        Plan {
            operation: self.operation(),
            echo: self.test == Test::Lat && self.op != Op::Read,
            spin: self.poll.unwrap_or(poll_default) == Poll::Spin,
            qps: self.qps,
            window,
            size_max: sizes.iter().copied().max().unwrap_or(0),
        }
    }
}

/// Runs the command.
///
/// # Errors
/// The server cannot be reached or refuses, or an operation fails.
pub fn run(args: &PerfArgs, stop: &Stop) -> Result {
    if args.test == Test::Lat && (args.qps > 1 || args.window.is_some()) {
        return Err(Failure::usage(
            "lat has one operation in flight: leave out --qps and --window",
        ));
    }
    let client = Session::connect(&args.device, &args.host)?;
    client.open.shards_tell();
    let sizes = args.sizes(client.open.device.mtu() as u32)?;
    let mut session = Session::open(client, args.plan(&sizes), stop)?;
    let mut report = Report::new(args, &session);
    if !args.json {
        report.head().iter().try_for_each(|line| output::line(line))?;
    }
    let done = measure_all(args, &mut session, &sizes, &mut report, stop);
    if args.json && !report.rows.is_empty() {
        output::line(&report.json()?)?;
    }
    done?;
    session.close(stop)?;
    session.faults_text().map_or(Ok(()), |text| {
        output::note(&text);
        Ok(())
    })
}

/// Measures all sizes in turn. If one fails, the report keeps the completed rows.
fn measure_all(
    args: &PerfArgs,
    session: &mut Session,
    sizes: &[u32],
    report: &mut Report,
    stop: &Stop,
) -> Result {
    for &size in sizes {
        let row = measure(args, session, size, stop)?;
        if !args.json {
            output::line(&row.line())?;
        }
        report.rows.push(row);
    }
    Ok(())
}

fn measure(args: &PerfArgs, session: &mut Session, size: u32, stop: &Stop) -> Result<Row> {
    let limit = args.limit();
    let once = |session: &mut Session, limit| {
        if args.test == Test::Lat {
            lat::run(session, size, limit, stop)
        } else {
            stream::run(session, size, limit, stop)
        }
    };
    once(session, limit.warm_up())?;
    let before = session.snapshot(stop)?;
    let run = once(session, limit)?;
    let after = session.snapshot(stop)?;
    Ok(Row::new(size, &run, &before, &after))
}
