//! `srd serve`: serves measurements, file copies and path probes of any number of clients.

mod control;
mod copies;
mod guard;
mod limits;
mod perf;
mod pool;

use crate::{
    app::CONTROL_QP_INDEX,
    device::{DeviceArgs, OpenDevice},
    failure::{Failure, Result},
    files::Folder,
    output,
    signals::Stop,
};
use control::Control;
use guard::Guard;
use limits::{LimitArgs, Limits};
use srd::{Device, Progress, WorkCompletion};
use std::{
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    time::{Duration, Instant},
};

/// Interval at which a server checks for a stop request and for clients that have gone.
const HOUSEKEEPING: Duration = Duration::from_millis(100);
/// Number of polls between two reads of the clock while spinning.
const POLLS_PER_CHECK: u32 = 256;

const EXAMPLES: &str = "Examples:
  srd serve                                   for clients on this host
  srd serve --ip 10.0.0.5                     for clients on the network
  srd serve --interface eth0 --dir /srv/in    also allows `srd cp` to and from /srv/in
  srd serve --ip 10.0.0.5 --dir /srv/out --read-only --allow 10.0.0.0/8

Without --token-file or --key, every client that reaches the ports may run measurements, and read
and write files below --dir. The token itself is never sent, but only --key encrypts packets:
without it, an attacker who can read or forge packets can read or forge what is measured and copied.
--allow checks the source address of packets, which hosts on the same network can forge; --read-only
and the limits hold for all clients. Run a server without --key only on networks that you trust.

Ctrl-C or SIGTERM ends a server with a summary and exit code 0. Exit code 1: the server failed; 2:
wrong usage.";

/// Arguments of `srd serve`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ServeArgs {
    /// Folder that `srd cp` may read and write; without it, copies are refused
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Exit when the first session (a measurement or a copy) has ended
    #[arg(long)]
    pub once: bool,
    /// Access and limits.
    #[command(flatten)]
    pub limits: LimitArgs,
    /// Options of the device.
    #[command(flatten)]
    pub device: DeviceArgs,
}

/// Runs the command.
///
/// # Errors
/// The folder or the device cannot be opened, or the device fails.
pub fn run(args: &ServeArgs, stop: &Stop) -> Result {
    let (open, mut control) = open(args)?;
    open.shards_tell();
    tell_start(args, &open)?;
    serve(&mut control, args.once, stop)?;
    output::line(&control.summary())?;
    drop(control);
    open.faults_text().map_or(Ok(()), |text| output::line(&text))
}

/// Opens the device and what serves on it.
fn open(args: &ServeArgs) -> Result<(OpenDevice, Control)> {
    let folder = args.dir.as_deref().map(Folder::open).transpose()?;
    let guard = args.device.token()?.map(Guard::new).transpose()?;
    let (own, first) = (IpAddr::V4(Ipv4Addr::LOCALHOST), Some(CONTROL_QP_INDEX));
    let open = args.device.open_with(own, Progress::Caller, first)?;
    let limits = Limits::new(&args.limits, args.dir.as_deref());
    let control = Control::new(&open.device, folder, limits, guard)?;
    Ok((open, control))
}

/// Serves probes of paths, and nothing else, at an address. `opened` gets the device.
///
/// # Errors
/// The device cannot be opened, or fails.
pub fn probes(ip: IpAddr, port_base: u16, opened: impl FnOnce(&Device), stop: &Stop) -> Result {
    #[derive(clap::Parser)]
    struct Alone {
        #[command(flatten)]
        serve: ServeArgs,
    }
    let parsed = <Alone as clap::Parser>::try_parse_from(["srd"]);
    let mut args = parsed.map_err(|e| Failure::usage(e.to_string()))?.serve;
    (args.device.ip, args.device.port_base) = (Some(ip), port_base);
    args.limits.sessions_max = 0;
    let (open, mut control) = open(&args)?;
    opened(&open.device);
    serve(&mut control, false, stop)
}

fn tell_start(args: &ServeArgs, open: &OpenDevice) -> Result {
    let device = &open.device;
    let (ip, port) = (device.ip(), device.port().udp_port);
    let listening = std::net::SocketAddr::new(ip, port);
    output::line(&format!(
        "listening on {listening}, {} paths, MTU {} bytes, {}",
        device.port().paths,
        device.mtu(),
        args.dir.as_ref().map_or("no files".into(), |dir| format!("files in {}", dir.display()))
    ))?;
    if ip.is_loopback() {
        output::line("only this host can reach the server; use --ip ADDRESS to serve other hosts")?;
    }
    Ok(())
}

/// Serves until a stop request, or with `once` until the first session has ended.
fn serve(control: &mut Control, once: bool, stop: &Stop) -> Result {
    let mut wcs = [WorkCompletion::default(); 64];
    let mut next_look = Instant::now();
    let mut polls = 0;
    while !(stop.asked() || once && control.ended_first()) {
        let mut n = control.cq().poll(&mut wcs)?;
        if n == 0 && !control.spins() {
            // This thread drives the engine, and sleeps in this call.
            if let Some(wc) = control.cq().wait(HOUSEKEEPING)? {
                (wcs[0], n) = (wc, 1);
            }
            polls = POLLS_PER_CHECK;
        }
        for wc in &wcs[..n] {
            control.handle(wc)?;
        }
        polls += 1;
        if polls >= POLLS_PER_CHECK {
            polls = 0;
            let now = Instant::now();
            if now >= next_look {
                next_look = now + HOUSEKEEPING;
                control.housekeeping(now)?;
            }
        }
    }
    control.shutdown()
}
