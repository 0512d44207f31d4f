//! The types that cross the boundary of the core: work requests and packets in, packets and
//! completions out. They are plain data and hold no pointer to payload.

use crate::time::Span;
use core::net::IpAddr;
pub use srd_wire::{CloseCode, Packet, Verdict};

/// The address and UDP port (`port_base + slot`) at which an engine receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint {
    /// Address of the host.
    pub ip: IpAddr,
    /// UDP port of the engine's receive socket.
    pub port: u16,
}

/// Queue pair number as peers see it: engine slot in the high byte, index in the low byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Qpn(pub u16);

impl Qpn {
    /// Slot of the engine that owns the queue pair.
    pub const fn slot(self) -> u8 {
        (self.0 >> 8) as u8
    }
    /// Index of the queue pair within its engine.
    pub const fn index(self) -> u8 {
        self.0 as u8
    }
}

/// Address handle: one remote address. 16 bits, as on EFA; `0xFFFF` in a completion = unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AhId(pub u16);

impl AhId {
    /// "No address handle names the sender", as EFA reports it.
    pub const UNKNOWN: Self = Self(0xFFFF);
}

/// Protection domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PdId(pub u16);

/// Completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CqId(pub u16);

/// Memory region. The number is both its lkey and its rkey.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MrKey(pub u32);

/// A posted send work request: index into a table of [`crate::config::EngineConfig::wrs_max`]
/// entries. The device keeps the scatter/gather list under the same index. Valid until its
/// completion or release comes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WrHandle(pub u32);

/// A posted receive: index within its queue pair's receive queue (`0..rq_depth`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecvHandle {
    /// Queue pair.
    pub qp: Qpn,
    /// Slot in its receive queue.
    pub index: u32,
}

/// Reliable or unreliable datagram service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QpType {
    /// Scalable reliable datagram.
    Srd,
    /// Unreliable datagram; a received message is preceded by 40 bytes (GRH area) in the buffer.
    Ud,
}

/// Operation of a send work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Opcode {
    /// Message of at most one MTU.
    Send,
    /// Message with immediate data.
    SendImm,
    /// RDMA write of at most 1 GiB.
    Write,
    /// RDMA write that completes a receive (or an unsolicited one) with immediate data at the
    /// responder.
    WriteImm,
    /// RDMA read of at most 1 GiB.
    Read,
}

/// A send work request.
#[derive(Clone, Copy, Debug)]
pub struct SendRequest {
    /// The caller's number, given back in the completion.
    pub wr_id: u64,
    /// Operation.
    pub op: Opcode,
    /// Address handle of the destination.
    pub ah: AhId,
    /// Queue pair at the destination.
    pub dst_qpn: Qpn,
    /// Q_Key; it must equal that of the destination queue pair.
    pub qkey: u32,
    /// Bytes of local data (the scatter/gather list's sum).
    pub len: u32,
    /// Key of the remote memory region (RDMA).
    pub rkey: u32,
    /// Address within the remote memory region (RDMA).
    pub raddr: u64,
    /// Immediate data (with-immediate operations).
    pub imm: u32,
}

/// A receive work request.
#[derive(Clone, Copy, Debug)]
pub struct RecvRequest {
    /// The caller's number, given back in the completion.
    pub wr_id: u64,
    /// Total size of the buffers in bytes.
    pub len: u32,
}

/// Why a post was refused. A refused request has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PostRefusal {
    /// The queue pair is not in a state that takes this request (EINVAL).
    BadState,
    /// No such queue pair (EINVAL).
    BadQp,
    /// The address handle does not exist (EINVAL).
    BadAh,
    /// The send or receive queue is full (ENOMEM).
    QueueFull,
    /// The completion queue has no free slot to reserve (ENOMEM).
    CqFull,
    /// The engine's table of work requests or contexts is full (ENOMEM).
    NoRoom,
    /// The request is longer than the operation allows (EINVAL).
    BadLength,
    /// The queue pair's type cannot do this operation (EINVAL).
    BadOpcode,
}

/// Completion status: EFA's numbers, as `vendor_err` shows them. `docs/semantics.md` has all
/// causes, and what may have happened at the peer.
/// Source: EFA ABI, `efa_io_comp_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Status {
    /// Success. A send: the peer has accepted the message. A write or read: it is complete.
    Ok = 0,
    /// The queue pair went to ERR, by `modify` or after a failure, while the request was
    /// outstanding. It may have been executed. Reset or recreate the queue pair, then post again.
    Flushed = 1,
    /// The device has failed by an error in this software (event `DeviceFatal`). Open another
    /// device, and report the text that the panic printed.
    LocalQpInternalError = 2,
    /// The engine refuses the operation although the post accepted it. No case is known: report it.
    LocalUnsupportedOp = 3,
    /// The request's address handle was destroyed before the end. Keep it until the completion.
    LocalInvalidAh = 4,
    /// One of the request's memory regions was deregistered before the end. Keep it until the
    /// completion. Also a wrong lkey or range, where the post defers such errors.
    LocalInvalidLkey = 5,
    /// The message is longer than the MTU agreed with this peer, or than the path carries now
    /// (event `PathMtu`). Send less, or by RDMA, which is cut into packets; nothing was delivered.
    LocalBadLength = 6,
    /// RDMA: the peer has no region with this rkey in the queue pair's protection domain, or the
    /// range lies outside, or the region lacks the access right. Compare what the peer told
    /// (address, rkey, length) and with which rights it registered the region.
    RemoteBadAddress = 7,
    /// The peer has lost its state: it restarted or shut down, or had heard nothing for too long.
    /// The request may have been executed there, once at most. Ask the peer for its queue pair and
    /// regions anew, then repeat what may be repeated.
    RemoteAbort = 8,
    /// The peer has no such queue pair, or it is not yet in RTR or RTS, or is of the other type, or
    /// the Q_Key differs. Nothing was delivered. Compare number and Q_Key; a restarted peer has
    /// others.
    RemoteBadDestQpn = 9,
    /// The peer had no receive posted, and the retries are exhausted. Post more receives there, or
    /// allow more retries (`rnr_retry`). A process that reuses a former one's number is another
    /// cause. A read: the peer was busy with others for 30 s.
    RemoteRnr = 10,
    /// The receive posted at the peer is shorter than the message; it stays posted. Post larger
    /// receives there.
    RemoteBadLength = 11,
    /// The peer's answer is none that a correct peer gives. Check the version that runs there.
    RemoteBadStatus = 12,
    /// The peer answered before, but has been silent for 5 s or acknowledges nothing: it has
    /// stopped, or the network has failed. The request may have been executed. New requests try
    /// again.
    LocalUnrespRemote = 13,
    /// RDMA: the peer has no address handle for this host. It must create one, and keep it.
    RemoteUnknownPeer = 14,
    /// The peer has not answered at all for 5 s: it does not run, the address or the port base is
    /// wrong, or a firewall drops its UDP port. `srd doctor ADDRESS` tells which.
    LocalUnreachRemote = 15,
    /// The peer does not offer the operation (RDMA reads or writes); known from the handshake, so
    /// nothing was sent. Use messages, or let the peer's device offer it.
    RemoteFeatureMismatch = 18,
}

/// What a completion reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompletionKind {
    /// A send work request ended; its memory is the caller's again.
    Send(WrHandle, Opcode),
    /// A posted receive was filled (or flushed).
    Recv(RecvHandle),
    /// A posted receive was consumed by a write with immediate; its buffers are untouched.
    RecvRdmaImm(RecvHandle),
    /// A write with immediate arrived and consumed no receive (unsolicited receive).
    RecvUnsolicited,
}

/// A completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The work request's number (0 when unsolicited).
    pub wr_id: u64,
    /// How the request ended.
    pub status: Status,
    /// What the completion reports.
    pub kind: CompletionKind,
    /// Local queue pair.
    pub qpn: Qpn,
    /// Bytes received, sent, read or written. A UD receive counts its 40-byte GRH area.
    pub byte_len: u32,
    /// Immediate data, if the message carried some.
    pub imm: Option<u32>,
    /// Receive: the sender's queue pair.
    pub src_qpn: Qpn,
    /// Receive: local address handle of the sender, if there is one.
    pub src_ah: AhId,
    /// Receive: the sender's address.
    pub src_ip: Option<IpAddr>,
}

/// Asynchronous event: anything but the end of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncEvent {
    /// The peer answered before but has fallen silent; outstanding requests to it ended with status
    /// 13.
    PeerUnresponsive(Endpoint),
    /// The peer never answered; requests to it ended with status 15.
    PeerUnreachable(Endpoint),
    /// The peer lost its state (restart, shutdown); outstanding requests to it ended with status 8.
    PeerReset(Endpoint),
    /// A request to this address, which is the engine's own, was refused by the engine itself. If
    /// it was meant for another process, that process has ended, and this engine has taken its
    /// slot.
    PeerIsSelf(Endpoint),
    /// The peer answered that the two sides do not agree on sealing, for the reason given. The word
    /// of such an answer is not authenticated, so the context is still tried until its time is
    /// over.
    SealRefused(Endpoint, CloseCode),
    /// A path to the address was retired (true) or returned to use (false).
    PathChanged(IpAddr, u8, bool),
    /// The path MTU to the address changed: a packet carries at most this many bytes of payload
    /// from now on. Requests continue with packets of that size; a longer message ends with status
    /// 6.
    PathMtu(IpAddr, u16),
    /// The queue pair entered the error state because of a failure.
    QpFatal(Qpn),
    /// All send requests of a queue pair in the state SQD have ended.
    SqDrained(Qpn),
    /// The queue pair of a work request was destroyed before its completion was polled: no
    /// completion follows, and the request's memory is the caller's again.
    WrReleased(WrHandle),
}

/// What the datapath knows about an arriving packet.
#[derive(Clone, Copy, Debug)]
pub struct RxMeta {
    /// Source address.
    pub src_ip: IpAddr,
    /// Whether the IP header carried the ECN mark "congestion experienced" (CE).
    pub ce: bool,
    /// Datagrams that the receive socket has dropped so far, in total (0 where unknown).
    pub rxq_drops: u32,
    /// How long the packet waited in this host before it was handed to the engine (0 where
    /// unknown). It is not delay of the network, so every RTT excludes it.
    pub waited: Span,
}

/// The backlog of received packets between the network and the memory of this host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxWaiting {
    /// Bytes of packets in the backlog.
    pub bytes: u64,
    /// Capacity of the buffer in bytes; packets beyond it are dropped.
    pub limit_bytes: u64,
    /// Whether the engine has handled the packets in the backlog. True on a card, which
    /// acknowledges packets on arrival and writes them to memory later; false for a socket.
    pub handled: bool,
}

/// What to do with the payload of the packet just handled. The caller must copy it before any other
/// call on the engine, because the next call may send the acknowledgment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rx {
    /// The packet has no payload to place.
    Done,
    /// Copy the payload.
    Place(Placement),
    /// The packet was dropped, and counted under this reason.
    Dropped(crate::counters::DropReason),
}

/// Where payload goes: `len` bytes at `offset` of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Which memory.
    pub target: Target,
    /// Offset in bytes into the receive's buffers or the work request's scatter/gather list, or an
    /// address of the region.
    pub offset: u64,
    /// How many bytes.
    pub len: u32,
}

/// Memory that payload is placed into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Buffers of a posted receive.
    Recv(RecvHandle),
    /// A registered region, already checked against bounds and access.
    Region(MrKey),
    /// Local buffers of an RDMA read.
    Wr(WrHandle),
}

/// Memory that payload is taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Bytes of a send work request's scatter/gather list, from `offset` on.
    Wr(WrHandle),
    /// Bytes of a region that a peer reads; `offset` is an address of the region.
    Region(MrKey),
}

/// Payload of a packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// Which memory.
    pub source: Source,
    /// Where in it.
    pub offset: u64,
    /// How many bytes.
    pub len: u16,
}

/// One packet to send.
#[derive(Clone, Copy, Debug)]
pub struct Transmit<'a> {
    /// Destination.
    pub dst: Endpoint,
    /// Path: the source-port entropy with which the packet is sent.
    pub path: u8,
    /// Headers.
    pub packet: Packet<'a>,
    /// Reference to the payload, if the packet has some.
    pub payload: Option<Payload>,
    /// Pad the packet with zeros so that the UDP payload has this many bytes (Open); 0 = no
    /// padding.
    pub padded_len: u16,
}

/// Takes the packets of one call of [`crate::Engine::poll_transmit`]. Packets of one size to one
/// peer on one path come in a row, so that a datapath can hand them to the kernel as one segmented
/// send (GSO).
pub trait TxSink {
    /// Takes one packet. The sink must have room for as many packets as were asked for.
    fn push(&mut self, t: &Transmit<'_>);
}

/// Access rights of a memory region: a bit mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Access(pub u8);

impl Access {
    /// The device may write into the region (receives, read responses).
    pub const LOCAL_WRITE: u8 = 1;
    /// Peers may write.
    pub const REMOTE_WRITE: u8 = 2;
    /// Peers may read.
    pub const REMOTE_READ: u8 = 4;
    /// Whether all the rights in `mask` are given.
    pub const fn allows(self, mask: u8) -> bool {
        self.0 & mask == mask
    }
}
