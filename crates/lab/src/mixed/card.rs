//! A host's card with a queue for each transport, as cards have several: the queues are served in
//! turn, by bytes, so that none is stuck behind another's backlog.

use super::packet::MixedPacket;
use srd_fabric::{HostIo, NS, Outbound, Ps, Tag};
use std::collections::VecDeque;

/// The card of one host. Its transports bound what they hand over, so the queues need no bound.
#[derive(Debug)]
pub struct Card {
    queues: Vec<Queue>,
    /// The queue whose turn it is.
    turn: usize,
    /// Bytes of a full packet. Packets wait here while more are on their way out, so that one is on
    /// the wire and one behind it.
    packet_bytes: u64,
    bits_per_s: u64,
}

#[derive(Debug, Default)]
struct Queue {
    packets: VecDeque<(Outbound, Tag, MixedPacket)>,
    bytes: u64,
    /// Packets handed to the link: when each has left, and its bytes.
    leaving: VecDeque<(Ps, u64)>,
    /// Bytes that it may send in its turn.
    credit: u64,
}

impl Card {
    /// A card with `queues` queues on a link of `bits_per_s`, for packets of up to `packet_bytes`.
    pub fn new(queues: usize, bits_per_s: u64, packet_bytes: u32) -> Self {
        Self {
            queues: (0..queues).map(|_| Queue::default()).collect(),
            turn: 0,
            packet_bytes: packet_bytes.into(),
            bits_per_s,
        }
    }

    /// Time in which the link sends `bytes`.
    fn wire_ps(&self, bytes: u64) -> Ps {
        (u128::from(bytes) * 8_000_000_000_000 / u128::from(self.bits_per_s)) as Ps
    }

    fn waits(&self) -> bool {
        self.queues.iter().any(|q| !q.packets.is_empty())
    }

    /// Hands a packet to the link.
    fn hand(
        &mut self,
        k: usize,
        (out, tag, packet): (Outbound, Tag, MixedPacket),
        io: &mut HostIo<'_, MixedPacket>,
    ) -> Result<(), MixedPacket> {
        io.send_tagged(out, tag, packet)?;
        let (now, leaving) = (io.now(), &mut self.queues[k].leaving);
        while leaving.front().is_some_and(|(at, _)| *at <= now) {
            leaving.pop_front();
        }
        leaving.push_back((io.nic_free_at(), out.bytes.into()));
        Ok(())
    }

    /// Takes a packet of transport `k`.
    ///
    /// # Errors
    /// The packet, if the link's own queue refuses it.
    pub fn send(
        &mut self,
        k: usize,
        packet: (Outbound, Tag, MixedPacket),
        io: &mut HostIo<'_, MixedPacket>,
    ) -> Result<(), MixedPacket> {
        if !self.waits() && io.nic_backlog_bytes() <= self.packet_bytes {
            return self.hand(k, packet, io);
        }
        let queue = &mut self.queues[k];
        queue.bytes += u64::from(packet.0.bytes);
        queue.packets.push_back(packet);
        Ok(())
    }

    /// Hands packets to the link while it has room. Returns when it has room again, if more wait.
    pub fn serve(&mut self, io: &mut HostIo<'_, MixedPacket>) -> Ps {
        while self.waits() {
            if io.nic_backlog_bytes() > self.packet_bytes {
                let room_at = io.nic_free_at().saturating_sub(self.wire_ps(self.packet_bytes));
                return room_at.max(io.now() + NS);
            }
            let k = self.turn;
            let queue = &mut self.queues[k];
            match queue.packets.front() {
                Some((out, ..)) if u64::from(out.bytes) <= queue.credit => {
                    queue.credit -= u64::from(out.bytes);
                    queue.bytes -= u64::from(out.bytes);
                    if let Some(packet) = queue.packets.pop_front() {
                        // A link with little before it refuses nothing.
                        let _ = self.hand(k, packet, io);
                    }
                }
                front => {
                    // An empty queue saves nothing up.
                    if front.is_none() {
                        queue.credit = 0;
                    }
                    self.turn = (k + 1) % self.queues.len();
                    self.queues[self.turn].credit += self.packet_bytes;
                }
            }
        }
        Ps::MAX
    }

    /// Bytes of transport `k` that have not left.
    pub fn backlog_bytes(&self, k: usize, now: Ps) -> u64 {
        let queue = &self.queues[k];
        let bits_per_s = u128::from(self.bits_per_s);
        // Of a packet on the wire, what has not been sent.
        let left = |at: Ps| (u128::from(at - now) * bits_per_s / 8_000_000_000_000) as u64;
        let leaving = queue.leaving.iter().filter(|(at, _)| *at > now);
        queue.bytes + leaving.map(|(at, bytes)| left(*at).min(*bytes)).sum::<u64>()
    }

    /// When all packets of transport `k` will have left, as far as can be said now.
    pub fn free_at(&self, k: usize, io: &HostIo<'_, MixedPacket>) -> Ps {
        let queue = &self.queues[k];
        if queue.bytes == 0 {
            return queue.leaving.back().map_or(0, |(at, _)| *at);
        }
        // Before its last byte, each other queue has sent as much, or all it had.
        let bytes = self.queues.iter().map(|q| q.bytes.min(queue.bytes)).sum();
        io.nic_free_at() + self.wire_ps(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::packet::Of;
    use super::*;
    use srd_fabric::{Delivered, Host, HostId, Port, US, World, WorldConfig, back_to_back};
    use srd_rivals::{Ack, TcpSegment};

    /// Sends packets of two sizes through a card and notes their order at the other end.
    struct Two {
        card: Card,
        seen: Vec<(Ps, u8)>,
    }

    impl Host<MixedPacket> for Two {
        fn on_packet(
            &mut self,
            now: Ps,
            p: Delivered<MixedPacket>,
            _: &mut HostIo<'_, MixedPacket>,
        ) {
            self.seen.push((now, p.payload.group));
        }
        fn on_timer(&mut self, _: Ps, io: &mut HostIo<'_, MixedPacket>) {
            match self.card.serve(io) {
                Ps::MAX => io.timer_clear(),
                at => io.timer_set(at),
            }
        }
        fn on_call(&mut self, now: Ps, token: u64, io: &mut HostIo<'_, MixedPacket>) {
            let (group, bytes) = if token == 0 { (0, 1_000) } else { (1, 250) };
            for _ in 0..40 {
                let out = Outbound { dst: HostId(1), sport: 1, dport: 1, bytes, ect: false };
                let of = Of::Tcp(TcpSegment::Ack(Ack::default()));
                let packet = MixedPacket { group, of };
                self.card.send(group.into(), (out, Tag::default(), packet), io).expect("room");
            }
            self.on_timer(now, io);
        }
    }

    #[test]
    fn a_transport_with_little_is_not_stuck_behind_one_with_much() {
        let wire = back_to_back(Port::new(8_000_000_000, US));
        let host = |_| Two { card: Card::new(2, 8_000_000_000, 1_000), seen: Vec::new() };
        let mut world = World::new(wire, WorldConfig::new(1), host).unwrap();
        world.call_at(0, HostId(0), 0);
        world.call_at(1, HostId(0), 1);
        world.run_to_end();
        let seen = &world.hosts()[1].seen;
        assert_eq!(seen.len(), 80);
        // 40 small packets are 10 large ones' bytes: done after some 20 of these, not after 40.
        let last_small = seen.iter().rposition(|(_, group)| *group == 1).unwrap();
        assert!((48..=54).contains(&last_small), "{last_small}");
        // The link never idles: 50,000 bytes at a byte per ns, and 1 us.
        assert_eq!(seen[79].0, 51 * US);
    }
}
