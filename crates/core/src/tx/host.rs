//! Sending to a peer whose host drains less than one of our packets per round trip.

use crate::events::Observer;
use crate::lane::Lane;
use crate::time::Time;
use crate::tuning::HOST_PAUSE_RTTS_MAX;

impl<O: Observer> Lane<'_, O> {
    /// When the next packet may leave, with nothing in flight, to a peer whose host grants a budget
    /// of `budget` bytes in flight, less than a packet: after (packet size / budget) round trips,
    /// up to a maximum. `None`: now.
    /// Rule CC-30.
    pub(crate) fn host_pause(&self, budget: u64) -> Option<Time> {
        if !self.signalling() {
            return None;
        }
        let rtt = self.way.paths.host_rtt();
        let pause = rtt.scale(u64::from(self.mtu_of()), budget.max(1));
        let pause = pause.min(rtt.scale(HOST_PAUSE_RTTS_MAX, 1));
        let at = self.win.loss.last_sent() + pause;
        (at > self.now).then_some(at)
    }
}
