//! Packets in the simulator: the headers emitted by the engine, and sizes on the wire.

use srd_core::wire::{
    AckBlock, Body, Header, IPV4_BYTES, Message, Packet, PacketType, Rdma, UDP_BYTES,
};

/// Ethernet header (14) and check sequence (4).
pub const ETHERNET_BYTES: u32 = 18;
/// Preamble and start delimiter (8), and the gap between frames (12), which also occupy the wire.
pub const ETHERNET_GAP_BYTES: u32 = 20;
/// Least size of an Ethernet frame, header and check sequence included; shorter frames are padded.
pub const ETHERNET_FRAME_BYTES_MIN: u32 = 64;

/// Bytes on the wire of a UDP datagram with `udp_payload` bytes: UDP, IPv4, Ethernet, preamble and
/// gap. All rates, buffers and floors of the lab count these bytes.
///
/// ```
/// assert_eq!(srd_lab::wire_bytes(1000), 1000 + 8 + 20 + 18 + 20);
/// assert_eq!(srd_lab::wire_bytes(1), 64 + 20);
/// ```
pub const fn wire_bytes(udp_payload: u32) -> u32 {
    let frame = udp_payload + UDP_BYTES as u32 + IPV4_BYTES as u32 + ETHERNET_BYTES;
    let padded = if frame < ETHERNET_FRAME_BYTES_MIN { ETHERNET_FRAME_BYTES_MIN } else { frame };
    padded + ETHERNET_GAP_BYTES
}

/// Type-specific header; frequent types are stored in place to keep packets small.
#[derive(Clone, Debug)]
enum LabBody {
    Ack,
    Write(Message, Rdma),
    Send(Message),
    Other(Box<Body>),
}

/// One packet without payload.
#[derive(Clone, Debug)]
pub struct LabPacket {
    header: Header,
    ack: Option<Box<AckBlock>>,
    body: LabBody,
    payload_len: u16,
}

impl LabPacket {
    /// Stores a packet that the engine emitted.
    pub fn new(packet: &Packet<'_>) -> Self {
        let body = match packet.body {
            Body::Ack => LabBody::Ack,
            Body::Write(m, r) => LabBody::Write(m, r),
            Body::Send(m) => LabBody::Send(m),
            other => LabBody::Other(Box::new(other)),
        };
        let ack = packet.ack.map(|a| Box::new(a.clone()));
        Self { header: packet.header, ack, body, payload_len: packet.payload_len }
    }

    /// The packet in the form that an engine receives.
    pub fn as_packet(&self) -> Packet<'_> {
        let body = match &self.body {
            LabBody::Ack => Body::Ack,
            LabBody::Write(m, r) => Body::Write(*m, *r),
            LabBody::Send(m) => Body::Send(*m),
            LabBody::Other(b) => **b,
        };
        let ack = self.ack.as_deref();
        Packet { header: self.header, ack, body, payload_len: self.payload_len }
    }

    /// Destination address in the receiver's region, if the packet is part of a write.
    #[inline]
    pub fn address(&self) -> Option<u64> {
        match &self.body {
            LabBody::Write(_, r) => Some(r.raddr),
            LabBody::Other(b) => match &**b {
                Body::WriteImm { rdma, .. } => Some(rdma.raddr),
                _ => None,
            },
            _ => None,
        }
    }

    /// Bytes of payload.
    pub const fn payload_len(&self) -> u32 {
        self.payload_len as u32
    }

    /// What kind of packet it is.
    pub fn kind(&self) -> PacketType {
        self.header.kind
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_stay_small() {
        assert!(size_of::<LabPacket>() <= 88, "{}", size_of::<LabPacket>());
    }
}
