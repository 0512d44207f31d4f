//! What a member makes of a datagram, and the oracles about it: what nobody has authenticated
//! changes nothing, what a peer has sealed opens, and a copy is taken once.

use super::network::{Gram, is_greeting, is_sealed};
use super::stage::Stage;
use crate::emit::brief;
use crate::ledger::Oracle;
use srd_core::wire::{self, AckBlock, CloseCode, Flags, PacketType};
use srd_core::{ContextStats, Endpoint, Rx, RxMeta, Span, Time};
use srd_seal::{Incoming, OpenError, Policy, sealed_open_tag};

/// Time after a handshake in which both sides come to have the same keys.
const SETTLE_NS: u64 = 1_000_000;
/// Types that may be answered or heard again, without any other effect.
const TWICE: [u8; 5] = [
    PacketType::Open as u8,
    PacketType::OpenAck as u8,
    PacketType::Challenge as u8,
    PacketType::CloseAck as u8,
    PacketType::Reset as u8,
];

/// What the engine and the layer hold that only authentic packets may change.
#[derive(Debug, PartialEq)]
struct Held {
    contexts: Vec<ContextStats>,
    /// Newest number of the tag in the packet.
    newest: Option<u64>,
    sessions: usize,
}

impl Held {
    /// A question wakes a context that rests, whose window is then counted from its edge again.
    fn wake(&mut self, after: &Self) {
        for c in self.contexts.iter_mut().filter(|c| !c.is_active) {
            if let Some(now) = after.contexts.iter().find(|n| n.ctx == c.ctx && n.is_active) {
                (c.is_active, c.psns_ahead) = (true, now.psns_ahead);
            }
        }
    }
}

/// How a datagram was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    /// The layer or the engine has dropped it.
    No,
    /// The layer could not open it, for the reason at this place of [`OpenError::ALL`].
    Shut(usize),
    Yes,
}

fn tag_of(bytes: &[u8]) -> u32 {
    bytes.get(4..8).map_or(0, |b| u32::from_be_bytes(*b.first_chunk().expect("four bytes")))
}

/// Contexts that are not there yet, which a copy of a handshake may begin.
fn is_new(c: &ContextStats) -> bool {
    matches!(c.state, "HalfOpen" | "Opening")
}

impl Stage<'_> {
    /// `all`: those contexts too that are not there yet.
    fn held(&self, id: usize, tag: u32, all: bool) -> Held {
        let m = &self.members[id];
        let mut contexts: Vec<ContextStats> =
            m.engine.context_stats().into_iter().filter(|c| all || !is_new(c)).collect();
        // A question after a context takes memory while it is open.
        contexts.iter_mut().for_each(|c| c.held_bytes = 0);
        let newest = m.layer.as_ref().and_then(|l| l.newest(tag));
        let sessions = m.layer.as_ref().map_or(0, srd_seal::SealLayer::contexts);
        Held { contexts, newest, sessions }
    }

    /// A datagram arrives at member `id`.
    pub fn arrive(&mut self, id: usize, gram: Gram) {
        self.received += 1;
        let key = (id, self.members[id].life, gram.id);
        let copy = gram.honest.is_some() && self.taken.contains(&key);
        // Only who requires a seal takes nothing on anybody's word.
        let strict = self.plan.policies[id] == Policy::Require;
        let true_copy = copy && is_sealed(&gram.bytes);
        let looked_at = strict && (gram.honest.is_none() || true_copy);
        let tag = tag_of(&gram.bytes);
        // A copy of a handshake begins one; what the attacker has made does not even that.
        let all = gram.honest.is_none();
        let before = looked_at.then(|| self.held(id, tag, all));
        let newest = self.newest_of(id, tag);
        let taken = self.hand_over(id, &gram);
        self.met_note(id);
        if taken == Taken::Yes {
            self.taken.insert(key);
        }
        if let Some(mut before) = before {
            let mut after = self.held(id, tag, all);
            before.wake(&after);
            // A copy from elsewhere is authentic for the layer, and for the engine from nobody.
            if gram.honest.is_none() && gram.id != 0 {
                after.newest = before.newest;
            }
            if before != after {
                let lost = before.contexts.iter().filter(|c| !after.contexts.contains(c));
                let new = after.contexts.iter().filter(|c| !before.contexts.contains(c));
                let what = format!(
                    "member {id}: {} changed newest {:?} to {:?}, keys of {} contexts to {}, {:?} \
                     to {:?}: {:02x?}",
                    if copy { "a copy" } else { "what nobody has authenticated" },
                    before.newest,
                    after.newest,
                    before.sessions,
                    after.sessions,
                    lost.collect::<Vec<_>>(),
                    new.collect::<Vec<_>>(),
                    &gram.bytes[..gram.bytes.len().min(48)]
                );
                self.fail(Oracle::Authentic, what);
            }
        }
        let within = is_sealed(&gram.bytes) && !is_greeting(&gram.bytes);
        let numbered = !TWICE.contains(&(gram.bytes[0] & 0x1f));
        if true_copy && within && numbered && taken == Taken::Yes {
            self.fail(Oracle::Authentic, format!("member {id} takes a copy: {gram:?}"));
        }
        // Handshakes are told within keys that the peer may not have yet. Who prefers a seal may
        // have given it up meanwhile.
        if gram.honest.is_some() && within && numbered && strict {
            self.opens_check(id, &gram, taken, newest);
        }
    }

    fn newest_of(&self, id: usize, tag: u32) -> Option<u64> {
        self.members[id].layer.as_ref()?.newest(tag)
    }

    /// What a peer has sealed opens, if it comes in time and both have the keys of one handshake.
    fn opens_check(&mut self, id: usize, gram: &Gram, taken: Taken, newest: Option<u64>) {
        let Taken::Shut(why) = taken else { return };
        let reason = OpenError::ALL[why];
        let (Some(from), Some(newest)) = (gram.honest, newest) else { return };
        let low = u32::from_be_bytes(*gram.bytes[8..].first_chunk().expect("a header"));
        let step = i64::from(low.wrapping_sub(newest as u32).cast_signed());
        let near = step.unsigned_abs() < 1 << self.plan.limits.epoch_bits;
        // Handshakes that cross, and restarts: keys may have changed since it left, or the answer
        // that the peer needs for them was lost.
        let met = [id, from].map(|m| self.members[m].met_at).into_iter().max().unwrap_or(0);
        let settled = met + SETTLE_NS < self.now;
        // Later the layer may have rested, and what was overtaken has no key then.
        let fresh = self.now <= gram.at + self.plan.delay_ns + self.plan.jitter_ns;
        if near && settled && fresh && matches!(reason, OpenError::Epoch | OpenError::Seal) {
            let what = format!(
                "member {id} cannot open ({reason:?}) what {from} has sealed; newest \
                 {newest}: {gram:?}"
            );
            self.fail(Oracle::Authentic, what);
        }
    }

    /// Notes when the layer of a member gets keys.
    fn met_note(&mut self, id: usize) {
        let m = &mut self.members[id];
        let met = m.layer.as_ref().map_or(0, |l| l.counters().handshakes);
        if met != m.met {
            (m.met, m.met_at) = (met, self.now);
        }
    }

    fn hand_over(&mut self, id: usize, gram: &Gram) -> Taken {
        let now = Time(self.now);
        let mut bytes = gram.bytes.clone();
        let slot = bytes.get(3).copied().unwrap_or_default();
        let m = &mut self.members[id];
        let port = m.engine.config().port_base + u16::from(slot);
        let from = Endpoint { ip: gram.src, port };
        let meta = RxMeta { src_ip: gram.src, ce: false, rxq_drops: 0, waited: Span::ZERO };
        let mut ack = AckBlock::default();
        let incoming = match &mut m.layer {
            Some(layer) => {
                let shut = layer.counters().not_opened;
                let incoming = layer.receive(&m.ring, gram.src, &mut bytes);
                let now_shut = layer.counters().not_opened;
                if let Some(why) = (0..shut.len()).find(|&k| shut[k] != now_shut[k]) {
                    if let Incoming::Unknown(tag) = incoming {
                        m.engine.sealed_stranger(now, from, tag);
                    }
                    return Taken::Shut(why);
                }
                incoming
            }
            None => Incoming::Plain,
        };
        let (sealed, read) = match incoming {
            Incoming::Dropped => return Taken::No,
            Incoming::Unknown(tag) => {
                m.engine.sealed_stranger(now, from, tag);
                return Taken::No;
            }
            Incoming::Refuse(tag, code) => {
                self.refuse(id, from, tag, code);
                return Taken::No;
            }
            Incoming::Plain => (None, wire::parse_checked(&bytes, &mut ack)),
            Incoming::Opened(len) => (Some(&bytes[..len]), wire::parse(&bytes[..len], &mut ack)),
            Incoming::Made => {
                let made = m.layer.as_ref().expect("it has made it").made();
                (Some(made), wire::parse(made, &mut ack))
            }
        };
        let text = sealed.unwrap_or(&bytes);
        let Ok((mut packet, start)) = read else {
            if m.layer.is_none()
                && let Some(tag) = sealed_open_tag(&bytes)
            {
                self.refuse(id, from, tag, CloseCode::SealUnknown);
            }
            return Taken::No;
        };
        if sealed.is_some() {
            packet.header.flags.0 |= Flags::SEALED;
        }
        let payload = text[start..start + usize::from(packet.payload_len)].to_vec();
        let rx = m.engine.handle(now, &meta, &packet);
        m.engine.rx_burst_end(now);
        self.note(|| {
            let who = gram.honest.map_or("attacker".into(), |h| h.to_string());
            let mark = if sealed_mark(&gram.bytes) { "sealed " } else { "" };
            format!("member {id} < {who}: {mark}{} -> {rx:?}", brief(&packet))
        });
        match rx {
            Rx::Dropped(_) => Taken::No,
            Rx::Place(place) => {
                if gram.honest.is_some() {
                    self.placed(id, gram, &place, &payload);
                } else if self.plan.policies[id] == Policy::Require {
                    let what = format!("member {id} places what no peer has sent: {place:?}");
                    self.fail(Oracle::Authentic, what);
                }
                Taken::Yes
            }
            Rx::Done => Taken::Yes,
        }
    }

    /// The device refuses a peer, and tells its user.
    fn refuse(&mut self, id: usize, from: Endpoint, tag: u32, code: CloseCode) {
        self.members[id].engine.seal_refuse(Time(self.now), from, tag, code);
        self.denied.push((id, from));
    }
}

fn sealed_mark(bytes: &[u8]) -> bool {
    bytes.len() > 1 && is_sealed(bytes)
}
