//! Messages of a connection, cut into numbered packets.

use std::collections::VecDeque;

/// A message that is not complete.
#[derive(Clone, Copy, Debug)]
struct Message {
    /// What it is part of, if it is the last part of it.
    tag: Option<u64>,
    bytes: u64,
    first: u64,
    packets: u64,
}

impl Message {
    const fn end(&self) -> u64 {
        self.first + self.packets
    }
}

/// A packet of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Bytes of payload.
    pub len: u32,
    /// It is the last packet of its message.
    pub last: bool,
}

/// Messages of a connection that are not complete, in order. Packets are numbered from 0.
#[derive(Clone, Debug, Default)]
pub(crate) struct Messages {
    queue: VecDeque<Message>,
    end: u64,
}

impl Messages {
    /// Adds a message; returns its number of packets, at least one. `tag` is told when it is
    /// complete.
    pub fn add(&mut self, tag: Option<u64>, bytes: u64, mtu: u32) -> u64 {
        let packets = bytes.div_ceil(mtu.into()).max(1);
        self.queue.push_back(Message { tag, bytes, first: self.end, packets });
        self.end += packets;
        packets
    }

    /// One past the last packet.
    pub const fn end(&self) -> u64 {
        self.end
    }

    /// Bytes of the queue.
    pub fn held_bytes(&self) -> usize {
        self.queue.capacity() * size_of::<Message>()
    }

    /// Number of messages that are not complete.
    pub fn count(&self) -> usize {
        self.queue.len()
    }

    /// One past the last packet of the first `most` messages; 0: of all.
    pub fn end_of(&self, most: usize) -> u64 {
        self.queue.get(most).filter(|_| most > 0).map_or(self.end, |m| m.first)
    }

    /// A packet; `None` if its message is complete or does not exist.
    pub fn part(&self, psn: u64, mtu: u32) -> Option<Part> {
        let at = self.queue.partition_point(|m| m.end() <= psn);
        let m = self.queue.get(at)?;
        let before = (psn - m.first) * u64::from(mtu);
        let len = (m.bytes - before.min(m.bytes)).min(mtu.into()) as u32;
        Some(Part { len, last: psn + 1 == m.end() })
    }

    /// Removes the messages that end at or before packet `end`, and tells their tags.
    pub fn complete(&mut self, end: u64, mut done: impl FnMut(u64)) {
        while let Some(m) = self.queue.front().filter(|m| m.end() <= end) {
            m.tag.into_iter().for_each(&mut done);
            self.queue.pop_front();
        }
    }

    /// Numbers the packets of what is not complete from 0 again.
    pub fn renumber(&mut self) {
        self.end = 0;
        for m in &mut self.queue {
            m.first = self.end;
            self.end += m.packets;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_cut_and_completed_in_order() {
        let mut m = Messages::default();
        assert_eq!(
            [m.add(None, 250, 100), m.add(Some(7), 0, 100), m.add(Some(8), 200, 100)],
            [3, 1, 2]
        );
        let parts: Vec<_> = (0..7).map(|psn| m.part(psn, 100).map(|p| (p.len, p.last))).collect();
        let part = |len, last| Some((len, last));
        assert_eq!(parts[..3], [part(100, false), part(100, false), part(50, true)]);
        assert_eq!(parts[3..], [part(0, true), part(100, false), part(100, true), None]);
        assert_eq!((m.end(), m.end_of(0), m.end_of(1), m.end_of(2), m.end_of(3)), (6, 6, 3, 4, 6));
        let mut done = Vec::new();
        m.complete(5, |tag| done.push(tag));
        assert_eq!((done, m.count()), (vec![7], 1));
        m.renumber();
        assert_eq!((m.end(), m.part(1, 100).map(|p| p.last)), (2, Some(true)));
    }
}
