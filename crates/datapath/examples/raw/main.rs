//! Raw UDP, the yardstick for SRD: what the same sockets, batch sizes and waiting cost without any
//! protocol. Prints one line of JSON.
//!
//! ```text
//! raw rx   [--local IP] [--port N]       receives until nothing comes for half a second
//! raw tx   [--local IP] --remote IP:PORT sends as fast as the sockets take it
//! raw pong [--local IP] [--port N]       answers until nothing comes for two seconds
//! raw ping [--local IP] --remote IP:PORT sends one packet, waits for its answer, repeats
//!
//!   --size BYTES        UDP payload of one packet (1400)
//!   --paths N           source ports used in turn (8)
//!   --batch N           packets per path and turn: one segmented send or sendmmsg (8)
//!   --segment gso|mmsg  how a batch is sent, and whether receives are merged (gso)
//!   --wait spin|block   how to wait for packets (block)
//!   --duration SECONDS  how long tx and ping go on (2)
//!   --sndbuf BYTES      send buffer of each source port (65536)
//!   --rcvbuf BYTES      receive buffer (8388608)
//!   --via libc|datapath plain system calls on connected sockets, or this crate (libc)
//! ```

mod datapath;
mod report;
mod sockets;

use core::{net::SocketAddr, str::FromStr, time::Duration};
use report::Report;
use std::{error::Error, net::IpAddr, process::ExitCode};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// How the run was asked for.
#[derive(Clone, Debug)]
struct Args {
    mode: String,
    local: IpAddr,
    remote: Option<SocketAddr>,
    port: u16,
    size: usize,
    paths: usize,
    batch: usize,
    gso: bool,
    spin: bool,
    duration: Duration,
    sndbuf: usize,
    rcvbuf: usize,
    datapath: bool,
}

impl Args {
    fn parse(words: impl Iterator<Item = String>) -> Result<Self> {
        let mut args = Self {
            mode: String::new(),
            local: "127.0.0.1".parse()?,
            remote: None,
            port: 18_990,
            size: 1400,
            paths: 8,
            batch: 8,
            gso: true,
            spin: false,
            duration: Duration::from_secs(2),
            sndbuf: 64 << 10,
            rcvbuf: 8 << 20,
            datapath: false,
        };
        let mut words = words;
        args.mode = words.next().unwrap_or_default();
        while let Some(option) = words.next() {
            let value = words.next().ok_or_else(|| format!("{option} needs a value"))?;
            args.option(&option, &value)?;
        }
        args.check()?;
        Ok(args)
    }

    fn option(&mut self, option: &str, value: &str) -> Result<()> {
        match option {
            "--local" => self.local = number(option, value)?,
            "--remote" => self.remote = Some(number(option, value)?),
            "--port" => self.port = number(option, value)?,
            "--size" => self.size = number(option, value)?,
            "--paths" => self.paths = number(option, value)?,
            "--batch" => self.batch = number(option, value)?,
            "--segment" => self.gso = choice(option, value, ["gso", "mmsg"])?,
            "--wait" => self.spin = choice(option, value, ["spin", "block"])?,
            "--duration" => self.duration = Duration::try_from_secs_f64(number(option, value)?)?,
            "--sndbuf" => self.sndbuf = number(option, value)?,
            "--rcvbuf" => self.rcvbuf = number(option, value)?,
            "--via" => self.datapath = choice(option, value, ["datapath", "libc"])?,
            _ => return Err(format!("unknown option {option}").into()),
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        if !["tx", "rx", "ping", "pong"].contains(&self.mode.as_str()) {
            return Err("say what to do: raw tx, rx, ping or pong".into());
        }
        if self.remote.is_none() && ["tx", "ping"].contains(&self.mode.as_str()) {
            return Err("tx and ping need --remote IP:PORT".into());
        }
        if !(8..=65_000).contains(&self.size) {
            return Err("--size must be from 8 to 65000".into());
        }
        if !(1..=256).contains(&self.paths) || !(1..=64).contains(&self.batch) {
            return Err("--paths must be from 1 to 256, --batch from 1 to 64".into());
        }
        Ok(())
    }

    /// Packets per send: what was asked for, as far as it fits one segmented message.
    fn packets_per_send(&self) -> usize {
        if self.gso { self.batch.min(65_000 / self.size) } else { self.batch }
    }
}

fn number<T: FromStr<Err: Error + 'static>>(option: &str, value: &str) -> Result<T> {
    value.parse().map_err(|error| format!("{option} {value}: {error}").into())
}

/// True for the first word, false for the second.
fn choice(option: &str, value: &str, words: [&str; 2]) -> Result<bool> {
    match words.iter().position(|&word| word == value) {
        Some(at) => Ok(at == 0),
        None => Err(format!("{option} must be {} or {}", words[0], words[1]).into()),
    }
}

fn run(args: &Args) -> Result<Report> {
    match (args.mode.as_str(), args.datapath) {
        ("tx", false) => sockets::tx(args),
        ("rx", false) => sockets::rx(args),
        ("ping", false) => sockets::ping(args),
        ("pong", false) => sockets::pong(args),
        ("tx", true) => datapath::tx(args),
        ("rx", true) => datapath::rx(args),
        ("ping", true) => datapath::ping(args),
        _ => datapath::pong(args),
    }
}

fn main() -> ExitCode {
    let result = Args::parse(std::env::args().skip(1)).and_then(|args| {
        let report = run(&args)?;
        println!("{}", report.json(&args));
        Ok(())
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("raw: {error}");
            ExitCode::from(2)
        }
    }
}
