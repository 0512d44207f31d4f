//! The two ends of a measurement: small programs, each in a process and namespace of its own.
//!
//! A serving end prints a line of JSON when it is ready and another one with its figures when its
//! standard input ends. A driving end prints its figures when its time is over. So no end outlives
//! the report: when that dies, so do the pipes.

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

/// Runs an end; `name` says which.
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
        _ => Err(format!("there is no end `{name}`").into()),
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

/// Tells the report that this end can be used, and how.
fn say_ready(value: &Value) {
    println!("{value}");
}

/// Becomes true when standard input ends.
fn stop_flag() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    let theirs = Arc::clone(&flag);
    std::thread::spawn(move || {
        // However reading ends, nobody is at the other end of the pipe any more.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        theirs.store(true, Ordering::Relaxed);
    });
    flag
}

/// Wall and processor time of this process since a moment.
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

/// Percentiles of round trips, as the raw yardstick reports them.
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
