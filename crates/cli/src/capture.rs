//! `srd capture`: the packets of running processes, as pcapng.
//!
//! Each process mirrors its packets into a ring that this program makes for it
//! ([`srd_share::CaptureRing`]); it needs no privilege, and a process that nobody captures mirrors
//! nothing.

use crate::{
    device::capture_file,
    failure::{Failure, Result},
    host,
    observe::{Chosen, UNSEEN, now_ns, pid, printable},
    output, path_orders,
    signals::Stop,
    units,
};
use srd::datapath::{
    capture::SECRETS_KIND,
    pcapng::{PcapNg, Record, Way},
};
use srd_share::{
    CaptureRing, Mirrored, MirroredPacket, RING_BYTES, capture_rings_sweep, status::StatusRow,
};
use std::{
    collections::BTreeMap,
    io::{self, Write},
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// How long this program sleeps when nothing waits.
const REST: Duration = Duration::from_millis(1);
/// How often it looks for new processes, and writes what it has.
const LOOK: Duration = Duration::from_millis(100);
/// Most devices at once: each has a ring.
const DEVICES_MAX: usize = 256;
/// How long a process has to begin before a note says that it does not.
const PATIENCE: Duration = Duration::from_secs(3);

const EXAMPLES: &str = "Examples:
  srd capture c.pcapng                       all processes of this user, until Ctrl-C
  srd capture c.pcapng 4711 --for 10s        one process, for ten seconds
  srd capture c.pcapng --snaplen 128 --packets 100000
  srd capture - | wireshark -k -i -          live; with tshark: srd capture - | tshark -i -
  sudo -u USER srd capture c.pcapng          the processes of another user

Each device of a process is an interface of the capture, with its program and process number. A
packet between two processes that are both captured is in it twice, as sent and as received (the
direction is in frame.packet_flags_direction). Packets are those that the process hands to its
kernel or gets from it: what the network loses is seen as sent only. Processes that start later are
captured, too, unless some are named. `srd wireshark` has the dissector, srd trace --capture makes
a trace of a capture.

Sealed packets are captured sealed. With --secrets the capture gets the secrets of contexts, for srd
wireshark --unseal, of those processes that were started with SRD_CAPTURE_SECRETS=1.

Exit codes: 0 the capture was ended by Ctrl-C, --for or --packets, 1 it failed, 2 wrong usage.";

/// Arguments of `srd capture`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CaptureArgs {
    /// The capture to write (pcapng; replaced if it exists), or - for standard output
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Processes to capture [default: all of this user, also those that start later]
    #[arg(value_name = "PID", value_parser = pid)]
    pids: Vec<u32>,
    /// End after this time, as 10s or 500ms [default: at Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = units::duration)]
    duration: Option<Duration>,
    /// End after so many packets
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    packets: Option<u64>,
    /// Keep this many bytes of the UDP payload of each packet [default: all]. The headers of
    /// software SRD have at most 512
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..))]
    snaplen: Option<u32>,
    /// Only packets from and to this address
    #[arg(long, value_name = "IP", value_parser = host::ip)]
    peer: Option<IpAddr>,
    /// Memory for the packets of a process that are not written yet, as 16M: a power of two from
    /// 512K to 1G
    #[arg(long, value_name = "BYTES", default_value = "8M", value_parser = ring_bytes)]
    buffer: usize,
    /// Ask for the secrets of sealed contexts, so that whoever gets the capture can decrypt it. The
    /// file gets mode 0600
    #[arg(long)]
    secrets: bool,
}

fn ring_bytes(text: &str) -> Result<usize, String> {
    let bytes = units::bytes(text)?;
    let fits = |bytes: &usize| bytes.is_power_of_two() && RING_BYTES.contains(bytes);
    let wrong = || format!("`{text}` is no power of two from 512K to 1G, as in 8M");
    usize::try_from(bytes).ok().filter(fits).ok_or_else(wrong)
}

/// A device that is captured.
struct Source {
    ring: CaptureRing,
    interface: u32,
    local: IpAddr,
    since: Instant,
    /// Packets that were in the ring.
    seen: u64,
    /// Whether its process began, or a note said that it does not.
    settled: bool,
    label: String,
}

/// A device: process, port, and when it was opened.
type Key = (u32, u16, u64);

/// A record of this round, in the order of its time.
struct Waiting {
    unix_ns: u64,
    interface: u32,
    record: Record<'static>,
    len: usize,
    /// Of its bytes.
    range: std::ops::Range<usize>,
}

struct Capture<'a> {
    args: &'a CaptureArgs,
    trace: PcapNg<Box<dyn Write>>,
    sources: BTreeMap<Key, Source>,
    /// Devices that cannot be captured, so that it is said once.
    refused: Vec<Key>,
    written: u64,
    dropped: u64,
    bytes: Vec<u8>,
}

/// Captures until the time is over, or somebody says that it is enough.
///
/// # Errors
/// The capture cannot be written, or a named process is not there.
pub fn run(args: &CaptureArgs, stop: &Stop) -> Result {
    let chosen = Chosen { pids: args.pids.clone(), all: false };
    // A process that is asked for must be there.
    let first = chosen.list()?;
    let to_stdout = args.file == Path::new("-");
    let out: Box<dyn Write> = if to_stdout {
        Box::new(io::BufWriter::new(io::stdout()))
    } else {
        Box::new(capture_file(&args.file, args.secrets)?)
    };
    capture_rings_sweep();
    let mut capture = Capture {
        args,
        trace: PcapNg::without_interfaces(out).map_err(|e| failed(&args.file, &e))?,
        sources: BTreeMap::new(),
        refused: Vec::new(),
        written: 0,
        dropped: 0,
        bytes: Vec::new(),
    };
    let control = path_orders::control()?;
    if first.rows.iter().all(|row| row.uid != path_orders::user()) {
        output::note(&format!(
            "srd: no process of this user has an open device yet; waiting for one. {UNSEEN}"
        ));
    }
    let (begin, mut look) = (Instant::now(), Instant::now());
    let done = || stop.asked() || args.duration.is_some_and(|time| begin.elapsed() >= time);
    while !capture.is_full() && !done() {
        if Instant::now() >= look {
            look = Instant::now() + LOOK;
            // A process that was asked for may end meanwhile.
            let all = Chosen { pids: Vec::new(), all: false }.list()?;
            let (waiting, ended) = capture.sources_update(&all.rows)?;
            if waiting {
                control.nudge().map_err(|e| Failure::new(e.to_string()))?;
                path_orders::wake(&path_orders::devices()?);
            }
            if ended && capture.sources.is_empty() && !args.pids.is_empty() {
                break;
            }
            match capture.trace.flush() {
                Err(e) if to_stdout && e.kind() == io::ErrorKind::BrokenPipe => break,
                other => other.map_err(|e| failed(&args.file, &e))?,
            }
        }
        if !capture.round().map_err(|e| failed(&args.file, &e))? {
            thread::sleep(REST);
        }
    }
    let told = capture.end();
    // Those at rest stop mirroring at once, and give the memory back.
    let _ = control.nudge().map(|()| path_orders::devices().map(|rows| path_orders::wake(&rows)));
    match told {
        Err(e) if to_stdout && e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map(|text| output::note(&text)).map_err(|e| failed(&args.file, &e)),
    }
}

fn failed(file: &Path, e: &io::Error) -> Failure {
    Failure::new(format!("cannot write the capture {}: {e}", file.display()))
}

impl Capture<'_> {
    /// Whether there are as many packets as were asked for.
    fn is_full(&self) -> bool {
        self.args.packets.is_some_and(|most| self.written >= most)
    }

    /// Makes rings for new devices, and ends those of devices that have closed. Returns whether
    /// there are rings that no device has found yet, and whether devices have closed.
    fn sources_update(&mut self, rows: &[StatusRow]) -> Result<(bool, bool)> {
        let key = |row: &StatusRow| (row.pid, row.status.port, row.status.opened_ns);
        let gone: Vec<Key> = self.sources.keys().copied().collect();
        let gone: Vec<Key> =
            gone.into_iter().filter(|k| !rows.iter().any(|row| key(row) == *k)).collect();
        let fail = |e: &io::Error| failed(&self.args.file, e);
        if !gone.is_empty() {
            // What they wrote last.
            self.round().map_err(|e| fail(&e))?;
        }
        for key in &gone {
            if let Some(source) = self.sources.remove(key) {
                self.source_end(&source).map_err(|e| failed(&self.args.file, &e))?;
            }
        }
        for row in rows {
            let named = self.args.pids.is_empty() || self.args.pids.contains(&row.pid);
            let known = self.sources.contains_key(&key(row)) || self.refused.contains(&key(row));
            if !named || known {
                continue;
            }
            match self.source_of(row) {
                Ok(source) => {
                    self.sources.insert(key(row), source);
                }
                Err(why) => {
                    self.refused.push(key(row));
                    output::note(&format!("srd: process {} is not captured: {why}", row.pid));
                }
            }
        }
        for source in self.sources.values_mut().filter(|source| !source.settled) {
            source.settled = source.ring.is_attached();
            if !source.settled && source.since.elapsed() > PATIENCE {
                source.settled = true;
                output::note(&format!(
                    "srd: warning: {} does not mirror its packets: it is of an older version, \
                     stopped, or does not obey orders about paths",
                    source.label
                ));
            }
        }
        // A device that still mirrors for a capture that was killed looks for no other one: it is
        // told again until it does.
        let waiting = self.sources.values().any(|source| !source.settled);
        Ok((waiting, !gone.is_empty()))
    }

    fn source_of(&mut self, row: &StatusRow) -> Result<Source, String> {
        if row.uid != path_orders::user() {
            return Err(format!("it belongs to user {}: run this command as that user", row.uid));
        }
        if self.sources.len() >= DEVICES_MAX {
            return Err(format!("at most {DEVICES_MAX} devices are captured at once"));
        }
        let s = &row.status;
        let snap = self.args.snaplen.unwrap_or(u32::MAX);
        let ring = CaptureRing::make(s.local, s.port, self.args.buffer, snap, self.args.secrets)
            .map_err(|e| e.to_string())?;
        ring.beat(now_ns());
        let (program, device) = (printable(&s.program), printable(&s.name));
        let rank = s.rank.map(|rank| format!(", rank {rank}")).unwrap_or_default();
        let label = format!("{program}[{}]", row.pid);
        let name = format!("{label} {device}");
        let at = SocketAddr::new(s.local, s.port);
        let what = format!("process {} ({program}{rank}), device {device}, {at}", row.pid);
        let interface = self.trace.interface(&name, &what).map_err(|e| e.to_string())?;
        Ok(Source {
            ring,
            interface,
            local: s.local,
            since: Instant::now(),
            seen: 0,
            settled: false,
            label,
        })
    }

    /// Writes what waits in all rings, in the order of time. Returns whether there was anything.
    fn round(&mut self) -> io::Result<bool> {
        let (mut waiting, mut secrets) = (Vec::new(), String::new());
        let mut any = false;
        self.bytes.clear();
        let (bytes, peer) = (&mut self.bytes, self.args.peer);
        for source in self.sources.values_mut() {
            source.ring.beat(now_ns());
            let (interface, local, seen) = (source.interface, source.local, &mut source.seen);
            any |= source.ring.read(|mirrored| match mirrored {
                Mirrored::Secret(line) => {
                    secrets.push_str(line);
                    secrets.push('\n');
                }
                Mirrored::Packet(packet) => {
                    *seen += 1;
                    if peer.is_none_or(|ip| ip == packet.remote.ip()) {
                        waiting.push(waiting_of(&packet, interface, local, bytes));
                    }
                }
            });
        }
        if !secrets.is_empty() {
            self.trace.secrets(SECRETS_KIND, secrets.as_bytes())?;
        }
        waiting.sort_by_key(|waiting| waiting.unix_ns);
        for Waiting { interface, record, len, range, .. } in waiting {
            if self.is_full() {
                break;
            }
            let record = Record { payload: &self.bytes[range], ..record };
            match self.trace.write_on(interface, &record, len) {
                // Of two families, or longer than IP carries: nothing that a device sends.
                Err(e) if e.kind() == io::ErrorKind::InvalidInput => self.dropped += 1,
                other => {
                    other?;
                    self.written += 1;
                }
            }
        }
        Ok(any)
    }

    fn source_end(&mut self, source: &Source) -> io::Result<()> {
        let dropped = source.ring.dropped() + source.ring.damaged();
        self.dropped += dropped;
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let unix_ns = unix.as_nanos() as u64;
        self.trace.statistics(source.interface, unix_ns, source.seen + dropped, dropped)
    }

    /// Completes the capture. Returns what to say about it.
    fn end(mut self) -> io::Result<String> {
        self.round()?;
        let sources = std::mem::take(&mut self.sources);
        for source in sources.values() {
            self.source_end(source)?;
        }
        self.trace.flush()?;
        let (written, dropped) = (self.written, self.dropped);
        let missing = match dropped {
            0 => String::new(),
            n => format!(
                "; {n} are missing, because they came faster than they were written: a larger \
                 --buffer or a --snaplen helps"
            ),
        };
        Ok(format!("{written} packets captured{missing}"))
    }
}

/// Keeps a packet of a ring for the round.
fn waiting_of(
    packet: &MirroredPacket<'_>,
    interface: u32,
    local: IpAddr,
    bytes: &mut Vec<u8>,
) -> Waiting {
    let start = bytes.len();
    bytes.extend_from_slice(packet.bytes);
    let local = SocketAddr::new(local, packet.local_port);
    let (way, src, dst) = match packet.sent {
        true => (Way::Out, local, packet.remote),
        false => (Way::In, packet.remote, local),
    };
    let MirroredPacket { unix_ns, ecn, .. } = *packet;
    let record = Record { unix_ns, way, src, dst, ecn, payload: &[] };
    Waiting { unix_ns, interface, record, len: packet.len as usize, range: start..bytes.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_rings_are_checked() {
        assert_eq!(ring_bytes("8M"), Ok(8 << 20));
        assert_eq!(ring_bytes("512K"), Ok(512 << 10));
        for wrong in ["0", "256K", "3M", "2G", "x"] {
            assert!(ring_bytes(wrong).is_err(), "{wrong}");
        }
    }
}
