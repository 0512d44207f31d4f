//! What waits in the receive path of this host, and who is told.

use crate::api::RxWaiting;
use crate::engine::Engine;
use crate::events::Observer;
use crate::ids::Ctx;
use crate::time::{Span, Time};

impl<O: Observer> Engine<O> {
    /// Tells what waits between the network and the memory of this host: after packets have
    /// arrived, and when something has drained. It holds until told anew; an engine that is never
    /// told has a host that takes any rate. Where more waits than a threshold, those who send are
    /// told at once, and again when it has drained.
    pub fn rx_waiting(&mut self, now: Time, waiting: &RxWaiting) {
        self.shared.rx.host.tell(now, waiting);
        let rate = self.shared.rx.host.grant_rate();
        self.shared.rx.granter.drain_set(rate);
    }

    /// Bytes that wait at which senders are told that the host has caught up; `None` while it is
    /// not behind. Whoever can tell when no more than these wait calls [`Self::rx_waiting`] then.
    pub fn rx_waiting_below(&self) -> Option<u64> {
        self.shared.rx.host.catches_up_at()
    }

    /// After a crossing of the threshold, either way: an acknowledgment to everybody who sends is
    /// due at once. A bounded number of contexts per call.
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
