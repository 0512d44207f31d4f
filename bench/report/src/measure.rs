//! Runs all rows in turn, in several rounds.

use crate::{
    Result,
    end::wire_figures,
    figures::{Figures, Spread},
    net::{FAR_IP, NEAR_IP, Net},
    pair::{self, Ready, Server},
    rows::{self, Programs, Row},
};
use serde_json::Value;
use std::process::Command;

/// Extent of the measurement.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Number of rounds; each round runs each row once.
    pub runs: usize,
    /// Duration of each run in seconds.
    pub seconds: f64,
}

/// All results.
pub struct Measured {
    pub plan: Plan,
    pub runs: Vec<(Row, Vec<Figures>)>,
    /// Description of the verified link.
    pub link: String,
    /// Whether the ends ran at raised priority.
    pub raised: bool,
    /// Load averages before each round.
    pub loads: Vec<f64>,
    /// Output of the program `peers`.
    pub peers: Vec<Value>,
    /// Output of the benchmark of the core alone: name and packets per CPU-second, per round.
    pub core: Vec<Vec<(String, f64)>>,
}

impl Measured {
    /// Spread of one value of one row.
    pub fn spread(&self, row: Row, figure: impl Fn(&Figures) -> f64) -> Spread {
        let runs = self.runs.iter().filter(|(r, _)| *r == row).flat_map(|(_, all)| all);
        Spread::of(runs.map(figure))
    }

    /// Spread of the ratios of two rows, run by run.
    pub fn ratio(&self, row: Row, to: Row, figure: impl Fn(&Figures) -> f64) -> Spread {
        self.by_run(row, to, |a, b| figure(a) / figure(b))
    }

    /// Spread of the differences of two rows, run by run.
    pub fn difference(&self, row: Row, less: Row, figure: impl Fn(&Figures) -> f64) -> Spread {
        self.by_run(row, less, |a, b| figure(a) - figure(b))
    }

    fn by_run(&self, a: Row, b: Row, both: impl Fn(&Figures, &Figures) -> f64) -> Spread {
        let of = |row: Row| {
            let found = self.runs.iter().find(|(r, _)| *r == row);
            found.map_or(&[][..], |(_, all)| &all[..])
        };
        Spread::of(of(a).iter().zip(of(b)).map(|(a, b)| both(a, b)))
    }
}

/// Runs one row, and prints the output of both ends.
pub fn one(row: Row, plan: Plan) -> Result<()> {
    let net = Net::build()?;
    println!("{}", link_check(&net)?);
    let programs = Programs::find()?;
    let [serve, drive] = row.commands(&programs, plan.seconds);
    println!("far:  {}\nnear: {}", serve.join(" "), drive.join(" "));
    for _ in 0..plan.runs {
        let told = row.run(&net, &programs, plan.seconds)?;
        let figures = Figures::of(row, &told)?;
        if row.name().starts_with("tcp-") && !row.name().contains("ping") {
            println!("\n{figures:#?}");
        } else {
            println!("\nnear {}\nfar  {}\n{figures:#?}", told.near, told.far);
        }
    }
    Ok(())
}

/// Runs all rows, the program `peers` and the benchmark of the core.
pub fn all(plan: Plan) -> Result<Measured> {
    rounds(plan, &rows::all(), true)
}

/// Runs the given rows only.
pub fn some(plan: Plan, rows: &[Row]) -> Result<Measured> {
    rounds(plan, rows, false)
}

fn rounds(plan: Plan, rows: &[Row], rest: bool) -> Result<Measured> {
    let net = Net::build()?;
    let programs = Programs::find()?;
    let link = link_check(&net)?;
    eprintln!("{link}");
    let mut runs: Vec<_> = rows.iter().map(|r| (*r, Vec::new())).collect();
    let mut measured = Measured {
        plan,
        runs: Vec::new(),
        link,
        raised: net.raise,
        loads: Vec::new(),
        peers: Vec::new(),
        core: Vec::new(),
    };
    for round in 1..=plan.runs {
        measured.loads.push(load()?);
        for (row, figures) in &mut runs {
            eprint!("\r\x1b[Kround {round} of {}: {}", plan.runs, row.name());
            figures.push(run_with_retry(*row, &net, &programs, plan.seconds)?);
        }
        if rest {
            measured.peers.push(peers(&programs, plan.seconds)?);
            measured.core.push(core(&programs, plan.seconds)?);
        }
    }
    eprintln!();
    measured.runs = runs;
    Ok(measured)
}

/// Repeats a failed run once, because its port may still be in use.
fn run_with_retry(row: Row, net: &Net, programs: &Programs, seconds: f64) -> Result<Figures> {
    let run = || row.run(net, programs, seconds).and_then(|told| Figures::of(row, &told));
    run().or_else(|e| {
        eprintln!("\n{}: {e}; trying once more", row.name());
        run().map_err(|e| format!("{}: {e}", row.name()).into())
    })
}

/// Verifies that segmented sends cross the link as packets and are merged by the receiver.
fn link_check(net: &Net) -> Result<String> {
    let programs = Programs::find()?;
    let own = programs.own.display().to_string();
    let words = |text: &str| text.split(' ').map(String::from).collect::<Vec<_>>();
    let serve = [vec![own.clone()], words(&format!("end wire-serve --local {FAR_IP}"))].concat();
    let server = Server::start(net, &serve, Ready::Line)?;
    let port = server.said["port"].clone();
    let to = format!("end wire-drive --local {NEAR_IP} --remote {FAR_IP}:{port}");
    let before = net.packets_sent()?;
    let sent = pair::json_of(&pair::drive(net, &[vec![own], words(&to)].concat())?)?;
    let crossed = net.packets_sent()? - before;
    let received = pair::json_of(&server.finish()?)?;
    wire_figures(&sent, crossed, &received)
}

/// Load average of the last minute.
pub fn load() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/loadavg")?;
    Ok(text.split(' ').next().unwrap_or_default().parse()?)
}

fn output(programs: &Programs, name: &str, args: &[&str]) -> Result<String> {
    let path = programs.own.with_file_name(name);
    let out = Command::new(&path).args(args).output();
    let out = out.map_err(|e| format!("cannot start {}: {e}", path.display()))?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    Err(format!("{name}: {}", String::from_utf8_lossy(&out.stderr).trim()).into())
}

fn peers(programs: &Programs, seconds: f64) -> Result<Value> {
    pair::json_of(&output(programs, "peers", &[&seconds.to_string()])?)
}

/// Parses lines `send   5123456   ...` after a heading.
fn core(programs: &Programs, seconds: f64) -> Result<Vec<(String, f64)>> {
    let text = output(programs, "srd-bench", &["core", &seconds.to_string()])?;
    let row = |line: &str| {
        let (name, rest) = (line.get(..16)?.trim(), line.get(16..)?);
        Some((name.to_owned(), rest.split_whitespace().next()?.parse().ok()?))
    };
    let rows: Vec<_> = text.lines().filter_map(row).collect();
    if rows.is_empty() {
        Err(format!("srd-bench core printed no row: {text}").into())
    } else {
        Ok(rows)
    }
}
