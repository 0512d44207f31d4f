//! `srd cp`: copies a file to or from the folder of a server.

mod place;

use crate::{
    app::{client::Client, link::Peer, message::Body},
    device::{DeviceArgs, OpenDevice},
    failure::{Failure, Result},
    files, output,
    signals::Stop,
    transfer::{self, Abort, Delivered, Receiver, Session},
    units::bytes_text,
};
use indicatif::{ProgressBar, ProgressStyle};
use place::{Place, RemoteFile};
use srd::{Progress, ProtectionDomain, QKey, Qpn};
use std::{
    net::IpAddr,
    path::Path,
    time::{Duration, Instant},
};

const EXAMPLES: &str = "Examples:
  srd cp results.tar 10.0.0.5:results.tar      to the server's folder (`srd serve --dir`)
  srd cp results.tar 10.0.0.5:                 under the name of the local file
  srd cp 10.0.0.5:runs/7/log.txt .             from the server's folder
  srd cp big.bin '[2001:db8::7]:18702:big.bin'
  srd cp ./odd:name.txt node7:name.txt         a local name with a colon needs a `/` before it

A file gets its name when it is complete, and then replaces an older file of that name; a failed
copy leaves nothing. Permissions and times are not copied. The printed hash is BLAKE3 of the whole
file, compared at both ends (`b3sum` computes the same).

Exit codes: 0 copied, 1 failed and nothing left under the final name, 2 wrong usage, 130 ended by
Ctrl-C.";

/// Highest rate at which the progress bar is drawn.
const DRAW_PER_SEC: u8 = 10;

/// Arguments of `srd cp`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CpArgs {
    /// File to copy: FILE or HOST[:PORT]:NAME
    #[arg(value_name = "FROM", value_parser = Place::parse)]
    pub from: Place,
    /// Destination: HOST[:PORT]:NAME or FILE; one of the two arguments must name a server
    #[arg(value_name = "TO", value_parser = Place::parse)]
    pub to: Place,
    /// Show no progress bar
    #[arg(long, short)]
    pub quiet: bool,
    /// Options of the device.
    #[command(flatten)]
    pub device: DeviceArgs,
}

/// Runs the command.
///
/// # Errors
/// A file cannot be opened, the server cannot be reached, or the copy fails.
pub fn run(args: &CpArgs, stop: &Stop) -> Result {
    match (&args.from, &args.to) {
        (Place::Local(from), Place::Remote(to)) => put(args, from, to, stop),
        (Place::Remote(from), Place::Local(to)) => get(args, from, to, stop),
        (Place::Local(_), Place::Local(_)) => Err(Failure::usage(
            "one of the two must name a server, as HOST:NAME; use cp for local copies",
        )),
        (Place::Remote(_), Place::Remote(_)) => {
            Err(Failure::usage("one of the two must be a local file: copy in two steps"))
        }
    }
}

/// The parts of a client that a transfer needs besides its session.
struct Parts {
    open: OpenDevice,
    pd: ProtectionDomain,
    server_ip: IpAddr,
    /// Largest number of paths seen in use; see [`Parts::paths_count`].
    paths_used: usize,
}

impl Parts {
    /// Counts the paths in use. Called while data flows, because a device drops its statistics of a
    /// path after a host has been idle, and the disk may take long at the end.
    fn paths_count(&mut self) {
        let Ok(paths) = self.open.device.path_stats(self.server_ip) else { return };
        let used = paths.iter().filter(|p| p.packets_sent > 0).count();
        self.paths_used = self.paths_used.max(used);
    }
}

fn connect(args: &CpArgs, remote: &RemoteFile) -> Result<Client> {
    let progress = Progress::Thread { spin: Duration::ZERO };
    Client::open(&args.device, &remote.host, progress, transfer::DEPTH)
}

/// Turns a client into the client's end of a session with the queue pair that answered.
fn session<'a>(
    client: Client,
    id: u64,
    qpn: Qpn,
    qkey: QKey,
    stop: &'a dyn Fn() -> Result,
) -> (Session<'a>, Parts) {
    let Client { link, cq, pd, open, server, control, .. } = client;
    let peer = Peer { ah: control.ah, qpn, qkey };
    let parts = Parts { open, pd, server_ip: server.ip, paths_used: 0 };
    (Session::new(link, cq, peer, id, stop), parts)
}

fn put(args: &CpArgs, from: &Path, to: &RemoteFile, stop: &Stop) -> Result {
    let (file, size) = files::local_read(from)?;
    let name = match (to.name.as_str(), from.file_name()) {
        ("", Some(own)) => own
            .to_str()
            .ok_or_else(|| Failure::usage("the file's name is not UTF-8: give a name after HOST:"))?
            .to_owned(),
        (name, _) => name.to_owned(),
    };
    let mut client = connect(args, to)?;
    let id = client.id_next();
    let begin = Instant::now();
    let request = Body::PutOpen { size, name: name.clone() };
    let (qpn, Body::PutReady { qkey, slots }) = client.request(id, request, stop)? else {
        return Err(Failure::new("the server sent an answer that does not fit the request"));
    };
    let stopped = || stop.check();
    let (mut session, mut parts) = session(client, id, qpn, qkey, &stopped);
    let bar = bar(args, size, &name);
    let pd = parts.pd.clone();
    let sent = transfer::send(&mut session, &pd, file, size, &slots, &mut |n| {
        bar.set_position(n);
        parts.paths_count();
    });
    let delivered = finish(&mut session, &bar, sent)?;
    parts.paths_count();
    tell(&format!("{} -> {}:{name}", from.display(), to.host.host), begin, &delivered, &parts)
}

fn get(args: &CpArgs, from: &RemoteFile, to: &Path, stop: &Stop) -> Result {
    let last = from.name.rsplit('/').next().unwrap_or_default();
    if last.is_empty() {
        return Err(Failure::usage("name the server's file, as HOST:NAME"));
    }
    let mut client = connect(args, from)?;
    let receiver = Receiver::new(&client.pd, None)?;
    let id = client.id_next();
    let begin = Instant::now();
    let request = Body::GetOpen { slots: receiver.slots(), name: from.name.clone() };
    let (qpn, Body::GetReady { qkey, size }) = client.request(id, request, stop)? else {
        return Err(Failure::new("the server sent an answer that does not fit the request"));
    };
    let stopped = || stop.check();
    let (mut session, mut parts) = session(client, id, qpn, qkey, &stopped);
    let bar = bar(args, size, last);
    let received = match files::local_create(to, last, size) {
        Ok(target) => receiver.receive(&mut session, target, size, &mut |n| {
            bar.set_position(n);
            parts.paths_count();
        }),
        Err(e) => Err(Abort::file(e)),
    };
    let delivered = finish(&mut session, &bar, received)?;
    parts.paths_count();
    tell(
        &format!("{}:{} -> {}", from.host.host, from.name, to.display()),
        begin,
        &delivered,
        &parts,
    )
}

/// Removes the progress bar, and tells the server if the copy failed at this end.
fn finish(
    session: &mut Session<'_>,
    bar: &ProgressBar,
    done: Result<Delivered, Abort>,
) -> Result<Delivered> {
    bar.finish_and_clear();
    done.map_err(|abort| {
        session.abort(&abort);
        abort.failure
    })
}

/// The progress bar; hidden unless standard error is a terminal.
fn bar(args: &CpArgs, size: u64, name: &str) -> ProgressBar {
    if args.quiet {
        return ProgressBar::hidden();
    }
    let target = indicatif::ProgressDrawTarget::stderr_with_hz(DRAW_PER_SEC);
    let bar = ProgressBar::with_draw_target(Some(size), target);
    let template = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_message(name.to_owned());
    bar
}

/// Prints what was copied, and the transfer's statistics.
fn tell(what: &str, begin: Instant, delivered: &Delivered, parts: &Parts) -> Result {
    let Delivered { size, hash } = delivered;
    let seconds = begin.elapsed().as_secs_f64().max(1e-9);
    let rate = *size as f64 / 1e6 / seconds;
    output::line(&format!("{what}: {} in {seconds:.2} s, {rate:.0} MB/s", bytes_text(*size)))?;
    let engine = parts.open.device.counters()?.engine;
    output::line(&format!(
        "{} packets sent on {} paths, {} retransmitted; {} received",
        engine.tx_pkts, parts.paths_used, engine.retrans_pkts, engine.rx_pkts
    ))?;
    if let Some(faults) = parts.open.faults_text() {
        output::line(&faults)?;
    }
    output::line(&format!("blake3 {hash} at both ends"))
}
