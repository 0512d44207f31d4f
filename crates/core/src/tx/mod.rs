//! Sending of work requests: scheduling, segmentation, building packets, acknowledgment, loss, and
//! recall of packets that exceed the path MTU.

mod acked;
mod alone;
mod cut;
mod emit;
mod host;
mod loss;
mod recall;
mod schedule;

pub(crate) use loss::Silence;

use crate::api::{Transmit, TxSink};

/// The output of one poll: its sink, and how many more packets it may take.
pub(crate) struct Out<'a, S> {
    pub sink: &'a mut S,
    pub left: usize,
    pub sent: usize,
}

impl<S: TxSink> Out<'_, S> {
    #[inline(always)]
    pub fn push(&mut self, t: &Transmit<'_>) {
        debug_assert!(self.left > 0, "no more than was asked for");
        self.left -= 1;
        self.sent += 1;
        self.sink.push(t);
    }
}
