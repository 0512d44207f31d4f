//! `srd net capture`: records the packets of SRD that a node of the fabric forwards or receives,
//! and counts which of them are sealed.
//!
//! It asks the kernel for what arrives at the node's interfaces and knows nothing of what devices
//! say of themselves.

use crate::{
    args::NameArg,
    error::{NetError, Result},
    hold, say, units,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
    io::Errno,
    net::{
        AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, eth, recv, socket_with,
        sockopt::set_socket_recv_buffer_size,
    },
};
use srd::{
    datapath::pcapng::{PcapNg, Record, Way},
    seal::{CONTEXT_GONE, SEALED_OPEN},
};
use srd_wire::{Flags, HEADER_BYTES, PacketType, VERSION};
use std::{
    fmt,
    fs::File,
    io::BufWriter,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// Longest packet that a link of the fabric carries.
const PACKET_BYTES_MAX: usize = 1 << 16;
/// Receive buffer asked for; the kernel gives at most net.core.rmem_max.
const BUFFER_BYTES: usize = 16 << 20;
/// Packets read from one socket before the other is looked at.
const BATCH: usize = 256;
/// Protocol number of UDP.
const UDP: u8 = 17;

/// Options of `srd net capture`.
#[derive(Clone, Debug, clap::Args)]
pub struct CaptureArgs {
    /// Which fabric
    #[command(flatten)]
    pub name: NameArg,
    /// Spine, leaf or host whose arriving packets are recorded, as s0, l0 or h0x0
    pub node: String,
    /// The pcapng file (replaced if it exists)
    pub file: PathBuf,
    /// Record for this long [default: until standard input ends (Ctrl-D)]
    #[arg(long = "for", value_name = "TIME", value_parser = units::duration)]
    pub lasting: Option<Duration>,
    /// Stop writing when the packets in the file have this many bytes; counting goes on
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = units::bytes)]
    pub bytes_max: u64,
    /// First of the 256 UDP ports of SRD
    #[arg(long, value_name = "PORT", default_value_t = srd::PORT_BASE_DEFAULT)]
    pub port_base: u16,
}

/// Packets of SRD by how they are protected, as their headers say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Sealed: all behind the common header is encrypted.
    pub sealed: u64,
    /// Of the handshake that opens sealed contexts, or asks after them.
    pub handshake: u64,
    /// Resets without a seal, which carry a tag and a reason and nothing else.
    pub resets: u64,
    /// All other packets without a seal.
    pub open: u64,
}

impl Tally {
    fn add(&mut self, datagram: &[u8]) {
        let Some(header) = datagram.first_chunk::<HEADER_BYTES>() else { return };
        let kind = header[0] & 0x1f;
        if header[0] >> 5 != VERSION {
            return;
        }
        if (SEALED_OPEN..=CONTEXT_GONE).contains(&kind) {
            self.handshake += 1;
        } else if Flags(header[1]).has(Flags::SEALED) {
            self.sealed += 1;
        } else if kind == PacketType::Reset as u8 {
            self.resets += 1;
        } else {
            self.open += 1;
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} sealed, {} of handshakes, {} resets and {} others without a seal",
            self.sealed, self.handshake, self.resets, self.open
        )
    }
}

/// A UDP datagram within an IP packet: source, destination and payload. `None` for anything else,
/// fragments included.
fn datagram(packet: &[u8]) -> Option<(SocketAddr, SocketAddr, &[u8])> {
    let (src, dst, udp): (IpAddr, IpAddr, &[u8]) = match packet.first()? >> 4 {
        4 => {
            let head = packet.first_chunk::<20>()?;
            let (start, end) = (usize::from(head[0] & 15) * 4, u16_at(packet, 2)?);
            let fragment = u16_at(packet, 6)? & 0x3fff;
            if head[9] != UDP || fragment != 0 {
                return None;
            }
            let address = |at: usize| packet[at..].first_chunk::<4>().map(|b| Ipv4Addr::from(*b));
            (address(12)?.into(), address(16)?.into(), packet.get(start..usize::from(end))?)
        }
        6 => {
            let head = packet.first_chunk::<40>()?;
            if head[6] != UDP {
                return None;
            }
            let address = |at: usize| packet[at..].first_chunk::<16>().map(|b| Ipv6Addr::from(*b));
            let end = 40 + usize::from(u16_at(packet, 4)?);
            (address(8)?.into(), address(24)?.into(), packet.get(40..end)?)
        }
        _ => return None,
    };
    let payload = udp.get(8..usize::from(u16_at(udp, 4)?))?;
    let (src, dst) = (SocketAddr::new(src, u16_at(udp, 0)?), SocketAddr::new(dst, u16_at(udp, 2)?));
    Some((src, dst, payload))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|b| u16::from_be_bytes(*b))
}

/// What is recorded, and where to.
struct Recorder {
    file: PcapNg<BufWriter<File>>,
    tally: Tally,
    written: u64,
    args: CaptureArgs,
}

impl Recorder {
    fn take(&mut self, packet: &[u8]) -> Result {
        let Some((src, dst, payload)) = datagram(packet) else { return Ok(()) };
        if dst.port().wrapping_sub(self.args.port_base) >= 256 {
            return Ok(());
        }
        self.tally.add(payload);
        if self.written + payload.len() as u64 > self.args.bytes_max {
            return Ok(());
        }
        self.written += payload.len() as u64;
        let unix_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
        let (unix_ns, way) = (u64::try_from(unix_ns).unwrap_or(0), Way::In);
        let record = Record { unix_ns, way, src, dst, ecn: 0, payload };
        Ok(self.file.write(&record)?)
    }

    /// Takes what waits at a socket. True if more may wait.
    fn drain(&mut self, socket: &OwnedFd, room: &mut [u8]) -> Result<bool> {
        for _ in 0..BATCH {
            match recv(socket, &mut *room, RecvFlags::DONTWAIT) {
                Ok((_, length)) => self.take(&room[..length])?,
                Err(Errno::AGAIN) => return Ok(false),
                // A link that went down, or a signal.
                Err(Errno::NETDOWN | Errno::INTR) => {}
                Err(e) => return Err(NetError::system("cannot read packets of the node", e)),
            }
        }
        Ok(true)
    }
}

/// A socket that gets what arrives at all interfaces of this namespace, without link headers.
fn socket(protocol: Protocol) -> Result<OwnedFd> {
    let (kind, flags) = (SocketType::DGRAM, SocketFlags::CLOEXEC);
    let socket = socket_with(AddressFamily::PACKET, kind, flags, Some(protocol))
        .map_err(|e| NetError::system("cannot listen to a node of the fabric", e))?;
    // A smaller buffer loses packets of the capture only.
    let _ = set_socket_recv_buffer_size(&socket, BUFFER_BYTES);
    Ok(socket)
}

/// Records until the time is over or standard input has ended, then prints what was seen.
///
/// # Errors
/// There is no such fabric or node, or the file cannot be written.
pub fn run(args: &CaptureArgs) -> Result {
    let fabric = hold::get(&args.name.name)?.open()?;
    let node = fabric.spec().node(&args.node)?;
    let file = File::create(&args.file)
        .map_err(|e| NetError::new(format!("cannot write {}: {e}", args.file.display())))?;
    fabric.ns(node)?.enter()?;
    let sockets = [socket(eth::IP)?, socket(eth::IPV6)?];
    let file = PcapNg::new(BufWriter::new(file))?;
    let mut recorder = Recorder { file, tally: Tally::default(), written: 0, args: args.clone() };
    say(&format!("recording what arrives at {}", args.node))?;
    let end = args.lasting.map(|time| Instant::now() + time);
    let (mut room, mut ended) = (vec![0; PACKET_BYTES_MAX], false);
    while !ended {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let input = rustix::stdio::stdin();
        let mut fds =
            vec![PollFd::new(&sockets[0], PollFlags::IN), PollFd::new(&sockets[1], PollFlags::IN)];
        if end.is_none() {
            fds.push(PollFd::new(&input, PollFlags::IN));
        }
        match poll(&mut fds, left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(NetError::system("cannot wait for packets", e)),
        }
        ended = match end {
            Some(end) => Instant::now() >= end,
            None => !fds[2].revents().is_empty() && input_ended()?,
        };
        for socket in &sockets {
            // What has arrived when the recording ends still belongs to it.
            while recorder.drain(socket, &mut room)? && ended {}
        }
    }
    recorder.file.flush()?;
    say(&format!("{}: {}", args.node, recorder.tally))
}

fn input_ended() -> Result<bool> {
    match rustix::io::read(rustix::stdio::stdin(), &mut [0; 256]) {
        Ok(length) => Ok(length == 0),
        Err(Errno::INTR) => Ok(false),
        Err(e) => Err(NetError::system("cannot read standard input", e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 packet as a recorder gets it, from the writer of captures.
    fn packet(payload: &[u8]) -> Vec<u8> {
        let mut trace = PcapNg::new(Vec::new()).unwrap();
        let (src, dst) = ("10.1.0.10:40000".parse().unwrap(), "10.1.1.10:18703".parse().unwrap());
        let start = 28 + 4 + 28;
        trace.write(&Record { unix_ns: 0, way: Way::In, src, dst, ecn: 2, payload }).unwrap();
        let bytes = trace.into_inner().unwrap();
        let at = bytes[start..].iter().position(|&b| b == 0x45).unwrap() + start;
        bytes[at..at + 28 + payload.len()].to_vec()
    }

    #[test]
    fn datagrams_are_found_in_their_packets() {
        let mut bytes = packet(b"payload");
        // What links append to short packets does not belong to the datagram.
        bytes.extend([0; 9]);
        let (src, dst, payload) = datagram(&bytes).unwrap();
        assert_eq!((src.port(), dst.port(), payload), (40_000, 18_703, &b"payload"[..]));
        assert_eq!(dst.ip(), IpAddr::from([10, 1, 1, 10]));
        for cut in 0..35 {
            assert!(datagram(&bytes[..cut]).is_none(), "{cut}");
        }
        bytes[9] = 6;
        assert!(datagram(&bytes).is_none(), "TCP");
    }

    #[test]
    fn packets_are_counted_by_their_protection() {
        let mut tally = Tally::default();
        let header = |kind: u8, flags: u8| {
            let mut header = [0; HEADER_BYTES];
            header[..2].copy_from_slice(&[VERSION << 5 | kind, flags]);
            header
        };
        tally.add(&header(SEALED_OPEN, Flags::SEALED));
        tally.add(&header(PacketType::Ack as u8, Flags::SEALED));
        tally.add(&header(PacketType::Ack as u8, Flags::CHECKED));
        tally.add(&header(PacketType::Reset as u8, 0));
        tally.add(&header(PacketType::Reset as u8, 0)[1..]);
        assert_eq!(tally, Tally { sealed: 1, handshake: 1, resets: 1, open: 1 });
    }
}
