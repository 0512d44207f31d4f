//! What a liar knows: random numbers of its own, and what its victim has sent it.

use srd_wire::{Body, Packet, PacketType};
use std::collections::VecDeque;

/// Packets, messages and reads of the victim that a liar remembers of each.
const KEPT_MAX: usize = 64;

/// Random numbers of a run (splitmix64): a failure can be repeated by its seed.
pub struct Dice(pub u64);

impl Dice {
    /// The next 64 random bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    /// True once in `n` times.
    pub fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
    /// One of them.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
    /// A number near `n`, or any.
    pub fn near(&mut self, n: u32) -> u32 {
        match self.below(8) {
            0 => self.next() as u32,
            1 => n.wrapping_add(0x7FFF_0000),
            2 => n.wrapping_sub(self.below(70_000) as u32),
            _ => n.wrapping_add(self.below(64) as u32).wrapping_sub(32),
        }
    }
}

/// A packet of the victim.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Its type.
    pub kind: PacketType,
    /// Its PSN; 0 if it has none.
    pub psn: u32,
    /// Its transmission number.
    pub tx_num: u32,
    /// Its timestamp.
    pub timestamp: u32,
    /// The path it came on.
    pub path: u8,
    /// Bytes of its payload.
    pub payload: u16,
}

/// A read that the victim has asked for.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    /// Number of the message.
    pub msg_id: u32,
    /// Bytes asked for.
    pub len: u32,
    /// Where an honest answer would go on.
    pub next: u32,
}

/// What the liar has heard from its victim, and where its own numbers stand.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    /// Tag that the victim gave; 0 = none.
    pub tag: u32,
    /// The liar's own tag.
    pub own_tag: u32,
    /// Its incarnation.
    pub life: u64,
    /// PSN that an honest sender would use next.
    pub psn: u32,
    /// Transmission number that an honest sender would use next.
    pub tx_num: u32,
    /// One past the victim's newest PSN.
    pub peer_psn: u32,
    /// What the victim has acknowledged of the liar's.
    pub told: u32,
    /// What it sent last.
    pub seen: VecDeque<Seen>,
    /// Numbers of its messages.
    pub msg_ids: VecDeque<u32>,
    /// Reads that it has asked for.
    pub reads: VecDeque<Read>,
    /// A queue pair of its.
    pub qpn: u16,
    /// The newest cookie of a Challenge.
    pub cookie: u64,
    /// Key and address of a region of the victim that anybody may read and write.
    pub bait: (u32, u64),
}

fn keep<T>(list: &mut VecDeque<T>, entry: T) {
    if list.len() == KEPT_MAX {
        list.pop_front();
    }
    list.push_back(entry);
}

impl Heard {
    /// Keeps what a packet of the victim tells.
    pub fn note(&mut self, packet: &Packet<'_>) {
        let h = &packet.header;
        match packet.body {
            Body::OpenAck(p) | Body::Open(p) => self.peer_psn = p.psn_start,
            Body::Challenge { cookie, .. } => self.cookie = cookie,
            Body::ReadReq(m, r) => {
                keep(&mut self.reads, Read { msg_id: m.msg_id, len: r.len, next: 0 });
            }
            _ => {}
        }
        if h.kind.is_reliable() && (h.psn.wrapping_sub(self.peer_psn) as i32) >= 0 {
            self.peer_psn = h.psn.wrapping_add(1);
        }
        if let Some(ack) = packet.ack {
            self.told = ack.cum;
        }
        let (tx_num, timestamp, path) = (h.tx_num, h.timestamp, h.path);
        let seen =
            Seen { kind: h.kind, psn: h.psn, tx_num, timestamp, path, payload: packet.payload_len };
        keep(&mut self.seen, seen);
        if let Some(m) = packet.body.message() {
            self.qpn = m.src_qpn;
            keep(&mut self.msg_ids, m.msg_id);
        }
    }

    /// One of the packets that came, if any did.
    pub fn seen_any(&self, dice: &mut Dice) -> Option<Seen> {
        let n = self.seen.len() as u64;
        (n > 0).then(|| self.seen[dice.below(n) as usize])
    }

    /// A PSN of the victim: mostly one that it used.
    pub fn psn_any(&self, dice: &mut Dice) -> u32 {
        match self.seen_any(dice) {
            Some(s) if s.kind.is_reliable() && !dice.once_in(4) => s.psn,
            _ => dice.near(self.peer_psn),
        }
    }

    /// The number of a message of the victim, or any.
    pub fn msg_id(&self, dice: &mut Dice) -> u32 {
        if self.msg_ids.is_empty() || dice.once_in(4) {
            return dice.next() as u32;
        }
        self.msg_ids[dice.below(self.msg_ids.len() as u64) as usize]
    }
}
