//! A packet on the network: real header bytes, and a description of the payload instead of its
//! bytes. The identity of each byte (request or region, and offset) tells more than a hash.

use srd_core::Endpoint;
use srd_core::config::PORT_BASE_DEFAULT;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

/// Bytes of Ethernet, IPv4 and UDP headers around a datagram.
pub const FRAME_BYTES: u32 = 14 + 20 + 8;

/// Bytes on a cable around a datagram: these headers, the trailer of Ethernet, preamble and gap.
pub const CABLE_BYTES: u64 = FRAME_BYTES as u64 + 4 + 20;

/// Source of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Buffers of a request, by its number in the ledger.
    Request(u32),
    /// A region, by its number in the ledger.
    Region(u32),
}

/// Payload: `len` bytes from `offset` of its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// Source.
    pub owner: Owner,
    /// Offset into the request, or address in the region.
    pub offset: u64,
    /// Length in bytes.
    pub len: u16,
}

/// A datagram.
#[derive(Debug)]
pub struct Datagram {
    /// Header bytes; for garbage, all bytes.
    pub head: Vec<u8>,
    /// Payload bytes after the headers (zeros in the padding of an Open).
    pub tail_len: u16,
    /// The payload.
    pub content: Option<Content>,
    /// Request that the packet carries, if any.
    pub request: Option<u32>,
    /// Forged by the fault injector.
    pub forged: bool,
    /// Source address in the IP header.
    pub src: IpAddr,
    /// Destination.
    pub dst: Endpoint,
    /// Source port.
    pub sport: u16,
}

/// A datagram on the network.
pub type Pkt = Rc<Datagram>;

/// Address of a host.
pub fn ip_of(host: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, (host >> 8) as u8, host as u8 + 1))
}

/// The host that has an address, if any of `hosts` has.
pub fn host_of(ip: IpAddr, hosts: u32) -> Option<u32> {
    let IpAddr::V4(v4) = ip else { return None };
    let [a, b, c, d] = v4.octets();
    let host = (u32::from(c) << 8 | u32::from(d)).checked_sub(1)?;
    (a == 10 && b == 0 && host < hosts).then_some(host)
}

/// Endpoint of the engine in `slot` of `host`.
pub fn endpoint_of(host: u32, slot: u8) -> Endpoint {
    Endpoint { ip: ip_of(host), port: PORT_BASE_DEFAULT + u16::from(slot) }
}
