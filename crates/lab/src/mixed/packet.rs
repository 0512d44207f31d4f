//! Packets of a network with several transports.

use crate::packet::LabPacket;
use srd_rivals::TcpSegment;
use srd_rivals::rc::RcPacket;
use srd_rivals::ue::UePacket;

/// A packet of one group of flows, as a real one has it in its addresses and ports.
#[derive(Clone, Debug)]
pub struct MixedPacket {
    /// Number of the group.
    pub group: u8,
    /// The transport's packet.
    pub of: Of,
}

/// The packet of a transport.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "one for each transport")]
pub enum Of {
    Srd(LabPacket),
    Tcp(TcpSegment),
    Rc(RcPacket),
    Ue(UePacket),
}

/// Packets of a transport that can be mixed with others.
pub trait Mixable: Sized {
    /// The packet as one of several transports.
    fn mix(self) -> Of;
    /// The packet as one of this transport.
    ///
    /// # Panics
    /// If it is another transport's: groups number their packets, so that none gets there.
    fn pick(of: Of) -> Self;
}

macro_rules! mixable {
    ($($name:ident $packet:ty),*) => {$(
        impl Mixable for $packet {
            fn mix(self) -> Of {
                Of::$name(self)
            }
            fn pick(of: Of) -> Self {
                match of {
                    Of::$name(packet) => packet,
                    other => unreachable!("another transport's packet: {other:?}"),
                }
            }
        }
    )*};
}
mixable!(Srd LabPacket, Tcp TcpSegment, Rc RcPacket, Ue UePacket);
