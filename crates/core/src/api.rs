//! What crosses the boundary of the core: work in, packets in, packets out, completions out.
//! Plain data only; nothing here points at payload.

use crate::time::Span;
use core::net::IpAddr;
pub use srd_wire::{Packet, Verdict};

/// Where an engine receives: its address and UDP port (`port_base + slot`).
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
    /// Slot of the engine that owns it.
    pub const fn slot(self) -> u8 {
        (self.0 >> 8) as u8
    }
    /// Index within the engine.
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

/// Memory region. Its number is both lkey and rkey.
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
    /// What to do.
    pub op: Opcode,
    /// To which address.
    pub ah: AhId,
    /// To which queue pair there.
    pub dst_qpn: Qpn,
    /// Must equal the destination's Q_Key.
    pub qkey: u32,
    /// Bytes of local data (the scatter/gather list's sum).
    pub len: u32,
    /// Remote key (RDMA).
    pub rkey: u32,
    /// Remote address (RDMA).
    pub raddr: u64,
    /// Immediate data (with-immediate operations).
    pub imm: u32,
}

/// A receive work request.
#[derive(Clone, Copy, Debug)]
pub struct RecvRequest {
    /// The caller's number, given back in the completion.
    pub wr_id: u64,
    /// Bytes the buffers hold.
    pub len: u32,
}

/// Why a post was refused. Nothing was taken in.
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
    /// The completion queue has no slot left to promise (ENOMEM).
    CqFull,
    /// The engine's table of work requests or contexts is full (ENOMEM).
    NoRoom,
    /// Longer than the operation allows (EINVAL).
    BadLength,
    /// The queue pair's type cannot do this operation (EINVAL).
    BadOpcode,
}

/// Completion status: EFA's numbers, as `vendor_err` shows them.
/// Source: EFA ABI, `efa_io_comp_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are EFA's; docs/semantics.md tells when each is given")]
pub enum Status {
    Ok = 0,
    Flushed = 1,
    LocalQpInternalError = 2,
    LocalUnsupportedOp = 3,
    LocalInvalidAh = 4,
    LocalInvalidLkey = 5,
    LocalBadLength = 6,
    RemoteBadAddress = 7,
    RemoteAbort = 8,
    RemoteBadDestQpn = 9,
    RemoteRnr = 10,
    RemoteBadLength = 11,
    RemoteBadStatus = 12,
    LocalUnrespRemote = 13,
    RemoteUnknownPeer = 14,
    LocalUnreachRemote = 15,
    RemoteFeatureMismatch = 18,
}

/// What a completion is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompletionKind {
    /// A send work request ended; its memory is the caller's again.
    Send(WrHandle, Opcode),
    /// A posted receive was filled (or flushed).
    Recv(RecvHandle),
    /// A posted receive was consumed by a write with immediate; its buffers are untouched.
    RecvRdmaImm(RecvHandle),
    /// A write with immediate arrived and consumed no receive (unsolicited).
    RecvUnsolicited,
}

/// A completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The work request's number (0 when unsolicited).
    pub wr_id: u64,
    /// How it ended.
    pub status: Status,
    /// What it is for.
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

/// Something that is not the end of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncEvent {
    /// The peer answered before and is silent now; its outstanding requests ended with status 13.
    PeerUnresponsive(Endpoint),
    /// The peer never answered; requests to it ended with status 15.
    PeerUnreachable(Endpoint),
    /// The peer lost its state (restart, shutdown); outstanding requests ended with status 8.
    PeerReset(Endpoint),
    /// A request to this address, which is the engine's own, was refused by the engine itself. Who
    /// meant another process has the address of one that has gone: this engine has its place now.
    PeerIsSelf(Endpoint),
    /// A path was retired (true) or returned (false).
    PathChanged(IpAddr, u8, bool),
    /// From now on a packet to this address carries so many bytes of payload at most: the way
    /// there, or the local link, carries only smaller packets than before, or larger ones again.
    /// Requests go on with packets of that size; a message that is longer ends with status 6.
    PathMtu(IpAddr, u16),
    /// The queue pair entered the error state by itself.
    QpFatal(Qpn),
    /// All requests of a queue pair in SQD have ended.
    SqDrained(Qpn),
    /// A work request's queue pair was destroyed before its completion was polled: there will be
    /// none, and its memory is free.
    WrReleased(WrHandle),
}

/// What the datapath knows about an arriving packet.
#[derive(Clone, Copy, Debug)]
pub struct RxMeta {
    /// Source address.
    pub src_ip: IpAddr,
    /// The IP header carried the CE mark.
    pub ce: bool,
    /// Datagrams that the receive socket has dropped so far (0 where unknown).
    pub rxq_drops: u32,
    /// How long it waited in this host before it was handed over (0 where unknown): not the
    /// network's delay, so it is taken out of every RTT.
    pub waited: Span,
}

/// What waits between the network and the memory of this host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxWaiting {
    /// Bytes of packets that wait.
    pub bytes: u64,
    /// Bytes that may wait: of what comes beyond, packets are dropped.
    pub limit_bytes: u64,
    /// The engine has handled what waits: it sits on a card, acknowledges on arrival, and memory
    /// follows. Else what waits has not been handled, as in a socket.
    pub handled: bool,
}

/// What to do with the payload of the packet just handled. Copy at once: before any other call
/// on the engine, because the acknowledgment may leave with the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rx {
    /// Nothing to place.
    Done,
    /// Copy the payload.
    Place(Placement),
    /// The packet was dropped; counted under its reason.
    Dropped(crate::counters::DropReason),
}

/// Where payload goes: `len` bytes at `offset` of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Which memory.
    pub target: Target,
    /// Where in it: bytes into the receive's buffers or the work request's list, or the address
    /// within the region (the region's own addresses).
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
    /// Bytes of a send work request's list, from `offset` on.
    Wr(WrHandle),
    /// Bytes of a region being read; `offset` is the region's own address.
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
    /// Where to.
    pub dst: Endpoint,
    /// Source-port entropy to send it from.
    pub path: u8,
    /// Its headers.
    pub packet: Packet<'a>,
    /// Its payload.
    pub payload: Option<Payload>,
    /// Pad the packet with zeros so that the UDP payload has this many bytes (Open); 0 = no
    /// padding.
    pub padded_len: u16,
}

/// Takes the packets of one [`crate::Engine::poll_transmit`]. Packets of one path to one peer and
/// of one size come in a row, so that a datapath can hand them to the kernel as one segmented send.
pub trait TxSink {
    /// Takes one packet. The sink must have room for as many as were asked for.
    fn push(&mut self, t: &Transmit<'_>);
}

/// Access rights of a memory region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Access(pub u8);

impl Access {
    /// The device may write into it (receives, reads).
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
