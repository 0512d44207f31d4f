//! Scatter and gather: from the engine's references to bytes in registered memory.

use crate::{
    mirror::Mirror,
    nic::{NicCounters, Tables},
    queue::{Piece, SEND_SGES_MAX, WrData},
    regions::Regions,
    sealing::Sealing,
};
use arrayvec::ArrayVec;
use srd_core::{MrKey, Payload, Placement, Source, Target, Transmit, TxSink, limits::GRH_BYTES};
use srd_datapath::{Datapath, Finish, Part, TxPacket};
use srd_seal::{End, Route};
use srd_wire::{Flags, HEADER_BYTES, HEADERS_BYTES_MAX, emit, headers_stamp, stamp};
use std::net::{IpAddr, SocketAddr};

/// The parts of one packet's payload.
pub(crate) type Parts = ArrayVec<Part, SEND_SGES_MAX>;

/// Copies `bytes` into a list of pieces, starting `offset` bytes into it. False if the list is too
/// short or a region is gone; the bytes that fit before have been copied.
pub(crate) fn scatter(
    regions: &Regions,
    pieces: &[Piece],
    mut offset: u64,
    mut bytes: &[u8],
) -> bool {
    for piece in pieces {
        if bytes.is_empty() {
            return true;
        }
        let len = u64::from(piece.len);
        if offset >= len {
            offset -= len;
            continue;
        }
        let here = bytes.len().min((len - offset) as usize);
        let Some(memory) = regions.get(piece.region) else { return false };
        if !memory.write((piece.offset + offset) as usize, &bytes[..here]) {
            return false;
        }
        bytes = &bytes[here..];
        offset = 0;
    }
    bytes.is_empty()
}

/// The memory of a list of pieces from `offset` on; `None` if the list is shorter or a region is
/// gone.
fn gather(regions: &Regions, pieces: &[Piece], mut offset: u64, mut len: usize) -> Option<Parts> {
    let mut parts = Parts::new();
    for piece in pieces {
        if len == 0 {
            break;
        }
        let piece_len = u64::from(piece.len);
        if offset >= piece_len {
            offset -= piece_len;
            continue;
        }
        let here = len.min((piece_len - offset) as usize);
        let memory = regions.get(piece.region)?;
        parts.push(memory.part((piece.offset + offset) as usize, here)?);
        len -= here;
        offset = 0;
    }
    (len == 0).then_some(parts)
}

impl Tables {
    /// The memory of a packet's payload. The parts are valid until the tables change.
    #[inline]
    fn gather(&self, payload: &Payload) -> Option<Parts> {
        let len = usize::from(payload.len);
        match payload.source {
            Source::Region(MrKey(key)) => {
                let memory = self.regions.by_key(key)?;
                let offset = memory.offset_of(payload.offset, len as u64)?;
                Some(Parts::from_iter([memory.part(offset, len)?]))
            }
            Source::Wr(handle) => {
                let slot = self.wrs.get(handle.0 as usize).filter(|s| s.live)?;
                match &slot.data {
                    WrData::Empty => (len == 0).then(Parts::new),
                    WrData::Pieces(pieces) => gather(&self.regions, pieces, payload.offset, len),
                    WrData::Inline(bytes) => {
                        let from = usize::try_from(payload.offset).ok()?;
                        let bytes = bytes.get(from..from.checked_add(len)?)?;
                        // SAFETY: the bytes are part of the table, which does not change before
                        // the datapath's queue is flushed: both happen in one call (transmit).
                        Some(Parts::from_iter([unsafe { Part::new(bytes.as_ptr(), len) }]))
                    }
                }
            }
        }
    }

    /// Copies a packet's payload, which has the length of `out`. False if its memory is gone.
    #[inline]
    fn copy_out(&self, payload: &Payload, out: &mut [u8]) -> bool {
        if let Source::Wr(handle) = payload.source
            && let Some(WrData::Inline(bytes)) = self.wr(handle).map(|slot| &slot.data)
        {
            let from = usize::try_from(payload.offset).unwrap_or(usize::MAX);
            let Some(bytes) = bytes.get(from..).and_then(|rest| rest.get(..out.len())) else {
                return false;
            };
            out.copy_from_slice(bytes);
            return true;
        }
        let Some(parts) = self.gather(payload) else { return false };
        let mut rest = out;
        for part in &parts {
            let Some((here, after)) = rest.split_at_mut_checked(part.len()) else { return false };
            part.look(|bytes| here.copy_from_slice(bytes));
            rest = after;
        }
        rest.is_empty()
    }

    /// Carries out a placement. False if the memory is gone.
    #[inline]
    pub(crate) fn place(&self, placement: &Placement, payload: &[u8]) -> bool {
        let Some(bytes) = payload.get(..placement.len as usize) else { return false };
        match placement.target {
            Target::Region(MrKey(key)) => self.regions.by_key(key).is_some_and(|memory| {
                memory
                    .offset_of(placement.offset, bytes.len() as u64)
                    .is_some_and(|offset| memory.write(offset, bytes))
            }),
            Target::Recv(handle) => match self.recv(handle) {
                Some(slot) if !slot.lost_memory => {
                    scatter(&self.regions, &slot.pieces, placement.offset, bytes)
                }
                _ => false,
            },
            Target::Wr(handle) => match self.wr(handle).map(|s| &s.data) {
                Some(WrData::Pieces(pieces)) => {
                    scatter(&self.regions, pieces, placement.offset, bytes)
                }
                _ => bytes.is_empty(),
            },
        }
    }
}

/// The 40 bytes before a received UD message: an IPv6 header with both GIDs, as `struct ibv_grh`.
pub(crate) fn grh(src: IpAddr, dst: IpAddr, payload_len: u16) -> [u8; GRH_BYTES as usize] {
    /// Next header: InfiniBand transport.
    const NEXT_HEADER_IBA: u8 = 0x1B;
    const HOP_LIMIT: u8 = 64;
    let mut g = [0; GRH_BYTES as usize];
    g[0] = 6 << 4;
    g[4..6].copy_from_slice(&payload_len.to_be_bytes());
    g[6] = NEXT_HEADER_IBA;
    g[7] = HOP_LIMIT;
    g[8..24].copy_from_slice(&crate::gid_from_ip(src));
    g[24..40].copy_from_slice(&crate::gid_from_ip(dst));
    g
}

/// Turns the engine's packets into datagrams: encoded headers, payload by reference.
pub(crate) struct Emitter<'a> {
    pub net: &'a mut dyn Datapath,
    pub tables: &'a Tables,
    pub counters: &'a mut NicCounters,
    pub seal: Option<&'a mut Sealing>,
    /// Room for the headers of a packet.
    pub headers: &'a mut [u8; HEADERS_BYTES_MAX],
    /// Where packets are mirrored, if they are.
    pub mirror: Option<&'a mut Mirror>,
}

/// Hands a datagram over. One that is refused counts as lost, which the engine recovers from.
#[inline]
fn hand_over(
    net: &mut dyn Datapath,
    mirror: &mut Option<&mut Mirror>,
    counters: &mut NicCounters,
    packet: &TxPacket<'_>,
) {
    if net.tx_push(packet).is_err() {
        counters.tx_refused += 1;
    } else if let Some(mirror) = mirror {
        mirror.sent(packet, net.path_port(packet.path));
    }
}

/// Writes the checksum of a packet with referenced payload and `pad_len` zeros at its end into the
/// packet's headers.
fn stamp_apart(headers: &mut [u8], payload: &Parts, mut pad_len: usize) {
    const ZEROS: [u8; 1024] = [0; 1024];
    headers_stamp(headers, |sum| {
        payload.iter().for_each(|part| part.look(|bytes| sum.update(bytes)));
        while pad_len > 0 {
            let now = pad_len.min(ZEROS.len());
            sum.update(&ZEROS[..now]);
            pad_len -= now;
        }
    });
}

impl Emitter<'_> {
    /// Sends a packet as the seal demands.
    fn push_sealed(&mut self, t: &Transmit<'_>) {
        let Some(seal) = self.seal.as_deref_mut() else { return };
        let dst = End { ip: t.dst.ip, port: t.dst.port };
        match seal.layer.route(dst, &t.packet) {
            Route::Plain => self.push_plain(t),
            Route::Withheld => self.counters.tx_refused += 1,
            Route::Sealed(slot) => {
                let parts = match &t.payload {
                    None => Some(Parts::new()),
                    Some(payload) => self.tables.gather(payload),
                };
                match parts.and_then(|parts| seal.seal(slot, t, &parts)) {
                    Some(start) => self.push_copied(t, start, None),
                    None => self.counters.tx_refused += 1,
                }
            }
            Route::Handshake => {
                let (starts, plain) = seal.handshake(t);
                for (i, &start) in starts.iter().enumerate() {
                    self.push_copied(t, start, starts.get(i + 1).copied());
                }
                if plain {
                    self.push_plain(t);
                }
            }
        }
    }

    /// Hands over a datagram of the batch, which lies in the arena of the seal.
    fn push_copied(&mut self, t: &Transmit<'_>, start: usize, end: Option<usize>) {
        let Some(seal) = self.seal.as_deref_mut() else { return };
        if let Some(mirror) = &mut self.mirror {
            mirror.secrets(seal);
        }
        let (headers, rest) = seal.datagram(start, end).split_at(HEADER_BYTES);
        // SAFETY: the arena neither moves nor changes before the datapath's queue is flushed: it is
        // not filled beyond its capacity, and both happen in one call (transmit).
        let rest = [unsafe { Part::new(rest.as_ptr(), rest.len()) }];
        let dst = SocketAddr::new(t.dst.ip, t.dst.port);
        let packet =
            TxPacket { dst, path: t.path, headers, payload: &rest, padded_len: 0, finish: None };
        self.counters.paths_used[usize::from(t.path) / 64] |= 1 << (t.path % 64);
        hand_over(self.net, &mut self.mirror, self.counters, &packet);
    }
}

impl TxSink for Emitter<'_> {
    #[inline]
    fn push(&mut self, t: &Transmit<'_>) {
        match self.seal {
            None => self.push_plain(t),
            Some(_) => self.push_sealed(t),
        }
    }
}

impl Emitter<'_> {
    /// Sends a packet as it is.
    #[inline]
    fn push_plain(&mut self, t: &Transmit<'_>) {
        let payload_len = t.payload.as_ref().map_or(0, |payload| usize::from(payload.len));
        let len = t.packet.headers_len() + payload_len;
        if t.padded_len == 0 && len <= HEADERS_BYTES_MAX && self.net.tx_copies(len) {
            self.push_short(t, len);
        } else {
            self.push_apart(t);
        }
    }

    /// Sends a packet of `len` bytes that fits into the scratch for headers, in one piece.
    fn push_short(&mut self, t: &Transmit<'_>, len: usize) {
        let Some(datagram) = self.headers.get_mut(..len) else { return };
        let at = emit(&t.packet, datagram);
        let filled = match &t.payload {
            None => true,
            Some(payload) => self.tables.copy_out(payload, &mut datagram[at..]),
        };
        if !filled {
            // A packet that is not sent counts as lost, which the engine recovers from.
            self.counters.tx_refused += 1;
            return;
        }
        if t.packet.header.flags.has(Flags::CHECKED) {
            stamp(datagram);
        }
        self.counters.paths_used[usize::from(t.path) / 64] |= 1 << (t.path % 64);
        let packet = TxPacket {
            dst: SocketAddr::new(t.dst.ip, t.dst.port),
            path: t.path,
            headers: datagram,
            payload: &[],
            padded_len: 0,
            finish: None,
        };
        hand_over(self.net, &mut self.mirror, self.counters, &packet);
    }

    /// Sends a packet as headers, and payload by reference.
    fn push_apart(&mut self, t: &Transmit<'_>) {
        let parts = match &t.payload {
            None => Parts::new(),
            Some(payload) => match self.tables.gather(payload) {
                Some(parts) => parts,
                None => {
                    // A packet that is not sent counts as lost, which the engine recovers from.
                    self.counters.tx_refused += 1;
                    return;
                }
            },
        };
        self.counters.paths_used[usize::from(t.path) / 64] |= 1 << (t.path % 64);
        let headers = &mut *self.headers;
        let len = emit(&t.packet, headers);
        let plain_len = len + usize::from(t.packet.payload_len);
        let padded_len = usize::from(t.padded_len);
        let mut finish: Option<Finish> = None;
        if t.packet.header.flags.has(Flags::CHECKED) {
            // A region may change while it is read, but the checksum must match the bytes sent. The
            // memory of a request belongs to the device until the request ends.
            let may_change = matches!(t.payload, Some(p) if matches!(p.source, Source::Region(_)));
            if may_change || self.net.tx_copies(plain_len.max(padded_len)) {
                finish = Some(stamp);
            } else {
                let pad_len = padded_len.saturating_sub(plain_len);
                stamp_apart(&mut headers[..len], &parts, pad_len);
            }
        }
        let packet = TxPacket {
            dst: SocketAddr::new(t.dst.ip, t.dst.port),
            path: t.path,
            headers: &headers[..len],
            payload: &parts,
            padded_len,
            finish,
        };
        hand_over(self.net, &mut self.mirror, self.counters, &packet);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Access;
    use crate::few::Few;
    use crate::mem::Memory;
    use crate::nic::WrSlot;
    use srd_core::{Opcode, PdId, Qpn, WrHandle};
    use std::sync::Arc;

    /// A region per length, and a list of pieces 4 bytes into each.
    fn pieces(lens: &[u32]) -> (Regions, Vec<Piece>) {
        let mut regions = Regions::default();
        let enter = |(key, &len): (usize, &u32)| {
            let access = Access::LOCAL_WRITE;
            let memory = Memory::owned(len as usize + 8, access, PdId(0)).unwrap();
            Piece { region: regions.insert(key as u32, Arc::new(memory)), offset: 4, len }
        };
        let list = lens.iter().enumerate().map(enter).collect();
        (regions, list)
    }

    fn bytes_of(parts: &Parts) -> Vec<u8> {
        let mut out = Vec::new();
        parts.iter().for_each(|p| p.copy_into(&mut out));
        out
    }

    #[test]
    fn any_range_of_a_list_comes_back_as_it_went_in() {
        let (mut regions, list) = pieces(&[5, 11]);
        let data: Vec<u8> = (1..=16).collect();
        assert!(scatter(&regions, &list, 0, &data));
        for from in 0..=16_usize {
            for len in 0..=16 - from {
                let parts = gather(&regions, &list, from as u64, len).unwrap();
                assert_eq!(bytes_of(&parts), data[from..from + len]);
            }
        }
        assert!(gather(&regions, &list, 10, 7).is_none());
        let mut frame = [0xFF; 4];
        let second = regions.get(list[1].region).unwrap();
        assert!(second.read(0, &mut frame));
        assert_eq!(frame, [0; 4], "nothing before the piece was touched");
        assert!(second.read(15, &mut frame));
        assert_eq!(frame, [0; 4], "nothing after it");
        regions.remove(1);
        assert!(gather(&regions, &list, 0, 5).is_some() && gather(&regions, &list, 0, 6).is_none());
        assert!(!scatter(&regions, &list, 4, &[1, 2]));
    }

    #[test]
    fn scatter_in_steps_equals_scatter_at_once() {
        let ((ra, a), (rb, b)) = (pieces(&[3, 0, 4, 9]), pieces(&[3, 0, 4, 9]));
        let data: Vec<u8> = (10..26).collect();
        assert!(scatter(&ra, &a, 0, &data));
        for (i, byte) in data.iter().enumerate().rev() {
            assert!(scatter(&rb, &b, i as u64, &[*byte]));
        }
        for (x, y) in a.iter().zip(&b) {
            let (mut p, mut q) = (vec![0; x.len as usize], vec![0; y.len as usize]);
            assert!(ra.get(x.region).unwrap().read(4, &mut p));
            assert!(rb.get(y.region).unwrap().read(4, &mut q));
            assert_eq!(p, q);
        }
        assert!(!scatter(&ra, &a, 15, &[1, 2]), "the list has 16 bytes");
        assert!(scatter(&ra, &a, 16, &[]));
    }

    /// Whether the data lies in pieces of regions or in the request, a copy in one piece holds the
    /// same bytes as the parts do, and none that are not there.
    #[test]
    fn a_copy_in_one_piece_holds_what_the_parts_hold() {
        let (regions, list) = pieces(&[5, 11]);
        let data: Vec<u8> = (1..=16).collect();
        assert!(scatter(&regions, &list, 0, &data));
        let mut tables = Tables::new(IpAddr::from([127, 0, 0, 1]));
        tables.regions = regions;
        let inline = WrData::Inline(Few::from_slice(&data).unwrap());
        for data in [WrData::Pieces(Few::from_slice(&list).unwrap()), inline, WrData::Empty] {
            let (qpn, op) = (Qpn(1), Opcode::Send);
            tables.wrs.push(WrSlot { qpn, wr_id: 0, op, data, live: true });
        }
        for wr in 0..3 {
            for (offset, len) in (0..=17).flat_map(|at| (0..=17).map(move |len| (at, len))) {
                let source = Source::Wr(WrHandle(wr));
                let payload = Payload { source, offset, len };
                let mut copy = vec![0; len.into()];
                let copied = tables.copy_out(&payload, &mut copy);
                let parts = tables.gather(&payload);
                assert_eq!(copied, parts.is_some(), "request {wr}: {len} bytes from {offset}");
                if let Some(parts) = parts {
                    assert_eq!(copy, bytes_of(&parts));
                }
            }
        }
        tables.wrs[1].live = false;
        let source = Source::Wr(WrHandle(1));
        assert!(!tables.copy_out(&Payload { source, offset: 0, len: 1 }, &mut [0]), "it has ended");
    }

    #[test]
    fn the_grh_names_both_ends() {
        let (src, dst) = ("10.0.0.1".parse().unwrap(), "fe80::2".parse().unwrap());
        let g = grh(src, dst, 100);
        assert_eq!((g[0] >> 4, g[4..6].to_vec()), (6, vec![0, 100]));
        assert_eq!(g[8..24], crate::gid_from_ip(src));
        assert_eq!(g[24..], crate::gid_from_ip(dst));
    }
}
