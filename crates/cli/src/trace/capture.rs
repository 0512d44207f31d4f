//! A trace of a capture: what each engine sent, and when it was acknowledged, as seen at the point
//! at which packets were captured.
//!
//! Nothing in a capture is believed: what has no end is ended with the capture, and each table is
//! bounded.

use crate::{
    captured::{BLOCK_PACKET, blocks, packet_of},
    failure::{Failure, Result},
    output,
};
use srd::datapath::pcapng;
use srd_timeline::{Group, Timeline, Track};
use srd_wire::{AckBlock, Body, ECHO_DELAY_UNIT_NS, Flags, Header, Packet, parse};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::{IpAddr, SocketAddr},
    path::Path,
};

/// Most packets in flight and most transmissions that are remembered, per direction: the oldest are
/// forgotten. More than any engine has in flight.
const PACKETS_MAX: usize = 1 << 16;
/// Where a packet has the slot of its sender, sealed or not.
const SLOT_AT: usize = 3;
/// Most directions between two engines.
const WAYS_MAX: usize = 10_000;
/// Most messages.
const MESSAGES_MAX: usize = srd_timeline::EVENTS_MAX;
/// Time over which acknowledged bytes are added up.
const ACKED_NS: u64 = 1_000_000;

/// From an engine (address and slot) to a receiver.
type Key = (IpAddr, u8, SocketAddr);

/// A message: sender's queue pair and number; that of a read's answer has no queue pair.
type MessageKey = (Option<u16>, u32);

struct Message {
    name: &'static str,
    from_ns: u64,
    to_ns: u64,
    bytes: u64,
    packets: u64,
    again: u64,
    /// Its packets that are not known to have arrived.
    open: u64,
}

/// A packet in flight.
struct Flying {
    path: u8,
    bytes: u64,
    of: MessageKey,
}

/// Packets in flight on a path.
struct Busy {
    since_ns: u64,
    packets: u64,
    bytes: u64,
    flying: u64,
}

/// What one engine sends to another.
struct Way {
    group: Group,
    name: String,
    slot: u8,
    tracks: BTreeMap<String, Track>,
    /// The receiver's tag of the context: another one means other PSNs.
    tag: u32,
    /// The newest PSN as a number that does not wrap.
    newest: u64,
    flying: BTreeMap<u64, Flying>,
    flying_bytes: u64,
    sent_at: BTreeMap<u32, u64>,
    messages: BTreeMap<MessageKey, Message>,
    busy: BTreeMap<u8, Busy>,
    acked: (u64, u64),
}

#[derive(Default)]
struct Reading {
    ways: BTreeMap<Key, Way>,
    groups: BTreeMap<(IpAddr, u8), Group>,
    /// UDP port of slot 0.
    base: u16,
    messages: usize,
    left_out: u64,
    sealed: u64,
    refused: u64,
    packets: u64,
}

/// Reads a capture.
///
/// # Errors
/// It cannot be read, is no capture of software SRD, or has no packet that can be understood.
pub fn read(path: &Path) -> Result<Timeline> {
    let file = fs::read(path)
        .map_err(|e| Failure::usage(format!("cannot read the capture {}: {e}", path.display())))?;
    let blocks = blocks(&file).map_err(|e| Failure::usage(format!("{}: {e}", path.display())))?;
    let mut timeline = Timeline::new(&format!("capture {}", path.display()));
    let (mut reading, mut ack) = (Reading::default(), AckBlock::default());
    reading.base = base_of(&blocks);
    let senders = senders_of(&blocks);
    let (mut first_ns, mut now_ns) = (None, 0);
    for (kind, body) in &blocks {
        let Some((record, payload)) = (*kind == BLOCK_PACKET).then(|| packet_of(body)).flatten()
        else {
            continue;
        };
        let from = (record.src.ip(), payload.get(SLOT_AT).copied().unwrap_or_default());
        if record.way == pcapng::Way::In && senders.contains(&from) {
            // It is in the capture when it was sent, too.
            continue;
        }
        let first = *first_ns.get_or_insert(record.unix_ns);
        // A clock that was set back does not let time run backwards.
        now_ns = record.unix_ns.saturating_sub(first).max(now_ns);
        reading.packets += 1;
        if payload.get(1).is_some_and(|flags| flags & Flags::SEALED != 0) {
            reading.sealed += 1;
            continue;
        }
        match parse(&payload, &mut ack) {
            Ok((packet, _)) => {
                reading.packet(&mut timeline, now_ns, (record.src.ip(), record.dst), &packet);
            }
            Err(_) => reading.refused += 1,
        }
    }
    reading.tell(path, &timeline)?;
    for (_, mut way) in std::mem::take(&mut reading.ways) {
        way.finish(&mut timeline, now_ns);
    }
    Ok(timeline)
}

impl Reading {
    fn packet(
        &mut self,
        timeline: &mut Timeline,
        now_ns: u64,
        (src, dst): (IpAddr, SocketAddr),
        packet: &Packet<'_>,
    ) {
        let header = &packet.header;
        if let Some(ack) = packet.ack
            && let Some(way) = self.reverse(src, header.slot, dst)
        {
            way.acknowledged(timeline, now_ns, ack);
        }
        if !header.kind.is_reliable() {
            return;
        }
        let key = (src, header.slot, dst);
        if self.ways.len() >= WAYS_MAX && !self.ways.contains_key(&key) {
            self.left_out += 1;
            return;
        }
        let name = || format!("{src} slot {}", header.slot);
        let group =
            *self.groups.entry((src, header.slot)).or_insert_with(|| timeline.group(&name()));
        let way = self.ways.entry(key).or_insert_with(|| Way::new(group, dst, header));
        if way.tag != header.dst_tag {
            way.context_new(timeline, now_ns, header);
        }
        let before = way.messages.len();
        if self.messages >= MESSAGES_MAX {
            self.left_out += 1;
            return;
        }
        way.sent(timeline, now_ns, packet);
        self.messages += way.messages.len() - before;
    }

    /// The direction that packets from `src` to `dst` acknowledge.
    fn reverse(&mut self, src: IpAddr, slot: u8, dst: SocketAddr) -> Option<&mut Way> {
        let own = u8::try_from(dst.port().checked_sub(self.base)?).ok()?;
        let to = SocketAddr::new(src, self.base.checked_add(slot.into())?);
        self.ways.get_mut(&(dst.ip(), own, to))
    }

    /// Says what is not in the trace.
    fn tell(&self, path: &Path, timeline: &Timeline) -> Result {
        if self.ways.is_empty() || timeline.is_empty() && self.messages == 0 {
            let why = match self.sealed {
                0 => "no packet of a message was captured",
                _ => {
                    "all of its packets are sealed; capture with --capture-secrets, and open \
                      them by srd wireshark --unseal"
                }
            };
            return Err(Failure::new(format!("{}: {why}", path.display())));
        }
        for (count, what) in [
            (self.sealed, "sealed packets: srd wireshark --unseal opens them"),
            (self.refused, "packets that are not of software SRD, or cut off"),
            (self.left_out, "packets beyond the most messages or pairs of engines"),
        ] {
            if count > 0 {
                output::note(&format!(
                    "srd: warning: {count} of {} packets are left out: {what}",
                    self.packets
                ));
            }
        }
        Ok(())
    }
}

impl Way {
    fn new(group: Group, dst: SocketAddr, header: &Header) -> Self {
        Self {
            group,
            name: format!("to {dst}"),
            slot: header.slot,
            tracks: BTreeMap::new(),
            tag: header.dst_tag,
            newest: whole_first(header.psn),
            flying: BTreeMap::new(),
            flying_bytes: 0,
            sent_at: BTreeMap::new(),
            messages: BTreeMap::new(),
            busy: BTreeMap::new(),
            acked: (0, 0),
        }
    }

    /// The engines have opened another context: what was in flight is not heard of again.
    fn context_new(&mut self, timeline: &mut Timeline, now_ns: u64, header: &Header) {
        while let Some((&psn, _)) = self.flying.first_key_value() {
            self.landed(timeline, now_ns, psn);
        }
        self.sent_at.clear();
        (self.tag, self.newest) = (header.dst_tag, whole_first(header.psn));
    }

    fn track(&mut self, timeline: &mut Timeline, name: &str, order: u32) -> Track {
        if let Some(&track) = self.tracks.get(name) {
            return track;
        }
        let track = timeline.track(self.group, &format!("{}: {name}", self.name), order);
        self.tracks.insert(name.into(), track);
        track
    }

    fn path(&mut self, timeline: &mut Timeline, path: u8) -> Track {
        self.track(timeline, &format!("path {path}"), 1)
    }

    /// A PSN as a number that does not wrap.
    fn whole(&self, psn: u32) -> u64 {
        let ahead = psn.wrapping_sub(self.newest as u32).cast_signed();
        self.newest.saturating_add_signed(i64::from(ahead))
    }

    fn sent(&mut self, timeline: &mut Timeline, now_ns: u64, packet: &Packet<'_>) {
        let header = &packet.header;
        let (psn, path, bytes) = (self.whole(header.psn), header.path, packet.payload_len.into());
        let Some((of, name)) = message_of(packet) else { return };
        // The sender knows what arrived even if its acknowledgment was not captured.
        let una = self.whole(header.una());
        while let Some((&first, _)) = self.flying.first_key_value().filter(|(psn, _)| **psn < una) {
            self.landed(timeline, now_ns, first);
        }
        self.newest = self.newest.max(psn);
        let new = Message {
            name,
            from_ns: now_ns,
            to_ns: now_ns,
            bytes: 0,
            packets: 0,
            again: 0,
            open: 0,
        };
        let message = self.messages.entry(of).or_insert(new);
        message.packets += 1;
        message.to_ns = now_ns;
        if let Some(before) = self.flying.remove(&psn) {
            message.again += 1;
            self.flying_bytes -= before.bytes;
            self.left(timeline, now_ns, before.path);
            let again = match before.path == path {
                true => "sent again",
                false => "sent again on another path",
            };
            let track = self.path(timeline, path);
            let values =
                vec![("psn", header.psn.into()), ("before on path", u32::from(before.path).into())];
            timeline.instant(track, again, now_ns, values);
        } else {
            message.bytes += bytes;
            message.open += 1;
        }
        if self.flying.len() >= PACKETS_MAX {
            let oldest = self.flying.first_key_value().map(|(&psn, _)| psn);
            oldest.into_iter().for_each(|psn| self.landed(timeline, now_ns, psn));
        }
        self.flying.insert(psn, Flying { path, bytes, of });
        self.flying_bytes += bytes;
        let new = || Busy { since_ns: now_ns, packets: 0, bytes: 0, flying: 0 };
        let busy = self.busy.entry(path).or_insert_with(new);
        busy.packets += 1;
        busy.bytes += bytes;
        busy.flying += 1;
        if self.sent_at.len() >= PACKETS_MAX {
            self.sent_at.clear();
        }
        self.sent_at.insert(header.tx_num, now_ns);
        self.flying_count(timeline, now_ns);
    }

    fn flying_count(&self, timeline: &mut Timeline, now_ns: u64) {
        let name = format!("{}: in flight (bytes)", self.name);
        timeline.counter(self.group, name, now_ns, self.flying_bytes as f64);
    }

    fn acknowledged(&mut self, timeline: &mut Timeline, now_ns: u64, ack: &AckBlock) {
        let cum = self.whole(ack.cum);
        while let Some((&first, _)) = self.flying.first_key_value().filter(|(psn, _)| **psn < cum) {
            self.landed(timeline, now_ns, first);
        }
        let base = self.whole(ack.base);
        for (word, at) in ack.words.iter().zip((0..).step_by(64)) {
            for bit in (0..64).filter(|bit| word >> bit & 1 == 1) {
                self.landed(timeline, now_ns, base + at + bit);
            }
        }
        for echo in ack.echoes.iter().filter(|echo| echo.delay < u16::MAX) {
            let Some(at_ns) = self.sent_at.remove(&echo.tx_num) else { continue };
            let there = u64::from(echo.delay) * ECHO_DELAY_UNIT_NS;
            let rtt = now_ns.saturating_sub(at_ns).saturating_sub(there);
            let name = format!("{}: RTT of each packet (us)", self.name);
            timeline.counter(self.group, name, now_ns, rtt as f64 / 1e3);
        }
        let (since, bytes) = self.acked;
        if now_ns >= since + ACKED_NS {
            let mbps = bytes as f64 * 8e3 / (now_ns - since) as f64;
            timeline.counter(
                self.group,
                format!("{}: acknowledged (Mb/s)", self.name),
                now_ns,
                mbps,
            );
            self.acked = (now_ns, 0);
        }
        self.flying_count(timeline, now_ns);
    }

    /// A packet has arrived.
    fn landed(&mut self, timeline: &mut Timeline, now_ns: u64, psn: u64) {
        let Some(packet) = self.flying.remove(&psn) else { return };
        self.flying_bytes -= packet.bytes;
        self.acked.1 += packet.bytes;
        if let Some(message) = self.messages.get_mut(&packet.of) {
            message.open -= 1;
            message.to_ns = now_ns;
        }
        self.left(timeline, now_ns, packet.path);
    }

    /// A packet is no longer in flight on a path.
    fn left(&mut self, timeline: &mut Timeline, now_ns: u64, path: u8) {
        let Some(busy) = self.busy.get_mut(&path) else { return };
        busy.flying -= 1;
        if busy.flying == 0 {
            self.rest(timeline, now_ns, path);
        }
    }

    fn rest(&mut self, timeline: &mut Timeline, now_ns: u64, path: u8) {
        let Some(busy) = self.busy.remove(&path) else { return };
        let track = self.path(timeline, path);
        let values = vec![("packets", busy.packets.into()), ("bytes", busy.bytes.into())];
        timeline.slice(track, "in flight", busy.since_ns, now_ns, values);
    }

    fn finish(&mut self, timeline: &mut Timeline, end_ns: u64) {
        for path in self.busy.keys().copied().collect::<Vec<_>>() {
            self.rest(timeline, end_ns, path);
        }
        for ((qpn, id), m) in std::mem::take(&mut self.messages) {
            let of = match qpn {
                Some(qpn) => format!("queue pair {}/{qpn}", self.slot),
                None => "answers to reads".into(),
            };
            let track = self.track(timeline, &of, 0);
            let to_ns = if m.open > 0 { end_ns } else { m.to_ns };
            let values = vec![
                ("message", id.into()),
                ("bytes", m.bytes.into()),
                ("packets", m.packets.into()),
                ("sent again", m.again.into()),
                ("status", if m.open > 0 { "not acknowledged" } else { "acknowledged" }.into()),
            ];
            timeline.slice(track, format!("{} {} B", m.name, m.bytes), m.from_ns, to_ns, values);
        }
    }
}

/// Engines that are captured themselves: address and slot. Their packets are in the capture as
/// sent, and once more as received if the receiver is captured, too.
fn senders_of(blocks: &[(u32, &[u8])]) -> BTreeSet<(IpAddr, u8)> {
    let mut senders = BTreeSet::new();
    for (_, body) in blocks.iter().filter(|(kind, _)| *kind == BLOCK_PACKET) {
        let Some((record, payload)) = packet_of(body) else { continue };
        if record.way == pcapng::Way::Out && senders.len() < WAYS_MAX {
            senders.insert((record.src.ip(), payload.get(SLOT_AT).copied().unwrap_or_default()));
        }
    }
    senders
}

/// UDP port of slot 0, which no packet says: an engine sends with its slot, and receives at the
/// port of its slot. Of the differences between ports and slots of one address, the port of slot 0
/// is that which most engines have.
fn base_of(blocks: &[(u32, &[u8])]) -> u16 {
    let (mut slots, mut ports) = (BTreeSet::new(), BTreeSet::new());
    let mut ack = AckBlock::default();
    for (_, body) in blocks.iter().filter(|(kind, _)| *kind == BLOCK_PACKET) {
        let Some((record, payload)) = packet_of(body) else { continue };
        let Ok((packet, _)) = parse(&payload, &mut ack) else { continue };
        if slots.len() < WAYS_MAX && ports.len() < WAYS_MAX {
            slots.insert((record.src.ip(), packet.header.slot));
            ports.insert((record.dst.ip(), record.dst.port()));
        }
    }
    let mut votes: BTreeMap<u16, usize> = BTreeMap::new();
    for (ip, slot) in slots {
        for (_, port) in ports.range((ip, 0)..=(ip, u16::MAX)) {
            if let Some(base) = port.checked_sub(slot.into()) {
                *votes.entry(base).or_default() += 1;
            }
        }
    }
    // Of as many, the usual one.
    let most = votes.into_iter().max_by_key(|(base, n)| (*n, *base == srd::PORT_BASE_DEFAULT));
    most.map_or(srd::PORT_BASE_DEFAULT, |(base, _)| base)
}

/// The first PSN of a context as a number that does not wrap, with room below it.
fn whole_first(psn: u32) -> u64 {
    u64::from(psn) + (1 << 32)
}

/// The message that a packet belongs to, and what it is.
fn message_of(packet: &Packet<'_>) -> Option<(MessageKey, &'static str)> {
    match &packet.body {
        Body::Send(m) | Body::SendImm(m, _) => Some(((Some(m.src_qpn), m.msg_id), "send")),
        Body::Write(m, _) => Some(((Some(m.src_qpn), m.msg_id), "write")),
        Body::WriteImm { msg, .. } => Some(((Some(msg.src_qpn), msg.msg_id), "write")),
        Body::ReadReq(m, _) => Some(((Some(m.src_qpn), m.msg_id), "read request")),
        Body::ReadResp(r) => Some(((None, r.msg_id), "answer to a read")),
        _ => None,
    }
}
