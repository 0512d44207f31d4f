//! Type-specific headers, which follow the common header: one per packet type.

use crate::bytes::{put, reserved3_at, u8_at, u16_at, u32_at, u64_at, wire_enum};
use crate::{PacketType, ParseError};

/// The responder's decision on one request, carried in the acknowledgment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Verdict {
    /// Accepted. Never listed: a received PSN without an entry was accepted.
    Ok = 0,
    /// Receiver not ready: no receive was posted, or no completion slot was free. The requester
    /// tries again later with a new PSN.
    Rnr = 1,
    /// The responder's table is full. A refused read is retried, and this does not count as a
    /// retry; a write with immediate, whose sender has exceeded the negotiated number, completes
    /// with status 12.
    Busy = 2,
    /// The queue pair does not exist or is not ready to receive.
    BadQpn = 3,
    /// Wrong Q_Key.
    BadQkey = 4,
    /// The posted receive is too short, or the length contradicts the request.
    BadLength = 5,
    /// The rkey is unknown, the range exceeds the region, or the region does not permit the access.
    BadRkey = 6,
    /// The responder holds no address handle for the requester (RDMA).
    UnknownPeer = 7,
    /// The responder does not offer this operation.
    FeatureMismatch = 8,
    /// A read response without an outstanding read.
    NoRequest = 9,
}

wire_enum!(Verdict: Ok, Rnr, Busy, BadQpn, BadQkey, BadLength, BadRkey, UnknownPeer,
    FeatureMismatch, NoRequest);

/// Fields that every request carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    /// Queue pair that sends the request.
    pub src_qpn: u16,
    /// Queue pair that the request addresses.
    pub dst_qpn: u16,
    /// Must equal the destination's Q_Key.
    pub qkey: u32,
    /// Message number chosen by the requester, the same in each segment and each RNR retry.
    pub msg_id: u32,
}

/// Destination of one segment of an RDMA write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rdma {
    /// Key of the remote region.
    pub rkey: u32,
    /// Address of this segment's first byte, in the address space of the region.
    pub raddr: u64,
}

/// Read request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReadReq {
    /// Key of the region to read.
    pub rkey: u32,
    /// First byte to read.
    pub raddr: u64,
    /// Bytes to read, at most 1 GiB.
    pub len: u32,
}

/// State of a read, sent with each segment of its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ReadStatus {
    /// This segment's bytes follow.
    Ok = 0,
    /// The region was deregistered during the read; no bytes follow, and the read has failed.
    RegionGone = 1,
}

wire_enum!(ReadStatus: Ok, RegionGone);

/// One segment of a read response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReadResp {
    /// `msg_id` of the request.
    pub msg_id: u32,
    /// Offset of this segment in the requested range, in bytes.
    pub offset: u32,
    /// Whether data follows, or why it does not.
    pub status: ReadStatus,
}

/// Feature bits, exchanged in Open and Open-Ack. A feature is in force if both sides set its bit;
/// unknown bits are ignored, so that later versions can offer more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Features(pub u32);

impl Features {
    /// Serves RDMA reads.
    pub const RDMA_READ: u32 = 1 << 0;
    /// Serves RDMA writes.
    pub const RDMA_WRITE: u32 = 1 << 1;
    /// Grants and obeys receiver credits.
    pub const CREDITS: u32 = 1 << 2;
    /// Echoes the CE mark.
    pub const ECN: u32 = 1 << 3;
    /// Requires sealed (encrypted) packets; reserved for a later version.
    pub const SEALED: u32 = 1 << 4;
    /// Sets the bit of [`AckBlock::above`](crate::AckBlock::above) while the receiver's backlog is
    /// above its threshold, and understands the bit from the peer.
    pub const HOST_SIGNAL: u32 = 1 << 5;
    /// Every packet of the context carries a checksum.
    pub const INTEGRITY: u32 = 1 << 6;
    /// Whether all the bits of `mask` are set.
    pub const fn has(self, mask: u32) -> bool {
        self.0 & mask == mask
    }
    /// A copy without the bits of `mask`.
    pub const fn without(self, mask: u32) -> Self {
        Self(self.0 & !mask)
    }
}

/// Parameters that each side tells the other when a context opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenParams {
    /// Tag that the other side must write into every packet to the sender of these parameters.
    pub tag: u32,
    /// Random number of this run of the engine; a restarted engine has a different one.
    pub incarnation: u64,
    /// In an Open-Ack the tag of the Open that it answers, in an Open 0.
    pub echo_tag: u32,
    /// First PSN the sender will use.
    pub psn_start: u32,
    /// First transmission number that the sender will use.
    pub tx_num_start: u64,
    /// Receive window in PSNs.
    pub window: u16,
    /// Largest payload that the sender accepts in one packet, in bytes.
    pub mtu: u16,
    /// Number of reads that the sender serves concurrently for this context.
    pub reads_max: u16,
    /// Number of multi-segment writes with immediate that the sender tracks concurrently for this
    /// context.
    pub write_imms_max: u16,
    /// Bytes that the peer may have in flight at first, as the sender's receive buffers allow.
    pub rx_budget: u32,
    /// Features that the sender offers.
    pub features: Features,
    /// The cookie of the Challenge that this Open answers, or 0.
    pub cookie: u64,
}

/// Reason for the end of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CloseCode {
    /// The tag is unknown: the engine was restarted, or the context was closed.
    UnknownTag = 1,
    /// The engine is shutting down.
    GoingAway = 2,
    /// The table of contexts is full.
    NoRoom = 3,
    /// The peer's parameters cannot be served (MTU too small, window zero).
    BadParams = 4,
    /// Answer to an Open: the engine accepts sealed contexts only.
    SealRequired = 5,
    /// Answer to a SealedOpen: the engine has no key file.
    SealUnknown = 6,
    /// Answer to a SealedOpen: the engine has no key with this number, or another one under it.
    KeyUnknown = 7,
}

wire_enum!(CloseCode: UnknownTag, GoingAway, NoRoom, BadParams, SealRequired, SealUnknown,
    KeyUnknown);

/// Type-specific header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant is documented at PacketType; fields at their types")]
pub enum Body {
    Open(OpenParams),
    OpenAck(OpenParams),
    /// Proof that the receiver owns its address. Sent to an engine that opens a context: `echo_tag`
    /// is the tag of its Open, and the next Open must return the cookie. Sent to a peer within a
    /// context: `echo_tag` is the peer's own tag, and the cookie must return in an Open-Ack if the
    /// peer knows the tag, otherwise in a Reset.
    Challenge {
        echo_tag: u32,
        cookie: u64,
    },
    Close,
    CloseAck,
    /// `echo_tag` is the `dst_tag` of the packet that is answered, or the receiver's own tag as the
    /// peer knows it; it suggests that the sender of the Reset takes part in the context. `nonce`
    /// is the cookie of the Challenge that is answered, which proves it, and 0 in an answer to any
    /// other packet.
    Reset {
        echo_tag: u32,
        code: CloseCode,
        nonce: u64,
    },
    Ack,
    Probe,
    Send(Message),
    SendImm(Message, u32),
    Write(Message, Rdma),
    /// Each segment carries the length of the whole message and the immediate data.
    WriteImm {
        msg: Message,
        rdma: Rdma,
        msg_len: u32,
        imm: u32,
    },
    ReadReq(Message, ReadReq),
    ReadResp(ReadResp),
    Tombstone,
    Cancel {
        msg_id: u32,
    },
    Ud(Message),
    UdImm(Message, u32),
}

impl Body {
    /// Type of the packets that have this header.
    #[inline]
    pub const fn kind(&self) -> PacketType {
        match self {
            Self::Open(_) => PacketType::Open,
            Self::OpenAck(_) => PacketType::OpenAck,
            Self::Challenge { .. } => PacketType::Challenge,
            Self::Close => PacketType::Close,
            Self::CloseAck => PacketType::CloseAck,
            Self::Reset { .. } => PacketType::Reset,
            Self::Ack => PacketType::Ack,
            Self::Probe => PacketType::Probe,
            Self::Send(_) => PacketType::Send,
            Self::SendImm(..) => PacketType::SendImm,
            Self::Write(..) => PacketType::Write,
            Self::WriteImm { .. } => PacketType::WriteImm,
            Self::ReadReq(..) => PacketType::ReadReq,
            Self::ReadResp(_) => PacketType::ReadResp,
            Self::Tombstone => PacketType::Tombstone,
            Self::Cancel { .. } => PacketType::Cancel,
            Self::Ud(_) => PacketType::Ud,
            Self::UdImm(..) => PacketType::UdImm,
        }
    }

    /// Length of the header in bytes.
    #[inline]
    pub const fn encoded_len(&self) -> usize {
        self.kind().body_bytes()
    }

    /// The message fields, for the types that have them.
    pub const fn message(&self) -> Option<&Message> {
        match self {
            Self::Send(msg)
            | Self::SendImm(msg, _)
            | Self::Write(msg, _)
            | Self::WriteImm { msg, .. }
            | Self::ReadReq(msg, _)
            | Self::Ud(msg)
            | Self::UdImm(msg, _) => Some(msg),
            _ => None,
        }
    }

    /// The immediate data, for the types that have it.
    pub const fn imm(&self) -> Option<u32> {
        match *self {
            Self::SendImm(_, imm) | Self::UdImm(_, imm) | Self::WriteImm { imm, .. } => Some(imm),
            _ => None,
        }
    }

    /// Whether payload may follow this header: its type has payload and, in a read response, the
    /// status is OK.
    #[inline]
    pub const fn may_have_payload(&self) -> bool {
        match self {
            Self::ReadResp(r) => matches!(r.status, ReadStatus::Ok),
            _ => self.kind().has_payload(),
        }
    }

    /// Reads the header of a packet of type `kind` from the start of `bytes` and returns the rest.
    #[inline]
    pub(crate) fn read(kind: PacketType, bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        Ok(match kind {
            PacketType::Open => split(bytes, |b| Self::Open(OpenParams::read(b)))?,
            PacketType::OpenAck => split(bytes, |b| Self::OpenAck(OpenParams::read(b)))?,
            PacketType::Challenge => split(bytes, |b: &[u8; 12]| Self::Challenge {
                echo_tag: u32_at::<0, _>(b),
                cookie: u64_at::<4, _>(b),
            })?,
            PacketType::Close => (Self::Close, bytes),
            PacketType::CloseAck => (Self::CloseAck, bytes),
            PacketType::Reset => transpose(split(bytes, read_reset)?)?,
            PacketType::Ack => (Self::Ack, bytes),
            PacketType::Probe => (Self::Probe, bytes),
            PacketType::Send => split(bytes, |b: &[u8; 12]| Self::Send(Message::read(b)))?,
            PacketType::SendImm => {
                split(bytes, |b: &[u8; 16]| Self::SendImm(Message::read(b), u32_at::<12, _>(b)))?
            }
            PacketType::Write => {
                split(bytes, |b: &[u8; 24]| Self::Write(Message::read(b), Rdma::read(b)))?
            }
            PacketType::WriteImm => split(bytes, |b: &[u8; 32]| Self::WriteImm {
                msg: Message::read(b),
                rdma: Rdma::read(b),
                msg_len: u32_at::<24, _>(b),
                imm: u32_at::<28, _>(b),
            })?,
            PacketType::ReadReq => split(bytes, read_read_req)?,
            PacketType::ReadResp => transpose(split(bytes, read_read_resp)?)?,
            PacketType::Tombstone => (Self::Tombstone, bytes),
            PacketType::Cancel => {
                split(bytes, |b: &[u8; 4]| Self::Cancel { msg_id: u32_at::<0, _>(b) })?
            }
            PacketType::Ud => split(bytes, |b: &[u8; 12]| Self::Ud(Message::read(b)))?,
            PacketType::UdImm => {
                split(bytes, |b: &[u8; 16]| Self::UdImm(Message::read(b), u32_at::<12, _>(b)))?
            }
        })
    }

    /// Writes the header to the start of `out`; `None` if it does not fit.
    #[inline]
    pub(crate) fn write(&self, out: &mut [u8]) -> Option<()> {
        match self {
            Self::Open(params) | Self::OpenAck(params) => params.write(out.first_chunk_mut()?),
            Self::Challenge { echo_tag, cookie } => {
                let b = out.first_chunk_mut::<12>()?;
                put::<0, 4, _>(b, echo_tag.to_be_bytes());
                put::<4, 8, _>(b, cookie.to_be_bytes());
            }
            Self::Reset { echo_tag, code, nonce } => {
                let b = out.first_chunk_mut::<16>()?;
                put::<0, 4, _>(b, echo_tag.to_be_bytes());
                put::<4, 4, _>(b, [*code as u8, 0, 0, 0]);
                put::<8, 8, _>(b, nonce.to_be_bytes());
            }
            Self::Send(msg) | Self::Ud(msg) => msg.write(out.first_chunk_mut::<12>()?),
            Self::SendImm(msg, imm) | Self::UdImm(msg, imm) => {
                let b = out.first_chunk_mut::<16>()?;
                msg.write(b);
                put::<12, 4, _>(b, imm.to_be_bytes());
            }
            Self::Write(msg, rdma) => {
                let b = out.first_chunk_mut::<24>()?;
                msg.write(b);
                rdma.write(b);
            }
            Self::WriteImm { msg, rdma, msg_len, imm } => {
                let b = out.first_chunk_mut::<32>()?;
                msg.write(b);
                rdma.write(b);
                put::<24, 4, _>(b, msg_len.to_be_bytes());
                put::<28, 4, _>(b, imm.to_be_bytes());
            }
            Self::ReadReq(msg, read) => {
                let b = out.first_chunk_mut::<28>()?;
                msg.write(b);
                Rdma { rkey: read.rkey, raddr: read.raddr }.write(b);
                put::<24, 4, _>(b, read.len.to_be_bytes());
            }
            Self::ReadResp(resp) => {
                let b = out.first_chunk_mut::<12>()?;
                put::<0, 4, _>(b, resp.msg_id.to_be_bytes());
                put::<4, 4, _>(b, resp.offset.to_be_bytes());
                put::<8, 4, _>(b, [resp.status as u8, 0, 0, 0]);
            }
            Self::Cancel { msg_id } => *out.first_chunk_mut()? = msg_id.to_be_bytes(),
            Self::Close | Self::CloseAck | Self::Ack | Self::Probe | Self::Tombstone => {}
        }
        Some(())
    }
}

/// Splits off and reads a header of `N` bytes.
#[inline(always)]
fn split<T, const N: usize>(
    bytes: &[u8],
    read: impl FnOnce(&[u8; N]) -> T,
) -> Result<(T, &[u8]), ParseError> {
    let (b, rest) = bytes.split_first_chunk::<N>().ok_or(ParseError::Truncated)?;
    Ok((read(b), rest))
}

/// Refuses a header with an undefined value, for which its reader returned `None`.
#[inline(always)]
fn transpose((body, rest): (Option<Body>, &[u8])) -> Result<(Body, &[u8]), ParseError> {
    Ok((body.ok_or(ParseError::Value)?, rest))
}

fn read_reset(b: &[u8; 16]) -> Option<Body> {
    let code = CloseCode::from_wire(u8_at::<4, _>(b))?;
    let (echo_tag, nonce) = (u32_at::<0, _>(b), u64_at::<8, _>(b));
    reserved3_at::<5, _>(b).then_some(Body::Reset { echo_tag, code, nonce })
}

fn read_read_req(b: &[u8; 28]) -> Body {
    let Rdma { rkey, raddr } = Rdma::read(b);
    Body::ReadReq(Message::read(b), ReadReq { rkey, raddr, len: u32_at::<24, _>(b) })
}

fn read_read_resp(b: &[u8; 12]) -> Option<Body> {
    let status = ReadStatus::from_wire(u8_at::<8, _>(b))?;
    let (msg_id, offset) = (u32_at::<0, _>(b), u32_at::<4, _>(b));
    reserved3_at::<9, _>(b).then_some(Body::ReadResp(ReadResp { msg_id, offset, status }))
}

impl Message {
    /// Reads the message fields from the first 12 bytes of a header.
    #[inline(always)]
    fn read<const N: usize>(b: &[u8; N]) -> Self {
        Self {
            src_qpn: u16_at::<0, N>(b),
            dst_qpn: u16_at::<2, N>(b),
            qkey: u32_at::<4, N>(b),
            msg_id: u32_at::<8, N>(b),
        }
    }

    #[inline(always)]
    fn write<const N: usize>(&self, b: &mut [u8; N]) {
        put::<0, 2, N>(b, self.src_qpn.to_be_bytes());
        put::<2, 2, N>(b, self.dst_qpn.to_be_bytes());
        put::<4, 4, N>(b, self.qkey.to_be_bytes());
        put::<8, 4, N>(b, self.msg_id.to_be_bytes());
    }
}

impl Rdma {
    /// Reads the destination from the 12 bytes after a [`Message`].
    #[inline(always)]
    fn read<const N: usize>(b: &[u8; N]) -> Self {
        Self { rkey: u32_at::<12, N>(b), raddr: u64_at::<16, N>(b) }
    }

    #[inline(always)]
    fn write<const N: usize>(&self, b: &mut [u8; N]) {
        put::<12, 4, N>(b, self.rkey.to_be_bytes());
        put::<16, 8, N>(b, self.raddr.to_be_bytes());
    }
}

impl OpenParams {
    fn read(b: &[u8; 52]) -> Self {
        Self {
            tag: u32_at::<0, _>(b),
            incarnation: u64_at::<4, _>(b),
            echo_tag: u32_at::<12, _>(b),
            psn_start: u32_at::<16, _>(b),
            tx_num_start: u64_at::<20, _>(b),
            window: u16_at::<28, _>(b),
            mtu: u16_at::<30, _>(b),
            reads_max: u16_at::<32, _>(b),
            write_imms_max: u16_at::<34, _>(b),
            rx_budget: u32_at::<36, _>(b),
            features: Features(u32_at::<40, _>(b)),
            cookie: u64_at::<44, _>(b),
        }
    }

    fn write(&self, b: &mut [u8; 52]) {
        put::<0, 4, _>(b, self.tag.to_be_bytes());
        put::<4, 8, _>(b, self.incarnation.to_be_bytes());
        put::<12, 4, _>(b, self.echo_tag.to_be_bytes());
        put::<16, 4, _>(b, self.psn_start.to_be_bytes());
        put::<20, 8, _>(b, self.tx_num_start.to_be_bytes());
        put::<28, 2, _>(b, self.window.to_be_bytes());
        put::<30, 2, _>(b, self.mtu.to_be_bytes());
        put::<32, 2, _>(b, self.reads_max.to_be_bytes());
        put::<34, 2, _>(b, self.write_imms_max.to_be_bytes());
        put::<36, 4, _>(b, self.rx_budget.to_be_bytes());
        put::<40, 4, _>(b, self.features.0.to_be_bytes());
        put::<44, 8, _>(b, self.cookie.to_be_bytes());
    }
}
