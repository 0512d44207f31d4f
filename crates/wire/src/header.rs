//! The common header: 24 bytes that start every packet.

use crate::bytes::{put, u8_at, u16_at, u32_at, wire_enum};
use crate::{CHECKSUM_BYTES, HEADER_BYTES, ParseError, VERSION};

/// Unit of [`Header::timestamp`].
pub const TIMESTAMP_UNIT_NS: u64 = 16;

/// Packet type, with its number in the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PacketType {
    /// Requests a context; padded to the MTU. Carries [`crate::OpenParams`].
    Open = 1,
    /// Accepts a context. Carries [`crate::OpenParams`].
    OpenAck = 2,
    /// Demands proof that the receiver owns its address: a cookie that its next Open must echo.
    Challenge = 3,
    /// Requests the end of an idle context.
    Close = 4,
    /// Confirms a Close: both sides have dropped the context.
    CloseAck = 5,
    /// The tag used is unknown, or the engine is shutting down; echoes that tag.
    Reset = 6,
    /// An acknowledgment block and nothing else.
    Ack = 7,
    /// Measures one path: requests an immediate acknowledgment that echoes the probe.
    Probe = 8,
    /// A one-packet message.
    Send = 16,
    /// A one-packet message with immediate data.
    SendImm = 17,
    /// One segment of an RDMA write.
    Write = 18,
    /// One segment of an RDMA write whose completion delivers immediate data.
    WriteImm = 19,
    /// RDMA read: requests the contents of a region.
    ReadReq = 20,
    /// One segment of a requested region.
    ReadResp = 21,
    /// Occupies a PSN whose data was given up.
    Tombstone = 22,
    /// Frees the responder's state of a multi-segment write with immediate that was given up.
    Cancel = 23,
    /// Unreliable datagram: no PSN, no acknowledgment.
    Ud = 24,
    /// Unreliable datagram with immediate data.
    UdImm = 25,
}

wire_enum!(PacketType: Open, OpenAck, Challenge, Close, CloseAck, Reset, Ack, Probe, Send, SendImm,
    Write, WriteImm, ReadReq, ReadResp, Tombstone, Cancel, Ud, UdImm);

impl PacketType {
    /// Whether the packet consumes a PSN, and so is delivered exactly once or reported as failed.
    pub const fn is_reliable(self) -> bool {
        (self as u8) >= 16 && (self as u8) <= 23
    }
    /// Whether payload bytes may follow the headers.
    pub const fn has_payload(self) -> bool {
        matches!(
            self,
            Self::Send
                | Self::SendImm
                | Self::Write
                | Self::WriteImm
                | Self::ReadResp
                | Self::Ud
                | Self::UdImm
        )
    }
    /// Whether the packet may carry an acknowledgment block. Open, Challenge and Reset are sent
    /// outside of a context, so they have nothing to acknowledge.
    pub const fn may_carry_ack(self) -> bool {
        !matches!(self, Self::Open | Self::Challenge | Self::Reset)
    }
    /// Length of the type-specific header in bytes.
    pub const fn body_bytes(self) -> usize {
        match self {
            Self::Close | Self::CloseAck | Self::Ack | Self::Probe | Self::Tombstone => 0,
            Self::Cancel => 4,
            Self::Send | Self::ReadResp | Self::Ud | Self::Challenge => 12,
            Self::Reset | Self::SendImm | Self::UdImm => 16,
            Self::Write => 24,
            Self::ReadReq => 28,
            Self::WriteImm => 32,
            Self::Open | Self::OpenAck => 52,
        }
    }
}

/// Flag bits of the common header.
///
/// [`crate::emit`] reads only [`Flags::ACK_REQUEST`] and [`Flags::CHECKED`]: `ACK_BLOCK` is set if
/// the packet has a block, and a packet is sealed after it was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u8);

impl Flags {
    /// An acknowledgment block follows the common header.
    pub const ACK_BLOCK: u8 = 1 << 0;
    /// The sender requests an immediate acknowledgment (end of a burst, probe, last packet of the
    /// window).
    pub const ACK_REQUEST: u8 = 1 << 1;
    /// The packet is sealed: a ciphertext and a 16-byte tag follow the common header.
    pub const SEALED: u8 = 1 << 2;
    /// In a packet that is not sealed: a checksum follows the common header.
    pub const CHECKED: u8 = 1 << 3;
    /// In a sealed packet, which needs no checksum: which of the two current keys sealed it.
    pub const KEY_PHASE: u8 = 1 << 3;
    /// Whether all the bits of `mask` are set.
    pub const fn has(self, mask: u8) -> bool {
        self.0 & mask == mask
    }
}

/// Number of packets that the sender still has to send to this peer, in 4 bits: 0 to 8 exactly,
/// then at most 16, 32, 64, 256, 1024, 4096, or more. Receiver credits are granted from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Backlog(pub u8);

impl Backlog {
    /// The open class: more than 4096 packets.
    pub const MAX: Self = Self(15);
    const STEPS: [u32; 6] = [16, 32, 64, 256, 1024, 4096];
    /// The class of a backlog of `packets`.
    pub fn from_packets(packets: u64) -> Self {
        if packets <= 8 {
            return Self(packets as u8);
        }
        let above = Self::STEPS.iter().take_while(|&&s| packets > u64::from(s)).count();
        Self(9 + above as u8)
    }
    /// Most packets of the class (`u32::MAX` for the open class).
    pub fn packets_max(self) -> u32 {
        match self.0 {
            0..=8 => u32::from(self.0),
            9..=14 => Self::STEPS[usize::from(self.0) - 9],
            _ => u32::MAX,
        }
    }
}

/// The common header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// Packet type.
    pub kind: PacketType,
    /// Flag bits.
    pub flags: Flags,
    /// The sender's backlog class towards this peer.
    pub backlog: Backlog,
    /// Index of the path (source port) in the sender's numbering.
    pub path: u8,
    /// The sender's engine slot: it receives at UDP port `base + slot` of its address.
    pub slot: u8,
    /// The receiver's tag of the context (0 in an Open, and in a Reset whose sender does not know
    /// it).
    pub dst_tag: u32,
    /// Low 32 bits of the transmission number.
    pub tx_num: u32,
    /// The sender's clock at transmission, in units of 16 ns (wraps after 68.7 s).
    pub timestamp: u32,
    /// PSN of the packet; for a type without PSN, the next PSN that the sender will use.
    pub psn: u32,
    /// `psn - una`: distance from the sender's lower edge to `psn`.
    pub una_delta: u16,
    /// Low 16 bits of the transmission number of the last packet with an acknowledgment block that
    /// the sender received. It tells the peer which of its acknowledgments, and so which return
    /// paths, arrive.
    pub ack_echo: u16,
}

impl Header {
    /// The sender's lower edge: every PSN below it is resolved.
    pub const fn una(&self) -> u32 {
        self.psn.wrapping_sub(self.una_delta as u32)
    }

    /// The header's bytes, with those of the checksum if one follows.
    #[inline]
    pub const fn encoded_len(&self) -> usize {
        HEADER_BYTES + if self.flags.has(Flags::CHECKED) { CHECKSUM_BYTES } else { 0 }
    }

    /// Reads the header of an unsealed packet.
    #[inline]
    pub(crate) fn read(b: &[u8; HEADER_BYTES]) -> Result<Self, ParseError> {
        let (first, second) = (u8_at::<0, _>(b), u8_at::<1, _>(b));
        if first >> 5 != VERSION {
            return Err(ParseError::Version);
        }
        let kind = PacketType::from_wire(first & 0x1f).ok_or(ParseError::Type)?;
        let flags = Flags(second & 0x0f);
        if flags.has(Flags::SEALED) {
            return Err(ParseError::Sealed);
        }
        let ack_block = flags.has(Flags::ACK_BLOCK);
        let misplaced = if ack_block { !kind.may_carry_ack() } else { kind == PacketType::Ack };
        if misplaced {
            return Err(ParseError::Value);
        }
        Ok(Self {
            kind,
            flags,
            backlog: Backlog(second >> 4),
            path: u8_at::<2, _>(b),
            slot: u8_at::<3, _>(b),
            dst_tag: u32_at::<4, _>(b),
            tx_num: u32_at::<8, _>(b),
            timestamp: u32_at::<12, _>(b),
            psn: u32_at::<16, _>(b),
            una_delta: u16_at::<20, _>(b),
            ack_echo: u16_at::<22, _>(b),
        })
    }

    /// Writes the header of an unsealed packet of type `kind`.
    #[inline]
    pub(crate) fn write(&self, kind: PacketType, ack_block: bool, b: &mut [u8; HEADER_BYTES]) {
        let kept = self.flags.0 & (Flags::ACK_REQUEST | Flags::CHECKED);
        let flags = kept | (u8::from(ack_block) * Flags::ACK_BLOCK);
        let backlog = self.backlog.0.min(Backlog::MAX.0);
        let first = (VERSION << 5) | kind as u8;
        put::<0, 4, _>(b, [first, flags | (backlog << 4), self.path, self.slot]);
        put::<4, 4, _>(b, self.dst_tag.to_be_bytes());
        put::<8, 4, _>(b, self.tx_num.to_be_bytes());
        put::<12, 4, _>(b, self.timestamp.to_be_bytes());
        put::<16, 4, _>(b, self.psn.to_be_bytes());
        put::<20, 2, _>(b, self.una_delta.to_be_bytes());
        put::<22, 2, _>(b, self.ack_echo.to_be_bytes());
    }
}
