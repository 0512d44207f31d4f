//! The protocol core alone: two engines exchange packets in memory, without sockets or payload.
//!
//! `cargo xtask bench-instructions` runs this under callgrind and compares the counts with
//! `table.csv`; `cargo xtask bench-core` measures packets per CPU-second.
#![forbid(unsafe_code)]

mod checksum;
mod rate;
mod scenario;
mod silence;
mod world;

use scenario::SCENARIOS;
use std::process::ExitCode;

const HELP: &str = "\
srd-bench scenarios            names, operations and counted functions, for xtask
srd-bench run SCENARIO N       one scenario with N operations
srd-bench core [SECONDS]       packets per CPU-second, each row for SECONDS of CPU time
srd-bench silence [PEERS]      time of each call while PEERS (65535) become silent together";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args[..] {
        ["scenarios"] => {
            SCENARIOS.iter().for_each(|s| println!("{s}"));
            Ok(())
        }
        ["run", name, n] => run(name, n),
        ["core"] => rate::run(3.0),
        ["silence"] => silence::run(silence::PEERS_MAX),
        ["silence", peers] => match peers.parse() {
            Ok(n) => silence::run(n),
            _ => Err(format!("silence: `{peers}` is not a number of peers")),
        },
        ["core", seconds] => match seconds.parse() {
            Ok(s) if s > 0.0 => rate::run(s),
            _ => Err(format!("core: `{seconds}` is not a number of seconds")),
        },
        _ => Err(format!("usage:\n{HELP}")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("srd-bench: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(name: &str, operations: &str) -> Result<(), String> {
    let found = SCENARIOS.iter().find(|s| s.name == name);
    let scenario = found.ok_or_else(|| format!("there is no scenario `{name}`"))?;
    let n = operations.parse().map_err(|_| format!("`{operations}` is not a count"))?;
    (scenario.run)(n)
}
