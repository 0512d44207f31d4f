//! Reports of the receive queue of this host, and the signal to senders that the host falls behind.

use crate::api::RxWaiting;
use crate::engine::Engine;
use crate::events::Observer;
use crate::ids::Ctx;
use crate::time::{Span, Time};

impl<O: Observer> Engine<O> {
    /// Reports what waits between the network and the memory of this host. To be called after
    /// packets have arrived and after the queue has drained. A report holds until the next one;
    /// without any report the host is taken to keep up with any rate. When the queue crosses a
    /// threshold, in either direction, the senders are told at once.
    pub fn rx_waiting(&mut self, now: Time, waiting: &RxWaiting) {
        self.shared.rx.host.tell(now, waiting);
        let rate = self.shared.rx.host.grant_rate();
        self.shared.rx.granter.drain_set(rate);
    }

    /// Queue length in bytes at which senders are told that the host has caught up; `None` while it
    /// is not behind. A driver that can observe when the queue has drained to this length calls
    /// [`Self::rx_waiting`] then.
    pub fn rx_waiting_below(&self) -> Option<u64> {
        self.shared.rx.host.catches_up_at()
    }

    /// Makes acknowledgments to all current senders due at once after the queue has crossed the
    /// threshold, for a bounded number of contexts per call.
    /// Rule CC-29.
    pub(crate) fn host_crossing_tell(&mut self, now: Time) {
        let contexts = self.shared.rx.flows.contexts();
        let Some(range) = self.shared.rx.host.tell_take(contexts) else { return };
        for ci in range.map(|i| Ctx(i as u32)) {
            if self.shared.rx.flows.is_sharing(ci)
                && let Some(mut lane) = self.lane_find(now, ci)
                && lane.signalling()
            {
                lane.win.ack.hasten(now, Span::ZERO);
                lane.ack_schedule();
            }
        }
    }
}
