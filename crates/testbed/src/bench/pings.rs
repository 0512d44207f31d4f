//! Small round-trip messages to a host, one at a time, beside the flows of a measurement.

use super::{protocol::Run, times::Timed};

/// Bytes of a small message, which holds its sending time; every block is longer.
pub const PING_BYTES: usize = 8;
/// Shortest interval between two messages, in ns.
const EVERY_NS: u64 = 5_000_000;
/// Longest wait for an answer before the next message is sent, in ns. A later answer still counts.
const PATIENCE_NS: u64 = 1_000_000_000;

/// Schedule of the small messages, and their round-trip times.
#[derive(Debug, Default)]
pub struct Pings {
    next_ns: u64,
    asked_ns: u64,
    waits: bool,
    /// Round-trip times.
    pub times: Timed,
}

impl Pings {
    /// When the next message is due in this run; `None` if the run ends before that.
    pub fn due_ns(&self, run: &Run) -> Option<u64> {
        let patience = if self.waits { self.asked_ns + PATIENCE_NS } else { 0 };
        let at = self.next_ns.max(patience).max(run.start_ns);
        (at < run.stop_ns).then_some(at)
    }

    /// Returns the message to send now, and schedules the next one.
    pub fn ask(&mut self, now_ns: u64) -> [u8; PING_BYTES] {
        (self.next_ns, self.asked_ns, self.waits) = (now_ns + EVERY_NS, now_ns, true);
        now_ns.to_le_bytes()
    }

    /// Records the round trip of an answer that has arrived.
    pub fn answered(&mut self, now_ns: u64, message: [u8; PING_BYTES]) {
        let asked_ns = u64::from_le_bytes(message);
        self.waits &= asked_ns != self.asked_ns;
        self.times.note(now_ns, now_ns.saturating_sub(asked_ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_message_is_under_way_at_a_time() {
        let run = Run {
            run: 1,
            start_ns: 1_000,
            block_bytes: 100,
            blocks: 0,
            last_bytes: 0,
            stop_ns: 3_000_000_000,
            pace_ns: 0,
        };
        let mut pings = Pings::default();
        pings.times.begin(0, u64::MAX);
        assert_eq!(pings.due_ns(&run), Some(1_000));
        let first = pings.ask(1_500);
        assert_eq!(pings.due_ns(&run), Some(1_500 + PATIENCE_NS), "no answer yet");
        pings.answered(40_000, first);
        assert_eq!(pings.due_ns(&run), Some(1_500 + EVERY_NS));
        let lost = pings.ask(6_000_000);
        let third = pings.ask(1_006_000_000);
        pings.answered(1_007_000_000, lost);
        assert_eq!(pings.due_ns(&run), Some(1_006_000_000 + PATIENCE_NS), "late, of another");
        pings.answered(1_008_000_000, third);
        assert_eq!(pings.times.times.count(), 3);
        assert_eq!(pings.due_ns(&Run { stop_ns: 1_010_000_000, ..run }), None, "over by then");
    }
}
