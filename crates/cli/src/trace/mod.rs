//! `srd trace`: traces for Perfetto, of running processes and of captures.

mod capture;
mod live;

use crate::{
    failure::{Failure, Result},
    observe::Chosen,
    output,
    signals::Stop,
    units,
};
use srd_timeline::Timeline;
use std::{
    fs::File,
    io::{BufWriter, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

const EXAMPLES: &str = "Examples:
  srd trace t.json                       all processes of this user, until Ctrl-C
  srd trace t.json 4711 --for 10s        one process, for ten seconds
  srd cp --capture c.pcapng FILE HOST: && srd trace t.json --capture c.pcapng

Open the file at https://ui.perfetto.dev (it stays on your machine), or with Perfetto's
trace_processor.

Of running processes is shown what they tell ten times per second: windows, rates and round trips
as counters, what limited the sender and the state of each path as slices, losses as instants. A
capture has every packet, and so each message of each queue pair as a slice, from its first packet
to the last acknowledgment that was captured, what was in flight on each path, and what was sent
again, where. Times are those of the point at which packets were captured. Sealed packets say
nothing: srd wireshark --unseal.";

/// Arguments of `srd trace`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct TraceArgs {
    /// The trace to write (JSON)
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    chosen: Chosen,
    /// End after this time, as 10s or 500ms [default: at Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = units::duration)]
    duration: Option<Duration>,
    /// Read this capture (of `srd capture`, `srd net capture` or --capture) instead of looking at
    /// processes
    #[arg(long, value_name = "CAPTURE", conflicts_with_all = ["duration", "pids", "all"])]
    capture: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// The file cannot be written, or there is nothing to trace.
pub fn run(args: &TraceArgs, stop: &Stop) -> Result {
    let fail = |e| Failure::new(format!("cannot write the trace {}: {e}", args.file.display()));
    if let Some(capture) = &args.capture {
        let timeline = capture::read(capture)?;
        return save(&timeline, File::create(&args.file).map_err(fail)?, &args.file);
    }
    // A process that is asked for must be there.
    args.chosen.list()?;
    // Before the time of the recording, not after it.
    let file = File::create(&args.file).map_err(fail)?;
    save(&live::record(args, stop)?, file, &args.file)
}

fn save(timeline: &Timeline, file: File, path: &Path) -> Result {
    let write = || -> std::io::Result<u64> {
        let mut out = BufWriter::new(file);
        let left_out = timeline.write(&mut out)?;
        out.flush()?;
        Ok(left_out)
    };
    let left_out = write()
        .map_err(|e| Failure::new(format!("cannot write the trace {}: {e}", path.display())))?;
    if left_out > 0 {
        output::note(&format!(
            "srd: warning: {left_out} events are left out: a trace has at most {}, and at most {} \
             messages of a queue pair at once",
            srd_timeline::EVENTS_MAX,
            srd_timeline::ROWS_MAX
        ));
    }
    output::line(&format!("{}: open it at https://ui.perfetto.dev", path.display()))
}
