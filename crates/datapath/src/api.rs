//! The [`Datapath`] trait and its types.

use crate::{Part, ReleasesParts, Waker};
use core::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};
use std::{error::Error, fmt, io, marker::PhantomData, os::fd::RawFd};

/// Sends and receives UDP datagrams for one engine.
///
/// The order of use, once per turn of the engine: [`rx`](Self::rx), then
/// [`tx_push`](Self::tx_push) as often as [`tx_room`](Self::tx_room) allows, then
/// [`tx_flush`](Self::tx_flush), then, when there is nothing to do, [`wait`](Self::wait).
///
/// No error of the network ends a datapath: a packet that the kernel refuses is counted by kind in
/// [`Counters`] and dropped. An `Err` from a method means that the datapath itself is broken.
pub trait Datapath: ReleasesParts + Send {
    /// Address that peers reach this datapath at.
    fn local_ip(&self) -> IpAddr;

    /// UDP port that peers send to.
    fn port(&self) -> u16;

    /// Number of paths, at least 1 and at most 256; valid path numbers are below it.
    fn paths(&self) -> usize;

    /// UDP source port that packets of `path` leave from; 0 if there is no such path.
    fn path_port(&self, path: u8) -> u16;

    /// Most bytes of UDP payload in one datagram: the link MTU less the IP and UDP headers.
    fn udp_payload_max(&self) -> usize;

    /// Datagrams that [`tx_push`](Self::tx_push) accepts before the next flush; 0 while a backlog
    /// of refused packets waits for the kernel (call [`tx_flush`](Self::tx_flush) to retry).
    fn tx_room(&self) -> usize;

    /// Whether the backlog is empty: the kernel accepted everything pushed before.
    fn tx_ready(&self) -> bool;

    /// Queues one datagram. Its header bytes are copied; its payload is only referenced, until the
    /// next [`tx_flush`](Self::tx_flush) or [`tx_discard`](Self::tx_discard) returns.
    ///
    /// Packets of one path to one destination and of one size, pushed in a row, become one
    /// segmented send where the datapath can do that; the last of them may be shorter.
    ///
    /// # Errors
    /// The packet was not queued: see [`TxPushError`].
    fn tx_push(&mut self, packet: &TxPacket<'_>) -> Result<(), TxPushError>;

    /// Whether a datagram of `len` bytes is copied when it is pushed, even if it has no
    /// [finisher](TxPacket::finish).
    fn tx_copies(&self, len: usize) -> bool;

    /// Sends the queue. Datagrams that the kernel refuses for now are copied into pooled buffers,
    /// so that no payload memory is referenced after this returns; later calls send them first.
    ///
    /// # Errors
    /// Only when the datapath itself is broken; the queue is empty then, too.
    fn tx_flush(&mut self) -> io::Result<TxReport>;

    /// Discards the datagrams queued since the last flush, but not the backlog.
    fn tx_discard(&mut self);

    /// Passes waiting datagrams to `sink`, a bounded batch of them, and never blocks.
    ///
    /// # Errors
    /// Only when the datapath itself is broken.
    fn rx(&mut self, sink: &mut dyn FnMut(RxDatagram<'_>)) -> io::Result<RxReport>;

    /// Datagrams that wait in the receive queue now, in bytes. This costs a system call: use it
    /// only after a full batch.
    fn rx_backlog(&self) -> RxBacklog;

    /// Blocks until a datagram may be waiting, the backlog may be sent, the [`Waker`] was used or
    /// `timeout` has expired (`None` = no timeout). May return early without a reason.
    ///
    /// # Errors
    /// Only when the datapath itself is broken.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()>;

    /// Tells the descriptors that are readable while datagrams wait, for a thread that waits for
    /// several datapaths at once ([`wait_any`](crate::wait_any)). They stay the same. A datapath
    /// that tells none can only be waited for alone.
    fn receivers(&self, tell: &mut dyn FnMut(RawFd)) {
        let _ = tell;
    }

    /// Tells the descriptors that become writable when the kernel accepts packets of the backlog
    /// again; none while there is no backlog, or nothing tells when it can go.
    fn full(&self, tell: &mut dyn FnMut(RawFd)) {
        let _ = tell;
    }

    /// Ends [`wait`](Self::wait) from another thread.
    fn waker(&self) -> Waker;

    /// Counters since creation.
    fn counters(&self) -> Counters;
}

impl<D: Datapath + ?Sized> Datapath for Box<D> {
    fn local_ip(&self) -> IpAddr {
        (**self).local_ip()
    }
    fn port(&self) -> u16 {
        (**self).port()
    }
    fn paths(&self) -> usize {
        (**self).paths()
    }
    fn path_port(&self, path: u8) -> u16 {
        (**self).path_port(path)
    }
    fn udp_payload_max(&self) -> usize {
        (**self).udp_payload_max()
    }
    fn tx_room(&self) -> usize {
        (**self).tx_room()
    }
    fn tx_ready(&self) -> bool {
        (**self).tx_ready()
    }
    fn tx_push(&mut self, packet: &TxPacket<'_>) -> Result<(), TxPushError> {
        (**self).tx_push(packet)
    }
    fn tx_copies(&self, len: usize) -> bool {
        (**self).tx_copies(len)
    }
    fn tx_flush(&mut self) -> io::Result<TxReport> {
        (**self).tx_flush()
    }
    fn tx_discard(&mut self) {
        (**self).tx_discard();
    }
    fn rx(&mut self, sink: &mut dyn FnMut(RxDatagram<'_>)) -> io::Result<RxReport> {
        (**self).rx(sink)
    }
    fn rx_backlog(&self) -> RxBacklog {
        (**self).rx_backlog()
    }
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        (**self).wait(timeout)
    }
    fn receivers(&self, tell: &mut dyn FnMut(RawFd)) {
        (**self).receivers(tell);
    }
    fn full(&self, tell: &mut dyn FnMut(RawFd)) {
        (**self).full(tell);
    }
    fn waker(&self) -> Waker {
        (**self).waker()
    }
    fn counters(&self) -> Counters {
        (**self).counters()
    }
}

/// Completes a datagram once all of its bytes are known: writes a checksum into it.
pub type Finish = fn(&mut [u8]);

/// One datagram to send: `headers`, then `payload`, then zeros up to `padded_len` bytes.
#[derive(Clone, Copy, Debug)]
pub struct TxPacket<'a> {
    /// Address and port of the receiver.
    pub dst: SocketAddr,
    /// Path to send it over, below [`Datapath::paths`].
    pub path: u8,
    /// First bytes of the datagram; copied when pushed.
    pub headers: &'a [u8],
    /// The rest of the datagram, gathered at the flush.
    pub payload: &'a [Part],
    /// Pad with zeros up to this many bytes; no effect if the datagram is not shorter.
    pub padded_len: usize,
    /// If set, copy the datagram when it is pushed, so that its payload no longer changes, and call
    /// this to complete the copy.
    pub finish: Option<Finish>,
}

impl TxPacket<'_> {
    /// Bytes of the datagram on the wire, without IP and UDP headers.
    pub fn wire_len(&self) -> usize {
        let body = self.payload.iter().map(Part::len).sum::<usize>();
        (self.headers.len() + body).max(self.padded_len)
    }

    /// Bytes of zeros behind its payload.
    pub fn pad_len(&self) -> usize {
        let body = self.payload.iter().map(Part::len).sum::<usize>();
        self.padded_len.saturating_sub(self.headers.len() + body)
    }

    /// Appends the whole completed datagram to `out`.
    pub fn gather_into(&self, out: &mut Vec<u8>) {
        let (start, end) = (out.len(), out.len() + self.wire_len());
        out.extend_from_slice(self.headers);
        for part in self.payload {
            part.copy_into(out);
        }
        out.resize(end, 0);
        if let Some(finish) = self.finish {
            finish(&mut out[start..]);
        }
    }
}

/// Why a datagram was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TxPushError {
    /// The batch is full or a backlog waits: flush, and wait if that does not help.
    Full,
    /// The datagram is longer than [`Datapath::udp_payload_max`].
    TooLong {
        /// Bytes of the datagram.
        len: usize,
        /// Bytes that are allowed.
        max: usize,
    },
    /// There is no such path.
    BadPath {
        /// The requested path.
        path: u8,
        /// Number of paths there are.
        paths: usize,
    },
    /// The destination's address family is not that of this datapath.
    BadFamily,
}

impl fmt::Display for TxPushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("transmit batch full: flush it, then push again"),
            Self::TooLong { len, max } => {
                write!(f, "datagram of {len} bytes; at most {max} fit the link: lower the MTU")
            }
            Self::BadPath { path, paths } => {
                write!(f, "path {path} does not exist: use one below {paths}")
            }
            Self::BadFamily => f.write_str(
                "destination and local address differ in family: use IPv4 or IPv6 for both",
            ),
        }
    }
}

impl Error for TxPushError {}

/// Result of a flush.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxReport {
    /// Datagrams that the kernel accepted, backlog included.
    pub sent: usize,
    /// Datagrams now in the backlog.
    pub backlog: usize,
    /// Datagrams dropped because of an error; [`Counters`] tell which.
    pub dropped: usize,
    /// The last datagram that was too long for the link.
    pub too_long: Option<TooLong>,
}

/// A datagram did not fit the link's MTU and was dropped (fragmentation is forbidden).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// Destination.
    pub dst: SocketAddr,
    /// Its UDP payload in bytes.
    pub len: usize,
    /// MTU of the link with the device's address, in bytes including IP and UDP headers; `None` if
    /// it is unknown, or was large enough. Never taken from a router's ICMP message.
    pub mtu: Option<u32>,
}

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers = if self.dst.is_ipv4() { 28 } else { 48 };
        write!(f, "datagram of {} bytes to {} is too long: ", self.len, self.dst)?;
        match self.mtu {
            Some(mtu) => write!(
                f,
                "the link's MTU of {mtu} leaves {}; lower the device MTU",
                (mtu as usize).saturating_sub(headers)
            ),
            None => f.write_str("the MTU of the path is smaller; lower the device MTU"),
        }
    }
}

impl Error for TooLong {}

/// One received datagram. Merged ones (GRO) have been split again.
#[derive(Debug)]
pub struct RxDatagram<'a> {
    /// Source address and port; the port identifies the sender's path.
    pub src: SocketAddr,
    /// Its IP header carried CE ("congestion experienced").
    pub ce: bool,
    /// Datagrams dropped so far because the receive socket's buffer was full (wraps around).
    pub rxq_drops: u32,
    /// Nanoseconds that it waited in the socket, by the kernel's arrival stamp; 0 if unknown. Used
    /// to exclude the host's delay from the network's.
    pub waited_ns: u64,
    /// The datagram, in the receive buffer. Its receiver may change it in place (decrypt it).
    pub bytes: &'a mut [u8],
}

/// Bytes that wait in a receive queue, and its capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxBacklog {
    /// Bytes of datagrams that wait, without the kernel's overhead.
    pub bytes: u64,
    /// Most bytes that may wait; the kernel drops datagrams beyond that.
    pub limit_bytes: u64,
}

/// Result of a receive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxReport {
    /// Datagrams passed to the sink.
    pub datagrams: usize,
    /// The batch was full: more may be waiting.
    pub more: bool,
}

/// Counters of a datapath. Datagrams and bytes are UDP payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams that the kernel accepted.
    pub tx_packets: u64,
    /// Bytes in them.
    pub tx_bytes: u64,
    /// System calls made to send.
    pub tx_syscalls: u64,
    /// Segmented sends (GSO) of two or more datagrams.
    pub tx_gso_batches: u64,
    /// Datagrams in them.
    pub tx_gso_packets: u64,
    /// Segmented sends that the kernel refused and that were repeated without segmentation.
    pub tx_gso_refused: u64,
    /// Times that a socket's send buffer was full (EAGAIN).
    pub tx_would_block: u64,
    /// Times that the kernel had no buffer (ENOBUFS, ENOMEM).
    pub tx_nobufs: u64,
    /// Datagrams copied into the backlog.
    pub tx_backlogged: u64,
    /// Datagrams dropped: longer than the link's MTU (EMSGSIZE).
    pub tx_too_long: u64,
    /// Datagrams dropped: nobody listens (ECONNREFUSED).
    pub tx_refused: u64,
    /// Datagrams dropped: no route or no answer (EHOSTUNREACH, ENETUNREACH, ENETDOWN).
    pub tx_unreachable: u64,
    /// Datagrams dropped: forbidden by a firewall (EPERM, EACCES).
    pub tx_forbidden: u64,
    /// Datagrams dropped for any other error.
    pub tx_other: u64,
    /// `errno` of the last datagram counted in `tx_other`; 0 = none.
    pub tx_other_errno: i32,
    /// Datagrams received.
    pub rx_packets: u64,
    /// Bytes in them.
    pub rx_bytes: u64,
    /// System calls made to receive.
    pub rx_syscalls: u64,
    /// Receives that held two or more merged datagrams (GRO).
    pub rx_gro_batches: u64,
    /// Datagrams in them.
    pub rx_gro_packets: u64,
    /// Datagrams that carried CE ("congestion experienced").
    pub rx_ce: u64,
    /// Receives dropped because they were longer than the buffer.
    pub rx_truncated: u64,
    /// Datagrams that the kernel dropped because the receive buffer was full.
    pub rxq_drops: u64,
    /// Times that `wait` slept.
    pub waits: u64,
}

/// Pushes packets whose payload is borrowed, then flushes. This is the safe way to send: whatever
/// `fill` does, no payload is referenced after this returns.
///
/// ```
/// use srd_datapath::{send_batch, Datapath, mem::MemNet};
/// let net = MemNet::new();
/// let (mut a, b) = (net.endpoint("10.0.0.1:1".parse()?)?, net.endpoint("10.0.0.2:1".parse()?)?);
/// let text = String::from("payload");
/// let dst = (b.local_ip(), b.port()).into();
/// let (pushed, report) =
///     send_batch(&mut a, |batch| batch.push(dst, 0, b"head", &[text.as_bytes()]))?;
/// assert!(pushed.is_ok());
/// assert_eq!(report.sent, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Errors of [`Datapath::tx_flush`].
pub fn send_batch<'p, D: Datapath + ?Sized, R>(
    datapath: &mut D,
    fill: impl FnOnce(&mut TxBatch<'_, 'p, D>) -> R,
) -> io::Result<(R, TxReport)> {
    let mut batch = TxBatch { datapath, borrowed: PhantomData };
    let value = fill(&mut batch);
    let report = batch.datapath.tx_flush()?;
    Ok((value, report))
}

/// Accepts packets with borrowed payload; see [`send_batch`].
pub struct TxBatch<'d, 'p, D: Datapath + ?Sized> {
    datapath: &'d mut D,
    borrowed: PhantomData<&'p [u8]>,
}

impl<'p, D: Datapath + ?Sized> TxBatch<'_, 'p, D> {
    /// Most pieces of payload in one packet.
    pub const PIECES_MAX: usize = 4;

    /// Queues `headers` followed by at most [`PIECES_MAX`](Self::PIECES_MAX) pieces of payload.
    ///
    /// # Errors
    /// Errors of [`Datapath::tx_push`].
    ///
    /// # Panics
    /// When there are more than [`PIECES_MAX`](Self::PIECES_MAX) pieces.
    pub fn push(
        &mut self,
        dst: SocketAddr,
        path: u8,
        headers: &[u8],
        payload: &[&'p [u8]],
    ) -> Result<(), TxPushError> {
        assert!(payload.len() <= Self::PIECES_MAX, "at most {} pieces", Self::PIECES_MAX);
        let mut parts = [Part::EMPTY; 4];
        for (part, piece) in parts.iter_mut().zip(payload) {
            *part = Part::of_batch(piece);
        }
        let payload = &parts[..payload.len()];
        let packet = TxPacket { dst, path, headers, payload, padded_len: 0, finish: None };
        self.datapath.tx_push(&packet)
    }
}

impl<D: Datapath + ?Sized> Drop for TxBatch<'_, '_, D> {
    /// After a panic in `fill`, no borrowed payload may stay queued.
    fn drop(&mut self) {
        self.datapath.tx_discard();
    }
}
