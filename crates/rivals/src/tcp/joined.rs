//! The receiving end of a Multipath TCP connection: puts the chunks of its subflows together.

use crate::tcp::TcpConfig;
use crate::tcp::bundle::Chunk;
use srd_fabric::Ps;
use std::collections::BTreeMap;

/// The receiving end of a connection over several subflows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Joined {
    /// All bytes before this one have arrived.
    pub next: u64,
    /// Chunks after it, by their first byte.
    early: BTreeMap<u64, Chunk>,
    /// Arrival time of each message.
    pub arrivals: Vec<Ps>,
    pub samples: Vec<u64>,
    /// Chunks that had arrived on another subflow.
    pub duplicates: u64,
}

impl Joined {
    /// A chunk has arrived in the order of its subflow. Returns how many messages it completed.
    pub fn arrived(&mut self, now: Ps, chunk: Chunk, config: &TcpConfig) -> u32 {
        if chunk.dsn < self.next || self.early.contains_key(&chunk.dsn) {
            self.duplicates += 1;
            return 0;
        }
        self.early.insert(chunk.dsn, chunk);
        let before = (self.next, self.arrivals.len());
        while let Some(first) = self.early.first_entry().filter(|e| *e.key() <= self.next) {
            let chunk = first.remove();
            self.next = chunk.end();
            let messages = self.arrivals.len().max(chunk.messages as usize);
            self.arrivals.resize(messages, now);
        }
        if let Some(width) = config.sample_ps {
            let at = (now / width) as usize;
            if self.samples.len() <= at {
                self.samples.resize(at + 1, 0);
            }
            self.samples[at] += self.next - before.0;
        }
        (self.arrivals.len() - before.1) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_complete_when_all_before_them_has_arrived() {
        let chunk = |dsn: u64, messages| Chunk { dsn, len: 100, messages };
        let mut joined = Joined::default();
        let config = TcpConfig::default();
        assert_eq!(joined.arrived(1, chunk(100, 1), &config), 0);
        assert_eq!(joined.arrived(2, chunk(200, 1), &config), 0);
        assert_eq!(joined.arrived(3, chunk(100, 1), &config), 0, "again, on another subflow");
        assert_eq!(joined.arrived(4, chunk(300, 3), &config), 0);
        assert_eq!(joined.arrived(5, chunk(0, 0), &config), 3);
        assert_eq!(joined.arrived(6, chunk(0, 0), &config), 0);
        assert_eq!((joined.next, joined.duplicates), (400, 2));
        assert_eq!(joined.arrivals, [5, 5, 5]);
    }
}
