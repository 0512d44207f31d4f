//! State of a liar: a random generator, and what its victim has sent.

use srd_wire::{Body, Packet, PacketType};
use std::collections::VecDeque;

/// Number of packets, of messages and of reads of the victim that a liar remembers.
const KEPT_MAX: usize = 64;

/// Pseudorandom numbers (splitmix64): the seed reproduces a failure.
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
    /// Returns true with probability 1/`n`.
    pub fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
    /// One element of `of`.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
    /// A number near `n`, or with some probability any number.
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
    /// Packet type.
    pub kind: PacketType,
    /// PSN; 0 if it has none.
    pub psn: u32,
    /// Transmission number.
    pub tx_num: u32,
    /// Timestamp.
    pub timestamp: u32,
    /// Path on which it arrived.
    pub path: u8,
    /// Bytes of payload.
    pub payload: u16,
}

/// A read request of the victim.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    /// Number of the message.
    pub msg_id: u32,
    /// Requested bytes.
    pub len: u32,
    /// Offset at which an honest answer would continue.
    pub next: u32,
}

/// What the liar knows of its victim, and its own sequence numbers.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    /// Tag that the victim assigned; 0 = none.
    pub tag: u32,
    /// Tag that the liar assigned.
    pub own_tag: u32,
    /// Incarnation of the liar.
    pub life: u64,
    /// Next PSN of an honest sender.
    pub psn: u32,
    /// Next transmission number of an honest sender.
    pub tx_num: u32,
    /// The victim's newest PSN plus one.
    pub peer_psn: u32,
    /// The liar's PSN up to which the victim has acknowledged everything cumulatively.
    pub told: u32,
    /// Recent packets of the victim.
    pub seen: VecDeque<Seen>,
    /// Recent message numbers of the victim.
    pub msg_ids: VecDeque<u32>,
    /// Recent read requests of the victim.
    pub reads: VecDeque<Read>,
    /// A queue pair of the victim.
    pub qpn: u16,
    /// Cookie of the victim's newest Challenge.
    pub cookie: u64,
    /// Key and address of a memory region of the victim that any peer may read and write.
    pub bait: (u32, u64),
}

fn keep<T>(list: &mut VecDeque<T>, entry: T) {
    if list.len() == KEPT_MAX {
        list.pop_front();
    }
    list.push_back(entry);
}

impl Heard {
    /// Records the contents of a packet of the victim.
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

    /// One of the recorded packets, if there are any.
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

    /// A message number of the victim, or any number.
    pub fn msg_id(&self, dice: &mut Dice) -> u32 {
        if self.msg_ids.is_empty() || dice.once_in(4) {
            return dice.next() as u32;
        }
        self.msg_ids[dice.below(self.msg_ids.len() as u64) as usize]
    }
}
