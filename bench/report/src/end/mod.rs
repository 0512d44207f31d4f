//! The two ends of a measurement: small programs, each in a process and namespace of its own.
//!
//! A serving end prints a line of JSON when it is ready, and another one with its results when its
//! standard input ends. A driving end prints its results when its time is over. No end outlives the
//! report, because its pipes are closed with the report.

mod many;
mod ping;
mod srd_end;
mod stream;
mod tcp;
mod wire;

pub use wire::figures as wire_figures;

use crate::{Result, options::Options};
use serde_json::Value;
use srd_datapath::{clock::now_ns, process_cpu_ns};
use std::{
    io::Read,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// Runs the end called `name`.
pub fn run(name: &str, mut options: Options) -> Result<()> {
    let o = &mut options;
    let figures = match name {
        "stream-serve" => stream::serve(o),
        "stream-drive" => stream::drive(o),
        "ping-serve" => ping::serve(o),
        "ping-drive" => ping::drive(o),
        "tcp-serve" => tcp::serve(o),
        "tcp-drive" => tcp::drive(o),
        "many-serve" => many::serve(o),
        "many-drive" => many::drive(o),
        "wire-serve" => wire::serve(o),
        "wire-drive" => wire::drive(o),
        "hold" => hold(o),
        _ => Err(format!("unknown kind of end `{name}`").into()),
    }?;
    if !figures.is_null() {
        println!("{figures}");
    }
    Ok(())
}

/// Keeps a namespace alive.
fn hold(o: &Options) -> Result<Value> {
    o.end()?;
    say_ready(&Value::Null);
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(Value::Null)
}

/// Prints how this end can be used, which also tells the report that the end is ready.
fn say_ready(value: &Value) {
    println!("{value}");
}

/// A flag that is set when standard input ends.
fn stop_flag() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    let theirs = Arc::clone(&flag);
    std::thread::spawn(move || {
        // Whether reading ended or failed, the pipe has no writer left.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        theirs.store(true, Ordering::Relaxed);
    });
    flag
}

/// Start of a measurement of wall-clock and CPU time of this process.
#[derive(Clone, Copy)]
struct Since {
    wall_ns: u64,
    cpu_ns: u64,
}

impl Since {
    fn now() -> Self {
        Self { wall_ns: now_ns(), cpu_ns: process_cpu_ns() }
    }

    fn seconds(self) -> f64 {
        (now_ns() - self.wall_ns) as f64 / 1e9
    }

    fn cpu_seconds(self) -> f64 {
        (process_cpu_ns() - self.cpu_ns) as f64 / 1e9
    }
}

/// Percentiles of round-trip times, as the raw UDP program reports them.
fn percentiles(mut rtt_ns: Vec<u64>) -> Result<Value> {
    if rtt_ns.is_empty() {
        return Err("no round trip was completed".into());
    }
    rtt_ns.sort_unstable();
    let at = |per_mille: usize| rtt_ns[(rtt_ns.len() - 1) * per_mille / 1000];
    Ok(serde_json::json!({
        "min": at(0), "p50": at(500), "p90": at(900), "p99": at(990), "p999": at(999),
        "max": at(1000),
    }))
}
