//! Mirrors the device's packets for `srd capture`, while that runs ([`srd_share::CaptureFeed`]).

use crate::{nic::Nic, sealing::Sealing};
use log::info;
use srd_core::{Span, Time};
use srd_datapath::{Datapath, RxDatagram, TxPacket, clock};
use srd_share::{CaptureFeed, MirroredPacket};
use std::net::SocketAddr;

/// How often the device looks whether the capture still runs.
const LOOK: Span = Span::from_ms(100);
/// ECN field of a received packet with CE, and of others: ECT(0).
const ECN: [u8; 2] = [2, 3];

/// See the module.
#[derive(Debug)]
pub(crate) struct Mirror {
    feed: CaptureFeed,
    port: u16,
    /// From the device's clock to that of the host, and to the time since 1970.
    origin_ns: u64,
    unix_offset_ns: u64,
    look_at: Time,
    bytes: Vec<u8>,
}

impl Mirror {
    fn find(net: &dyn Datapath, now: Time) -> Option<Self> {
        let origin_ns = clock::origin_ns();
        let port = net.port();
        let feed = CaptureFeed::find(net.local_ip(), port, origin_ns + now.0)?;
        let (unix_offset_ns, look_at) = (clock::unix_offset_ns(), now + LOOK);
        Some(Self { feed, port, origin_ns, unix_offset_ns, look_at, bytes: Vec::new() })
    }

    /// A packet that the datapath has taken, before it is flushed.
    pub(crate) fn sent(&mut self, packet: &TxPacket<'_>, local_port: u16) {
        let len = packet.wire_len();
        if !self.feed.has_room(len) {
            self.feed.drop_one();
            return;
        }
        self.bytes.clear();
        if len <= self.feed.snap() {
            packet.gather_into(&mut self.bytes);
        } else {
            beginning(packet, self.feed.snap(), &mut self.bytes);
        }
        self.feed.packet(&MirroredPacket {
            unix_ns: Nic::now().0 + self.unix_offset_ns,
            sent: true,
            ecn: ECN[0],
            local_port,
            remote: packet.dst,
            len: len as u32,
            bytes: &self.bytes,
        });
    }

    /// A packet that has arrived, before it is opened in place.
    pub(crate) fn received(&mut self, d: &RxDatagram<'_>) {
        self.feed.packet(&MirroredPacket {
            unix_ns: Nic::now().0 + self.unix_offset_ns,
            sent: false,
            ecn: ECN[usize::from(d.ce)],
            local_port: self.port,
            remote: SocketAddr::new(d.src.ip(), d.src.port()),
            len: d.bytes.len() as u32,
            bytes: d.bytes,
        });
    }

    /// Takes over the secrets of new contexts, for the packets behind them.
    pub(crate) fn secrets(&mut self, seal: &mut Sealing) {
        seal.mirror_take().iter().for_each(|secret| self.feed.secret(&secret.line()));
    }
}

/// Appends the first `snap` bytes of a longer packet. A checksum that is still to be written is
/// left out: nobody can check it without the rest.
fn beginning(packet: &TxPacket<'_>, snap: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&packet.headers[..packet.headers.len().min(snap)]);
    for part in packet.payload {
        let room = snap - out.len();
        part.look(|bytes| out.extend_from_slice(&bytes[..bytes.len().min(room)]));
    }
    out.resize(snap, 0);
}

impl Nic {
    /// Looks whether somebody wants to see the packets: a command has said that it may be so.
    pub(crate) fn mirror_look(&mut self, now: Time) {
        self.mirror_end(now);
        if self.mirror.is_some() {
            return;
        }
        let Some(mut mirror) = Mirror::find(self.net.as_ref(), now) else { return };
        info!(target: "srd", "all packets are mirrored: `srd capture` runs");
        if mirror.feed.wants_secrets()
            && let Some(seal) = self.seal.as_deref_mut()
        {
            seal.mirror_begin();
            mirror.secrets(seal);
        }
        self.mirror = Some(Box::new(mirror));
    }

    /// Ends the mirror if the capture has ended.
    #[inline]
    pub(crate) fn mirror_turn(&mut self, now: Time) {
        if self.mirror.as_ref().is_some_and(|mirror| now >= mirror.look_at) {
            self.mirror_end(now);
        }
    }

    #[cold]
    fn mirror_end(&mut self, now: Time) {
        let Some(mirror) = &mut self.mirror else { return };
        mirror.look_at = now + LOOK;
        if !mirror.feed.is_read(mirror.origin_ns + now.0) {
            info!(target: "srd", "packets are mirrored no more");
            self.mirror = None;
            if let Some(seal) = self.seal.as_deref_mut() {
                seal.mirror_end();
            }
        }
    }
}
